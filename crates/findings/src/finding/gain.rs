//! CPU time that can be won, in CPU-seconds per second: arithmetic over measured values, with its assumptions.

use crate::model::topology::{MAX_ID, Topology};
use crate::model::units::NodeId;

/// The largest cost of a remote access, in local ones. Another socket of an FT-2500 gives 30 % of the local
/// bandwidth while its firmware claims 10 times the distance (S1).
const RATIO_MAX: f64 = 3.3;

/// The same for measured costs: a recording may contain any number.
const MEASURED_MAX: f64 = 20.0;

/// Weight of a modelled gain in the order of findings: the median of saved by modelled time in four cases of the field (S1).
const MODEL_WEIGHT: f64 = 0.4;

/// The least gain that is worth a warning, in CPUs, and as a share of the subject's use. A finding below that
/// costs less than a wrong move. VTune highlights a program unit from 5 % on (S5).
const WORTH_CPUS: f64 = 0.1;
const WORTH_SHARE: f64 = 0.05;

/// The formula of a gain, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arithmetic {
    /// Memory nearer to where it is used: 1 − then / now, times the share of time that waits.
    Placement {
        /// Mean cost of an access now, in local ones.
        now: f64,
        /// The same for the placement that is proposed.
        then: f64,
        /// Share of time that waits for the back end; 1 where it is not counted.
        phi: f64,
    },
    /// Time that NUMA balancing took.
    Scans,
    /// Waiting for CPUs, or being stopped by a quota, while CPUs are idle: the lesser of the two.
    Waiting {
        /// CPU-seconds per second.
        wait: f64,
        /// CPUs that are idle.
        idle: f64,
    },
    /// Time with a busy SMT sibling, by the speed of a thread beside one.
    Siblings {
        /// Share of time with a busy sibling.
        busy: f64,
        /// Speed with a busy sibling, as a share of that with an idle one.
        k: f64,
    },
    /// Time that interrupts took.
    Interrupts,
    /// Moves between nodes, each at the cost of a cold cache.
    Moves {
        /// Moves per second.
        per_s: f64,
    },
    /// Cycles per instruction, by those of twins that do the same work.
    Twins {
        /// Its cycles per instruction.
        cpi: f64,
        /// The same of its twins.
        twins: f64,
    },
}

impl Arithmetic {
    /// The word in JSON.
    pub fn id(&self) -> &'static str {
        match self {
            Arithmetic::Placement { .. } => "placement",
            Arithmetic::Scans => "scans",
            Arithmetic::Waiting { .. } => "waiting",
            Arithmetic::Siblings { .. } => "siblings",
            Arithmetic::Interrupts => "interrupts",
            Arithmetic::Moves { .. } => "moves",
            Arithmetic::Twins { .. } => "twins",
        }
    }

    /// Whether it is a model of accesses, not a measured time.
    fn is_modelled(&self) -> bool {
        matches!(self, Arithmetic::Placement { .. } | Arithmetic::Siblings { .. } | Arithmetic::Twins { .. })
    }
}

/// Something that a gain takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assumption {
    /// It does nothing but wait for memory.
    WaitsForMemoryOnly,
    /// All time at instructions that access memory of other nodes is waiting.
    MemoryTimeWaits,
    /// Distances are those of the firmware, not measured.
    FirmwareDistances,
    /// Accesses cost what `calibrate` measured on an idle machine.
    MeasuredDistances,
    /// Its pages are used alike.
    PagesUsedAlike,
    /// Its placement stays as good without balancing.
    PlacementStays,
    /// A second thread of a core adds nothing, because that is not counted.
    SiblingsAddNothing,
    /// A second thread of a core adds as little as in the worst of the loads of `calibrate`.
    MeasuredSiblings,
    /// All of its wait would have been work.
    WaitIsWork,
    /// Its twins do the same work.
    SameWork,
}

impl Assumption {
    /// The word in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Assumption::WaitsForMemoryOnly => "waits_for_memory_only",
            Assumption::MemoryTimeWaits => "memory_time_waits",
            Assumption::FirmwareDistances => "firmware_distances",
            Assumption::MeasuredDistances => "measured_distances",
            Assumption::PagesUsedAlike => "pages_used_alike",
            Assumption::PlacementStays => "placement_stays",
            Assumption::SiblingsAddNothing => "siblings_add_nothing",
            Assumption::MeasuredSiblings => "measured_siblings",
            Assumption::WaitIsWork => "wait_is_work",
            Assumption::SameWork => "same_work",
        }
    }

    /// The same behind "assumes".
    pub fn words(self) -> &'static str {
        match self {
            Assumption::WaitsForMemoryOnly => "memory-bound work",
            Assumption::MemoryTimeWaits => "all time in remote accesses is stall time",
            Assumption::FirmwareDistances => "SLIT distances",
            Assumption::MeasuredDistances => "measured distances",
            Assumption::PagesUsedAlike => "evenly used pages",
            Assumption::PlacementStays => "placement stays as good without NUMA balancing",
            Assumption::SiblingsAddNothing => "no throughput from busy SMT siblings",
            Assumption::MeasuredSiblings => "an SMT slowdown equal to calibrate's worst load",
            Assumption::WaitIsWork => "the whole wait becomes useful work",
            Assumption::SameWork => "the same work in both processes",
        }
    }
}

