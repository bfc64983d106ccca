//! The contended cache lines of one process: how often each came from another core, and the code of both sides. Its memory by
//! the code that touched it first: how much it is used, from where, and who put it there.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::mappings::{self, NODES, Wholes};
use crate::model::access::lines::{ContendedLine, ContendedLines, LineSide, OBJECTS_LISTED, Object};
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
enum LineRow<'a> {
    Line(&'a ContendedLine),
    Side(&'a LineSide),
}

/// The samples of the row, if it was sampled and an event of a PMU was among them.
fn sampled(task: &Task) -> Option<&SampledUse> {
    task.memory_use().filter(|used| used.event.is_some())
}

fn rows_of(lines: &ContendedLines) -> Vec<LineRow<'_>> {
    let with_sides = |line| -> Vec<LineRow<'_>> {
        [LineRow::Line(line)].into_iter().chain(line.sides.iter().map(LineRow::Side)).collect()
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
            let text = format!("contended cache lines unavailable: {why}");
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
            LineRow::Line(found) => line(found, lines.loads, theme, pen),
            LineRow::Side(found) => side(found, theme, pen),
        }
    }
}

/// Loads that another core answered, and lines with enough of them.
fn summary(used: &SampledUse) -> String {
    let lines = &used.found.lines;
    let accesses = count(used.found.answers.accesses() as f64);
    let loads = count(lines.loads as f64);
    let listed = match lines.listed.len() {
        0 => "no cache line has enough samples".into(),
        listed => format!("{} listed", plural(listed, "line")),
    };
    format!(
        "{loads} of {accesses} accesses in {:.0} s read a line from another core's cache; {listed}",
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

/// Cells from which on the caller and the mapping have room.
const WIDE: u16 = 100;

/// The samples of the row, its objects, and their total; or the reason why they are missing.
fn sampled_objects<'a>(task: &'a Task, refused: Option<&str>) -> Result<(&'a SampledUse, Wholes), String> {
    let used = task.memory_use().ok_or("not sampled: press u")?;
    if used.found.objects.is_empty() {
        return Err(refused.unwrap_or("no result yet: press u, then wait").into());
    }
    let wholes = Wholes::of(Some(&*used.found));
    match (wholes.placed, wholes.counted, used.found.sound()) {
        (None, None, Err(why)) => Err(why.to_string()),
        _ => Ok((used, wholes)),
    }
}

/// Rows in the list.
pub(super) fn object_rows(task: Option<&Task>) -> usize {
    task.and_then(|task| sampled_objects(task, None).ok()).map_or(0, |(used, _)| used.found.objects.len())
}

/// A summary or the reason why nothing is known, titles, and rows from `offset` on. `refused`: first touches cannot be sampled.
pub(super) fn render_objects(
    task: &Task,
    refused: Option<&str>,
    offset: usize,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let ellipsis = theme.glyphs.ellipsis;
    let (used, wholes) = match sampled_objects(task, refused) {
        Ok(found) => found,
        Err(why) => {
            let text = format!("first touches: {why}");
            Pen::new(buf, area, 0, ellipsis).gap(1).write(&text, theme.style(Role::Warn));
            return;
        }
    };
    let objects = &used.found.objects;
    let summary = object_summary(objects, &wholes);
    Pen::new(buf, area, 0, ellipsis).gap(1).write(&summary, theme.style(Role::Dim));
    let header = theme.style(Role::Header);
    let mut pen = Pen::new(buf, area, 1, ellipsis);
    pen.repeat(' ', area.width, header).column(area.x, 1);
    if wholes.placed.is_some() {
        pen.write_right("USE%", SHARE, header).gap(1).write_right("ERR", ERROR, header).gap(1);
        pen.write_right("REM%", ERROR, header).gap(1);
        pen.write(&format!("{:width$}", "USED ON", width = usize::from(NODES) + 1), header);
    }
    if wholes.counted.is_some() {
        pen.write_right("ACC%", SHARE, header).gap(1);
    }
    pen.write(&format!("{:width$}", "TOUCHED ON", width = usize::from(NODES) + 1), header);
    pen.write("FIRST TOUCHED BY < ITS CALLERS", header);
    for (at, object) in (mappings::HEAD..area.height).zip(objects.iter().skip(offset)) {
        object_line(object, &wholes, area.width, theme, &mut Pen::new(buf, area, at, ellipsis));
    }
}

/// The part of the used memory whose first touch is known.
fn object_summary(objects: &[Object], wholes: &Wholes) -> String {
    let (part, whole, of) = match (wholes.placed, wholes.counted) {
        (Some(placed), _) => {
            (objects.iter().map(Object::samples).sum::<f64>(), placed, "its memory-access time")
        }
        (None, counted) => {
            (objects.iter().map(Object::followed).sum(), counted.unwrap_or_default(), "its accesses")
        }
    };
    let known = 100.0 * part / whole.max(1.0);
    let more = if objects.len() >= OBJECTS_LISTED { "the first " } else { "" };
    format!("{more}{}: first touch known for {known:.0}% of {of}", plural(objects.len(), "object"))
}

fn object_line(object: &Object, wholes: &Wholes, width: u16, theme: &Theme, pen: &mut Pen<'_>) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    pen.gap(1);
    if let Some(placed) = wholes.placed {
        let (pct, error) = wilson_farther(object.samples(), placed).unwrap_or_default();
        pen.write_right(&percent(pct), SHARE, plain).gap(1);
        pen.write_right(&percent(error), ERROR, dim).gap(1);
        mappings::remote(object.remote(), theme, pen);
        mappings::by_node(mappings::on_nodes(&object.by_node), NODES, theme, pen);
    }
    if let Some(counted) = wholes.counted {
        let pct = 100.0 * object.followed() / counted.max(1.0);
        pen.write_right(&percent(pct), SHARE, plain).gap(1);
    }
    let touched = object.touched_on.iter().map(|(node, count)| (node.0 as usize, *count as f64));
    mappings::by_node(touched.collect(), NODES, theme, pen);
    let mut names = object.functions.iter().map(|function| function.to_string());
    pen.write(&names.next().unwrap_or_default(), plain);
    if width >= WIDE {
        names.for_each(|name| {
            pen.write(&format!(" < {name}"), dim);
        });
        let mapping = if object.mapping.is_empty() { "anonymous" } else { object.mapping.as_str() };
        pen.write(&format!("  in {mapping}"), dim);
    }
}
