//! The details of a finding in lines of a width: its sections with their words in front, commands whole.

use unicode_width::UnicodeWidthStr;

use crate::finding::details::{Content, Paragraph, Row, Section};
use crate::text::{hanging, words};
use crate::tui::theme::Role;

/// Cells before the text of a section that has a word in front.
pub(super) const INDENT: usize = 13;
/// Cells of a value, its error, and its limit in the table of the evidence.
const NUMBER: usize = 10;

/// One line: the word at its left, its text, and how the text looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Empty after the first line of a section; `None` for lines that begin at the left.
    pub(super) word: Option<&'static str>,
    pub(super) text: String,
    pub(super) role: Role,
}

impl Line {
    /// A line from the left end on.
    pub(super) fn whole(text: impl Into<String>, role: Role) -> Line {
        Line { word: None, text: text.into(), role }
    }
}

/// A text in lines of at most `width` cells.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    hanging("", words(text), width).lines().map(str::to_owned).collect()
}

/// The lines of these paragraphs at this width.
pub(super) fn lines(paragraphs: &[Paragraph], width: u16) -> Vec<Line> {
    let width = usize::from(width.saturating_sub(1));
    let mut lines = Vec::new();
    let mut last = None;
    for paragraph in paragraphs {
        let is_first = last.replace(paragraph.section) != Some(paragraph.section);
        let title = title(paragraph.section);
        let room = if title.is_some() { width.saturating_sub(INDENT).max(20) } else { width };
        let (texts, role) = match &paragraph.content {
            Content::Words(text) => {
                let role = if paragraph.section == Section::Head { Role::Title } else { Role::Plain };
                (wrapped(text, room), role)
            }
            Content::Line(command) => (pieces(command, room), Role::Key),
            Content::Row(row) => {
                if is_first {
                    lines.push(Line::whole(titles(width), Role::Dim));
                }
                (vec![evidence(row, width)], Role::Plain)
            }
        };
        for (at, text) in texts.into_iter().enumerate() {
            let word = title.map(|title| if is_first && at == 0 { title } else { "" });
            lines.push(Line { word, text, role });
        }
    }
    lines
}

/// The word in front of a section; `None` where it has the whole width.
fn title(section: Section) -> Option<&'static str> {
    Some(match section {
        Section::Head | Section::Sentence | Section::Evidence => return None,
        Section::Gain => "GAIN",
        Section::Type => "RUN",
        Section::Undo => "UNDO",
        Section::Check => "CHECK",
        Section::Stop => "ROLL BACK IF",
        Section::Risk => "RISK",
        Section::Else => "OTHER CAUSES",
    })
}

/// A command in pieces of a width, those after the first two cells to the right: it is one line, which is copied whole.
fn pieces(command: &str, room: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut rest = command;
    loop {
        let indent = if pieces.is_empty() { "" } else { "  " };
        let room = room.saturating_sub(indent.len()).max(1);
        if rest.width() <= room {
            pieces.push(format!("{indent}{rest}"));
            return pieces;
        }
        let fits = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
        let at = rest[..fits].rfind(' ').map_or(fits, |at| at + 1);
        pieces.push(format!("{indent}{}", rest[..at].trim_end()));
        rest = &rest[at..];
    }
}

/// Cells for the metric and the object of a line of the evidence.
fn object(width: usize) -> usize {
    width.saturating_sub(3 * (NUMBER + 1) + 2).clamp(20, 44)
}

fn titles(width: usize) -> String {
    let object = object(width);
    format!("{:object$} {:>NUMBER$} {:>NUMBER$} {:>NUMBER$}", "EVIDENCE", "VALUE", "ERROR", "LIMIT")
}

fn evidence(row: &Row, width: usize) -> String {
    let object = object(width) - 2;
    let (value, error, limit) = (&row.value, &row.error, &row.limit);
    let line =
        format!("  {:object$} {value:>NUMBER$} {error:>NUMBER$} {limit:>NUMBER$}  {}", row.what, row.note);
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_at_spaces_and_hangs() {
        let command = "docker update --cpuset-cpus 64-79 --cpuset-mems 8-9 3c0f6a4c2b9f";
        let cut = pieces(command, 40);
        assert_eq!(cut, ["docker update --cpuset-cpus 64-79", "  --cpuset-mems 8-9 3c0f6a4c2b9f"]);
        assert_eq!(pieces("x".repeat(50).as_str(), 40), ["x".repeat(40), format!("  {}", "x".repeat(10))]);
        assert_eq!(pieces("short", 40), ["short"]);
    }

    #[test]
    fn evidence_keeps_its_columns() {
        let row = Row {
            what: "irq_pct, node 0".into(),
            value: "14.2 %".into(),
            error: "0.1".into(),
            limit: "10.0 %".into(),
            note: "",
        };
        assert_eq!(evidence(&row, 79).width(), titles(79).width());
    }
}