/// CPU time that can be won. Each part may be absent: not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gain {
    /// Measured time spent on exactly this, which ends with the command, in CPUs.
    pub at_least: Option<f64>,
    /// The largest part of the measured time that this can account for, in CPUs.
    pub at_most: Option<f64>,
    /// CPU time that the subject uses, in CPUs.
    pub of: Option<f64>,
    /// The formula.
    pub how: Option<Arithmetic>,
    /// Assumptions.
    pub assumes: Vec<Assumption>,
}

impl Gain {
    /// Whether a gain is known and too small for a warning. With `over` the question is whether it has become so, at three
    /// quarters of the limit.
    pub fn is_too_small(&self, over: bool) -> bool {
        let factor = if over { 0.75 } else { 1.0 };
        let Some(gain) = self.at_most.or(self.at_least) else { return false };
        gain < WORTH_CPUS * factor || self.of.is_some_and(|of| gain < of * WORTH_SHARE * factor)
    }

    /// The number that findings are ordered by, in CPUs; 0 where the gain is not known.
    pub fn weight(&self) -> f64 {
        let modelled = self.how.is_some_and(|how| how.is_modelled());
        let at_most = self.at_most.unwrap_or(0.0) * if modelled { MODEL_WEIGHT } else { 1.0 };
        self.at_least.unwrap_or(at_most)
    }
}

/// The cost of an access from one node to another, in local ones: measured, or else by the firmware's
/// distances.
pub fn ratio(topology: &Topology, from: NodeId, to: NodeId) -> f64 {
    if from == to {
        return 1.0;
    }
    if let Some(times) = topology.measured_ratio(from, to) {
        return times.clamp(1.0, MEASURED_MAX);
    }
    // A distance below 10 to another node is invalid.
    let distance = topology.distance(from, to).map_or(20.0, f64::from);
    (distance / 10.0).clamp(1.0, RATIO_MAX)
}

/// The costs of accesses between all pairs of nodes, found once: a model asks for each pair again and again.
#[derive(Debug, Default)]
pub struct Costs {
    /// Nodes below this one are in the table.
    side: u32,
    costs: Vec<f64>,
}

/// Nodes of a table at most, half a megabyte of costs.
const SIDE_MAX: u32 = 256;

impl Costs {
    /// The costs of a topology.
    pub fn of(topology: &Topology) -> Costs {
        let side =
            topology.nodes.iter().map(|node| node.id.0.saturating_add(1)).max().unwrap_or(0).min(SIDE_MAX);
        let ids = || (0..side).map(NodeId);
        let costs = ids().flat_map(|from| ids().map(move |to| ratio(topology, from, to))).collect();
        Costs { side, costs }
    }

    /// As [`ratio`], whose topology this is of.
    pub fn ratio(&self, topology: &Topology, from: NodeId, to: NodeId) -> f64 {
        if from.0 < self.side && to.0 < self.side {
            self.costs[(from.0 * self.side + to.0) as usize]
        } else {
            ratio(topology, from, to)
        }
    }
}

/// The source of all costs between nodes with CPUs: measurements if all have one, else the firmware.
pub fn distances(topology: &Topology) -> Assumption {
    let with_cpus = || topology.nodes.iter().filter(|node| !node.cpus.is_empty());
    let mut pairs = with_cpus().flat_map(|from| topology.nodes.iter().map(move |to| (from, to)));
    let is_measured = pairs.all(|(from, to)| {
        to.mem_total_bytes == 0 || from.id == to.id || topology.measured_ratio(from.id, to.id).is_some()
    });
    if is_measured && with_cpus().any(|node| !node.measured.is_empty()) {
        Assumption::MeasuredDistances
    } else {
        Assumption::FirmwareDistances
    }
}

/// Speed beside a busy sibling where it is not known: two threads that share a core evenly and gain nothing (S1).
const UNKNOWN_SPEED: f64 = 0.5;

