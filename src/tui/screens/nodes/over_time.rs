//! Nodes over time: CPU time and remote share of each node in all intervals that are kept, as shades.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::facts;
use crate::analysis::curve::{Curve, Shares};
use crate::metric::placement::NODE_REMOTE_PCT;
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::text::clean_str;
use crate::text::quantity::percent;
use crate::tui::state::{State, seconds};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::layout::below;
use crate::tui::widgets::list::List;
use crate::tui::widgets::pen::{Pen, shade};
use crate::tui::widgets::timebar::clock;

/// Cells for the node of a row, and for each of the two numbers behind it.
const LABEL: u16 = 9;
const NUMBER: u16 = 7;
/// Rows below the maps: times, and the meaning of cells.
const BELOW: u16 = 2;
/// Rows that facts of the selected node need to be worth drawing, the blank one before them included.
const FACTS_MIN: u16 = 5;

const S: i64 = 1_000_000_000;
/// Lengths of a column, in tenths of a second.
const TENTHS: [i64; 30] = [
    1, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 200, 300, 400, 600, 900, 1_200, 1_800, 3_000, 6_000,
    9_000, 12_000, 18_000, 36_000, 72_000, 108_000, 216_000, 432_000,
];
const DAY: i64 = 86_400 * S;
/// Cells of a column at most: a short history fills a part of the row.
const WIDEST: u16 = 4;

/// A share of each node, and its name.
struct Map {
    title: &'static str,
    share: fn(&Shares) -> Option<f64>,
    /// The colour of a cell.
    role: fn(f64, &Theme) -> Role,
}

const MAPS: [Map; 2] = [
    Map { title: "CPU busy", share: |shares| shares.cpu, role: |_, _| Role::Local },
    Map { title: "Remote accesses", share: |shares| shares.remote, role: remote },
];

fn remote(share: f64, theme: &Theme) -> Role {
    if share * 100.0 >= theme.limits.remote_from_pct { Role::Remote } else { Role::Plain }
}

/// The times of the columns of a map: of one interval each, or of equal lengths where not all intervals have room.
enum Columns {
    Intervals(Vec<i64>),
    Lengths { from: i64, cell: i64, count: usize },
}

impl Columns {
    fn of(curve: &Curve, room: usize) -> Columns {
        let ends: Vec<i64> = curve.points().iter().map(|point| point.wall_ns).collect();
        let (Some(first), Some(last)) = (curve.points().first(), ends.last()) else {
            return Columns::Intervals(ends);
        };
        if ends.len() <= room {
            return Columns::Intervals(ends);
        }
        let begin = first.wall_ns.saturating_sub(first.length_ns);
        // Columns begin at whole multiples of their length, so that the next interval does not shift what they cover.
        let count = |cell: i64| ((last - 1).div_euclid(cell) - begin.div_euclid(cell) + 1) as usize;
        let lengths = TENTHS.into_iter().map(|tenths| tenths * (S / 10)).chain((1..).map(|days| days * DAY));
        let cell = lengths.into_iter().find(|cell| count(*cell) <= room.max(1)).unwrap_or(i64::MAX);
        Columns::Lengths { from: begin.div_euclid(cell) * cell, cell, count: count(cell) }
    }

    fn count(&self) -> usize {
        match self {
            Columns::Intervals(ends) => ends.len(),
            Columns::Lengths { count, .. } => *count,
        }
    }

    /// The column of an interval that ends at this moment.
    fn at(&self, wall_ns: i64) -> Option<usize> {
        match self {
            Columns::Intervals(ends) => ends.iter().position(|end| *end >= wall_ns),
            Columns::Lengths { from, cell, count } => {
                let at = usize::try_from((wall_ns - 1 - from).div_euclid(*cell)).ok()?;
                (at < *count).then_some(at)
            }
        }
    }

    /// The largest share in each column; `None` where there is none.
    fn shares(&self, curve: &Curve, node: NodeId, share: fn(&Shares) -> Option<f64>) -> Vec<Option<f64>> {
        match self {
            Columns::Intervals(ends) => {
                let last = ends.last().copied().unwrap_or(0);
                curve.of_node(node, ends.len(), last, share)
            }
            Columns::Lengths { from, cell, count } => {
                let span = (*from, from + cell * *count as i64);
                curve.cells(span, *count, |point| share(&point.nodes.iter().find(|(id, _)| *id == node)?.1))
            }
        }
    }
}

