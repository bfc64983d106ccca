//! Share of its memory that a task finds on other nodes than the one it runs on. Pure.
//!
//! A task that runs on node n with a share m of its memory there finds 1 − m elsewhere. That is its share of
//! remote accesses if every page is used equally often. Programs use few of their pages most of the time, and
//! placement does not show where those are: the range covers all sets of pages that may be hot.
//!
//! All of this is linear in the run time. Threads add up to their process, processes to their container, and
//! everything to the node it ran on. So rows are sums of [`Remote`], and their percentage is a quotient of
//! two sums.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use crate::model::sample::{NodeRaw, PagesFound, PlacementRaw, Reading, Sample};
use crate::model::topology::MAX_ID;
use crate::model::units::NodeId;

/// The smallest hot set considered, in bytes. A smaller one stays in the second-level cache of a core, and so
/// in no memory at all (256 KiB to 4 MiB in current processors).
const HOT_BYTES: f64 = (1 << 20) as f64;
/// The same as a share of all memory: a smaller one may be missed by the thousand pages that are looked at.
const HOT_SHARE: f64 = 0.01;

/// Where the memory of a process is, by node id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Resident memory on each node, hugetlbfs included, in bytes: estimated from the sample.
    pub bytes_by_node: Vec<f64>,
    /// All shares are this near the truth in 95 of 100 cases, in percentage points.
    pub error_points: f64,
}

impl Memory {
    /// Pages by node, as a share of the space they were found in.
    pub fn of(found: &PagesFound) -> Memory {
        let per_page = found.space_bytes as f64 / f64::from(found.asked.max(1));
        Memory {
            bytes_by_node: found.by_node.iter().map(|pages| f64::from(*pages) * per_page).collect(),
            error_points: f64::from(found.error_hundredths) / 100.0,
        }
    }

    /// The total, in bytes.
    pub fn bytes(&self) -> f64 {
        self.bytes_by_node.iter().sum()
    }

    /// The share on a node, 0 to 1; without any memory 0. `all` is [`Memory::bytes`], which is asked for once: with many
    /// nodes, a sum for each share is most of an interval.
    fn share(&self, node: usize, all: f64) -> f64 {
        let bytes = self.bytes_by_node.get(node).copied().unwrap_or(0.0);
        if bytes > 0.0 { bytes / all } else { 0.0 }
    }

    /// The least and the greatest share of the accesses of a node, 0 to 1, that may go to others if a share
    /// of `all` bytes is its own: see [`Remote::of`].
    fn range(&self, all: f64) -> impl Fn(f64) -> (f64, f64) {
        let hot = (HOT_BYTES / all).clamp(HOT_SHARE, 1.0);
        let error = self.error_points / 100.0;
        move |share| ((1.0 - (share + error) / hot).max(0.0), ((1.0 - share + error) / hot).min(1.0))
    }
}

/// The room of the nodes that are online.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// By node id: time on its CPUs in the interval, ns, and memory, bytes. A recording may name any id.
    nodes: BTreeMap<u32, (f64, f64)>,
}

impl Room {
    /// For an interval of `interval_ns` ns.
    pub(super) fn of(sample: &Sample, interval_ns: u64) -> Room {
        let of_node = |node: &NodeRaw| (node.id, (0.0, node.mem_total_bytes as f64));
        let mut room = Room { nodes: sample.nodes.iter().map(of_node).collect() };
        for cpu in sample.cpus.iter().filter(|cpu| cpu.online) {
            if let Some((run_ns, _)) = room.nodes.get_mut(&cpu.node) {
                *run_ns += interval_ns as f64;
            }
        }
        room
    }

    /// The same for a time `times` times as long.
    #[must_use]
    pub fn over(&self, times: f64) -> Room {
        let longer = |(id, (run_ns, bytes)): (&u32, &(f64, f64))| (*id, (run_ns * times, *bytes));
        Room { nodes: self.nodes.iter().map(longer).collect() }
    }

