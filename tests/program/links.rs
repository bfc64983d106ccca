//! Links between documents: each file and each heading that one names exists, and the book has every page.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no documents of ours.
const LEFT_OUT: [&str; 3] = ["target", ".git", "node_modules"];

fn documents(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            if !LEFT_OUT.iter().any(|left_out| path.ends_with(left_out)) {
                documents(&path, found);
            }
        } else if path.extension().is_some_and(|kind| kind == "md") {
            found.push(path);
        }
    }
}

/// Text outside of code.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            out.extend(line.split('`').step_by(2));
            out.push('\n');
        }
    }
    out
}

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn has_heading(text: &str, wanted: &str) -> bool {
    text.lines()
        .filter_map(|line| line.strip_prefix('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

#[test]
fn links_of_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    documents(root, &mut found);
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        for target in prose(&text).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            looked_at += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let there = to.exists()
                && (heading.is_empty() || has_heading(&fs::read_to_string(&to).unwrap_or_default(), heading));
            if !there {
                wrong.push(format!("{}: {target}", path.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(looked_at > 80, "{looked_at} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let mut pages: Vec<String> = fs::read_dir(&docs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    listed.sort_unstable();
    pages.sort_unstable();
    assert_eq!(listed, pages);
}
