//! Amounts between pairs of nodes: accesses, tasks, pages.

use super::track::Grid;
use crate::model::sample::Flow;
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;

/// Nodes up to which amounts are kept by part of the time, too.
const NODES_BY_PART: usize = 8;

/// Amounts by node of the row, then by node of the column.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    size: usize,
    sums: Vec<f64>,
    /// The same by part of the time; empty where there are too many nodes.
    pub by_part: Vec<Vec<f32>>,
}

impl Matrix {
    fn new(size: usize, parts: &Grid) -> Matrix {
        let by_part = if (2..=NODES_BY_PART).contains(&size) { parts.count } else { 0 };
        Matrix { size, sums: vec![0.0; size * size], by_part: vec![vec![0.0; size * size]; by_part] }
    }

    fn add(&mut self, (from, to): (usize, usize), amount: f64, parts: &[(usize, f64)]) {
        let at = from * self.size + to;
        self.sums[at] += amount;
        for (part, share) in parts {
            if let Some(sums) = self.by_part.get_mut(*part) {
                sums[at] += (amount * share) as f32;
            }
        }
    }

    /// The amount of a pair, by places of nodes.
    pub fn sum(&self, from: usize, to: usize) -> f64 {
        self.sums.get(from * self.size + to).copied().unwrap_or(0.0)
    }

    /// The total.
    pub fn all(&self) -> f64 {
        self.sums.iter().sum()
    }

    /// The part between different nodes.
    pub fn between(&self) -> f64 {
        let own: f64 = (0..self.size).map(|node| self.sum(node, node)).sum();
        self.all() - own
    }

    /// The largest amount between different nodes.
    pub fn most_between(&self) -> f64 {
        let pairs = (0..self.size).flat_map(|from| (0..self.size).map(move |to| (from, to)));
        pairs.filter(|(from, to)| from != to).map(|(from, to)| self.sum(from, to)).fold(0.0, f64::max)
    }
}

/// All amounts between nodes.
#[derive(Clone, Debug, Default)]
pub struct Matrices {
    /// Ids of the nodes, ascending.
    pub nodes: Vec<u32>,
    /// Time on a CPU by the node that ran and that of the memory it used meanwhile, ns.
    pub accesses: Matrix,
    /// The time behind `accesses`, and the part with sampled accesses, ns; the rest is from placement.
    pub known_ns: f64,
    /// See `known_ns`.
    pub sampled_ns: f64,
    /// Tasks and pages that moved.
    pub tasks: Matrix,
    /// See `tasks`.
    pub pages: Matrix,
}

impl Matrices {
    /// Of these nodes.
    pub fn new(nodes: &[u32], parts: &Grid) -> Matrices {
        let matrix = || Matrix::new(nodes.len(), parts);
        Matrices {
            nodes: nodes.to_vec(),
            accesses: matrix(),
            known_ns: 0.0,
            sampled_ns: 0.0,
            tasks: matrix(),
            pages: matrix(),
        }
    }

    /// Adds an interval, which belongs to these parts.
    pub fn take(&mut self, snapshot: &Snapshot, parts: &[(usize, f64)]) {
        if self.nodes.len() < 2 {
            return;
        }
        let (known_ns, sampled_ns) = snapshot.accesses.known_ns();
        self.known_ns += known_ns;
        self.sampled_ns += sampled_ns;
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                let ns = snapshot.accesses.ns(NodeId(self.nodes[from]), NodeId(self.nodes[to]));
                if ns > 0.0 {
                    self.accesses.add((from, to), ns, parts);
                }
            }
        }
        let place = |node: NodeId| self.nodes.binary_search(&node.0).ok();
        let pairs = |flows: &[Flow]| -> Vec<((usize, usize), f64)> {
            let pair = |flow: &Flow| Some(((place(flow.from)?, place(flow.to)?), flow.count as f64));
            flows.iter().filter_map(pair).collect()
        };
        let (tasks, pages) = (pairs(&snapshot.flows), pairs(&snapshot.page_flows));
        tasks.into_iter().for_each(|(pair, count)| self.tasks.add(pair, count, parts));
        pages.into_iter().for_each(|(pair, count)| self.pages.add(pair, count, parts));
    }

    /// Share of the time behind accesses that is from sampled accesses, 0..=100; 0 where none is known.
    pub fn sampled_pct(&self) -> f64 {
        if self.known_ns > 0.0 { self.sampled_ns * 100.0 / self.known_ns } else { 0.0 }
    }
}