    /// The share of accesses that are local if one node after another is filled with time and memory, the
    /// largest first, 0 to 1. 1 if one node has the room.
    fn local(&self, run_ns: f64, bytes: f64) -> f64 {
        if self.nodes.values().any(|room| room.0 >= run_ns && room.1 >= bytes) {
            return 1.0;
        }
        let fits = |room: &(f64, f64)| ((room.0 / run_ns).min(1.0), (room.1 / bytes).min(1.0));
        let mut nodes: Vec<(f64, f64)> = self.nodes.values().map(fits).collect();
        nodes.sort_by(|a, b| (b.0 * b.1).total_cmp(&(a.0 * a.1)));
        let (mut run_left, mut bytes_left, mut local) = (1.0f64, 1.0f64, 0.0);
        for (run, bytes) in nodes {
            let (run, bytes) = (run.min(run_left), bytes.min(bytes_left));
            local += run * bytes;
            run_left -= run;
            bytes_left -= bytes;
        }
        local
    }
}

/// Time on a CPU, and the part that counts as spent with memory of other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remote {
    /// Time of tasks whose memory is known, ns.
    pub run_ns: f64,
    pub remote_ns: f64,
    /// The least that `remote_ns` could be, see [`Remote::of`].
    pub best_ns: f64,
    /// The least and the most time with memory of other nodes, whichever pages are hot.
    low_ns: f64,
    high_ns: f64,
    /// The error of `remote_ns` that comes from looking at some pages only: half of the 95 % interval.
    error_ns: f64,
}

impl Remote {
    /// For a task with this run time on each node, with its memory in place.
    ///
    /// The least that is possible, as the minimum of three. The first has time and memory together on as few
    /// nodes as have the room. The second has all its time on the node with most of its memory, the third all
    /// its memory on the node where it ran most.
    ///
    /// The range. Let h be the share of the hot set in the memory, and m the share of memory on the node that
    /// runs. The hot set is local up to min(m, h) and elsewhere up to min(1 − m, h), and may differ for each
    /// node that runs. Shares of memory count with their own error.
    pub fn of(run_ns: &[u64], memory: &Memory, room: &Room) -> Remote {
        let run: f64 = run_ns.iter().map(|ns| *ns as f64).sum();
        let bytes = memory.bytes();
        if run <= 0.0 || bytes <= 0.0 {
            return Remote::default();
        }
        let range = memory.range(bytes);
        let (mut local, mut low, mut high) = (0.0, 0.0, 0.0);
        for (node, ns) in run_ns.iter().enumerate() {
            let share = memory.share(node, bytes);
            let (least, most) = range(share);
            local += *ns as f64 * share;
            low += *ns as f64 * least;
            high += *ns as f64 * most;
        }
        let most_memory = memory.bytes_by_node.iter().copied().fold(0.0, f64::max) / bytes;
        let most_run = run_ns.iter().copied().max().unwrap_or(0) as f64;
        let remote = (run - local).max(0.0);
        let mut kept = most_run.max(run * most_memory);
        // All memory can be where something runs on one node alone.
        if kept < run {
            kept = kept.max(run * room.local(run, bytes));
        }
        Remote {
            run_ns: run,
            remote_ns: remote,
            best_ns: (run - kept).clamp(0.0, remote),
            low_ns: low.min(remote),
            high_ns: high.max(remote),
            error_ns: run * memory.error_points / 100.0,
        }
    }

    /// The same for its work on one node alone, where all of its memory could be.
    pub fn on(node: usize, run_ns: &[u64], memory: &Memory) -> Remote {
        let Some(ns) = run_ns.get(node).copied().filter(|ns| *ns > 0) else { return Remote::default() };
        let bytes = memory.bytes();
        if bytes <= 0.0 {
            return Remote::default();
        }
        let (run, share) = (ns as f64, memory.share(node, bytes));
        let remote = (run - run * share).max(0.0);
        let (low, high) = memory.range(bytes)(share);
        Remote {
            run_ns: run,
            remote_ns: remote,
            best_ns: 0.0,
            low_ns: (run * low).min(remote),
            high_ns: (run * high).max(remote),
            error_ns: run * memory.error_points / 100.0,
        }
    }

    /// Share that is remote, in percent; `None` when nothing with known memory ran.
    pub fn pct(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.remote_ns * 100.0 / self.run_ns)
    }

    /// The share less the error of the draws, 0 to 1; `None` when nothing with known memory ran.
    pub fn sure_share(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| (self.remote_ns - self.error_ns).max(0.0) / self.run_ns)
    }

    /// The least that is possible, in percent.
    pub fn best_pct(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.best_ns * 100.0 / self.run_ns)
    }

    /// The least and the most that accesses could be, whichever pages are hot, in percent.
    pub fn range_pct(&self) -> Option<(f64, f64)> {
        let pct = |ns: f64| ns * 100.0 / self.run_ns;
        (self.run_ns > 0.0).then(|| (pct(self.low_ns), pct(self.high_ns)))
    }
}