/// The speed of a thread beside a busy one, as a share of its speed alone, where no counter has it. It is
/// half of the work of both together in the `calibrate` load with the least gain.
pub fn beside_sibling(topology: &Topology) -> (f64, Assumption) {
    match topology.calibration.as_ref().and_then(|calibration| calibration.smt_work) {
        Some((least, _)) => ((f64::from(least) / 2000.0).clamp(0.0, 1.0), Assumption::MeasuredSiblings),
        None => (UNKNOWN_SPEED, Assumption::SiblingsAddNothing),
    }
}

/// The mean cost of an access, in local ones, of something that ran and has its memory in these amounts by node id; `None`
/// where one of the two is nothing. `ratio`: the cost of an access from one node to another, in local ones.
pub fn mean_cost(ratio: impl Fn(NodeId, NodeId) -> f64, run: &[f64], memory: &[f64]) -> Option<f64> {
    let (ran, bytes): (f64, f64) = (run.iter().sum(), memory.iter().sum());
    if ran <= 0.0 || bytes <= 0.0 {
        return None;
    }
    let mut sum = 0.0;
    for (from, time) in (0..).zip(run).filter(|(_, time)| **time > 0.0) {
        for (to, held) in (0..).zip(memory).filter(|(_, held)| **held > 0.0) {
            sum += time / ran * held / bytes * ratio(NodeId(from), NodeId(to));
        }
    }
    Some(sum)
}

/// An amount, spread evenly over these nodes, by node id. Nodes beyond those of any kernel take none: a recording may name any.
pub fn evenly(nodes: &[NodeId], amount: f64) -> Vec<f64> {
    let nodes: Vec<NodeId> = nodes.iter().copied().filter(|node| node.0 <= MAX_ID).collect();
    let length = nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0);
    let mut spread = vec![0.0; length];
    for node in &nodes {
        spread[node.index()] += amount / nodes.len() as f64;
    }
    spread
}

/// The gain of a placement for `of` CPUs, from one mean cost to another. `phi` is the counted share of time
/// that waits, `costs` the source of the costs.
pub fn placement(of: f64, now: f64, then: f64, phi: Option<f64>, costs: Assumption) -> Gain {
    let waits = phi.unwrap_or(1.0).clamp(0.0, 1.0);
    let share = if now > 0.0 { (1.0 - then / now).max(0.0) } else { 0.0 };
    let mut assumes = vec![costs, Assumption::PagesUsedAlike];
    if phi.is_none() {
        assumes.insert(0, Assumption::WaitsForMemoryOnly);
    }
    Gain {
        at_least: None,
        at_most: Some(of * waits * share),
        of: Some(of),
        how: Some(Arithmetic::Placement { now, then, phi: waits }),
        assumes,
    }
}

/// The gain of bringing memory nearer if the share of accesses to other nodes is known. `remote` is that
/// share of all accesses, 0 to 1, each at a mean cost of `far` local ones. `stays` is its part that stays
/// remote, 0 to 1. See [`placement`] for the rest.
pub fn accesses(of: f64, far: f64, (remote, stays): (f64, f64), phi: Option<f64>, costs: Assumption) -> Gain {
    let cost = |share: f64| 1.0 + share.clamp(0.0, 1.0) * (far.max(1.0) - 1.0);
    let mut gain = placement(of, cost(remote), cost(remote * stays), phi, costs);
    gain.assumes.retain(|one| *one != Assumption::PagesUsedAlike);
    gain
}

/// The gain of bringing memory nearer where the time at memory of other nodes is sampled: `waits` is its share of CPU time, 0 to 1,
/// and `far` the mean cost of such an access in local ones.
pub fn time_at_memory(of: f64, far: f64, waits: f64, costs: Assumption) -> Gain {
    let far = far.max(1.0);
    Gain {
        at_least: None,
        at_most: Some(of * waits * (1.0 - 1.0 / far)),
        of: Some(of),
        how: Some(Arithmetic::Placement { now: far, then: 1.0, phi: waits }),
        assumes: vec![Assumption::MemoryTimeWaits, costs],
    }
}

