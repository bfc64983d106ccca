//! The contended cache lines of one process: how often each came from another core, and the code of both
//! sides.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::access::lines::{ContendedLine, ContendedLines, LineSide};
use crate::model::share::wilson_farther;
use crate::snapshot::{SampledUse, Task};
use crate::text::plural;
use crate::text::quantity::{count, percent};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// Cells of a count, of a share, and of an error or a share without decimals.
const NUMBER: u16 = 6;
const SHARE: u16 = 5;
const ERROR: u16 = 4;
/// Cells in front of a side: it belongs to the line above.
const INDENT: u16 = 8;
/// Share of loads from another node from which on it is emphasised, percent: as that of a process.
const REMOTE_MIN: f64 = 20.0;

/// Lines and their sides, one below the other.
enum Row<'a> {
    Line(&'a ContendedLine),
    Side(&'a LineSide),
}

/// The samples of the row, if it was sampled and an event of a PMU was among them.
fn sampled(task: &Task) -> Option<&SampledUse> {
    task.memory_use().filter(|used| used.event.is_some())
}

fn rows_of(lines: &ContendedLines) -> Vec<Row<'_>> {
    let with_sides = |line| -> Vec<Row<'_>> {
        [Row::Line(line)].into_iter().chain(line.sides.iter().map(Row::Side)).collect()
    };
    lines.listed.iter().flat_map(with_sides).collect()
}

/// Rows in the list.
pub(super) fn rows(task: Option<&Task>) -> usize {
    task.and_then(sampled).map_or(0, |used| rows_of(&used.found.lines).len())
}

/// Reasons why lines are not seen.
pub(super) struct Why {
    /// Nothing is sampled that would show them.
    pub(super) no_event: String,
    /// The samples of all CPUs or of some do not show them.
    pub(super) no_lines: Option<String>,
}

/// A summary or the reason why nothing is known, titles, and rows from `offset` on.
pub(super) fn render(task: &Task, why: &Why, offset: usize, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let ellipsis = theme.glyphs.ellipsis;
    let found = match (sampled(task), &why.no_lines) {
        (None, _) => Err(&why.no_event),
        // 0 would be a count.
        (Some(used), Some(cannot_tell)) if used.found.lines.loads == 0 => Err(cannot_tell),
        (Some(used), _) => Ok(used),
    };
    let used = match found {
        Ok(used) => used,
        Err(why) => {
            let text = format!("contended lines n/a: {why}");
            Pen::new(buf, area, 0, ellipsis).gap(1).write(&text, theme.style(Role::Warn));
            return;
        }
    };
    let lines = &used.found.lines;
    let of_some = why.no_lines.as_ref().map_or("", |_| "unknown for some CPUs: ");
    let summary = format!("{of_some}{}", summary(used));
    Pen::new(buf, area, 0, ellipsis).gap(1).write(&summary, theme.style(Role::Dim));
    let header = theme.style(Role::Header);
    let mut pen = Pen::new(buf, area, 1, ellipsis);
    pen.repeat(' ', area.width, header).column(area.x, 1);
    let titles = [
        ("SHARE", SHARE),
        ("ERR", ERROR),
        ("FAR%", ERROR),
        ("LOADS", NUMBER),
        ("STORES", NUMBER),
        ("NODE", ERROR),
    ];
    for (title, width) in titles {
        pen.write_right(title, width, header).gap(1);
    }
    pen.write("MAPPING, BYTES OF THE LINE; BELOW: CODE", header);
    for (at, row) in (super::mappings::HEAD..area.height).zip(rows_of(lines).into_iter().skip(offset)) {
        let pen = &mut Pen::new(buf, area, at, ellipsis);
        match row {
            Row::Line(found) => line(found, lines.loads, theme, pen),
            Row::Side(found) => side(found, theme, pen),
        }
    }
}

/// Loads that another core answered, and lines with enough of them.
fn summary(used: &SampledUse) -> String {
    let lines = &used.found.lines;
    let accesses = count(used.found.answers.accesses() as f64);
    let loads = count(lines.loads as f64);
    let listed = match lines.listed.len() {
        0 => "no line has enough samples to be listed".into(),
        listed => plural(listed, "line"),
    };
    format!(
        "{loads} of {accesses} accesses in {:.0} s took their line from another core; {listed}",
        used.window_s
    )
}

fn line(line: &ContendedLine, loads: u64, theme: &Theme, pen: &mut Pen<'_>) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let (pct, error) = wilson_farther(line.loads as f64, loads as f64).unwrap_or_default();
    pen.gap(1).write_right(&percent(pct), SHARE, plain).gap(1);
    pen.write_right(&percent(error), ERROR, dim).gap(1);
    let far = 100.0 * line.far as f64 / line.loads.max(1) as f64;
    let role = if far >= REMOTE_MIN { Role::Remote } else { Role::Plain };
    pen.write_right(&format!("{far:.0}"), ERROR, theme.style(role)).gap(1);
    pen.write_right(&count(line.loads as f64), NUMBER, plain).gap(1);
    pen.write_right(&count(line.stores as f64), NUMBER, plain).gap(1);
    pen.write_right(&line.page_node.map_or("-".into(), |node| node.to_string()), ERROR, plain).gap(1);
    let name = if line.mapping.is_empty() { "anonymous" } else { line.mapping.as_str() };
    let bytes: Vec<String> = line.offsets().iter().map(u8::to_string).collect();
    pen.write(name, plain).write(&format!("  {}", bytes.join(" ")), dim);
}

fn side(side: &LineSide, theme: &Theme, pen: &mut Pen<'_>) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let word = if side.store { "stores" } else { "loads " };
    pen.gap(INDENT).write(word, dim).write_right(&count(side.samples as f64), NUMBER, plain);
    let node = side.cpu_node.map_or("-".into(), |node| node.to_string());
    pen.write(&format!("  on node {node}  byte {:2}  ", side.offset), dim);
    match &side.function {
        Some(function) => pen.write(&function.to_string(), plain),
        None => pen.write("code without a name", dim),
    };
}
