//! The metrics of a pair of nodes: from one to another.

use super::Unit;
use super::hardware::{self, Measured};
use super::pages::PAGES_IN;
use crate::model::facility::Facility;
use crate::model::sample::{Flow, Missing, Reading};
use crate::model::topology::Topology;
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;
use crate::text::clean_str;

/// A metric that a pair of nodes has.
pub struct PairMetric {
    /// The name in JSON.
    pub id: &'static str,
    /// The metric of nodes that goes missing together with it, or its own id: the host's reason is under this
    /// name.
    pub missing_as: &'static str,
    /// At most six characters: it is shown in the corner of the matrix.
    pub title: &'static str,
    pub unit: Unit,
    /// The meaning of row and column, and the source.
    pub help: &'static str,
    /// Of the node of the row to that of the column.
    pub value: fn(&Snapshot, NodeId, NodeId) -> Reading<f64>,
    /// Facilities that it needs beside those of every live view.
    pub needs: &'static [Facility],
    /// Its kind of cost between nodes; `None` for events between them.
    pub cost: Option<CostKind>,
}

/// Sources of the cost between two nodes, and its better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// The firmware's word.
    Claimed,
    /// Measured; more is worse.
    Measured,
    /// Measured; less is worse.
    MeasuredSpeed,
}

impl CostKind {
    /// The value between two nodes in parts of that at home; 1 and more is worse.
    pub fn times(self, value: f64, home: f64) -> f64 {
        match self {
            CostKind::Claimed | CostKind::Measured => value / home,
            CostKind::MeasuredSpeed => home / value,
        }
    }

    /// Whether it is a measurement.
    pub fn is_measured(self) -> bool {
        self != CostKind::Claimed
    }
}

impl PairMetric {
    /// The value.
    ///
    /// # Errors
    /// Why it is missing: the host's reason first if the host cannot measure it at all.
    pub fn read(&self, snapshot: &Snapshot, from: NodeId, to: NodeId) -> Reading<f64> {
        match snapshot.host_missing(self.missing_as) {
            Some(missing) => Err(missing.clone()),
            None => (self.value)(snapshot, from, to),
        }
    }

    /// The sources of its values, where they are not those of [`PairMetric::help`] alone.
    pub fn sources(&self, snapshot: &Snapshot) -> Option<String> {
        if self.cost.is_some_and(CostKind::is_measured) {
            let calibration = snapshot.host.topology.calibration.as_ref()?;
            return Some(format!("Measured {}.", clean_str(calibration.day())));
        }
        let pct = sampled_pct(snapshot).filter(|_| self.id == PAIR_METRICS[0].id)?;
        Some(format!("{pct:.0} % of the CPU time is weighted by sampled accesses, the rest by placement."))
    }