/// The gain of ending a wait of `wait` CPUs while `idle` are idle, for a subject that uses `of`.
pub fn waiting(of: f64, wait: f64, idle: f64) -> Gain {
    Gain {
        at_least: None,
        at_most: Some(wait.min(idle).max(0.0)),
        of: Some(of),
        how: Some(Arithmetic::Waiting { wait, idle }),
        assumes: vec![Assumption::WaitIsWork],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRMWARE: Assumption = Assumption::FirmwareDistances;

    #[test]
    fn measured_costs_take_the_place_of_the_firmware_s() {
        let root = crate::fixture::tree("hosts/intel-e5-2682v4");
        let mut topology = numatop_ng_system::host::topology::read(&root).unwrap();
        let (near, far) = (topology.nodes[0].id, topology.nodes[1].id);
        assert_eq!((ratio(&topology, near, far), distances(&topology)), (2.1, FIRMWARE));
        let cost = |node, ns: u64| crate::model::topology::Cost {
            node,
            latency_ps: Some(ns * 1000),
            read_bytes_per_s: None,
            latency_error_ps: None,
            read_error_bytes_per_s: None,
        };
        topology.nodes[0].measured = vec![cost(near, 80), cost(far, 136)];
        assert_eq!((ratio(&topology, near, far), ratio(&topology, far, near)), (1.7, 2.1));
        assert_eq!(distances(&topology), FIRMWARE, "one direction is not measured");
        topology.nodes[1].measured = vec![cost(near, 8000), cost(far, 80)];
        assert_eq!(
            (ratio(&topology, far, near), distances(&topology)),
            (20.0, Assumption::MeasuredDistances)
        );
        // All of its memory on the other node: 1 - 1/1.7 of the time at most.
        let cost = mean_cost(|from, to| ratio(&topology, from, to), &[1.0, 0.0], &[0.0, 1.0]).unwrap();
        let gain = placement(1.0, cost, 1.0, None, distances(&topology)).at_most.unwrap();
        assert!((gain - 0.41).abs() < 0.005, "{gain}");
    }

    #[test]
    fn the_table_of_costs_is_what_each_pair_costs() {
        let root = crate::fixture::tree("hosts/ft-2500");
        let mut topology = numatop_ng_system::host::topology::read(&root).unwrap();
        for far in [17, SIDE_MAX - 1, SIDE_MAX, u32::MAX] {
            topology.nodes.last_mut().unwrap().id = NodeId(far);
            let costs = Costs::of(&topology);
            let ids = [0, 1, 15, 16, 17, SIDE_MAX - 1, SIDE_MAX, far].map(NodeId);
            for (from, to) in ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to))) {
                assert_eq!(costs.ratio(&topology, from, to), ratio(&topology, from, to), "{from} {to}");
            }
        }
    }

    #[test]
    fn cases_of_the_field_have_their_ceilings() {
        // Case 15: pinned to a node, 60 % of its memory elsewhere, at the largest ratio: 1 - 1 / (0.4 + 0.6 * 3.3).
        let gain = placement(10.0, 0.4 + 0.6 * RATIO_MAX, 1.0, None, FIRMWARE);
        assert!((gain.at_most.unwrap() - 5.8).abs() < 0.1, "{gain:?}");
        // Case 11: all memory on another node at distance 20.
        assert_eq!(placement(2.0, 2.0, 1.0, None, FIRMWARE).at_most, Some(1.0));
        assert_eq!(placement(2.0, 2.0, 1.0, Some(0.5), FIRMWARE).at_most, Some(0.5));
    }

    #[test]
    fn known_accesses_take_the_place_of_evenly_used_pages() {
        // Half of the accesses are remote at twice the cost: 1.5. A quarter of those stay: 1.125.
        let gain = accesses(4.0, 2.0, (0.5, 0.25), None, FIRMWARE);
        assert_eq!(gain.how, Some(Arithmetic::Placement { now: 1.5, then: 1.125, phi: 1.0 }));
        assert_eq!(gain.at_most, Some(1.0));
        assert_eq!(gain.assumes, [Assumption::WaitsForMemoryOnly, FIRMWARE]);
        assert_eq!(accesses(4.0, 2.0, (0.5, 1.0), None, FIRMWARE).at_most, Some(0.0), "all stay");
        assert_eq!(accesses(4.0, 0.5, (9.0, 0.0), None, FIRMWARE).at_most, Some(0.0), "hostile numbers");
    }

    #[test]
    fn worth_is_a_tenth_of_a_cpu_and_a_twentieth_of_its_time() {
        let gain = |at_most, of| Gain { at_most: Some(at_most), of: Some(of), ..Gain::default() };
        assert!(gain(0.09, 1.0).is_too_small(false) && !gain(0.09, 1.0).is_too_small(true));
        assert!(gain(0.4, 10.0).is_too_small(false) && !gain(0.6, 10.0).is_too_small(false));
        assert!(!Gain::default().is_too_small(false), "what is not known is not small");
    }

    #[test]
    fn a_model_weighs_less_than_a_measured_time() {
        let model = placement(10.0, 2.0, 1.0, None, FIRMWARE);
        assert_eq!(model.weight(), 2.0);
        assert_eq!(waiting(10.0, 3.0, 9.0).weight(), 3.0);
        assert_eq!(waiting(10.0, 3.0, 1.0).weight(), 1.0);
    }
}
