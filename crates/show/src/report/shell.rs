//! The frame of every page: head with the policy, navigation, parts, style and script. A page is one file that loads nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style, and the script with its hash for the policy of the page. Beside the data, the only text that is not escaped.
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// SHA-256 of the script; tests/program/report.rs compares them.
pub const SCRIPT_HASH: &str = include_str!("script.sha256");

/// A part of a page.
pub struct Part {
    /// Its address in the page.
    pub id: &'static str,
    pub title: &'static str,
    /// Its word in the navigation.
    pub word: String,
    pub content: Markup,
}

impl Part {
    /// A part whose title is in the navigation, too.
    pub fn new(id: &'static str, title: &'static str, content: Markup) -> Part {
        Part { id, title, word: title.to_owned(), content }
    }
}

/// A page without its frame.
pub struct Shell<'a> {
    pub title: String,
    /// Below the title.
    pub subtitle: Markup,
    /// The first part, without a heading.
    pub summary: Markup,
    pub parts: Vec<Part>,
    /// The command that makes it again, if known. Clean.
    pub command: &'a str,
    /// Numbers for the script: JSON in which no character ends the block.
    pub data: Option<String>,
}

/// The policy: nothing is loaded, and no script but ours runs.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        SCRIPT_HASH.trim()
    )
}

/// The page.
pub fn render(shell: &Shell<'_>) -> String {
    let Shell { title, subtitle, summary, parts, command, data } = shell;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(format!("numatop-ng {}", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    (subtitle)
                }
                nav aria-label="Parts of this page" {
                    a href="#summary" { "Summary" }
                    @for part in parts {
                        a href=(format!("#{}", part.id)) { (part.word) }
                    }
                    span.tools {
                        button type="button" id="theme" hidden { "Theme: auto" }
                        button type="button" id="print" hidden { "Print" }
                    }
                }
                main {
                    section id="summary" aria-label="Summary" { (summary) }
                    @for part in parts {
                        section id=(part.id) {
                            h2 { (part.title) }
                            (part.content)
                        }
                    }
                }
                footer {
                    p {
                        "Made by numatop-ng " (env!("CARGO_PKG_VERSION"))
                        @if !command.is_empty() { " from " code { (command) } }
                        ". This file loads nothing from the network."
                    }
                }
                @if let Some(data) = data { script type="application/json" id="data" { (PreEscaped(data)) } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}
