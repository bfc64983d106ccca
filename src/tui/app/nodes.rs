//! The list of nodes: how it is sorted and which one is selected.

use super::cursor::Cursor;
use crate::metric::matrix::{PAIR_METRICS, PairMetric};
use crate::metric::node::NODE_METRICS;
use crate::metric::{Metric, Order, Value};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::tui::action::Motion;
use crate::tui::columns::{self, Columns};
use crate::tui::widget::table::Sort;

pub struct NodeList {
    pub sort: Sort<Node>,
    /// Chosen by hand; `None` lets the width decide.
    pub columns: Option<Vec<&'static Metric<Node>>>,
    pub cursor: Cursor<NodeId>,
    /// Which of [`PAIR_METRICS`] is shown from node to node, instead of the table.
    pub pairs: Option<usize>,
    /// The first column of that matrix, where not all fit.
    pub first_column: usize,
    /// Indexes into `Snapshot::nodes`.
    rows: Vec<usize>,
    keys: Vec<NodeId>,
}

impl Default for NodeList {
    /// Sorted by node id.
    fn default() -> NodeList {
        let metric = &NODE_METRICS[0];
        let sort = Sort { metric, reversed: metric.order == Order::Descending };
        NodeList {
            sort,
            columns: None,
            cursor: Cursor::new(),
            pairs: None,
            first_column: 0,
            rows: Vec::new(),
            keys: Vec::new(),
        }
    }
}

impl NodeList {
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Sorts the nodes; those without a value come last, ties by id.
    pub fn arrange(&mut self, snapshot: &Snapshot, height: usize) {
        let key = |node: &Node| -> Option<f64> {
            self.sort.metric.read(node, snapshot).ok().as_ref().and_then(Value::number)
        };
        let mut keyed: Vec<(usize, Option<f64>)> =
            snapshot.nodes.iter().enumerate().map(|(at, node)| (at, key(node))).collect();
        let descending = self.sort.descending();
        keyed.sort_by(|(_, a), (_, b)| match (a, b) {
            (Some(a), Some(b)) if descending => b.total_cmp(a),
            (Some(a), Some(b)) => a.total_cmp(b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        self.rows = keyed.into_iter().map(|(at, _)| at).collect();
        self.keys = self.rows.iter().map(|at| NodeId(snapshot.nodes[*at].raw.id)).collect();
        self.cursor.settle(&self.keys, height);
    }

    pub fn go(&mut self, motion: Motion, height: usize) {
        self.cursor.go(motion, &self.keys, height);
    }

    pub fn select(&mut self, at: usize, height: usize) {
        self.cursor.select(at, &self.keys, height);
    }

    /// From the table through all matrices and back.
    pub fn next_matrix(&mut self) {
        let next = self.pairs.map_or(0, |at| at + 1);
        self.pairs = (next < PAIR_METRICS.len()).then_some(next);
    }

    /// The metric of the matrix; `None` while the table is shown.
    pub fn matrix(&self) -> Option<&'static PairMetric> {
        self.pairs.and_then(|at| PAIR_METRICS.get(at))
    }

    /// Moves the columns of the matrix.
    pub fn shift_columns(&mut self, right: bool) {
        let last = self.rows.len().saturating_sub(1);
        self.first_column =
            if right { (self.first_column + 1).min(last) } else { self.first_column.saturating_sub(1) };
    }

    /// The selected node.
    pub fn selected<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Node> {
        self.rows.get(self.cursor.at()).and_then(|at| snapshot.nodes.get(*at))
    }

    pub fn columns_at(&self, width: u16, snapshot: &Snapshot) -> Columns<Node> {
        match &self.columns {
            Some(chosen) => columns::place(chosen, width, ""),
            None => {
                columns::place(&columns::nodes_for(width, &snapshot.host, self.sort.metric.id), width, "")
            }
        }
    }
}
