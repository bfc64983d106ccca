//! The list of findings, one of them in full, in lines of a width with commands whole, and the rules without data.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::finding::details::{self, Content, DetailRow, Paragraph, Section};
use crate::finding::{Blind, Finding, Severity, State as Stage, text as of_findings};
use crate::text::quantity::length;
use crate::text::{hanging, plural, without_attempt, without_codes, words};
use crate::tui::history::conclusions::Conclusions;
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::cursor::Cursor;
use crate::tui::widgets::pen::Pen;

/// Cells of the columns: title of the rule, subject, time, gain, confidence.
const FINDING: u16 = 41;

const WHERE: u16 = 15;

const SINCE: u16 = 6;

const GAIN: u16 = 11;

const CONFIDENCE: u16 = 10;

/// From this width on the subject has more room, and confidence and evidence have a column.
const WIDE: u16 = 120;

const WHERE_WIDE: u16 = 30;

/// Cells of the id of a rule among the blind spots.
const RULE: usize = 25;

/// The order in which the parts of the selected finding get room below the list.
const BY_WEIGHT: [Section; 9] = [
    Section::Head,
    Section::Sentence,
    Section::Type,
    Section::Check,
    Section::Gain,
    Section::Undo,
    Section::Stop,
    Section::Risk,
    Section::Else,
];

/// The lines of the list itself, below its titles: the selected finding keeps more than half of the room.
pub(super) fn rows_of(area: Rect, rows: usize) -> Rect {
    let most = (area.height.saturating_sub(2) / 3).max(3);
    let height = (rows.max(1) as u16).min(most).min(area.height.saturating_sub(1));
    Rect { y: area.y + 1.min(area.height), height, ..area }
}

/// The list, and the selected finding in short.
pub(super) fn list(rows: &[Finding], cursor: &Cursor<u64>, state: &State, area: Rect, buf: &mut Buffer) {
    let (theme, now) = (&state.theme, &state.conclusions);
    titles(theme, area, buf);
    let lines = rows_of(area, rows.len());
    for (row, (at, finding)) in (0..lines.height).zip(rows.iter().enumerate().skip(cursor.offset())) {
        one(finding, at == cursor.at(), theme, lines, row, buf);
    }
    if rows.is_empty() {
        let mut pen = Pen::new(buf, lines, 0, theme.glyphs.ellipsis);
        pen.gap(1).write(&nothing(now), theme.style(Role::Plain));
        return;
    }
    let below = Rect { y: lines.bottom(), height: area.bottom().saturating_sub(lines.bottom()), ..area };
    let Some(room) = below.height.checked_sub(2) else { return };
    let mut pen = Pen::new(buf, below, 0, theme.glyphs.ellipsis);
    pen.repeat(theme.glyphs.horizontal, area.width, theme.style(Role::Dim));
    if let Some(finding) = rows.get(cursor.at()) {
        let lines = lines_of_details(&in_short(finding), area.width);
        write_lines(&lines, 0, theme, Rect { y: below.y + 1, height: room, ..below }, buf);
    }
    let mut pen = Pen::new(buf, below, below.height - 1, theme.glyphs.ellipsis);
    pen.gap(1).write(&ran(now), theme.style(Role::Dim));
}

/// The parts of a finding without its evidence, the most important ones first.
fn in_short(finding: &Finding) -> Vec<Paragraph> {
    let all = details::details(finding);
    let of = |section| all.iter().filter(move |paragraph| paragraph.section == section).cloned();
    BY_WEIGHT.into_iter().flat_map(of).collect()
}

/// The text of an empty list.
fn nothing(now: &Conclusions) -> String {
    format!("{} {}", now.verdict.words(), ran(now))
}

/// The rules that ran, and the way to the others, which lack data.
fn ran(now: &Conclusions) -> String {
    let verdict = &now.verdict;
    let more = if verdict.summary.could_look < verdict.summary.rules { " v lists the reasons." } else { "" };
    format!("{}{more}", verdict.rules())
}

fn titles(theme: &Theme, area: Rect, buf: &mut Buffer) {
    let style = theme.style(Role::Header);
    let subject = subject_width(area.width);
    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    pen.repeat(' ', area.width, style).column(area.x, 2);
    pen.write("FINDING", style).column(area.x, 2 + FINDING + 1);
    pen.write("WHERE", style).column(area.x, 2 + FINDING + 1 + subject + 1);
    pen.write_right("SINCE", SINCE, style).gap(1).write_right("GAIN (CPUs)", GAIN, style);
    if area.width >= WIDE {
        pen.gap(1).write("CONFIDENCE", style).gap(1).write("EVIDENCE", style);
    }
}

fn subject_width(width: u16) -> u16 {
    if width >= WIDE { WHERE_WIDE } else { WHERE }
}

