//! Sums over the last minutes, in segments of a few seconds. A window is a sum of segments, so that ratios over it are
//! quotients of sums.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::cores::hidden_sockets;
use crate::model::counters::Counter;
use crate::model::disks::{DiskSender, DiskTraffic};
use crate::model::process::ProcessId;
use crate::model::sample::Counts;
use crate::model::sockets::SocketTraffic;
use crate::model::sums::{KnownSum, Sum};
use crate::model::turns::DramBytes;
use crate::snapshot::{
    Container, MachineCounts, NodeCounts, OnCpus, Remote, Room, SetKind, Snapshot, Tally, Task, Waits,
};

/// Intervals become one segment up to this length, ns.
const SEGMENT_NS: u64 = 5_000_000_000;

/// Sums over a stretch of time.
#[derive(Clone, Debug)]
pub struct Segment<T> {
    /// CLOCK_MONOTONIC, ns.
    pub from_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub to_ns: u64,
    /// Lengths of the intervals in it: less than the stretch where samples are missing.
    pub measured_ns: u64,
    /// The sums.
    pub sums: T,
}

/// Segments of the last minutes, the oldest first.
#[derive(Clone, Debug)]
pub struct Series<T>(VecDeque<Segment<T>>);

impl<T> Default for Series<T> {
    fn default() -> Series<T> {
        Series(VecDeque::new())
    }
}

impl<T: Default> Series<T> {
    /// Adds an interval, and forgets what ended more than `keep_ns` before.
    pub fn add(&mut self, from_ns: u64, to_ns: u64, keep_ns: u64, add: impl FnOnce(&mut T)) {
        let length = to_ns.saturating_sub(from_ns);
        let fits = self.0.back().is_some_and(|last| {
            last.measured_ns.saturating_add(length) <= SEGMENT_NS
                && to_ns.saturating_sub(last.from_ns) <= 2 * SEGMENT_NS
        });
        if !fits {
            self.0.push_back(Segment { from_ns, to_ns: from_ns, measured_ns: 0, sums: T::default() });
        }
        if let Some(last) = self.0.back_mut() {
            last.to_ns = to_ns;
            last.measured_ns = last.measured_ns.saturating_add(length);
            add(&mut last.sums);
        }
        while self.0.front().is_some_and(|first| first.to_ns.saturating_add(keep_ns) < to_ns) {
            self.0.pop_front();
        }
    }

    /// Segments that end after `since_ns`, the oldest first.
    pub fn since(&self, since_ns: u64) -> impl Iterator<Item = &Segment<T>> {
        self.0.iter().filter(move |segment| segment.to_ns > since_ns)
    }

    /// Measured time of the segments that end after `since_ns`, ns.
    pub fn measured_ns(&self, since_ns: u64) -> u64 {
        self.since(since_ns).fold(0, |sum: u64, segment| sum.saturating_add(segment.measured_ns))
    }

    /// The sums of the last segment.
    pub fn newest(&self) -> Option<&T> {
        self.0.back().map(|segment| &segment.sums)
    }

    /// The end of the last segment; 0 where none is.
    pub fn end_ns(&self) -> u64 {
        self.0.back().map_or(0, |segment| segment.to_ns)
    }
}

/// Sums of a process or a container.
#[derive(Clone, Debug, Default)]
pub struct RowSums {
    /// Its counts.
    pub counts: Counts,
    /// Its time, and the part that counts as spent with memory of other nodes.
    pub remote: Remote,
    /// Waits of threads that may not use all CPUs, and the part of all waits that a quota explains, ns.
    waits: (u64, f64),
    /// Throttled time of a container and when it was read, both at the first reading in the segment.
    pub throttled: Option<(u64, u64)>,
    /// Limits of a container.
    pub limits: Limits,
}

/// Limits of a container that decide what its numbers mean; `None` where they were not read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    quota_milli: Option<u64>,
    cpus: Option<String>,
    mems: Option<String>,
}

