//! The memory of one process by the code that touched it first: how much it is used, from where, and who put it there.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::mappings::{self, ERROR, NODES, SHARE, Wholes};
use crate::model::access::objects::{OBJECTS_LISTED, Object};
use crate::model::share::wilson_farther;
use crate::snapshot::{SampledUse, Task};
use crate::text::plural;
use crate::text::quantity::percent;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// Cells from which on the caller and the mapping have room.
const WIDE: u16 = 100;

/// The samples of the row, its objects, and their total; or the reason why they are missing.
fn sampled<'a>(task: &'a Task, refused: Option<&str>) -> Result<(&'a SampledUse, Wholes), String> {
    let used = task.memory_use().ok_or("not sampled: press u")?;
    if used.found.objects.is_empty() {
        return Err(refused.unwrap_or("nothing yet: press u, then wait").into());
    }
    let wholes = Wholes::of(Some(&*used.found));
    match (wholes.placed, wholes.counted, used.found.sound()) {
        (None, None, Err(why)) => Err(why.to_string()),
        _ => Ok((used, wholes)),
    }
}

/// Rows in the list.
pub(super) fn rows(task: Option<&Task>) -> usize {
    task.and_then(|task| sampled(task, None).ok()).map_or(0, |(used, _)| used.found.objects.len())
}

/// A summary or the reason why nothing is known, titles, and rows from `offset` on. `refused`: first touches cannot be sampled.
pub(super) fn render(
    task: &Task,
    refused: Option<&str>,
    offset: usize,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let ellipsis = theme.glyphs.ellipsis;
    let (used, wholes) = match sampled(task, refused) {
        Ok(found) => found,
        Err(why) => {
            let text = format!("first touches: {why}");
            Pen::new(buf, area, 0, ellipsis).gap(1).write(&text, theme.style(Role::Warn));
            return;
        }
    };
    let objects = &used.found.objects;
    let summary = summary(objects, &wholes);
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
        line(object, &wholes, area.width, theme, &mut Pen::new(buf, area, at, ellipsis));
    }
}

/// The part of the used memory whose first touch is known.
fn summary(objects: &[Object], wholes: &Wholes) -> String {
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

fn line(object: &Object, wholes: &Wholes, width: u16, theme: &Theme, pen: &mut Pen<'_>) {
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
