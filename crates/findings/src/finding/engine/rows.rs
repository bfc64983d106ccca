//! Rows that rules look at: the processes and containers that use most, and those with a state.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::finding::Subject;
use crate::finding::cores::hidden_sockets;
use crate::finding::history::{Series, Sorted};
use crate::finding::view::{Rows, SubjectRef, process};
use crate::model::counters::Counter;
use crate::model::process::ProcessId;
use crate::model::sample::Hints;
use crate::model::topology::Device;
use crate::model::units::NodeId;
use crate::snapshot::{RowUse, Snapshot, Task, process_groups, upwards};

/// Maximum processes that rules look at: first by CPU time, then by memory.
pub(super) const PROCESSES_MAX: usize = 256;

/// Containers that rules look at.
pub(super) const CONTAINERS_MAX: usize = 64;

/// Share of a CPU, in percent of the interval, that makes a process one of them; or a share of a node's memory.
const CPU_PCT: u64 = 5;

const MEMORY_PCT: u64 = 1;

/// Devices of the machine, each with the node that it is on.
pub(super) fn devices(snapshot: &Snapshot) -> impl Iterator<Item = (&Device, Option<NodeId>)> {
    let nodes = &snapshot.host.topology.nodes;
    nodes.iter().flat_map(|node| node.devices.iter().map(|device| (device, Some(node.id))))
}

/// Rows of this interval.
pub(super) fn find(snapshot: &Snapshot, tracked: &[Subject]) -> Rows {
    let interval = snapshot.interval_ns.unwrap_or(0);
    let sizes = snapshot.nodes.iter().map(|node| node.raw.mem_total_bytes).filter(|bytes| *bytes > 0);
    let memory = sizes.min().unwrap_or(u64::MAX) / 100 * MEMORY_PCT;
    // In the order of subjects, which is that of ids.
    let known: Vec<ProcessId> = tracked.iter().filter_map(Subject::process).collect();
    let is_known_pid = |pid: u32| known.binary_search_by_key(&pid, |(pid, _)| *pid).is_ok();
    let (mut most, mut places) = (Most::of(PROCESSES_MAX), Vec::new());
    // Looking at the row itself costs more than all the rest.
    let counts = |at: usize| !snapshot.tasks[at].exited && !snapshot.tasks[at].raw.kthread;
    for (at, row) in snapshot.row_uses.iter().enumerate() {
        let is_known = !known.is_empty() && is_known_pid(row.pid);
        if is_known && known.binary_search(&snapshot.tasks[at].raw.process()).is_ok() {
            if counts(at) {
                places.push(at);
            }
        } else if row.run_ns.saturating_mul(100) >= interval.saturating_mul(CPU_PCT)
            || row.rss_bytes >= memory
        {
            most.offer(row, at, || counts(at));
        }
    }
    places.extend(most.places(PROCESSES_MAX.saturating_sub(places.len())));
    let mut rows = Rows::default();
    rows.processes = places.into_iter().map(|at| (process(&snapshot.tasks[at].raw), at)).collect();
    rows.containers = snapshot.containers.iter().enumerate().map(|(at, row)| (row.id, at)).collect();
    rows.members = members(snapshot, &rows);
    let groups = process_groups(snapshot).into_iter();
    rows.groups = groups.map(|group| (Subject::Group(group.leader.0, group.leader.1), group)).collect();
    let members = rows.groups.values().flat_map(|group| &group.members);
    rows.grouped = members.map(|at| snapshot.tasks[*at].raw.process()).collect();
    rows
}

/// Places of the processes that rules look at, by each container that they are in.
fn members(snapshot: &Snapshot, rows: &Rows) -> BTreeMap<u64, Vec<usize>> {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); snapshot.containers.len()];
    // Most processes are in the cgroup of the one before.
    let mut last: Option<(u64, Option<usize>)> = None;
    for at in rows.processes.values() {
        let cgroup = snapshot.tasks[*at].raw.cgroup_id;
        let known = last.filter(|(known, _)| *known == cgroup).map(|(_, place)| place);
        let home = known.unwrap_or_else(|| {
            let top = snapshot.names.top(cgroup);
            rows.containers.get(&top).copied()
        });
        last = Some((cgroup, home));
        // Rows above it have it, too.
        for here in home.into_iter().flat_map(|home| upwards(&snapshot.containers, home)) {
            members[here].push(*at);
        }
    }
    let ids = snapshot.containers.iter().map(|row| row.id);
    ids.zip(members).filter(|(_, members)| !members.is_empty()).collect()
}