    /// Whether the rounds of a measured value agree, as far as they are known.
    pub fn is_sure(&self, topology: &Topology, from: NodeId, to: NodeId) -> bool {
        let measured = match self.cost {
            Some(CostKind::Measured) => hardware::latency_ns(topology, from, to),
            Some(CostKind::MeasuredSpeed) => hardware::bandwidth_gbs(topology, from, to),
            Some(CostKind::Claimed) | None => return true,
        };
        measured.map_or(true, Measured::is_sure)
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
        help: "Share of all memory accesses by CPUs of the row's node to memory of the column's. Estimated from \
               CPU time and memory by node, as if all pages were used equally.",
        value: |snapshot, from, to| {
            if snapshot.host.topology.nodes.len() == 1 {
                return Ok(100.0);
            }
            let pct = snapshot.accesses.pct(from, to);
            pct.ok_or_else(|| {
                Missing::NotCollected("the memory nodes of running tasks are not known yet".into())
            })
        },
        needs: &[],
        cost: None,
    },
    PairMetric {
        id: "task_migrations_per_s",
        missing_as: "task_migrations_per_s",
        title: "TASKS/s",
        unit: Unit::PerSecond,
        help: "Tasks that moved from the row's node to the column's. Moves within a node are not counted.",
        value: |snapshot, from, to| {
            if from == to {
                return Err(Missing::NotCollected("moves within a node are not counted".into()));
            }
            snapshot.rate(count(&snapshot.flows, from, to))
        },
        needs: &[Facility::TaskFlows],
        cost: None,
    },
    PairMetric {
        id: "pages_migrated_per_s",
        missing_as: PAGES_IN.id,
        title: "PAGES/s",
        unit: Unit::PerSecond,
        help: "Pages that NUMA balancing moved from the row's node to the column's. Excludes pages moved by system \
               calls of a process.",
        value: |snapshot, from, to| {
            if from == to {
                return Err(Missing::NotCollected("NUMA balancing moves pages only to other nodes".into()));
            }
            snapshot.rate(count(&snapshot.page_flows, from, to))
        },
        needs: &[Facility::NumaFields, Facility::MovedPages, Facility::PageFlows],
        cost: None,
    },
    PairMetric {
        id: "distance",
        missing_as: "distance",
        title: "SLIT",
        unit: Unit::Id,
        help: "Distance from the row's node to the column's (ACPI SLIT); 10 is local, 20 twice as far. A firmware \
               value, not a measurement.",
        value: |snapshot, from, to| {
            let distance = snapshot.host.topology.distance(from, to).map(f64::from);
            distance.ok_or_else(|| Missing::NotCollected("one of the nodes is not online".into()))
        },
        needs: &[],
        cost: Some(CostKind::Claimed),
    },
    PairMetric {
        id: hardware::LATENCY.id,
        missing_as: hardware::LATENCY.id,
        title: "ns",
        unit: Unit::Nanoseconds,
        help: "Latency of a load on CPUs of the row's node from memory of the column's, in ns, measured by \
               numatop-ng calibrate on the idle machine; ~ if rounds differ by more than 3 %.",
        value: |snapshot, from, to| {
            hardware::latency_ns(&snapshot.host.topology, from, to).map(|ns| ns.value)
        },
        needs: &[],
        cost: Some(CostKind::Measured),
    },
    PairMetric {
        id: hardware::BANDWIDTH.id,
        missing_as: hardware::BANDWIDTH.id,
        title: "GB/s",
        unit: Unit::GigabytesPerSecond,
        help: "Bandwidth of reads by all cores of the row's node from memory of the column's, in GB/s (10^9 \
               bytes), measured by numatop-ng calibrate on the idle machine; ~ if rounds differ by more than 3 %.",
        value: |snapshot, from, to| {
            hardware::bandwidth_gbs(&snapshot.host.topology, from, to).map(|gbs| gbs.value)
        },
        needs: &[],
        cost: Some(CostKind::MeasuredSpeed),
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

/// The costs of memory of a node on CPUs of another: measured, and according to the firmware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairCost {
    pub to: NodeId,
    /// Latency, ns.
    pub latency: Option<Measured>,
    /// Latency relative to that at home; known even if CPUs wander, when times are not.
    pub times: Option<f64>,
    /// Reads, GB/s.
    pub reads: Option<Measured>,
    /// Reads in percent of those at home.
    pub reads_pct: Option<f64>,
    /// The firmware's distance.
    pub slit: Option<u32>,
}

/// The costs of memory of all nodes on CPUs of `from`: its own node first, then the nearest; empty without a
/// measurement.
pub fn costs(topology: &Topology, from: NodeId) -> Vec<PairCost> {
    if topology.node(from).is_none_or(|node| node.measured.is_empty()) {
        return Vec::new();
    }
    let reads = |to| hardware::bandwidth_gbs(topology, from, to).ok();
    let home = reads(from);
    let of = |to: NodeId| PairCost {
        to,
        latency: hardware::latency_ns(topology, from, to).ok(),
        times: topology.measured_ratio(from, to),
        reads: reads(to),
        reads_pct: home.zip(reads(to)).map(|(home, reads)| 100.0 * reads.value / home.value),
        slit: topology.distance(from, to),
    };
    let mut all: Vec<PairCost> = topology.nodes.iter().map(|node| of(node.id)).collect();
    all.sort_by(|a, b| {
        let far = |cost: &PairCost| (cost.to != from, cost.times.unwrap_or(f64::MAX));
        far(a).partial_cmp(&far(b)).unwrap_or(std::cmp::Ordering::Equal).then(a.to.cmp(&b.to))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::{Calibration, Cost};

    /// Two nodes, the first of them measured: 82 ns and 172 GB/s at home.
    fn measured() -> Topology {
        let mut topology = crate::model::demo::facts().topology;
        let cost = |node, ns: u64, gbs: u64, error_ps| Cost {
            node,
            latency_ps: Some(ns * 1000),
            read_bytes_per_s: Some(gbs * 1_000_000_000),
            latency_error_ps: Some(error_ps),
            read_error_bytes_per_s: None,
        };
        topology.nodes.truncate(2);
        topology.nodes[1].measured.clear();
        let ids: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
        topology.nodes[0].measured = vec![cost(ids[0], 80, 172, 1_000), cost(ids[1], 136, 86, 20_000)];
        topology.calibration =
            Some(Calibration { time: "2026-11-22T10:03:00Z".into(), ..Calibration::default() });
        topology
    }

    fn metric(kind: CostKind) -> &'static PairMetric {
        PAIR_METRICS.iter().find(|metric| metric.cost == Some(kind)).unwrap()
    }

    #[test]
    fn costs_begin_at_home_and_have_the_firmware_s_word_beside_them() {
        let topology = measured();
        let [home, far] = costs(&topology, NodeId(0))[..] else { panic!("two nodes") };
        assert_eq!((home.times, home.reads_pct, home.slit), (Some(1.0), Some(100.0), Some(10)));
        assert_eq!((far.times, far.reads_pct, far.slit), (Some(1.7), Some(50.0), Some(12)));
        assert_eq!(far.latency, Some(Measured { value: 136.0, error: Some(20.0) }));
        assert_eq!(costs(&topology, NodeId(1)), [], "nothing was measured from there");
    }

    #[test]
    fn numbers_whose_rounds_differ_are_not_sure() {
        let topology = measured();
        let latency = metric(CostKind::Measured);
        assert!(latency.is_sure(&topology, NodeId(0), NodeId(0)));
        assert!(!latency.is_sure(&topology, NodeId(0), NodeId(1)), "20 of 136 ns");
        assert!(metric(CostKind::MeasuredSpeed).is_sure(&topology, NodeId(0), NodeId(1)), "one round");
    }

    #[test]
    fn cpus_that_wander_have_ratios_only() {
        let mut topology = measured();
        topology.calibration.as_mut().unwrap().only_ratios = true;
        let far = costs(&topology, NodeId(0))[1];
        assert_eq!((far.latency, far.times), (None, Some(1.7)));
        let why = hardware::latency_ns(&topology, NodeId(0), NodeId(1)).unwrap_err().to_string();
        assert!(why.contains("the hypervisor moves the CPUs"), "{why}");
    }

    #[test]
    fn a_number_that_is_missing_says_why() {
        let why = |topology: &Topology| {
            hardware::bandwidth_gbs(topology, NodeId(0), NodeId(1)).unwrap_err().to_string()
        };
        let mut topology = measured();
        for node in &mut topology.nodes {
            node.measured.clear();
        }
        assert_eq!(why(&topology), "this pair of nodes was not measured");
        topology.calibration.as_mut().unwrap().unused = Some("it has 4 nodes".into());
        assert_eq!(why(&topology), "the stored measurement is not used: it has 4 nodes");
        topology.calibration = None;
        assert_eq!(why(&topology), "not measured on this machine: run numatop-ng calibrate");
    }
}
