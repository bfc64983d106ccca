//! Keys in documents: each is in the table of keys, beside a word of its meaning.

use std::path::Path;

use numatop_ng::tui::input::keymap::KEYS;

/// A key as documents write it.
const OPEN: &str = "<kbd>";
const CLOSE: &str = "</kbd>";

/// The paragraphs of a document, one line each; rows of tables and lines of code are their own.
fn units(text: &str) -> Vec<String> {
    let mut units = vec![String::new()];
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || ["|", "* ", "```", "#"].iter().any(|mark| line.starts_with(mark)) {
            units.push(String::new());
        }
        let unit = units.last_mut().unwrap();
        *unit += line;
        unit.push(' ');
    }
    units
}

/// The beginnings of the words that carry meaning: `matrices` is `matr`, as `matrix` is.
fn words(text: &str) -> Vec<String> {
    text.to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 3)
        .map(|word| word.chars().take(4).collect())
        .collect()
}

/// The meanings of a key, each with that of the line before where help describes both there.
fn meanings(name: &str) -> Vec<String> {
    let is_named = |at: usize| KEYS[at].keys.iter().any(|key| key.name() == name);
    let meaning = |at: usize| {
        let described = (0..=at).rev().find(|at| !KEYS[*at].help.is_empty()).unwrap_or(at);
        format!("{} {}", KEYS[at].label, KEYS[described].help)
    };
    (0..KEYS.len()).filter(|at| is_named(*at)).map(meaning).collect()
}

/// The complaint about a sentence that names a key, if any.
fn complaint(sentence: &str) -> Option<String> {
    let said = words(&sentence.replace(OPEN, " ").replace(CLOSE, " "));
    sentence.split(OPEN).skip(1).filter_map(|rest| rest.split(CLOSE).next()).find_map(|name| {
        let name = name.replace("&lt;", "<").replace("&gt;", ">");
        let meanings = meanings(&name);
        if meanings.is_empty() {
            return Some(format!("no key '{name}': {sentence}"));
        }
        let fits = meanings.iter().any(|meaning| words(meaning).iter().any(|word| said.contains(word)));
        (!fits).then(|| format!("'{name}' is {}: {sentence}", meanings.join("; ")))
    })
}

#[test]
fn keys_of_documents_exist_and_mean_what_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for page in pages.chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&page).unwrap();
        for unit in units(&text) {
            // A row of a table is read as one, and so is a sentence about a key that ends sentences.
            let whole = unit.starts_with('|') || unit.contains("<kbd>?");
            let parts =
                if whole { vec![unit.as_str()] } else { unit.split_inclusive(['.', '?', ';']).collect() };
            let sentences: Vec<&str> = parts.into_iter().filter(|part| part.contains(OPEN)).collect();
            looked_at += sentences.len();
            wrong.extend(sentences.into_iter().filter_map(complaint));
            // A letter in backquotes is taken for a key, and is not checked.
            let quoted = unit.split('`').skip(1).step_by(2);
            let letters = quoted.filter(|text| text.len() == 1 && text.chars().all(char::is_alphabetic));
            wrong.extend(letters.map(|letter| format!("{OPEN}{letter}{CLOSE}, not `{letter}`: {unit}")));
        }
    }
    assert!(looked_at > 30, "{looked_at} sentences with keys");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_key_that_moved_is_found() {
    assert!(complaint("Press <kbd>p</kbd> for hot spots.").is_none());
    assert!(complaint("Press <kbd>h</kbd> for hot spots.").is_some());
    assert!(complaint("Press <kbd>F12</kbd> for hot spots.").is_some());
}