/// All subjects, in their order.
pub(super) fn subjects<'a>(snapshot: &'a Snapshot, rows: &'a Rows) -> Vec<(Subject, SubjectRef<'a>)> {
    let mut all = vec![(Subject::Host, SubjectRef::Host)];
    all.extend(
        snapshot.nodes.iter().map(|node| (Subject::Node(NodeId(node.raw.id)), SubjectRef::Node(node))),
    );
    all.extend(hidden_sockets(snapshot).map(|set| (Subject::Socket(set.id), SubjectRef::Socket(set))));
    all.extend(
        rows.processes
            .iter()
            .map(|(subject, at)| (subject.clone(), SubjectRef::Process(&snapshot.tasks[*at]))),
    );
    all.extend(
        rows.groups.iter().map(|(subject, group)| (subject.clone(), SubjectRef::Group(&group.row, group))),
    );
    let mut containers: Vec<usize> = rows.containers.values().copied().collect();
    if containers.len() > CONTAINERS_MAX {
        let use_of = |at: &usize| {
            let row = &snapshot.containers[*at];
            (Reverse((row.sum.run_ns(), row.sum.rss_bytes)), row.id)
        };
        containers.select_nth_unstable_by_key(CONTAINERS_MAX, use_of);
        containers.truncate(CONTAINERS_MAX);
    }
    all.extend(containers.into_iter().map(|at| {
        let row = &snapshot.containers[at];
        (Subject::Container(row.id), SubjectRef::Container(row))
    }));
    all.extend(
        devices(snapshot)
            .map(|(device, node)| (Subject::Device(device.name.clone()), SubjectRef::Device(device, node))),
    );
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// Whether a subject is still there.
pub(super) fn exists(snapshot: &Snapshot, rows: &Rows, subject: &Subject) -> bool {
    match subject {
        Subject::Process(..) => rows.processes.contains_key(subject),
        Subject::Group(..) => rows.groups.contains_key(subject),
        Subject::Container(id) => rows.containers.contains_key(id),
        Subject::Node(id) => snapshot.nodes.iter().any(|node| node.raw.id == id.0),
        Subject::Socket(id) => hidden_sockets(snapshot).any(|set| set.id == *id),
        Subject::Host => true,
        Subject::Device(name) => devices(snapshot).any(|(device, _)| device.name == *name),
    }
}

/// Rare events of a process in the last two minutes: an interval may have none of a process that has many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Rare {
    pub hints: Hints,
    /// Times it resumed on a different node.
    pub node_moves: u64,
}

impl Rare {
    /// The sum of both.
    pub(in super::super) fn and(self, other: Rare) -> Rare {
        Rare {
            hints: Hints {
                faults: self.hints.faults.saturating_add(other.hints.faults),
                remote: self.hints.remote.saturating_add(other.hints.remote),
            },
            node_moves: self.node_moves.saturating_add(other.node_moves),
        }
    }
}

/// CPU time and rare events of the last minutes, and the first interval of each container.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Uses {
    cpu: Sorted<Subject, Series<u64>>,
    /// Only of processes with such events.
    rare: BTreeMap<Subject, Series<Rare>>,
    rare_ns: u64,
    seen: BTreeMap<u64, u64>,
    began_ns: Option<u64>,
}

/// Containers with at least this part of a CPU, as a divisor, have their CPU time kept.
const MATTERS: u64 = 2;

/// Processes and containers whose CPU time is kept.
const SERIES_MAX: usize = 4 * PROCESSES_MAX;

/// Segments from which the need of a subject is taken, at least.
const NEED_SEGMENTS: usize = 6;

