//! Each CPU of each node, as a shaded cell: how evenly a node is busy.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::topology;
use crate::snapshot::{CpuDelta, Snapshot};
use crate::text::plural;
use crate::text::quantity::percent;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::{Pen, shade};

/// Cells before the CPUs of a node, and for the numbers behind them.
const LABEL: u16 = 9;
const NUMBERS: u16 = 27;
/// Cells of a CPU at most.
const WIDEST: usize = 4;

/// Busy share of a CPU in the interval, 0.0..=1.0; `None` while it is offline.
fn busy(snapshot: &Snapshot, id: u32) -> Option<f64> {
    let at = snapshot.cpus.binary_search_by_key(&id, |cpu: &CpuDelta| cpu.id).ok()?;
    let cpu = snapshot.cpus.get(at).filter(|cpu| cpu.online)?;
    snapshot.share(cpu.busy_ns).ok().map(|pct| pct / 100.0)
}

/// A row of cells for each node, as many as it takes, with the share of the node and its busiest CPU.
pub(super) fn render(snapshot: &Snapshot, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let nodes: Vec<&topology::Node> =
        snapshot.host.topology.nodes.iter().filter(|node| !node.cpus.is_empty()).collect();
    let room = usize::from(area.width.saturating_sub(LABEL + NUMBERS).max(1));
    let most = nodes.iter().map(|node| node.cpus.len()).max().unwrap_or(0);
    let wide = (room / most.max(1)).clamp(1, WIDEST);
    // Wide cells have a gap between them.
    let cell = wide.saturating_sub(1).max(1) as u16;
    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    pen.gap(1).write("CPU busy", theme.style(Role::Title)).gap(2);
    pen.write("one cell per CPU, by id", dim).gap(2);
    for (shade, words) in theme.glyphs.shades.iter().skip(1).zip(["to 25%", "50%", "75%", "100%"]) {
        pen.repeat(*shade, 1, plain).gap(1).write(words, dim).gap(2);
    }
    pen.write("v: table", dim);
    let mut row = 1;
    for (at, node) in nodes.iter().enumerate() {
        let shares: Vec<(u32, Option<f64>)> =
            node.cpus.iter().map(|id| (id.0, busy(snapshot, id.0))).collect();
        let lines: Vec<_> = shares.chunks((room / wide).max(1)).collect();
        let left = area.height.saturating_sub(row);
        if usize::from(left) < lines.len() + usize::from(at + 1 < nodes.len()) {
            let more =
                format!("{} more CPUs: enlarge the terminal to show all", plural(nodes.len() - at, "node"));
            Pen::new(buf, area, row, theme.glyphs.ellipsis).gap(1).write(&more, dim);
            return;
        }
        for (number, line) in lines.iter().enumerate() {
            let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
            if number == 0 {
                pen.gap(1).write(&format!("node {}", node.id), plain);
            }
            pen.column(area.x, LABEL);
            for (_, share) in *line {
                match share {
                    Some(share) => {
                        let role = if *share >= 0.9 { Role::Warn } else { Role::Local };
                        pen.repeat(shade(*share, theme), cell, theme.style(role))
                    }
                    None => pen.repeat('-', cell, dim),
                };
                pen.gap(wide as u16 - cell);
            }
            if number == 0 {
                numbers(&shares, &mut pen, theme);
            }
            row += 1;
        }
    }
}

/// ` 42.0%  busiest CPU 17 99.1%`
fn numbers(shares: &[(u32, Option<f64>)], pen: &mut Pen<'_>, theme: &Theme) {
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let known: Vec<(u32, f64)> = shares.iter().filter_map(|(id, share)| Some((*id, (*share)?))).collect();
    let Some((id, busiest)) = known.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a }) else {
        pen.gap(1).write("-", dim);
        return;
    };
    let mean = known.iter().map(|(_, share)| share).sum::<f64>() / known.len() as f64;
    pen.write_right(&format!("{}%", percent(mean * 100.0)), 7, plain);
    pen.write("  max CPU ", dim).write(&format!("{id} {}%", percent(busiest * 100.0)), plain);
}