/// Rows of nodes in each map.
fn rows(height: u16, nodes: usize) -> u16 {
    let room = height.saturating_sub(BELOW + MAPS.len() as u16) / MAPS.len() as u16;
    u16::try_from(nodes).unwrap_or(u16::MAX).min(room).max(1)
}

/// The rows of nodes of the first map.
pub(super) fn list(area: Rect, nodes: usize) -> Rect {
    let inside = below(area, 1);
    Rect { height: rows(area.height, nodes).min(inside.height), ..inside }
}

/// A map of each share, the times below them, and facts of the selected node where they have room.
pub(super) fn render(state: &State, snapshot: &Snapshot, list: &List<Node>, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let room = usize::from(area.width.saturating_sub(LABEL + 2 * NUMBER + 1));
    let columns = Columns::of(&state.curve, room);
    let wide = (room / columns.count().max(1)).clamp(1, WIDEST.into()) as u16;
    let rows = rows(area.height, snapshot.nodes.len());
    let mut rest = area;
    for map in &MAPS {
        let part = Rect { height: (rows + 1).min(rest.height), ..rest };
        let shown = Shown { map, columns: &columns, wide, is_now: state.timeline().is_none() };
        shown.render(&state.curve, snapshot, list, theme, part, buf);
        rest = below(rest, part.height);
    }
    times(state, snapshot, &columns, wide, rest, buf);
    meaning(&columns, theme, below(rest, 1), buf);
    let rest = below(rest, BELOW + 1);
    if let Some(node) = list.selected(snapshot).filter(|_| rest.height + 1 >= FACTS_MIN) {
        facts::render(snapshot, node, theme, rest, buf);
    }
}

/// A map and its columns. Each column is `wide` cells.
struct Shown<'a> {
    map: &'a Map,
    columns: &'a Columns,
    wide: u16,
    is_now: bool,
}

impl Shown<'_> {
    fn render(
        &self,
        curve: &Curve,
        snapshot: &Snapshot,
        list: &List<Node>,
        theme: &Theme,
        area: Rect,
        buf: &mut Buffer,
    ) {
        let header = theme.style(Role::Header);
        let numbers = area.width.saturating_sub(2 * NUMBER + 1);
        let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
        pen.repeat(' ', area.width, header).column(area.x, 1);
        pen.write_within(self.map.title, numbers, theme.style(Role::Sorted));
        pen.column(area.x, numbers).write_right(if self.is_now { "now" } else { "here" }, NUMBER, header);
        pen.write_right("max", NUMBER, header);
        let is_known = |point: &Shares| (self.map.share)(point).is_some();
        if !curve.points().iter().any(|point| point.nodes.iter().any(|(_, shares)| is_known(shares))) {
            let text = nothing(snapshot);
            Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(&text, theme.style(Role::Dim));
            return;
        }
        let offset = list.cursor.offset();
        for (row, (at, node)) in (1..area.height).zip(list.keys().iter().enumerate().skip(offset)) {
            let label = if at == list.cursor.at() { Role::Selected } else { Role::Plain };
            let shares = self.columns.shares(curve, *node, self.map.share);
            let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
            pen.gap(1).write(&format!("node {node}"), theme.style(label)).column(area.x, LABEL);
            self.cells(&shares, theme, &mut pen);
            let now = curve.of_node(*node, 1, snapshot.wall_ns, self.map.share).pop().flatten();
            let most = shares.iter().flatten().copied().reduce(f64::max);
            pen.column(area.x, numbers);
            for share in [now, most] {
                let text = share.map_or("-".into(), |share| format!("{}%", percent(share * 100.0)));
                pen.write_right(&text, NUMBER, theme.style(Role::Plain));
            }
        }
    }

    fn cells(&self, shares: &[Option<f64>], theme: &Theme, pen: &mut Pen<'_>) {
        for share in shares {
            let (glyph, role) = match share {
                None => (theme.glyphs.dot, Role::Dim),
                Some(share) => (shade(*share, theme), (self.map.role)(*share, theme)),
            };
            pen.repeat(glyph, self.wide, theme.style(role));
        }
    }
}