impl Uses {
    /// Adds an interval that began at `from_ns`.
    pub(super) fn add(&mut self, snapshot: &Snapshot, rows: &Rows, from_ns: u64, keep_ns: u64) {
        self.began_ns.get_or_insert(from_ns);
        let to = snapshot.mono_ns;
        let rare_ns = keep_ns / 5 * 2;
        self.rare_ns = rare_ns.min(to.saturating_sub(self.began_ns.unwrap_or(to)));
        for (subject, at) in rows.processes.iter() {
            let delta = &snapshot.tasks[*at].delta;
            let hints = Hints { faults: delta[Counter::HintFaults], remote: delta[Counter::HintRemote] };
            let rare = Rare { hints, node_moves: delta[Counter::NodeMoves] };
            if hints.faults > 0 || rare.node_moves > 0 || self.rare.contains_key(subject) {
                let series = self.rare.entry(subject.clone()).or_default();
                series.add(from_ns, to, rare_ns, |sum| *sum = sum.and(rare));
            }
        }
        let interval = to.saturating_sub(from_ns);
        // Ascending, as subjects are.
        let known: Vec<u64> = self.cpu.keys().filter_map(Subject::container).collect();
        let processes =
            rows.processes.iter().map(|(subject, at)| (subject.clone(), snapshot.tasks[*at].run_ns()));
        let groups = rows.groups.iter().map(|(subject, group)| (subject.clone(), group.row.run_ns()));
        let containers = rows.containers.iter().filter_map(|(id, at)| {
            let ran = snapshot.containers[*at].sum.run_ns();
            // A known busy one is kept: thousands of others are never asked about.
            let goes_on = ran.saturating_mul(MATTERS) >= interval || known.binary_search(id).is_ok();
            goes_on.then_some((Subject::Container(*id), ran))
        });
        self.cpu.update(processes.chain(groups).chain(containers), |series, ran| {
            series.add(from_ns, to, keep_ns, |sum| *sum = sum.saturating_add(ran));
        });
        self.cpu.retain(|_, series| series.end_ns().saturating_add(keep_ns) > to);
        self.forget();
        let cpu = &self.cpu;
        self.rare.retain(|subject, series| {
            let any = |series: &Series<Rare>| series.since(0).any(|segment| segment.sums != Rare::default());
            cpu.contains_key(subject) && series.end_ns().saturating_add(rare_ns) > to && any(series)
        });
        // Most intervals have the containers of the one before.
        if !self.seen.keys().eq(rows.containers.keys()) {
            for id in rows.containers.keys() {
                self.seen.entry(*id).or_insert(from_ns);
            }
            self.seen.retain(|id, _| rows.containers.contains_key(id));
        }
    }

    /// Drops the series that ended first where there are too many: processes that come and go would be without end.
    fn forget(&mut self) {
        let Some(surplus) = self.cpu.count().checked_sub(SERIES_MAX + 1) else { return };
        let mut ends: Vec<(u64, Subject)> =
            self.cpu.iter().map(|(subject, series)| (series.end_ns(), subject.clone())).collect();
        // Some more than must be, so that it is not each time.
        let drop = (surplus + SERIES_MAX / 4).min(ends.len() - 1);
        ends.select_nth_unstable(drop);
        let mut dropped: Vec<&Subject> = ends[..=drop].iter().map(|(_, subject)| subject).collect();
        dropped.sort();
        self.cpu.retain(|subject, _| dropped.binary_search(&subject).is_err());
    }

    /// Rare events of a process in the last [`Uses::rare_ns`].
    pub(in super::super) fn rare(&self, subject: &Subject) -> Rare {
        let segments = self.rare.get(subject).into_iter().flat_map(|series| series.since(0));
        segments.fold(Rare::default(), |sum, segment| sum.and(segment.sums))
    }

    /// The time that rare events are known of, ns: up to two minutes.
    pub(in super::super) fn rare_ns(&self) -> u64 {
        self.rare_ns
    }

    /// CPUs that a subject used in all but a twentieth of the last minutes, over 5 s at a time; `None` where that is not kept.
    pub(in super::super) fn need(&self, subject: &Subject) -> Option<f64> {
        let segments = self.cpu.get(subject)?.since(0).filter(|segment| segment.measured_ns > 0);
        let mut used: Vec<f64> =
            segments.map(|segment| segment.sums as f64 / segment.measured_ns as f64).collect();
        used.sort_by(f64::total_cmp);
        // Of few the largest.
        let at = if used.len() < NEED_SEGMENTS { used.len() } else { (used.len() * 95).div_ceil(100) };
        used.get(at.checked_sub(1)?).copied()
    }

    /// The age of a process, or of the oldest process of a container that rules look at, in seconds; `None`
    /// for others. A container that appeared later is as old as its first interval.
    pub(super) fn age_s(
        &self,
        snapshot: &Snapshot,
        rows: &Rows,
        of: &SubjectRef<'_>,
        now_ns: u64,
    ) -> Option<f64> {
        let age = |task: &Task| snapshot.boot_ns.saturating_sub(task.raw.leader_start_ns) as f64 / 1e9;
        match of {
            SubjectRef::Process(task) | SubjectRef::Group(task, _) => Some(age(task)),
            SubjectRef::Container(row) => {
                let members = rows.members.get(&row.id).into_iter().flatten();
                let oldest = members.map(|at| age(&snapshot.tasks[*at])).fold(0.0, f64::max);
                let seen =
                    self.seen.get(&row.id).map_or(0.0, |seen| now_ns.saturating_sub(*seen) as f64 / 1e9);
                Some(oldest.max(seen))
            }
            _ => None,
        }
    }
}

