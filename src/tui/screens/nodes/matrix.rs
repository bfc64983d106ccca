//! From node to node: one metric of every pair of nodes, the heat by role and by number.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::metric::Unit;
use crate::metric::format::ABSENT;
use crate::metric::hardware::Measured;
use crate::metric::matrix::{self, CostKind, PairCost, PairMetric};
use crate::model::topology::Topology;
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::text::quantity::{count, percent};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::list::List;
use crate::tui::widgets::pen::{Pen, shade};

/// Cells for the node of a row, and for the name of the metric above them.
const LABEL: u16 = 8;
/// Cells of a column, the gap before it included.
const CELL_MIN: u16 = 4;
/// Cells of a number beside its shade, the gap before it included, and cells of the shade.
const NUMBER: u16 = 7;
const SHADED_MAX: u16 = 3;
const CELL_MAX: u16 = 11;

/// Node ids above, and a row for each node in the order of the table; below it the legend.
pub(super) fn render(
    snapshot: &Snapshot,
    list: &List<Node>,
    first_column: usize,
    metric: &PairMetric,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let nodes: Vec<NodeId> = snapshot.nodes.iter().map(|node| NodeId(node.raw.id)).collect();
    let room = area.width.saturating_sub(LABEL);
    // A number that is not sure has a mark behind it, which may not touch the next one.
    let least = CELL_MIN + u16::from(metric.cost.is_some_and(CostKind::is_measured));
    let cell = (room / (nodes.len() as u16).max(1)).clamp(least, CELL_MAX);
    let shown = usize::from(room / cell).min(nodes.len());
    let first = first_column.min(nodes.len() - shown);
    let columns = &nodes[first..first + shown];
    // Beside the number, where it has room, a shade by its share of the largest.
    let shaded = cell.saturating_sub(NUMBER + 1).min(SHADED_MAX);
    let number = if shaded > 0 { NUMBER } else { cell };

    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    pen.repeat(' ', area.width, theme.style(Role::Header)).column(area.x, 1);
    pen.write_within(metric.title, LABEL - 1, theme.style(Role::Sorted)).column(area.x, LABEL);
    for node in columns {
        pen.write_right(&node.to_string(), cell, theme.style(Role::Header));
    }
    let largest = metric.largest(snapshot);
    // The largest of all pairs: that of two nodes may be less than what stays on one.
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
    let darkest = pairs.filter_map(|(from, to)| metric.read(snapshot, from, to).ok()).fold(0.0, f64::max);
    let offset = list.cursor.offset();
    let rows = list.keys().iter().copied();
    let mut line = 1;
    for (at, from) in rows.enumerate().skip(offset).take(usize::from(area.height.saturating_sub(1))) {
        let selected = at == list.cursor.at();
        let mut pen = Pen::new(buf, area, line, theme.glyphs.ellipsis);
        // The heat of the selected row is what one looks at.
        let role = if selected { Role::Selected } else { Role::Plain };
        pen.gap(1).write(&format!("node {from}"), theme.style(role)).column(area.x, LABEL);
        for to in columns {
            let mut share = 0.0;
            let (text, role) = match metric.read(snapshot, from, *to) {
                Ok(value) => {
                    share = if darkest > 0.0 { value / darkest } else { 0.0 };
                    let mark = if metric.is_sure(&snapshot.host.topology, from, *to) { "" } else { "~" };
                    let home = metric.read(snapshot, from, from).ok();
                    let role = match metric.cost.filter(|cost| cost.is_measured()).zip(home) {
                        Some((cost, home)) => heat_of_cost(cost.times(value, home), from == *to),
                        None => heat(value, largest, from == *to),
                    };
                    (written(value, metric.unit, number - 1) + mark, role)
                }
                Err(_) => (ABSENT.to_string(), Role::Dim),
            };
            pen.gap(cell - shaded - number).repeat(shade(share, theme), shaded, theme.style(role));
            pen.write_right(&text, number, theme.style(role));
        }
        line += 1;
    }
    let hidden = nodes.len() - shown;
    legend(
        snapshot,
        metric,
        list.selected(snapshot).map(|node| NodeId(node.raw.id)),
        hidden,
        theme,
        Rect { y: area.y + line, height: area.height - line, ..area },
        buf,
    );
}

/// The costs of the selected node, the meaning of row and column, or why nothing is shown; as much as fits.
fn legend(
    snapshot: &Snapshot,
    metric: &PairMetric,
    selected: Option<NodeId>,
    hidden: usize,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut lines = Vec::new();
    if hidden > 0 {
        lines.push((format!("{hidden} more nodes: < and > scroll"), Role::Warn));
    }
    // From one node to another: what stays on a node may not be counted.
    let node = |at: usize| snapshot.nodes.get(at).map(|node| NodeId(node.raw.id));
    let pair = node(0).zip(node(1).or(node(0)));
    if let Some(Err(why)) = pair.map(|(from, to)| metric.read(snapshot, from, to)) {
        lines.push((format!("no values to show: {why}"), Role::Warn));
    }
    let width = usize::from(area.width.saturating_sub(2));
    if let Some(from) = selected.filter(|_| metric.cost.is_some()) {
        lines.extend(costs(&snapshot.host.topology, from));
    }
    if let Some(said) = metric.sources(snapshot) {
        lines.extend(wrap(&said, width, Role::Plain));
    }
    lines.extend(wrap(metric.help, width, Role::Dim));
    for (row, (text, role)) in (0..area.height).zip(lines) {
        Pen::new(buf, area, row, theme.glyphs.ellipsis).gap(1).write(&text, theme.style(role));
    }
}

