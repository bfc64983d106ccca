//! Comments and module documents begin with their subject: no sentence begins with one of a few words that
//! force a second reading. Phrases for which English has common words stay rare.

use std::path::{Path, PathBuf};

/// Words with which no sentence of a comment begins.
const FIRST: [&str; 6] = ["What", "Who", "Whoever", "Those", "Which", "How"];

/// Phrases that are seldom the common words for something, and how many a thousand words of comments may have.
const ODD: [&str; 14] = [
    "nobody",
    "somebody",
    "whoever",
    "told",
    "said",
    "that which",
    "of which",
    "of its own",
    "as it is",
    "no more",
    "goes on",
    "so many",
    "once more",
    "anew",
];
const ODD_IN_THOUSAND: usize = 1;

/// Folders whose sources are read, from the root of the repository.
const FOLDERS: [&str; 7] = ["bpf", "src", "crates", "tests", "benches", "vmtests", "fuzz"];

/// Folders below them that are left out: built.
const LEFT_OUT: [&str; 1] = ["target"];

fn sources(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if LEFT_OUT.iter().any(|left_out| path.ends_with(left_out)) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| ["rs", "c", "h"].iter().any(|known| kind == *known)) {
            found.push(path);
        }
    }
}

/// The text of a line that is a comment, without its marks.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let marks = ["//!", "///", "//", "/**", "/*", "* "];
    let mark = marks.iter().find(|mark| line.starts_with(**mark))?;
    Some(line[mark.len()..].trim_start())
}

/// Whether a sentence begins in this line with one of the words.
fn is_wrong(text: &str) -> bool {
    let begins = |rest: &str| {
        FIRST.iter().any(|word| rest.strip_prefix(word).is_some_and(|rest| rest.starts_with(' ')))
    };
    let later = text.match_indices(". ").any(|(at, end)| begins(&text[at + end.len()..]));
    begins(text) || later
}

#[test]
fn sentences_of_comments_begin_with_their_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root.join(folder), &mut found));
    assert!(found.len() > 300, "the source was not found");
    let mut wrong = Vec::new();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            if comment(line).is_some_and(is_wrong) {
                let path = path.strip_prefix(root).unwrap();
                wrong.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "the subject comes first (CONTRIBUTING.md):\n{}", wrong.join("\n"));
}

#[test]
fn a_question_is_no_module_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root.join(folder), &mut found));
    let mut wrong = Vec::new();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let document: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        if document.iter().any(|line| line.trim_end().ends_with('?') || line.contains("? ")) {
            wrong.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
    assert!(wrong.is_empty(), "a document is a noun phrase (CONTRIBUTING.md):\n{}", wrong.join("\n"));
}

/// Occurrences of odd phrases as whole words.
fn odd(text: &str) -> usize {
    let words = text.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty());
    let text = format!(" {} ", words.collect::<Vec<_>>().join(" "));
    ODD.iter().map(|phrase| text.matches(&format!(" {phrase} ")).count()).sum()
}

#[test]
fn odd_phrases_are_rare_in_comments() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in FOLDERS {
        let mut found = Vec::new();
        sources(&root.join(folder), &mut found);
        let (mut words, mut lines) = (0, Vec::new());
        for path in found {
            let text = std::fs::read_to_string(&path).unwrap();
            for comment in text.lines().filter_map(comment) {
                words += comment.split_whitespace().count();
                lines.extend(vec![format!("{}: {comment}", path.display()); odd(comment)]);
            }
        }
        let most = (words * ODD_IN_THOUSAND / 1000).max(1);
        assert!(lines.len() <= most, "{} of {most} in {folder}/:\n{}", lines.len(), lines.join("\n"));
    }
}

#[test]
fn odd_phrases_are_whole_words() {
    assert_eq!(odd("It goes on, once more."), 2);
    assert_eq!(odd("Renewed; nobodys."), 0);
}

#[test]
fn a_wrong_sentence_is_found_and_a_right_one_is_not() {
    let wrong = |line| comment(line).is_some_and(is_wrong);
    assert!(wrong("    /// What is read."));
    assert!(wrong(" * It is read. Those are not."));
    assert!(!wrong("    /// The fields that are read, and what they mean."));
    assert!(!wrong("let x = \"What is read.\";"));
    assert!(!wrong("// Whatever is read."));
}