/// CPU time in ns, memory in bytes, the id of the process, and its place among the rows. More goes first, and
/// of equal ones the lower id, so that the order of rows does not matter. Of two rows with one id, one has
/// ended and is not offered.
type Use = (Reverse<u64>, Reverse<u64>, u32, usize);

/// The first `room` of all offered processes.
pub(super) struct Most {
    room: usize,
    /// Up to twice `room`: then half of them are dropped.
    found: Vec<Use>,
    /// The last one that fitted, once `room` was reached: a later one in the order cannot be among them.
    last: Option<Use>,
}

impl Most {
    /// With this room.
    pub(super) fn of(room: usize) -> Most {
        Most { room, found: Vec::with_capacity(2 * room), last: None }
    }

    /// Offers the process at this place. Whether it counts is asked only where it can matter: that takes a look at its row.
    pub(super) fn offer(&mut self, row: &RowUse, at: usize, counts: impl FnOnce() -> bool) {
        let new = (Reverse(row.run_ns), Reverse(row.rss_bytes), row.pid, at);
        if self.last.is_some_and(|last| new > last) || !counts() {
            return;
        }
        self.found.push(new);
        if self.found.len() >= 2 * self.room.max(1) {
            self.cut(self.room);
        }
    }

    /// Places of the first `count`, in any order.
    pub(super) fn places(mut self, count: usize) -> impl Iterator<Item = usize> {
        self.cut(count.min(self.room));
        self.found.into_iter().map(|(.., at)| at)
    }

    fn cut(&mut self, count: usize) {
        if self.found.len() <= count {
            return;
        }
        match count.checked_sub(1) {
            Some(last) => self.last = Some(*self.found.select_nth_unstable(last).1),
            None => self.last = None,
        }
        self.found.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_come_and_go_take_no_more_than_so_much() {
        const S: u64 = 1_000_000_000;
        let mut uses = Uses::default();
        for pid in 0..20 * SERIES_MAX as u32 {
            let second = u64::from(pid) / PROCESSES_MAX as u64 * S;
            let process = Subject::Process(pid, second);
            uses.cpu.update([(process, ())].into_iter(), |series, ()| {
                series.add(second, second + S, 300 * S, |sum| *sum += 1);
            });
            uses.forget();
            assert!(uses.cpu.count() <= SERIES_MAX);
        }
        // The last ones are kept.
        assert!(uses.cpu.keys().any(
            |subject| matches!(subject, Subject::Process(pid, _) if *pid + 1 == 20 * SERIES_MAX as u32)
        ));
        uses.forget();
        assert!(uses.cpu.count() > PROCESSES_MAX);
    }

    /// Amounts with many that are equal, in an order that repeats only after all of them.
    fn offered(count: usize) -> Vec<RowUse> {
        let mixed =
            |at: usize, factor: u64, range: u64| (at as u64 + 1).wrapping_mul(factor) % 1_000_003 % range;
        (0..count)
            .map(|at| RowUse {
                pid: (at as u32 + 1).wrapping_mul(31) % 1_000_003,
                run_ns: mixed(at, 7919, 40),
                rss_bytes: mixed(at, 104_729, 3),
            })
            .collect()
    }

    #[test]
    fn they_are_the_first_of_all_in_order_whatever_the_order_of_rows_is() {
        for (count, room, wanted) in
            [(0, 4, 4), (3, 4, 4), (8, 4, 4), (5000, 256, 256), (5000, 256, 100), (40, 4, 0), (9, 0, 0)]
        {
            let all = offered(count);
            let counts = |row: &RowUse| !row.pid.is_multiple_of(7);
            let key = |row: &RowUse| (Reverse(row.run_ns), Reverse(row.rss_bytes), row.pid);
            let mut sorted: Vec<_> = all.iter().filter(|row| counts(row)).map(key).collect();
            sorted.sort();
            let first: Vec<u32> = sorted.iter().take(wanted.min(room)).map(|(.., pid)| *pid).collect();
            for order in [(0..count).collect::<Vec<_>>(), (0..count).rev().collect()] {
                let mut most = Most::of(room);
                for at in order {
                    most.offer(&all[at], at, || counts(&all[at]));
                }
                let mut found: Vec<RowUse> = most.places(wanted).map(|at| all[at]).collect();
                found.sort_by_key(key);
                assert_eq!(
                    found.iter().map(|row| row.pid).collect::<Vec<_>>(),
                    first,
                    "{count} {room} {wanted}"
                );
            }
        }
    }
}
