//! Hot spots: functions with their shares, or the tree of who calls whom.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::{Hot, Shape};
use crate::hot::profile::share;
use crate::hot::tree::Direction;
use crate::model::stacks::Function;
use crate::text::quantity::percent;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// Lines above the list: its subject, the number of samples, titles.
pub(super) const HEAD: u16 = 3;

/// Cells of a share, of its error, and of the next column.
const SHARE: u16 = 7;
const ERROR: u16 = 6;
const KIND: u16 = 7;
const MODULE: u16 = 18;
/// Below this width the function is worth more than where it is from, and than what else it is a part of.
const WIDE: u16 = 60;
/// Levels of the tree that are drawn indented; deeper ones are drawn as if they were this deep.
const LEVELS: usize = 24;

pub(super) fn render(view: &Hot, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let ellipsis = theme.glyphs.ellipsis;
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let mut pen = Pen::new(buf, area, 0, ellipsis);
    pen.gap(1).write("Hot spots of ", dim).write(&view.title, theme.style(Role::Title));
    let shape = match view.shape {
        Shape::Functions => "functions",
        Shape::Tree(Direction::Callees) => "what calls what, from the outermost function",
        Shape::Tree(Direction::Callers) => "its callers, innermost first",
    };
    pen.write(": ", dim).write(shape, plain);
    sampled(view, theme, &mut Pen::new(buf, area, 1, ellipsis));
    let is_tree = view.shape != Shape::Functions;
    let titles = theme.style(Role::Header);
    let mut pen = Pen::new(buf, area, 2, ellipsis);
    pen.write_right(if is_tree { "SHARE%" } else { "OWN%" }, SHARE, titles).write_right("+-", ERROR, titles);
    let wide = area.width >= WIDE;
    if wide && !is_tree {
        pen.write_right("TOTAL%", SHARE, titles);
    }
    pen.gap(1);
    if wide {
        pen.write_right("IN", KIND - 1, titles).gap(1);
        pen.write(&format!("{:width$}", "MODULE", width = usize::from(MODULE)), titles);
    }
    pen.write("FUNCTION", titles);
    for (line, at) in (HEAD..area.height).zip(view.cursor.offset()..) {
        let mut pen = Pen::new(buf, area, line, ellipsis);
        let row = match view.shape {
            Shape::Functions => {
                view.spots.get(at).map(|spot| (&spot.function, [spot.own, spot.total], String::new()))
            }
            Shape::Tree(_) => view.rows.get(at).map(|row| {
                let node = &view.tree.nodes[row.node];
                let mark = match row.open {
                    Some(true) => "- ",
                    Some(false) => "+ ",
                    None => "  ",
                };
                (&node.function, [node.samples; 2], " ".repeat(row.depth.min(LEVELS)) + mark)
            }),
        };
        let Some((function, [own, total], indent)) = row else { break };
        let selected = at == view.cursor.at();
        let style = |role| if selected { theme.style(Role::Selected) } else { theme.style(role) };
        let (own, error) = share(own, view.samples).unwrap_or_default();
        pen.write_right(&percent(own), SHARE, style(Role::Plain)).write_right(
            &percent(error),
            ERROR,
            style(Role::Dim),
        );
        if wide && !is_tree {
            let total = share(total, view.samples).unwrap_or_default().0;
            pen.write_right(&percent(total), SHARE, style(Role::Plain));
        }
        pen.gap(1);
        if wide {
            origin(&mut pen, function, &style);
        }
        describe(&mut pen, function, &indent, selected, &style);
    }
    if view.samples == 0 {
        let text = "no sample yet: a task is sampled only while it runs on a CPU";
        Pen::new(buf, area, HEAD, ellipsis).gap(1).write(text, dim);
    }
}

/// Its process, and its file.
fn origin(pen: &mut Pen<'_>, function: &Function, style: &dyn Fn(Role) -> Style) {
    let (kind, role) = if function.kernel { ("kernel", Role::Remote) } else { ("user", Role::Plain) };
    pen.write_right(kind, KIND - 1, style(role)).gap(1);
    let module = pen.room().min(MODULE);
    let left = pen.room();
    pen.write_within(&function.module, module.saturating_sub(1), style(Role::Dim));
    pen.gap((module + pen.room()).saturating_sub(left));
}

fn describe(
    pen: &mut Pen<'_>,
    function: &Function,
    indent: &str,
    selected: bool,
    style: &dyn Fn(Role) -> Style,
) {
    let (name, role) = match &function.name {
        Some(name) => (name.as_str(), Role::Plain),
        None => ("?", Role::Dim),
    };
    pen.write(indent, style(Role::Dim)).write(name, style(role));
    if selected {
        let room = pen.room();
        pen.repeat(' ', room, style(Role::Plain));
    }
}

/// The number of samples, and of missing ones.
fn sampled(view: &Hot, theme: &Theme, pen: &mut Pen<'_>) {
    let profile = &view.profile;
    if profile.event.is_empty() {
        pen.gap(1).write("loading the sampler", theme.style(Role::Dim));
        return;
    }
    let text = format!("{} samples of {}, {} per second and CPU", view.samples, profile.event, profile.hz);
    pen.gap(1).write(&text, theme.style(Role::Dim));
    for (cause, count) in profile.lost.iter().filter(|(_, count)| **count > 0) {
        pen.gap(2).write(&format!("{cause} {count}"), theme.style(Role::Alert));
    }
}