/// One line of the list.
fn one(finding: &Finding, selected: bool, theme: &Theme, area: Rect, row: u16, buf: &mut Buffer) {
    let (ended, symptom) = (finding.state == Stage::Ended, finding.is_symptom());
    let recedes = ended || symptom || finding.severity == Severity::Info;
    let role = if recedes { Role::Dim } else { Role::Plain };
    let style = theme.style(if selected { Role::Selected } else { role });
    let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
    if selected {
        pen.repeat(' ', area.width, style).column(area.x, 0);
    }
    let suspected = finding.state == Stage::Pending;
    let mark = match (suspected, ended || symptom) {
        (true, _) => '?',
        (_, true) => ' ',
        _ => finding.severity.mark(),
    };
    let of_mark = if selected { Role::Selected } else { Role::of(finding.severity) };
    pen.repeat(mark, 1, theme.style(of_mark)).gap(1);
    let title = match (ended, symptom) {
        (true, _) => format!("ended: {}", finding.title),
        (_, true) => format!("  {}", finding.title),
        _ => finding.title.to_owned(),
    };
    let subject = subject_width(area.width);
    pen.write_within(&title, FINDING, style).column(area.x, 2 + FINDING + 1);
    pen.write_within(&finding.identity.label, subject, style).column(area.x, 2 + FINDING + 1 + subject + 1);
    pen.write_right(&length(finding.held_ns), SINCE, style).gap(1);
    let gain = &finding.advice.gain;
    let is_none = finding.advice.commands.is_empty() && gain.at_most.or(gain.at_least).is_none();
    let gain = if is_none { "-".to_owned() } else { of_findings::gain_short(gain) };
    pen.write_right(&gain, GAIN, style);
    if area.width >= WIDE {
        pen.gap(1).write(finding.confidence.name(), style);
        pen.column(area.x, 2 + FINDING + 1 + subject + 1 + SINCE + 1 + GAIN + 1 + CONFIDENCE + 1);
        if let Some(row) = details::rows(finding).first() {
            pen.write(&format!("{} {}", row.what, row.value), style);
        }
    }
}

/// A finding in full.
pub(super) fn whole(finding: &Finding, first: usize, theme: &Theme, area: Rect, buf: &mut Buffer) {
    write_lines(&lines_of(finding, area.width), first, theme, area, buf);
}

/// The lines of a finding in full.
pub(super) fn lines_of(finding: &Finding, width: u16) -> Vec<Line> {
    lines_of_details(&details::details(finding), width)
}

/// Rules without data, and why.
pub(super) fn blind_spots(now: &Conclusions, first: usize, theme: &Theme, area: Rect, buf: &mut Buffer) {
    write_lines(&lines_of_blind_spots(now, area.width), first, theme, area, buf);
}

/// The lines of [`blind_spots`].
pub(super) fn lines_of_blind_spots(now: &Conclusions, width: u16) -> Vec<Line> {
    let (rules, could) = (now.verdict.summary.rules, now.verdict.summary.could_look);
    let mut title = match rules.saturating_sub(could) {
        0 => format!("Rules without data: 0 of {rules}"),
        lacking => format!("Rules without data: {lacking} of {rules}"),
    };
    match now.blind.iter().filter(|blind| blind.subjects.is_some()).count() {
        0 => {}
        some => title += &format!(", {some} for some subjects"),
    }
    let mut lines = vec![Line::whole(title, Role::Title)];
    lines.push(Line::whole(format!("{:RULE$} WHY, AND REMEDY", "RULE"), Role::Header));
    let room = usize::from(width).saturating_sub(RULE + 2).max(20);
    for blind in now.blind.iter() {
        let mut left = blind.id;
        for text in wrapped(&why(blind), room) {
            lines.push(Line::whole(format!("{:RULE$} {text}", std::mem::take(&mut left)), Role::Plain));
        }
    }
    lines
}

fn why(blind: &Blind) -> String {
    let words = without_codes(without_attempt(&blind.words));
    match blind.subjects {
        None => words,
        Some(some) => format!("no data for {}: {words}", plural(some, "subject")),
    }
}

fn write_lines(lines: &[Line], first: usize, theme: &Theme, area: Rect, buf: &mut Buffer) {
    for (row, line) in (0..area.height).zip(lines.iter().skip(first)) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        pen.gap(1);
        if let Some(word) = line.word {
            pen.write(word, theme.style(Role::Dim)).column(area.x, 1 + INDENT as u16);
        }
        pen.write(&line.text, theme.style(line.role));
    }
    let hidden = lines.len().saturating_sub(first + usize::from(area.height));
    if hidden > 0 && area.height > 1 {
        let more = format!(" {} ", plural(hidden, "more line"));
        let mut pen = Pen::new(buf, area, area.height - 1, theme.glyphs.ellipsis);
        pen.gap(area.width.saturating_sub(more.len() as u16)).write(&more, theme.style(Role::Selected));
    }
}

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
pub(super) fn lines_of_details(paragraphs: &[Paragraph], width: u16) -> Vec<Line> {
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
                    lines.push(Line::whole(table_titles(width), Role::Dim));
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

fn table_titles(width: usize) -> String {
    let object = object(width);
    format!("{:object$} {:>NUMBER$} {:>NUMBER$} {:>NUMBER$}", "EVIDENCE", "VALUE", "ERROR", "LIMIT")
}

fn evidence(row: &DetailRow, width: usize) -> String {
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
        let row = DetailRow {
            what: "irq_pct, node 0".into(),
            value: "14.2 %".into(),
            error: "0.1".into(),
            limit: "10.0 %".into(),
            note: "",
        };
        assert_eq!(evidence(&row, 79).width(), table_titles(79).width());
    }
}
