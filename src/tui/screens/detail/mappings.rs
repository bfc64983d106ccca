//! The mappings of one process: how large, how much of it is where, under which policy.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::maps::Maps;
use crate::collect::mappings::{Mapping, Mappings, walk_ns};
use crate::text::plural;
use crate::text::quantity::bytes;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// Where columns begin, and how wide the numbers are.
const NUMBER: u16 = 7;
const POLICY: u16 = 12;
const NODES: u16 = 16;
/// Lines above the mappings: what the list was made from, and titles.
pub(super) const HEAD: u16 = 2;

/// The source of the list, titles, and mappings in view. `rss_bytes` is all of the process's memory.
pub(super) fn render(maps: &Maps, rss_bytes: u64, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let ellipsis = theme.glyphs.ellipsis;
    let found = match &maps.found {
        Some(Ok(found)) => found,
        other => {
            let (text, role) = match other {
                Some(Err(why)) => (why.as_str(), Role::Warn),
                _ => ("reading its mappings", Role::Dim),
            };
            Pen::new(buf, area, 0, ellipsis).gap(1).write(text, theme.style(role));
            return;
        }
    };
    let summary = summary(found, rss_bytes);
    Pen::new(buf, area, 0, ellipsis).gap(1).write(&summary, theme.style(Role::Dim));
    let mut pen = Pen::new(buf, area, 1, ellipsis);
    pen.repeat(' ', area.width, theme.style(Role::Header)).column(area.x, 1);
    pen.write_right("SIZE", NUMBER, theme.style(Role::Header)).gap(1);
    pen.write_right("RES", NUMBER, theme.style(Role::Header)).gap(1);
    for (title, width) in [("POLICY", POLICY), ("MEM BY NODE", NODES)] {
        pen.write(&format!("{title:width$}", width = usize::from(width)), theme.style(Role::Header)).gap(1);
    }
    pen.write("MAPPING", theme.style(Role::Header));
    for (row, mapping) in (HEAD..area.height).zip(found.rows.iter().skip(maps.offset)) {
        line(mapping, theme, &mut Pen::new(buf, area, row, ellipsis));
    }
}

fn summary(found: &Mappings, rss_bytes: u64) -> String {
    let all = plural(found.count, "mapping");
    let shown = if found.rows.len() < found.count { format!("{} of {all}", found.rows.len()) } else { all };
    match found.error_points {
        None => format!("{shown}, every page counted"),
        Some(points) => {
            let ms = walk_ns(rss_bytes).div_ceil(1_000_000);
            // A process that has ended has no pages left. A narrow screen may cut the cost: M says it again.
            let more = if ms > 0 { format!("; M: exact, with POLICY, {ms} ms") } else { String::new() };
            format!("{shown}, sampled within {points:.1} points{more}")
        }
    }
}

fn line(mapping: &Mapping, theme: &Theme, pen: &mut Pen<'_>) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let resident = mapping.resident();
    pen.gap(1).write_right(&bytes(mapping.bytes as f64), NUMBER, plain).gap(1);
    pen.write_right(&bytes(resident), NUMBER, if resident > 0.0 { plain } else { dim }).gap(1);
    let policy = mapping.policy.as_deref().unwrap_or("-");
    pen.write_within(&format!("{policy:width$}", width = usize::from(POLICY)), POLICY, dim).gap(1);
    let mut nodes: Vec<(usize, f64)> =
        mapping.by_node.iter().copied().enumerate().filter(|(_, bytes)| *bytes > 0.0).collect();
    nodes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut left = NODES;
    for (i, (node, on)) in nodes.into_iter().enumerate() {
        let word = format!("{node}:{:.0} ", on * 100.0 / resident);
        let cells = word.len() as u16;
        if cells > left {
            break;
        }
        pen.write(&word, theme.style(if i == 0 { Role::Local } else { Role::Remote }));
        left -= cells;
    }
    pen.gap(left + 1);
    let name = if mapping.name.is_empty() { "anonymous" } else { &mapping.name };
    pen.write(&format!("{:x} ", mapping.start), dim).write(name, plain);
}
