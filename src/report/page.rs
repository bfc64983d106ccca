//! The page: one file of HTML and SVG that is complete without script and loads nothing.

mod data;
mod findings;
mod hot;
mod machine;
mod missing;
mod nodes;
mod parts;
mod summary;
mod tables;
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::clock::Clock;
use super::{Report, words};

/// The style, and the script with its hash for the policy of the page. Beside the data, the only text that is not escaped.
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// SHA-256 of the script; tests/report.rs compares them.
pub const SCRIPT_HASH: &str = include_str!("script.sha256");

/// A report, and all that a page says beside it.
pub struct View<'a> {
    pub report: &'a Report,
    pub clock: &'a Clock,
    /// The command that reads the same recording, as far as it is known: `numatop-ng report DIR`. Clean.
    pub command: String,
}

/// A part of the page, with the word in the navigation.
struct Section {
    id: &'static str,
    title: &'static str,
    word: String,
    content: Markup,
}

fn sections(view: &View<'_>) -> Vec<Section> {
    let report = view.report;
    let counted = findings::counted(report);
    let section = |id, title: &'static str, content| Section { id, title, word: title.to_owned(), content };
    let mut all = vec![Section {
        word: format!("Findings ({counted})"),
        ..section("findings", "Findings", findings::content(view))
    }];
    all.push(section("timeline", "Timeline", timeline::content(view)));
    if report.has_nodes() {
        all.push(section("nodes", "From node to node", nodes::content(view)));
    }
    all.push(section("machine", "The machine", machine::content(view)));
    all.push(section("programs", "Programs", tables::programs(view)));
    if !report.containers.rows.is_empty() {
        all.push(section("containers", "Containers", tables::containers(view)));
    }
    if let Some(hot) = &report.hot {
        all.push(section("hot", "Hot spots", hot::content(hot)));
    }
    all.push(section("missing", "What is missing", missing::content(view)));
    all
}

/// The policy: nothing is loaded, and no script but ours runs.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        SCRIPT_HASH.trim()
    )
}

/// The page.
pub fn render(view: &View<'_>) -> String {
    let title = words::title(view.report, view.clock);
    let sections = sections(view);
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
                    p.sub { (words::subtitle(view.report, view.clock)) }
                }
                nav aria-label="Parts of this page" {
                    a href="#summary" { "Summary" }
                    @for section in &sections {
                        a href=(format!("#{}", section.id)) { (section.word) }
                    }
                    span.tools {
                        button type="button" id="theme" hidden { "Theme: auto" }
                        button type="button" id="print" hidden { "Print" }
                    }
                }
                main {
                    section id="summary" aria-label="Summary" { (summary::content(view)) }
                    @for section in &sections {
                        section id=(section.id) {
                            h2 { (section.title) }
                            (section.content)
                        }
                    }
                }
                footer {
                    p {
                        "Made by numatop-ng " (env!("CARGO_PKG_VERSION"))
                        @if !view.command.is_empty() { " from " code { (view.command) } }
                        ". This file loads nothing from the network."
                    }
                }
                script type="application/json" id="data" { (PreEscaped(data::text(view))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}