impl AddAssign<&Remote> for Remote {
    /// The ends of ranges add up: the hot pages of one process need not balance those of another.
    fn add_assign(&mut self, other: &Remote) {
        self.run_ns += other.run_ns;
        self.remote_ns += other.remote_ns;
        self.best_ns += other.best_ns;
        self.low_ns += other.low_ns;
        self.high_ns += other.high_ns;
        self.error_ns += other.error_ns;
    }
}

/// Time on a CPU, by the node that ran and the node whose memory it used meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accesses {
    /// By the node that ran, then by the node of the memory.
    ns: Vec<Vec<f64>>,
    run_ns: f64,
    /// The part whose accesses were sampled.
    sampled_ns: f64,
}

impl Accesses {
    /// Adds what a task did, with its memory where it is.
    pub fn add(&mut self, run_ns: &[u64], memory: &Memory) {
        let bytes = memory.bytes();
        if bytes <= 0.0 {
            return;
        }
        for (from, ns) in run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            self.run_ns += *ns as f64;
            let to_nodes = self.of_node(from, memory.bytes_by_node.len());
            for (to, sum) in to_nodes.iter_mut().enumerate().take(memory.bytes_by_node.len()) {
                *sum += *ns as f64 * memory.share(to, bytes);
            }
        }
    }

    /// Sums of a node that ran, for at least `nodes` nodes.
    fn of_node(&mut self, from: usize, nodes: usize) -> &mut [f64] {
        if self.ns.len() <= from {
            self.ns.resize(from + 1, Vec::new());
        }
        let sums = &mut self.ns[from];
        if sums.len() < nodes {
            sums.resize(nodes, 0.0);
        }
        sums
    }

    /// Adds the run time of a task with sampled accesses: `samples` by nodes of page and CPU. For a node that
    /// it ran on without samples, its memory placement is used, where that is known.
    pub fn add_sampled(
        &mut self,
        run_ns: &[u64],
        samples: &BTreeMap<(NodeId, NodeId), f64>,
        memory: Option<&Memory>,
    ) {
        for (from, ns) in run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            let here = || samples.iter().filter(|((_, cpu), _)| cpu.index() == from);
            let all: f64 = here().map(|(_, samples)| samples).sum();
            if all <= 0.0 {
                let mut alone = vec![0; from + 1];
                alone[from] = *ns;
                memory.into_iter().for_each(|memory| self.add(&alone, memory));
                continue;
            }
            self.run_ns += *ns as f64;
            self.sampled_ns += *ns as f64;
            // A recording may name any node.
            for ((page, _), samples) in here().filter(|((page, _), _)| page.0 <= MAX_ID) {
                self.of_node(from, page.index() + 1)[page.index()] += *ns as f64 * samples / all;
            }
        }
    }

    /// Time on CPUs of one node while memory of another was used, ns; 0 for nodes that it does not have.
    pub fn ns(&self, from: NodeId, to: NodeId) -> f64 {
        self.ns.get(from.index()).and_then(|to_nodes| to_nodes.get(to.index())).copied().unwrap_or(0.0)
    }

    /// Time with known memory, and the part with sampled accesses, ns.
    pub fn known_ns(&self) -> (f64, f64) {
        (self.run_ns, self.sampled_ns)
    }

    /// Share of the time that is from sampled accesses, in percent; the rest is from placement. `None` when nothing with
    /// known memory ran.
    pub fn sampled_pct(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.sampled_ns * 100.0 / self.run_ns)
    }

    /// Share of all accesses that go from the CPUs of one node to the memory of another, in percent; `None`
    /// when nothing with known memory ran.
    pub fn pct(&self, from: NodeId, to: NodeId) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.ns(from, to) * 100.0 / self.run_ns)
    }
}

/// The last look at the memory of a process.
pub(super) fn placement_of(sample: &Sample, (pid, start_ns): (u32, u64)) -> Option<&PlacementRaw> {
    sample.placement.get(&pid.into()).map(Arc::as_ref).filter(|raw| raw.start_ns == start_ns)
}

/// The memory of a process, and when it was looked at.
pub(super) fn memory_of(raw: &PlacementRaw) -> (u64, Reading<Memory>) {
    (raw.read_ns, raw.found.as_ref().map(Memory::of).map_err(Clone::clone))
}

