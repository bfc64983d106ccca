//! The metrics of a pair of nodes: from one to another.

use super::Unit;
use super::page_migrations::PAGES_IN;
use crate::model::facility::Facility;
use crate::model::sample::{Flow, Missing, Reading};
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;

/// A metric that a pair of nodes has.
pub struct PairMetric {
    /// The name in JSON.
    pub id: &'static str,
    /// The metric of nodes that goes missing together with it, or its own id: the host says why under this name.
    pub missing_as: &'static str,
    /// At most six characters: it stands in the corner of the matrix.
    pub title: &'static str,
    pub unit: Unit,
    /// The meaning of row and column, and the source.
    pub help: &'static str,
    /// Of the node of the row to that of the column.
    pub value: fn(&Snapshot, NodeId, NodeId) -> Reading<f64>,
    /// Facilities that it needs beside those of every live view.
    pub needs: &'static [Facility],
}

impl PairMetric {
    /// The value.
    ///
    /// # Errors
    /// Why there is none: the host's reason first when the host cannot measure it at all.
    pub fn read(&self, snapshot: &Snapshot, from: NodeId, to: NodeId) -> Reading<f64> {
        match snapshot.host_missing(self.missing_as) {
            Some(missing) => Err(missing.clone()),
            None => (self.value)(snapshot, from, to),
        }
    }

    /// The sources of its values, where they are not those of [`PairMetric::help`] alone.
    pub fn sources(&self, snapshot: &Snapshot) -> Option<String> {
        let pct = sampled_pct(snapshot).filter(|_| self.id == PAIR_METRICS[0].id)?;
        Some(format!(
            "{pct:.0} % of the time is that of processes whose accesses are sampled, and counts as they say; the rest is from \
             placement."
        ))
    }

    /// The largest value between two different nodes: what heat is measured by.
    pub fn largest(&self, snapshot: &Snapshot) -> f64 {
        let nodes = || snapshot.nodes.iter().map(|node| NodeId(node.raw.id));
        let pairs = nodes().flat_map(|from| nodes().map(move |to| (from, to)));
        let values =
            pairs.filter(|(from, to)| from != to).filter_map(|(a, b)| self.read(snapshot, a, b).ok());
        values.fold(0.0, f64::max)
    }
}

/// All metrics of pairs, in the order in which the screen goes through them.
pub static PAIR_METRICS: &[PairMetric] = &[
    PairMetric {
        id: "accesses_pct",
        missing_as: "accesses_pct",
        title: "ACCESS%",
        unit: Unit::Percent,
        help: "Share of all memory accesses: CPUs of the row's node, memory of the column's. Estimated from where \
               tasks ran and where their memory is, as if every page were used as often as any other.",
        value: |snapshot, from, to| {
            if snapshot.host.topology.nodes.len() == 1 {
                return Ok(100.0);
            }
            let pct = snapshot.accesses.pct(from, to);
            pct.ok_or_else(|| {
                Missing::NotCollected("the memory of what ran has not been looked at yet".into())
            })
        },
        needs: &[],
    },
    PairMetric {
        id: "task_migrations_per_s",
        missing_as: "task_migrations_per_s",
        title: "TASKS/s",
        unit: Unit::PerSecond,
        help: "Tasks that ran on the column's node after they had run on the row's. Moves within a node are not counted.",
        value: |snapshot, from, to| {
            if from == to {
                return Err(Missing::NotCollected("moves within a node are not counted".into()));
            }
            snapshot.rate(count(&snapshot.flows, from, to))
        },
        needs: &[Facility::TaskFlows],
    },
    PairMetric {
        id: "pages_migrated_per_s",
        missing_as: PAGES_IN.id,
        title: "PAGES/s",
        unit: Unit::PerSecond,
        help: "Pages that NUMA balancing moved from the row's node to the column's. Pages that are moved because a \
               process asks for it are not among them.",
        value: |snapshot, from, to| {
            if from == to {
                return Err(Missing::NotCollected("balancing moves pages to other nodes only".into()));
            }
            snapshot.rate(count(&snapshot.page_flows, from, to))
        },
        needs: &[Facility::NumaFields, Facility::MovedPages, Facility::PageFlows],
    },
    PairMetric {
        id: "distance",
        missing_as: "distance",
        title: "SLIT",
        unit: Unit::Id,
        help: "Distance from the row's node to the column's (ACPI SLIT); 10 is local, 20 twice as far. It is the \
           firmware's word, not a measurement.",
        value: |snapshot, from, to| {
            let distance = snapshot.host.topology.distance(from, to).map(f64::from);
            distance.ok_or_else(|| Missing::NotCollected("one of the nodes is not online".into()))
        },
        needs: &[],
    },
];

/// Share of the time behind accesses_pct that is from sampled accesses, in per cent; `None` where no process was sampled.
pub fn sampled_pct(snapshot: &Snapshot) -> Option<f64> {
    let several = snapshot.host.topology.nodes.len() > 1;
    snapshot.accesses.sampled_pct().filter(|pct| several && *pct > 0.0)
}

/// The count from one node to the other, of flows in their order.
fn count(flows: &[Flow], from: NodeId, to: NodeId) -> u64 {
    let at = flows.binary_search_by_key(&(from, to), |flow| (flow.from, flow.to));
    at.map_or(0, |at| flows[at].count)
}