impl Limits {
    /// The limits of a container now.
    pub fn of(row: &Container) -> Limits {
        let Some(raw) = row.raw.as_deref() else { return Limits::default() };
        Limits {
            quota_milli: raw.cpu_quota_milli.clone().ok().flatten(),
            cpus: raw.cpus.clone().ok(),
            mems: raw.mems.clone().ok(),
        }
    }
}

impl RowSums {
    /// Adds an interval of a process.
    pub fn add_task(&mut self, task: &Task, room: &Room) {
        self.counts += &*task.delta;
        self.waits.0 = self.waits.0.saturating_add(task.waits.bound_ns);
        self.waits.1 += task.waits.throttled * task.delta[Counter::RunDelayNs] as f64;
        if let Some((_, Ok(memory))) = task.memory() {
            self.remote += &Remote::of(&task.delta.run_ns, memory, room);
        }
    }

    /// Adds an interval of a container.
    pub fn add_container(&mut self, row: &Container, limits: Limits) {
        self.limits = limits;
        self.counts += &*row.sum.delta;
        self.remote += &row.remote;
        let before = row.raw.as_ref().and_then(|raw| raw.throttled_before);
        self.throttled = self.throttled.or(before);
    }
}

/// A process in a window: its row, with its counts over the whole window.
pub fn task_over(task: &Task, series: &Series<RowSums>, since_ns: u64) -> Task {
    let (mut counts, mut bound_ns, mut throttled_ns) = (Counts::default(), 0u64, 0.0);
    for sums in series.since(since_ns).map(|segment| &segment.sums) {
        counts += &sums.counts;
        bound_ns = bound_ns.saturating_add(sums.waits.0);
        throttled_ns += sums.waits.1;
    }
    let waited = counts[Counter::RunDelayNs] as f64;
    let throttled = if waited > 0.0 { (throttled_ns / waited).min(1.0) } else { 0.0 };
    Task { delta: Tally::from(counts), waits: Waits { bound_ns, throttled }, ..task.clone() }
}

/// A container in a window.
pub fn container_over(row: &Container, series: &Series<RowSums>, since_ns: u64) -> Container {
    let mut over = row.clone();
    let mut counts = Counts::default();
    over.remote = Remote::default();
    let mut throttled = None;
    for segment in series.since(since_ns) {
        counts += &segment.sums.counts;
        over.remote += &segment.sums.remote;
        throttled = throttled.or(segment.sums.throttled);
    }
    over.sum.delta = Tally::from(counts);
    if let (Some(raw), Some(_)) = (&mut over.raw, throttled) {
        Arc::make_mut(raw).throttled_before = throttled;
    }
    over
}

/// Sums by id, in the order of ids. Samples list the same ids most often, so that the place in their list is that of the sum.
#[derive(Clone, Debug)]
struct ById<T>(Vec<(u32, T)>);

impl<T> Default for ById<T> {
    fn default() -> ById<T> {
        ById(Vec::new())
    }
}

impl<T: Default> ById<T> {
    /// The sum of an id, which is likely to be at `hint`; a new one if it is missing.
    fn entry(&mut self, hint: usize, id: u32) -> &mut T {
        let at = match self.0.get(hint) {
            Some((known, _)) if *known == id => hint,
            _ => self.0.binary_search_by_key(&id, |(known, _)| *known).unwrap_or_else(|at| {
                self.0.insert(at, (id, T::default()));
                at
            }),
        };
        &mut self.0[at].1
    }

    /// The sum of an id, which is likely to be at `hint`.
    fn get(&self, hint: usize, id: u32) -> Option<&T> {
        let likely = self.0.get(hint).filter(|(known, _)| *known == id);
        let found = || self.0.get(self.0.binary_search_by_key(&id, |(known, _)| *known).ok()?);
        likely.or_else(found).map(|(_, sum)| sum)
    }
}