/// Shares of a whole by node in percent; nodes with none are left out.
pub fn shares(bytes_by_node: &[f64]) -> Vec<(NodeId, f64)> {
    let sum: f64 = bytes_by_node.iter().sum();
    let share = |(node, bytes): (usize, &f64)| (NodeId(node as u32), bytes * 100.0 / sum);
    bytes_by_node.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory(bytes: &[f64]) -> Memory {
        Memory { bytes_by_node: bytes.to_vec(), error_points: 3.0 }
    }

    /// Nothing is known of the room: time or memory stays where it is.
    const NONE: Room = Room { nodes: BTreeMap::new() };

    #[test]
    fn time_and_memory_that_one_node_has_room_for_can_be_local() {
        let spread = |room: &Room| Remote::of(&[500, 500], &memory(&[1e9, 1e9]), room).best_pct().unwrap();
        let room = |run_ns: [f64; 2], bytes: [f64; 2]| Room {
            nodes: (0..).zip(run_ns.into_iter().zip(bytes)).collect(),
        };
        assert_eq!(spread(&room([1000.0, 1000.0], [2e9, 2e9])), 0.0);
        // A tenth of its memory has no room on the node of its time.
        assert!((spread(&room([1000.0, 1000.0], [1.8e9, 1.8e9])) - 10.0).abs() < 1e-9);
        // Three quarters of both on one node, a quarter on the other: 1 - 9/16 - 1/16.
        assert!((spread(&room([750.0, 750.0], [1.5e9, 1.5e9])) - 37.5).abs() < 1e-9);
        // A node of memory alone takes no time.
        assert_eq!(spread(&room([1000.0, 0.0], [1e9, 8e9])), 50.0);
    }

    #[test]
    fn half_and_half_is_half_remote() {
        let remote = Remote::of(&[500, 500], &memory(&[1e9, 1e9]), &NONE);
        assert_eq!((remote.pct(), remote.best_pct()), (Some(50.0), Some(50.0)));
        // Each node may use its own half, or the other's.
        assert_eq!(remote.range_pct(), Some((0.0, 100.0)));
    }

    #[test]
    fn bound_to_one_node_it_is_what_lies_on_the_others() {
        let remote = Remote::of(&[0, 0, 800], &memory(&[3.0, 0.0, 7.0]), &NONE);
        assert_eq!(remote.pct().map(f64::round), Some(30.0));
        assert_eq!(remote.best_pct(), Some(0.0));
        // So little memory is hot as a whole: only the error of its shares is left.
        let (low, high) = remote.range_pct().unwrap();
        assert!((low - 27.0).abs() < 1e-9 && (high - 33.0).abs() < 1e-9, "{low} to {high}");
    }

    #[test]
    fn a_range_holds_the_truth_of_a_skewed_process() {
        const MB: f64 = 1e6;
        // 95 % of the accesses go to the 10 MB on its node, or to the 10 MB on the other.
        for (here, there, truth) in [(10.0, 82.0, 5.0), (82.0, 10.0, 95.0)] {
            let remote = Remote::of(&[1000, 0], &memory(&[here * MB, there * MB]), &NONE);
            let (low, high) = remote.range_pct().unwrap();
            assert!(low <= truth && truth <= high, "{low} to {high}");
        }
    }

    #[test]
    fn memory_on_one_node_leaves_little_room() {
        let sure = |bytes: &[f64], error_points| {
            let memory = Memory { bytes_by_node: bytes.to_vec(), error_points };
            Remote::of(&[1000, 0], &memory, &NONE).range_pct().unwrap()
        };
        assert_eq!(sure(&[8e9, 0.0], 0.0), (0.0, 0.0));
        assert_eq!(sure(&[0.0, 8e9], 0.0), (100.0, 100.0));
        // A third of a hundredth that no page was found in may be a third of the hot pages.
        let (low, high) = sure(&[8e9, 0.0], 0.3);
        assert!(low == 0.0 && (high - 30.0).abs() < 1e-9, "{high}");
    }

    #[test]
    fn two_local_processes_are_local_together() {
        let mut sum = Remote::of(&[900, 0], &memory(&[5.0, 0.0]), &NONE);
        sum += &Remote::of(&[0, 900], &memory(&[0.0, 5.0]), &NONE);
        assert_eq!(sum.pct(), Some(0.0));
    }

    #[test]
    fn accesses_from_node_to_node_are_all_there_are() {
        let mut accesses = Accesses::default();
        accesses.add(&[300, 0], &memory(&[1.0, 2.0]));
        accesses.add(&[0, 100], &memory(&[0.0, 9.0]));
        let pct = |from, to| accesses.pct(NodeId(from), NodeId(to));
        assert_eq!((pct(0, 0), pct(0, 1)), (Some(25.0), Some(50.0)));
        assert_eq!((pct(1, 0), pct(1, 1)), (Some(0.0), Some(25.0)));
    }

    #[test]
    fn sampled_accesses_go_before_placement() {
        let mut accesses = Accesses::default();
        let node = NodeId;
        // On node 0 it was sampled: its memory, half and half, is not how it uses it. On node 1 it was not.
        let samples = [((node(0), node(0)), 30.0), ((node(1), node(0)), 10.0)].into();
        accesses.add_sampled(&[200, 100], &samples, Some(&memory(&[1.0, 1.0])));
        accesses.add(&[100, 0], &memory(&[0.0, 1.0]));
        let pct = |from, to| accesses.pct(node(from), node(to)).map(|pct| pct.round());
        assert_eq!((pct(0, 0), pct(0, 1)), (Some(38.0), Some(38.0)));
        assert_eq!((pct(1, 0), pct(1, 1)), (Some(13.0), Some(13.0)));
        assert_eq!(accesses.sampled_pct(), Some(50.0));
        assert_eq!(accesses.known_ns(), (400.0, 200.0));
        // Without memory that is known nothing is made up.
        let mut other = Accesses::default();
        other.add_sampled(&[0, 100], &samples, None);
        assert_eq!((other.sampled_pct(), other.pct(node(1), node(1))), (None, None));
    }

    #[test]
    fn what_did_not_run_has_no_share() {
        assert_eq!(Remote::of(&[0, 0], &memory(&[1.0]), &NONE).pct(), None);
        assert_eq!(Remote::of(&[5, 0], &memory(&[]), &NONE).pct(), None);
    }

    proptest! {
        #[test]
        fn no_other_placement_of_time_or_memory_is_better_than_the_best(
            run in prop::collection::vec(0u64..1_000_000_000, 1..9),
            bytes in prop::collection::vec(0.0f64..1e12, 1..9),
            node in 0usize..9,
        ) {
            let here = Remote::of(&run, &memory(&bytes), &NONE);
            let Some((pct, best)) = here.pct().zip(here.best_pct()) else { return Ok(()) };
            prop_assert!((0.0..=100.0 + 1e-9).contains(&pct) && best <= pct + 1e-9, "{best} of {pct}");
            let (low, high) = here.range_pct().unwrap();
            prop_assert!(low >= 0.0 && low <= pct + 1e-9, "{low} of {pct}");
            prop_assert!(high <= 100.0 + 1e-9 && pct <= high + 1e-9, "{high} of {pct}");
            // All of its time on one node, or all of its memory there.
            let mut time = vec![0; 9];
            time[node] = run.iter().sum();
            let mut place = vec![0.0; 9];
            place[node] = 1.0;
            for moved in [Remote::of(&time, &memory(&bytes), &NONE), Remote::of(&run, &memory(&place), &NONE)] {
                prop_assert!(moved.pct().unwrap() >= best - 1e-6, "{} is below {best}", moved.pct().unwrap());
            }
        }

        #[test]
        fn nodes_add_up_to_the_whole(
            run in prop::collection::vec(0u64..1_000_000_000, 1..9),
            bytes in prop::collection::vec(0.0f64..1e12, 1..9),
        ) {
            let whole = Remote::of(&run, &memory(&bytes), &NONE);
            let mut sum = Remote::default();
            for node in 0..run.len() {
                let mut alone = vec![0; run.len()];
                alone[node] = run[node];
                let on = Remote::on(node, &run, &memory(&bytes));
                prop_assert_eq!(on, Remote::of(&alone, &memory(&bytes), &NONE));
                sum += &on;
            }
            prop_assert!((whole.remote_ns - sum.remote_ns).abs() <= 1e-6 * whole.run_ns.max(1.0));
            prop_assert!((whole.run_ns - sum.run_ns).abs() <= 1e-6 * whole.run_ns.max(1.0));
        }
    }
}
