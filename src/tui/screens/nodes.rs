//! The table of nodes, above the facts of the selected one. Sockets and L3 domains, a matrix from node to node, or
//! maps of nodes over time may replace both.

mod cpus;
mod facts;
mod matrix;
mod over_time;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Answer, Screen, Subject};
use crate::finding;
use crate::metric::cpu_set::{CPU_SET_METRICS, PLACE};
use crate::metric::matrix::{PAIR_METRICS, PairMetric};
use crate::metric::node::{NODE, NODE_METRICS};
use crate::metric::{Metric, Order};
use crate::model::units::NodeId;
use crate::snapshot::{CpuSet, Node, SetKind, Snapshot};
use crate::text::quantity::percent;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, Effect, ScreenId};
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::columns;
use crate::tui::widgets::layout::below;
use crate::tui::widgets::list::{List, ListRow, Tabular};
use crate::tui::widgets::pen::{Pen, curve};
use crate::tui::widgets::table::{Look, Sort};

/// Rows that the part below the table needs to be worth drawing.
const FACTS_MIN: u16 = 4;
/// Width from which on each node has a row of history, and rows that are left to the facts.
const HISTORY_FROM: u16 = 100;
const FACTS_ENOUGH: u16 = 7;

impl ListRow for Node {
    type Key = NodeId;
    /// They stay as they are: by id.
    type Tie = ();
    /// Numbers do not need a wider column.
    const NAME: &'static str = "";
    const FIXED: &'static [&'static str] = &[NODE.id];

    fn metrics() -> &'static [Metric<Node>] {
        NODE_METRICS
    }

    fn all(snapshot: &Snapshot) -> &[Node] {
        &snapshot.nodes
    }

    fn key(&self) -> NodeId {
        NodeId(self.raw.id)
    }

    fn tie(&self) {}

    fn columns(width: u16, snapshot: &Snapshot, sorted: &str) -> Vec<&'static Metric<Node>> {
        columns::nodes_for(width, &snapshot.host, sorted)
    }
}

impl ListRow for CpuSet {
    type Key = (SetKind, u32);
    /// Sockets before L3 domains, each by number.
    type Tie = (SetKind, u32);
    const NAME: &'static str = "";
    const FIXED: &'static [&'static str] = &[PLACE.id];

    fn metrics() -> &'static [Metric<CpuSet>] {
        CPU_SET_METRICS
    }

    fn all(snapshot: &Snapshot) -> &[CpuSet] {
        &snapshot.cpu_sets
    }

    fn key(&self) -> (SetKind, u32) {
        (self.kind, self.id)
    }

    fn tie(&self) -> (SetKind, u32) {
        self.key()
    }

    fn columns(width: u16, snapshot: &Snapshot, sorted: &str) -> Vec<&'static Metric<CpuSet>> {
        columns::cpu_sets_for(width, &snapshot.host, sorted)
    }
}

/// The part of the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Table,
    CpuSets,
    /// One of [`PAIR_METRICS`] from node to node.
    Pairs(usize),
    OverTime,
    /// A cell for each CPU.
    Cpus,
}

pub struct Nodes {
    pub list: List<Node>,
    sets: List<CpuSet>,
    shown: Shown,
    /// A socket that is selected once its rows are there.
    wanted: Option<u32>,
    /// The first column of that matrix, where not all fit.
    first_column: usize,
}

impl Default for Nodes {
    /// Sorted by node id.
    fn default() -> Nodes {
        let metric = &NODE_METRICS[0];
        let sort = Sort { metric, reversed: metric.order == Order::Descending };
        let place = &CPU_SET_METRICS[0];
        let sets = List::new(Sort { metric: place, reversed: false });
        Nodes { list: List::new(sort), sets, shown: Shown::Table, wanted: None, first_column: 0 }
    }
}