/// The costs of all memory on CPUs of a node: measured latency and reads with half the range of their rounds,
/// beside the firmware's distance. Empty without a measurement.
fn costs(topology: &Topology, from: NodeId) -> Vec<(String, Role)> {
    let costs = matrix::costs(topology, from);
    if costs.is_empty() {
        return Vec::new();
    }
    let number = |measured: Option<Measured>| {
        measured.map_or(ABSENT.to_string(), |measured| {
            let mark = if measured.is_sure() { "" } else { "~" };
            let error = measured.error.map_or(String::new(), |error| format!(" +-{error:.1}"));
            format!("{:.1}{mark}{error}", measured.value)
        })
    };
    let title = format!("CPUs of node {from}");
    let head =
        format!("{title:<16}{:>14}{:>8}{:>14}{:>6}{:>6}", "latency, ns", "", "reads, GB/s", "", "SLIT");
    let line = |cost: &PairCost| {
        let or_absent = |text: Option<String>| text.unwrap_or_else(|| ABSENT.to_string());
        format!(
            "{:<16}{:>14}{:>8}{:>14}{:>6}{:>6}",
            format!("memory of {}", cost.to),
            number(cost.latency),
            or_absent(cost.times.map(|times| format!("{times:.2}x"))),
            number(cost.reads),
            or_absent(cost.reads_pct.map(|pct| format!("{pct:.0}%"))),
            or_absent(cost.slit.map(|slit| slit.to_string())),
        )
    };
    let lines = costs.iter().map(|cost| (line(cost), Role::Plain));
    std::iter::once((head, Role::Title)).chain(lines).collect()
}

/// Lines of at most `width` characters.
fn wrap(text: &str, width: usize, role: Role) -> Vec<(String, Role)> {
    let text = crate::text::hanging("", crate::text::words(text), width);
    text.lines().map(|line| (line.to_string(), role)).collect()
}

/// Short enough for `width` cells.
fn written(value: f64, unit: Unit, width: u16) -> String {
    match unit {
        Unit::Percent if width >= 5 => percent(value),
        // A share of a hundredth of the pages is not none.
        Unit::Percent if value > 0.0 && value < 9.95 => format!("{value:.1}"),
        Unit::Percent => format!("{value:.0}"),
        Unit::Id => format!("{value:.0}"),
        _ => count(value),
    }
}

/// The warmest colour begins at twice what it costs at home.
fn heat_of_cost(times: f64, at_home: bool) -> Role {
    match times {
        _ if at_home => Role::Local,
        2.0.. => Role::Alert,
        1.3.. => Role::Remote,
        _ => Role::Plain,
    }
}

/// On the diagonal things are at home. Elsewhere heat is the share of the largest value.
fn heat(value: f64, largest: f64, at_home: bool) -> Role {
    match value {
        _ if at_home => Role::Local,
        0.0 => Role::Dim,
        _ if value * 3.0 >= largest * 2.0 => Role::Alert,
        _ if value * 3.0 >= largest => Role::Remote,
        _ => Role::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_is_by_thirds_of_the_largest() {
        let roles = [0.0, 9.0, 20.0, 30.0].map(|value| heat(value, 30.0, false));
        assert_eq!(roles, [Role::Dim, Role::Plain, Role::Alert, Role::Alert]);
        assert_eq!(heat(15.0, 30.0, false), Role::Remote);
        assert_eq!(heat(30.0, 30.0, true), Role::Local);
    }

    #[test]
    fn costs_are_warm_from_twice_home_on() {
        let roles = [1.0, 1.29, 1.5, 2.0, 3.1].map(|times| heat_of_cost(times, false));
        assert_eq!(roles, [Role::Plain, Role::Plain, Role::Remote, Role::Alert, Role::Alert]);
        assert_eq!(heat_of_cost(1.0, true), Role::Local);
    }

    #[test]
    fn numbers_fit_their_cells() {
        for (value, unit, width, text) in [
            (33.333, Unit::Percent, 3, "33"),
            (0.14, Unit::Percent, 3, "0.1"),
            (0.0, Unit::Percent, 3, "0"),
            (33.333, Unit::Percent, 6, "33.3"),
            (100.0, Unit::Percent, 3, "100"),
            (255.0, Unit::Id, 3, "255"),
            (12_345.0, Unit::PerSecond, 3, "12k"),
        ] {
            assert_eq!(written(value, unit, width), text);
        }
    }
}