/// Sums of the machine, its nodes and its CPUs.
#[derive(Clone, Debug, Default)]
pub struct MachineSums {
    on_cpus: OnCpus,
    counts: MachineCounts,
    nodes: ById<(OnCpus, NodeCounts)>,
    sockets: ById<OnCpus>,
    /// Busy time and time in interrupts: rules use only these of CPUs.
    cpus: ById<(u64, KnownSum)>,
    flows: BTreeMap<(u32, u32), u64>,
    disk_traffic: BTreeMap<DiskSender, DiskTraffic>,
    socket_traffic: BTreeMap<ProcessId, SocketTraffic>,
}

impl MachineSums {
    /// Adds an interval.
    pub fn add(&mut self, snapshot: &Snapshot) {
        self.on_cpus.add(&snapshot.on_cpus);
        self.counts.add(&snapshot.counts);
        self.disk_traffic.add(&snapshot.disk_traffic);
        self.socket_traffic.add(&snapshot.socket_traffic);
        for (at, node) in snapshot.nodes.iter().enumerate() {
            let (on_cpus, counts) = self.nodes.entry(at, node.raw.id);
            on_cpus.add(&node.on_cpus);
            counts.add(&node.counts);
        }
        for (at, set) in hidden_sockets(snapshot).enumerate() {
            self.sockets.entry(at, set.id).add(&set.on_cpus);
        }
        for (at, cpu) in snapshot.cpus.iter().enumerate() {
            let (busy_ns, irq_ns) = self.cpus.entry(at, cpu.id);
            busy_ns.add(&cpu.busy_ns);
            irq_ns.add(&cpu.irq_ns.into());
        }
        for flow in &snapshot.page_flows {
            self.flows.entry((flow.from.0, flow.to.0)).or_default().add(&flow.count);
        }
    }
}

/// The machine in a window: current gauges, and sums over the whole window, without rows of tasks and
/// containers.
pub fn machine_over(snapshot: &Snapshot, series: &Series<MachineSums>, since_ns: u64) -> Snapshot {
    let mut over = snapshot.machine();
    let measured_ns = series.measured_ns(since_ns);
    let last_ns = snapshot.interval_ns.unwrap_or(measured_ns).max(1);
    over.room = snapshot.room.over(measured_ns as f64 / last_ns as f64);
    over.interval_ns = Some(measured_ns);
    (over.on_cpus, over.counts) = Default::default();
    for node in &mut over.nodes {
        (node.on_cpus, node.counts) = Default::default();
    }
    for set in &mut over.cpu_sets {
        // Moves and bytes of controllers are of the last interval.
        (set.on_cpus, set.moves, set.dram) = (OnCpus::default(), None, DramBytes::between(None, None));
    }
    for cpu in &mut over.cpus {
        (cpu.busy_ns, cpu.irq_ns) = (0, Some(0));
    }
    let mut flows: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for sums in series.since(since_ns).map(|segment| &segment.sums) {
        over.on_cpus.add(&sums.on_cpus);
        over.counts.add(&sums.counts);
        over.disk_traffic.add(&sums.disk_traffic);
        over.socket_traffic.add(&sums.socket_traffic);
        for (at, node) in over.nodes.iter_mut().enumerate() {
            let Some((on_cpus, counts)) = sums.nodes.get(at, node.raw.id) else { continue };
            node.on_cpus.add(on_cpus);
            node.counts.add(counts);
        }
        let sockets = over.cpu_sets.iter_mut().filter(|set| set.kind == SetKind::Socket);
        for (at, set) in sockets.enumerate() {
            let Some(on_cpus) = sums.sockets.get(at, set.id) else { continue };
            set.on_cpus.add(on_cpus);
        }
        for (at, cpu) in over.cpus.iter_mut().enumerate() {
            let Some((busy_ns, irq_ns)) = sums.cpus.get(at, cpu.id) else { continue };
            cpu.busy_ns.add(busy_ns);
            let mut sum = KnownSum::from(cpu.irq_ns);
            sum.add(irq_ns);
            cpu.irq_ns = sum.get();
        }
        sums.flows.iter().for_each(|(pair, count)| flows.entry(*pair).or_default().add(count));
    }
    for flow in &mut over.page_flows {
        flow.count = flows.get(&(flow.from.0, flow.to.0)).copied().unwrap_or(0);
    }
    over
}