impl Nodes {
    /// The metric of the matrix; `None` while the table is shown.
    fn matrix(&self) -> Option<&'static PairMetric> {
        match self.shown {
            Shown::Pairs(at) => PAIR_METRICS.get(at),
            Shown::Table | Shown::CpuSets | Shown::OverTime | Shown::Cpus => None,
        }
    }

    /// From the table through all matrices, and sockets and L3 domains where there are some of their own, and back.
    fn next_part(&mut self, snapshot: Option<&Snapshot>) {
        let has_sets = snapshot.is_some_and(|snapshot| !snapshot.cpu_sets.is_empty());
        self.shown = match self.shown {
            Shown::Table | Shown::OverTime | Shown::Cpus => Shown::Pairs(0),
            Shown::Pairs(at) if at + 1 < PAIR_METRICS.len() => Shown::Pairs(at + 1),
            Shown::Pairs(_) if has_sets => Shown::CpuSets,
            Shown::Pairs(_) | Shown::CpuSets => Shown::Table,
        };
    }

    /// Moves the columns of the matrix.
    fn shift_columns(&mut self, right: bool) {
        let last = self.list.rows().len().saturating_sub(1);
        self.first_column =
            if right { (self.first_column + 1).min(last) } else { self.first_column.saturating_sub(1) };
    }
}

/// Its number, if it is a socket.
fn socket_of(set: &CpuSet) -> Option<u32> {
    (set.kind == SetKind::Socket).then_some(set.id)
}

/// Divides `area` between the table and the facts below it.
fn split(area: Rect, snapshot: Option<&Snapshot>) -> (Rect, Rect) {
    let rows = snapshot.map_or(0, |snapshot| snapshot.nodes.len()).min(1 << 15) as u16 + 1;
    let left = area.height.saturating_sub(rows);
    let table = Rect { height: if left < FACTS_MIN { area.height } else { rows }, ..area };
    (table, Rect { y: table.bottom(), height: area.height - table.height, ..area })
}

/// Divides the area below the table between a row of history for each node and the facts of the selected one.
/// The facts get their lines first.
fn split_history(area: Rect, nodes: usize) -> (Rect, Rect) {
    let rows = u16::try_from(nodes).unwrap_or(u16::MAX).saturating_add(2);
    let has_room = area.width >= HISTORY_FROM && area.height >= rows.saturating_add(FACTS_ENOUGH);
    let height = if has_room { rows } else { 0 };
    let (history, facts) = (Rect { height, ..area }, below(area, height));
    (history, facts)
}

/// CPU time and remote share of each node in the last intervals, the newest at the right.
fn history(state: &State, snapshot: &Snapshot, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let theme = &state.theme;
    let dim = theme.style(Role::Dim);
    // Two curves with their labels and numbers.
    let width = usize::from((area.width - 8) / 2 - 15);
    let points = state.curve.last(width, snapshot.wall_ns);
    let seconds = points.iter().map(|point| point.length_ns).sum::<i64>() / 1_000_000_000;
    let title = format!("History  {seconds} s, 0 to 100%");
    Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(&title, theme.style(Role::Title));
    let mut nodes: Vec<NodeId> = snapshot.nodes.iter().map(|node| NodeId(node.raw.id)).collect();
    nodes.sort_unstable();
    for (row, id) in (2..area.height).zip(nodes) {
        let of = |share| state.curve.of_node(id, width, snapshot.wall_ns, share);
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        pen.gap(1).write(&format!("node {id}"), theme.style(Role::Plain)).column(area.x, 8);
        for (label, shares, role) in [
            ("CPU", of(|shares| shares.cpu), Role::Local),
            ("remote", of(|shares| shares.remote), Role::Remote),
        ] {
            pen.gap(1).write(label, dim).gap(1);
            curve(&mut pen, &shares, role, theme);
            let now = shares.last().copied().flatten();
            let now = now.map_or("-".into(), |share| format!("{}%", percent(share * 100.0)));
            pen.write_right(&now, 7, theme.style(Role::Plain));
        }
    }
}

