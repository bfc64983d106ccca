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

use maud::{Markup, html};

use super::clock::Clock;
use super::shell::{self, Part, Shell};
use super::{Report, words};

/// A report, and the other facts on its page.
pub struct View<'a> {
    pub report: &'a Report,
    pub clock: &'a Clock,
    /// The command that reads the same recording, if known: `numatop-ng report DIR`. Clean.
    pub command: String,
}

fn sections(view: &View<'_>) -> Vec<Part> {
    let report = view.report;
    let counted = findings::counted(report);
    let mut all = vec![Part {
        word: format!("Findings ({counted})"),
        ..Part::new("findings", "Findings", findings::content(view))
    }];
    all.push(Part::new("timeline", "Timeline", timeline::content(view)));
    if report.has_nodes() {
        all.push(Part::new("nodes", "From node to node", nodes::content(view)));
    }
    all.push(Part::new("machine", "The machine", machine::content(view)));
    all.push(Part::new("programs", "Programs", tables::programs(view)));
    if !report.containers.rows.is_empty() {
        all.push(Part::new("containers", "Containers", tables::containers(view)));
    }
    if let Some(hot) = &report.hot {
        all.push(Part::new("hot", "Hot spots", hot::content(hot)));
    }
    all.push(Part::new("missing", "What is missing", missing::content(view)));
    all
}

/// The page.
pub fn render(view: &View<'_>) -> String {
    shell::render(&Shell {
        title: words::title(view.report, view.clock),
        subtitle: subtitle(view),
        summary: summary::content(view),
        parts: sections(view),
        command: &view.command,
        data: Some(data::text(view)),
    })
}

fn subtitle(view: &View<'_>) -> Markup {
    html! { p.sub { (words::subtitle(view.report, view.clock)) } }
}