/// Values in the order of their keys, each key once.
#[derive(Clone, Debug)]
pub struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Sorted<K, V> {
        Sorted(Vec::new())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    /// In any order. Of two with one key the first one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Sorted<K, V> {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        entries.dedup_by(|one, other| one.0 == other.0);
        Sorted(entries)
    }
}

impl<K: Ord, V> Sorted<K, V> {
    /// The number of values.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether a key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Keeps the values that `keeps` lets through.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keeps(key, value));
    }

    /// Calls `each` with the value of each of these keys, which come in order; one without a value has a new one.
    pub fn update<A>(&mut self, keys: impl Iterator<Item = (K, A)>, mut each: impl FnMut(&mut V, A))
    where
        V: Default,
    {
        let (mut at, mut new) = (0, Vec::new());
        for (key, argument) in keys {
            while self.0.get(at).is_some_and(|(known, _)| *known < key) {
                at += 1;
            }
            match self.0.get_mut(at) {
                Some((known, value)) if *known == key => each(value, argument),
                _ => {
                    let mut value = V::default();
                    each(&mut value, argument);
                    new.push((key, value));
                }
            }
        }
        if !new.is_empty() {
            let old = std::mem::take(&mut self.0);
            *self = old.into_iter().chain(new).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn windows_are_the_same_whatever_the_interval_is() {
        for ms in [100, 500, 1000, 5000, 10_000] {
            let mut series: Series<u64> = Series::default();
            let step = ms * 1_000_000;
            for at in 0..(100 * S / step) {
                series.add(at * step, (at + 1) * step, 60 * S, |sum| *sum += step);
            }
            let sum: u64 = series.since(70 * S).map(|segment| segment.sums).sum();
            assert_eq!((sum, series.measured_ns(70 * S)), (30 * S, 30 * S), "at {ms} ms");
            assert!(series.0.len() <= 14, "{} segments at {ms} ms", series.0.len());
        }
    }

    #[test]
    fn sums_are_of_their_ids_whatever_the_order_is() {
        let mut sums: ById<u64> = ById::default();
        for (at, id) in [5, 9, 2, 7, 5].into_iter().enumerate() {
            *sums.entry(at, id) += u64::from(id);
        }
        let found: Vec<_> = [2, 5, 7, 9, 1].map(|id| sums.get(1, id).copied()).into();
        assert_eq!(found, [Some(2), Some(10), Some(7), Some(9), None]);
    }

    #[test]
    fn a_gap_is_not_measured() {
        let mut series: Series<u64> = Series::default();
        series.add(0, S, 60 * S, |sum| *sum += 1);
        series.add(20 * S, 21 * S, 60 * S, |sum| *sum += 1);
        assert_eq!((series.measured_ns(0), series.end_ns()), (2 * S, 21 * S));
    }

    #[test]
    fn it_is_what_a_tree_is() {
        let mut tree: std::collections::BTreeMap<u32, u32> = Default::default();
        let mut sorted: Sorted<u32, u32> = Sorted::default();
        for round in 1..20u32 {
            let keys = (0..50).filter(|key| (key * 7 + round) % 5 < 2);
            keys.clone().for_each(|key| *tree.entry(key).or_default() += round);
            sorted.update(keys.map(|key| (key, round)), |sum, more| *sum += more);
            tree.retain(|key, sum| !(key + *sum).is_multiple_of(11));
            sorted.retain(|key, sum| !(key + sum).is_multiple_of(11));
            assert!(sorted.iter().eq(tree.iter()) && sorted.keys().eq(tree.keys()));
            assert!((0..60).all(|key| sorted.get(&key) == tree.get(&key)));
        }
        let sorted: Sorted<u32, u32> = [(3, 1), (1, 2), (3, 4)].into_iter().collect();
        assert!(sorted.values().eq(&[2, 1]) && sorted.count() == 2 && sorted.contains_key(&3));
    }
}