impl Screen for Nodes {
    fn context(&self) -> u16 {
        context::NODES
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        let (Some(snapshot), theme) = (state.snapshot(), &state.theme) else { return };
        if let Some(metric) = self.matrix() {
            return matrix::render(snapshot, &self.list, self.first_column, metric, theme, area, buf);
        }
        if self.shown == Shown::CpuSets {
            return self.sets.draw(snapshot, theme, area, buf, |set| {
                let socket = socket_of(set).map(finding::Subject::Socket);
                let severity = socket.and_then(|socket| state.marks.get(&socket).copied());
                Look { severity, ..Look::default() }
            });
        }
        if self.shown == Shown::OverTime {
            return over_time::render(state, snapshot, &self.list, area, buf);
        }
        if self.shown == Shown::Cpus {
            return cpus::render(snapshot, theme, area, buf);
        }
        let (table_area, facts_area) = split(area, Some(snapshot));
        self.list.draw(snapshot, theme, table_area, buf, |node| {
            let severity = state.marks.get(&finding::Subject::Node(node.key())).copied();
            Look { severity, ..Look::default() }
        });
        let (history_area, facts_area) = split_history(facts_area, snapshot.nodes.len());
        history(state, snapshot, history_area, buf);
        if let Some(node) = self.list.selected(snapshot) {
            facts::render(snapshot, node, theme, facts_area, buf);
        }
    }

    fn list(&self, body: Rect, state: &State) -> Rect {
        match self.shown {
            Shown::CpuSets => below(body, 1),
            Shown::OverTime => {
                over_time::list(body, state.snapshot().map_or(0, |snapshot| snapshot.nodes.len()))
            }
            Shown::Table | Shown::Pairs(_) | Shown::Cpus => below(split(body, state.snapshot()).0, 1),
        }
    }

    fn arrange(&mut self, state: &State, height: usize) {
        if let Some(snapshot) = state.snapshot() {
            self.list.arrange(snapshot, height, |_| true, usize::MAX);
            // Caches that are the sockets would say the same twice.
            let is_new = |set: &CpuSet| {
                set.kind == SetKind::Socket
                    || snapshot.sets(SetKind::Socket).all(|socket| socket.cpus != set.cpus)
            };
            self.sets.arrange(snapshot, height, is_new, usize::MAX);
            let wanted = self.wanted.take().map(|id| (SetKind::Socket, id));
            let at = wanted.and_then(|wanted| self.sets.keys().iter().position(|key| *key == wanted));
            at.inspect(|at| self.sets.select(*at, height));
        }
    }

    /// The sockets, at the one selected elsewhere.
    fn open(&mut self, subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        if let Some(Subject::Socket(id)) = subject {
            (self.shown, self.wanted) = (Shown::CpuSets, Some(id));
        }
        Ok(None)
    }

    fn subject(&self, state: &State) -> Option<Subject> {
        let snapshot = state.snapshot()?;
        if self.shown == Shown::CpuSets {
            return socket_of(self.sets.selected(snapshot)?).map(Subject::Socket);
        }
        self.list.selected(snapshot).map(|node| Subject::Node(node.key()))
    }

    /// Tasks of the node; tasks are not kept by socket.
    fn leads_to(&self) -> Option<ScreenId> {
        (self.shown != Shown::CpuSets).then_some(ScreenId::Tasks)
    }

    fn table(&self) -> Option<&dyn Tabular> {
        Some(if self.shown == Shown::CpuSets { &self.sets } else { &self.list })
    }

    fn table_mut(&mut self) -> Option<&mut dyn Tabular> {
        Some(if self.shown == Shown::CpuSets { &mut self.sets } else { &mut self.list })
    }

    fn act(&mut self, action: Action, _height: usize, state: &mut State) -> Answer {
        match action {
            Action::Matrix => self.next_part(state.snapshot()),
            Action::OverTime => {
                self.shown = match self.shown {
                    Shown::OverTime => Shown::Cpus,
                    Shown::Cpus => Shown::Table,
                    _ => Shown::OverTime,
                };
            }
            Action::SortLeft | Action::ScrollLeft if self.matrix().is_some() => self.shift_columns(false),
            Action::SortRight | Action::ScrollRight if self.matrix().is_some() => self.shift_columns(true),
            _ => return Answer::Ignored,
        }
        Answer::Done
    }
}