/// Why a map is empty.
fn nothing(snapshot: &Snapshot) -> String {
    let why = snapshot.nodes.iter().find_map(|node| NODE_REMOTE_PCT.read(node, snapshot).err());
    match why {
        Some(why) if snapshot.interval_ns.is_some() => {
            format!("no values to show: {}", clean_str(&why.to_string()))
        }
        _ => "no values yet".into(),
    }
}

/// When the columns begin and end, and the place that is shown.
fn times(state: &State, snapshot: &Snapshot, columns: &Columns, wide: u16, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let points = state.curve.points();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let begin = first.wall_ns.saturating_sub(first.length_ns);
    let with_day = last.wall_ns.saturating_sub(begin) > DAY;
    let [from, to] = [begin, last.wall_ns].map(|wall_ns| clock(wall_ns, with_day, &state.zone));
    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    let count = columns.count() as u16 * wide;
    pen.gap(LABEL).write(&from, theme.style(Role::Dim));
    // Both ends where they do not touch.
    let end = LABEL + count;
    let width = to.len() as u16;
    if count > 2 * width + 2 {
        pen.column(area.x, end - width).write(&to, theme.style(Role::Dim));
    }
    if let Some(here) = columns.at(snapshot.wall_ns).filter(|_| state.timeline().is_some()) {
        pen.column(area.x, LABEL + here as u16 * wide).repeat(theme.glyphs.here, 1, theme.style(Role::Alert));
    }
}

/// The meaning of a cell and of its shades.
fn meaning(columns: &Columns, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let dim = theme.style(Role::Dim);
    let of_cell = match columns {
        Columns::Intervals(_) => "cell: one interval".to_owned(),
        Columns::Lengths { cell, .. } => {
            format!("cell: maximum over {}", seconds(Duration::from_nanos(*cell as u64)))
        }
    };
    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    pen.gap(1).write(&of_cell, dim).gap(2);
    for (shade, words) in theme.glyphs.shades.iter().skip(1).zip(["to 25%", "50%", "75%", "100%"]) {
        pen.repeat(*shade, 1, theme.style(Role::Plain)).gap(1).write(words, dim).gap(2);
    }
    pen.repeat(theme.glyphs.dot, 1, dim).gap(1).write("no data", dim).gap(2);
    pen.write("v: CPUs", dim);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{RowKind, derive};
    use crate::source::synthetic::demo_machine;

    fn demo(seconds: usize) -> Curve {
        let mut machine = demo_machine();
        let (mut before, mut curve) = (machine.tick(), Curve::default());
        for _ in 0..seconds {
            let sample = machine.tick();
            curve.take(&derive(&machine.host, Some(&before), &sample, RowKind::Processes));
            before = sample;
        }
        curve
    }

    #[test]
    fn each_interval_has_a_column_while_there_is_room() {
        let curve = demo(40);
        let columns = Columns::of(&curve, 57);
        assert!(matches!(columns, Columns::Intervals(_)));
        assert_eq!((columns.count(), columns.at(curve.points()[7].wall_ns)), (40, Some(7)));
        let busy = columns.shares(&curve, NodeId(1), |shares| shares.cpu);
        assert!(busy.iter().all(|share| share.is_some_and(|share| share > 0.4)), "{busy:?}");
    }

    #[test]
    fn later_columns_have_whole_seconds_and_stay_where_they_are() {
        let (before, after) = (demo(100), demo(101));
        let [before, after] = [&before, &after].map(|curve| Columns::of(curve, 57));
        let (Columns::Lengths { from, cell, .. }, Columns::Lengths { from: then, cell: now, .. }) =
            (&before, &after)
        else {
            panic!("more intervals than cells")
        };
        assert_eq!((*from, *cell), (*then, *now));
        assert_eq!((cell, from % cell), (&(2 * S), 0));
        assert!(before.count() <= 57 && after.count() <= 57);
        assert_eq!(before.count(), 51, "the last interval ends with a column");
    }

    #[test]
    fn nothing_kept_has_no_columns() {
        let columns = Columns::of(&Curve::default(), 57);
        assert_eq!((columns.count(), columns.at(0)), (0, None));
    }
}
