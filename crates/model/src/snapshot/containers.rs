//! From tasks to containers: sums over their tasks, and totals along the tree of cgroups. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::{Arc, LazyLock, OnceLock};

use super::changes::{Changes, IdMap};
use super::machine::disk_traffic;
use super::rows::{Gathered, newcomer};
use super::{Remote, Room, Snapshot, Tally, Task, counted_twice};
use crate::model::accelerators::{self, Held};
use crate::model::disks::{DiskSender, DiskUse, DisksUsed};
use crate::model::group::{DEPTH_MAX, Group, GroupKind};
use crate::model::process::ProcessId;
use crate::model::sample::{GroupRaw, Missing, Names, Pressure, Reading, Sample, TaskRaw};
use crate::model::sockets::{SocketSums, SocketTraffic};
use crate::model::sums::Sum;
use crate::model::topology::{Topology, parse_cpulist};
use crate::model::traffic::Used;
use crate::model::turns::TierPages;
use crate::model::units::CpuId;

/// A container, pod, machine, unit or any other cgroup with tasks in it or below it.
#[derive(Clone, Debug)]
pub struct Container {
    /// Id of the cgroup at its top.
    pub id: u64,
    /// Its kind and names; `None` when its cgroup was removed before it was read.
    pub group: Option<Arc<Group>>,
    /// The row that it is a part of, as an index into the same list.
    pub parent: Option<usize>,
    /// It has tasks itself, or of cgroups without a row.
    pub own_tasks: bool,
    pub processes: u32,
    /// The sum of its tasks, of tasks that ended in the interval, and of all rows below it. Values that only
    /// a single task has (ids, state, owner) are meaningless here.
    pub sum: Task,
    /// Of what ran in it.
    pub remote: Remote,
    /// Its limits and its memory.
    pub raw: Option<Arc<GroupRaw>>,
    /// See [`Container::raw_delta`].
    delta: OnceLock<Option<GroupDelta>>,
    /// Accelerators that its processes hold, and those below it.
    pub held: Held,
    /// Bytes that kernel threads wrote to disks in the interval for its cgroups, and those below it.
    pub written_back: u64,
    /// Traffic of IP sockets of its processes in the interval, and of those below it.
    pub sockets: SocketSums,
    /// CPUs that share a core with a CPU of another container; `None` unless both have CPUs of their own.
    pub smt_shared_cpus: Option<u32>,
}

impl Container {
    /// This row and the rows above it among `rows`, the nearest first.
    pub fn and_above<'a>(&'a self, rows: &'a [Container]) -> impl Iterator<Item = &'a Container> {
        std::iter::successors(Some(self), |row| row.parent.and_then(|at| rows.get(at))).take(DEPTH_MAX)
    }
}

/// Indices of a row and of the rows above it, the nearest first. There are at most [`DEPTH_MAX`], because rows of a hostile
/// recording may be above each other.
pub fn upwards(rows: &[Container], at: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(at), |at| rows.get(*at)?.parent.filter(|above| *above < rows.len()))
        .take(DEPTH_MAX)
}

/// Counters of a cgroup between two readings of its files. These are taken in turns where cgroups are many, so that the time
/// between them is not that of the snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDelta {
    /// Time between the readings, ns; never 0.
    pub interval_ns: u64,
    /// See [`GroupRaw`] for these.
    pub periods: Reading<u64>,
    pub throttled_periods: Reading<u64>,
    pub pressure: Reading<Pressure>,
    pub memory_max_events: Reading<u64>,
    pub oom_events: Reading<u64>,
    pub tier_pages: Reading<TierPages>,
    pub disks: Reading<DisksUsed>,
}

impl GroupDelta {
    fn of(raw: &GroupRaw) -> Option<GroupDelta> {
        let before = raw.counters_before?;
        let interval_ns = raw.read_ns.checked_sub(before.read_ns).filter(|ns| *ns > 0)?;
        // Of a controller that was switched on in between.
        let new = || Missing::FirstInterval;
        let since = |now: &Reading<u64>, before: Option<u64>| -> Reading<u64> {
            Ok(now.clone()?.saturating_sub(before.ok_or_else(new)?))
        };
        let pressure = |now: &Reading<Pressure>| -> Reading<Pressure> {
            Ok(now.clone()?.since(before.pressure.ok_or_else(new)?))
        };
        Some(GroupDelta {
            interval_ns,
            periods: since(&raw.periods, before.periods),
            throttled_periods: since(&raw.throttled_periods, before.throttled_periods),
            pressure: pressure(&raw.pressure),
            memory_max_events: since(&raw.memory_max_events, before.memory_max_events),
            oom_events: since(&raw.oom_events, before.oom_events),
            tier_pages: raw
                .tier_pages
                .clone()
                .and_then(|now| Ok(now.since(&before.tier_pages.ok_or_else(new)?))),
            disks: disks(raw),
        })
    }
}

/// Use of disks between the last two readings. A disk that the group had not used by then has no line there.
fn disks(raw: &GroupRaw) -> Reading<DisksUsed> {
    let now = raw.disks.clone()?;
    let before = raw.disks_before.as_ref().ok_or(Missing::FirstInterval)?;
    let since = |(address, used): (String, DiskUse)| {
        let before = before.get(&address).copied().unwrap_or_default();
        (address, used.since(before).unwrap_or_default())
    };
    Ok(now.into_iter().map(since).collect())
}

impl Container {
    /// A sum of tasks without a separate cgroup, with the tasks that ran in them.
    pub fn of_tasks(sum: Task, remote: Remote) -> Container {
        Container { sum, remote, ..empty(0, None) }
    }

    pub fn kind(&self) -> GroupKind {
        self.group.as_ref().map_or(GroupKind::Group, |group| group.kind)
    }

    /// Its counters between the last two readings of its files; `None` before the second. Made when first asked for: few of
    /// thousands of rows are, and each is a handful of texts on a host that lacks most counters.
    pub fn raw_delta(&self) -> Option<&GroupDelta> {
        self.delta.get_or_init(|| self.raw.as_deref().and_then(GroupDelta::of)).as_ref()
    }
}

/// One row per group that has tasks, and one per cgroup above those; without what depends on where memory is.
#[derive(Clone)]
pub(super) struct Sums {
    rows: Vec<Container>,
    /// Place of the row of each cgroup.
    at: IdMap<u64, usize>,
    /// Places of rows, the deepest first.
    order: Vec<usize>,
}

impl Sums {
    /// Sums from the processes, and from those that ended. Processes outside the scope were left out earlier.
    pub(super) fn of(
        machine: &Snapshot,
        previous: Option<&Sample>,
        current: &Sample,
        processes: &Gathered,
        changes: &Changes<'_>,
        exited: &[Task],
    ) -> Sums {
        let mut list = List::new(current);
        let mut homes = add_members(&mut list, current, processes);
        if let Some(previous) = previous {
            add_deltas(&mut list, previous, processes, changes, &mut homes);
        }
        for task in exited {
            let at = list.row_of(task.raw.cgroup_id);
            list.rows[at].own_tasks = true;
            list.totals[at].push(task.total.clone());
            list.rows[at].sum.delta += &*task.delta;
        }
        for row in &mut list.rows {
            row.sum.delta.clamp();
        }
        let order = list.connect();
        let List { mut rows, mut totals, at, .. } = list;
        add_held(&mut rows, current, processes, &homes);
        add_written_back(&mut rows, &at, previous, current);
        add_sockets(&mut rows, &at, &machine.socket_traffic, exited, processes.rows.iter().zip(&homes));
        // Deepest first, so that each row is complete when it is added to the one above it.
        for at in order.iter().copied() {
            rows[at].sum.total = take(&mut totals[at]).sum();
            let Some(parent) = rows[at].parent else { continue };
            let (threads, processes, bytes) =
                (rows[at].sum.threads, rows[at].processes, rows[at].sum.rss_bytes);
            totals[parent].push(rows[at].sum.total.clone());
            // Taken out for the moment: a copy would cost more than the sum.
            let delta = take(&mut rows[at].sum.delta);
            let row = &mut rows[parent];
            row.sum.delta += &delta;
            row.sum.threads += threads;
            row.processes += processes;
            super::add(&mut row.sum.rss_bytes, bytes);
            rows[at].sum.delta = delta;
            let held = rows[at].held.clone();
            hold(&mut rows[parent].held, held);
            let written_back = rows[at].written_back;
            super::add(&mut rows[parent].written_back, written_back);
            let sockets = rows[at].sockets;
            rows[parent].sockets.add(&sockets);
        }
        // Only a circle has more to add.
        for (row, mut more) in rows.iter_mut().zip(totals).filter(|(_, more)| !more.is_empty()) {
            more.push(take(&mut row.sum.total));
            row.sum.total = more.sum();
        }
        for row in &mut rows {
            row.raw = current.groups.get(&row.id).cloned();
        }
        share_cores(&machine.host.topology, &mut rows);
        Sums { rows, at, order }
    }

    /// The rows, with the accesses of `tasks`. `sharers` are the indices of tasks that share memory objects.
    pub(super) fn with_accesses(mut self, tasks: &[Task], sharers: &[usize], room: &Room) -> Vec<Container> {
        self.count_once(tasks, sharers);
        let mut known = false;
        for task in tasks.iter().filter(|task| task.run_ns() > 0) {
            if let Some((_, Ok(memory))) = task.memory()
                && let Some(at) = self.at.get(&task.raw.cgroup_id)
            {
                self.rows[*at].remote += &Remote::of(&task.delta.run_ns, memory, room);
                known = true;
            }
        }
        for at in self.order.into_iter().filter(|_| known) {
            let Some(parent) = self.rows[at].parent else { continue };
            let remote = self.rows[at].remote;
            self.rows[parent].remote += &remote;
        }
        self.rows
    }

    /// Takes from the memory of each row what its processes share, so that it counts once.
    fn count_once(&mut self, tasks: &[Task], sharers: &[usize]) {
        let mut members: BTreeMap<usize, BTreeMap<ProcessId, &Task>> = BTreeMap::new();
        for task in sharers.iter().filter_map(|at| tasks.get(*at)) {
            // Rows above it have it, too.
            for at in self.at.get(&task.raw.cgroup_id).into_iter().flat_map(|at| upwards(&self.rows, *at)) {
                // Rows may be threads.
                members.entry(at).or_default().insert(task.raw.process(), task);
            }
        }
        for (at, tasks) in members.into_iter().filter(|(_, tasks)| tasks.len() > 1) {
            let twice: f64 = counted_twice(tasks.into_values()).iter().sum();
            let bytes = &mut self.rows[at].sum.rss_bytes;
            *bytes = bytes.saturating_sub(twice as u64);
        }
    }
}

/// Rows that a process has tasks in.
#[derive(Clone, Copy, Default)]
struct Home {
    /// The row of its first task.
    first: Option<usize>,
    /// The row of its first thread.
    counted: Option<usize>,
    /// It has tasks in other rows than the first.
    is_divided: bool,
}

/// Counts the tasks of each row, with their totals. Returns the rows of each process.
fn add_members(list: &mut List<'_>, current: &Sample, processes: &Gathered) -> Vec<Home> {
    let mut homes = vec![Home::default(); processes.rows.len()];
    let mut counted_too: IdMap<(usize, u32), ()> = IdMap::default();
    // Threads of a process, which come one after the other, are in one cgroup most often.
    let mut last: Option<(u64, usize)> = None;
    for (task, place) in current.tasks.iter().zip(&processes.places) {
        let known = last.filter(|(cgroup, _)| *cgroup == task.cgroup_id);
        let at = known.map_or_else(|| list.row_of(task.cgroup_id), |(_, at)| at);
        last = Some((task.cgroup_id, at));
        let row = &mut list.rows[at];
        row.own_tasks = true;
        row.sum.threads += u32::from(task.tid != 0);
        let home = &mut homes[*place as usize];
        home.is_divided |= *home.first.get_or_insert(at) != at;
        // Without a thread it may be a process that has left the scope.
        let is_new = task.tid != 0
            && match home.counted {
                None => {
                    home.counted = Some(at);
                    true
                }
                Some(counted) => counted != at && counted_too.insert((at, *place), ()).is_none(),
            };
        row.processes += u32::from(is_new);
    }
    for (home, process) in homes.iter().zip(&processes.rows) {
        let Some(at) = home.first else { continue };
        // All threads share the memory.
        super::add(&mut list.rows[at].sum.rss_bytes, process.rss_bytes);
        if !home.is_divided {
            list.totals[at].push(process.total.clone());
        }
    }
    if homes.iter().any(|home| home.is_divided) {
        let tasks = current.tasks.iter().zip(&processes.places);
        for (task, _) in tasks.filter(|(_, place)| homes[**place as usize].is_divided) {
            let at = list.row_of(task.cgroup_id);
            list.totals[at].push(Tally::Of(Arc::clone(task)));
        }
    }
    homes
}

/// Adds the accelerators of processes to their rows.
fn add_held(rows: &mut [Container], current: &Sample, processes: &Gathered, homes: &[Home]) {
    let all = &current.inputs.accelerators;
    if all.is_empty() {
        return;
    }
    for (home, process) in homes.iter().zip(&processes.rows) {
        if let (Some(at), Some(held)) = (home.first, all.get(&process.raw.process())) {
            hold(&mut rows[at].held, Held::clone(held));
        }
    }
}

/// Adds the write-back of cgroups to their rows. A cgroup without tasks has none.
fn add_written_back(
    rows: &mut [Container],
    at: &IdMap<u64, usize>,
    previous: Option<&Sample>,
    current: &Sample,
) {
    for (sender, traffic) in disk_traffic(previous, current, DiskSender::CGROUPS) {
        if let Some(at) = at.get(&current.names.top(sender.id)) {
            for used in traffic.values() {
                super::add(&mut rows[*at].written_back, used.bytes);
            }
        }
    }
}

/// Adds the traffic of IP sockets of processes to the rows that they are in, or ended in.
fn add_sockets<'a>(
    rows: &mut [Container],
    at: &IdMap<u64, usize>,
    traffic: &BTreeMap<ProcessId, SocketTraffic>,
    exited: &[Task],
    homes: impl Iterator<Item = (&'a Task, &'a Home)>,
) {
    if traffic.is_empty() {
        return;
    }
    // A thread that ended has the same process as those that live.
    let mut left: BTreeMap<&ProcessId, &SocketTraffic> = traffic.iter().collect();
    let ended = exited.iter().map(|task| (task.raw.process(), at.get(&task.raw.cgroup_id).copied()));
    for (process, at) in homes.map(|(task, home)| (task.raw.process(), home.first)).chain(ended) {
        if let Some(at) = at
            && let Some(traffic) = left.remove(&process)
        {
            rows[at].sockets.add(&SocketSums::of(traffic));
        }
    }
}

fn hold(held: &mut Held, more: Held) {
    if !more.is_empty() {
        held.extend(more);
        accelerators::sort(held);
    }
}

/// Adds what tasks did in the interval. A task that was moved between two samples counts where it is now.
fn add_deltas(
    list: &mut List<'_>,
    previous: &Sample,
    processes: &Gathered,
    changes: &Changes<'_>,
    homes: &mut [Home],
) {
    // The counts of one that ended went into the row of its process's ended threads, or into that of its process.
    let went = || changes.went.iter().filter_map(|old| Some((processes.place(old.process())?, old)));
    for (place, old) in went() {
        let at = list.row_of(old.cgroup_id);
        homes[place].is_divided |= homes[place].first != Some(at);
    }
    // Most processes have all their counts in one row.
    for (home, process) in homes.iter().zip(&processes.rows).filter(|(home, _)| !home.is_divided) {
        let Some(at) = home.first else { continue };
        list.rows[at].sum.delta += &process.delta;
    }
    if !homes.iter().any(|home| home.is_divided) {
        return;
    }
    let is_divided =
        |task: &TaskRaw| processes.place(task.process()).is_some_and(|place| homes[place].is_divided);
    for (old, new) in changes.changed.iter().filter(|(_, new)| is_divided(new)) {
        let at = list.row_of(new.cgroup_id);
        list.rows[at].sum.delta.add_difference(&new.counts, &old.counts);
    }
    for new in changes.came.iter().filter(|new| is_divided(new)) {
        let at = list.row_of(new.cgroup_id);
        list.rows[at].sum.delta += &newcomer(new, previous);
    }
    for (_, old) in went().filter(|(place, _)| homes[*place].is_divided) {
        let at = list.row_of(old.cgroup_id);
        list.rows[at].sum.delta -= &old.counts;
    }
}

struct List<'a> {
    names: &'a Names,
    rows: Vec<Container>,
    totals: Vec<Total>,
    /// Cgroup id → row, for tops and the cgroups below them.
    at: IdMap<u64, usize>,
}

/// Parts of the total of a row: of thousands most have one.
#[derive(Default)]
struct Total {
    first: Tally,
    others: Vec<Tally>,
}

impl Total {
    fn push(&mut self, part: Tally) {
        match self.first {
            Tally::Nothing => self.first = part,
            _ => self.others.push(part),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self.first, Tally::Nothing)
    }

    fn sum(self) -> Tally {
        let Total { first, mut others } = self;
        if others.is_empty() {
            return first;
        }
        others.push(first);
        Tally::sum(others)
    }
}

impl List<'_> {
    /// Rows are large: room for all is allocated at once.
    fn new(current: &Sample) -> List<'_> {
        let most = current.names.groups.len().min(current.tasks.len());
        let at = IdMap::with_capacity_and_hasher(most, Default::default());
        let (rows, totals) = (Vec::with_capacity(most), Vec::with_capacity(most));
        List { names: &current.names, rows, totals, at }
    }

    /// The row that tasks of this cgroup belong to.
    fn row_of(&mut self, cgroup: u64) -> usize {
        if let Some(at) = self.at.get(&cgroup) {
            return *at;
        }
        let group = self.names.groups.get(&cgroup);
        let top = group.map_or(cgroup, |group| group.top);
        let at = self.at.get(&top).copied().unwrap_or_else(|| {
            // Most cgroups are a row of their own.
            let group = if top == cgroup { group } else { self.names.groups.get(&top) };
            self.rows.push(empty(top, group.cloned()));
            self.totals.push(Total::default());
            self.rows.len() - 1
        });
        self.at.insert(top, at);
        self.at.insert(cgroup, at);
        at
    }

    /// Adds the rows above, and finds the parent of each. Returns all rows, the deepest first.
    fn connect(&mut self) -> Vec<usize> {
        let mut at = 0;
        while at < self.rows.len() {
            let above = self.rows[at].group.as_ref().and_then(|group| group.parent);
            let parent = above.map(|above| self.row_of(above));
            // A cycle would need two cgroups above each other: ids of a removed one that came again.
            self.rows[at].parent = parent.filter(|parent| *parent != at);
            at += 1;
        }
        let depth = |mut at: usize| {
            let mut depth = 0;
            while let Some(parent) = self.rows[at].parent {
                (at, depth) = (parent, depth + 1);
                // Deeper than engines go, or a circle.
                if depth > DEPTH_MAX {
                    break;
                }
            }
            depth
        };
        let mut order: Vec<(usize, usize)> = (0..self.rows.len()).map(|at| (depth(at), at)).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().map(|(_, at)| at).collect()
    }
}

fn empty(id: u64, group: Option<Arc<Group>>) -> Container {
    // All that is not summed up is the same in all rows.
    static NOBODY: LazyLock<Arc<TaskRaw>> = LazyLock::new(|| Arc::new(TaskRaw::default()));
    Container {
        id,
        group,
        parent: None,
        own_tasks: false,
        processes: 0,
        sum: Task::new(Arc::clone(&NOBODY)),
        remote: Remote::default(),
        raw: None,
        delta: OnceLock::new(),
        held: Held::new(),
        written_back: 0,
        sockets: SocketSums::default(),
        smt_shared_cpus: None,
    }
}

/// The CPUs of a container that have a sibling in another one. Containers that may use every CPU share with all
/// anyway and are left out.
fn share_cores(topology: &Topology, rows: &mut [Container]) {
    let online = topology.online_cpus().count();
    let own = |row: &Container| -> Option<BTreeSet<u32>> {
        if !matches!(row.kind(), GroupKind::Container | GroupKind::Machine) {
            return None;
        }
        let cpus: BTreeSet<u32> =
            parse_cpulist(row.raw.as_ref()?.cpus.as_ref().ok()?).ok()?.into_iter().collect();
        (!cpus.is_empty() && cpus.len() < online).then_some(cpus)
    };
    let sets: Vec<Option<BTreeSet<u32>>> = rows.iter().map(own).collect();
    let mut users: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in sets.iter().flatten().flatten() {
        *users.entry(*cpu).or_default() += 1;
    }
    for (row, set) in rows.iter_mut().zip(&sets) {
        let Some(set) = set else { continue };
        let shared = |cpu: &&u32| {
            let siblings = topology.cpu(CpuId(**cpu)).map_or(&[][..], |cpu| &cpu.siblings);
            siblings.iter().filter(|sibling| sibling.0 != **cpu).any(|sibling| {
                users.get(&sibling.0).copied().unwrap_or(0) > u32::from(set.contains(&sibling.0))
            })
        };
        row.smt_shared_cpus = Some(set.iter().filter(shared).count() as u32);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::sample::{GroupCounters, not_kept};

    /// A group without limits.
    pub(crate) fn group_raw() -> GroupRaw {
        GroupRaw {
            read_ns: 5_000,
            cpus: Ok("0".into()),
            mems: Ok("0".into()),
            cpu_quota_milli: Ok(None),
            throttled_ns: Ok(0),
            mem_limit_bytes: Ok(None),
            mem_bytes: Ok(0),
            mem_bytes_by_node: Ok(BTreeMap::new()),
            periods: Ok(30),
            throttled_periods: Ok(7),
            pressure: Ok(Pressure { cpu_some_us: 9, memory_some_us: 4, memory_full_us: 1 }),
            oom_events: Ok(2),
            ..GroupRaw::default()
        }
    }

    #[test]
    fn rows_above_each_other_end() {
        let mut rows = vec![empty(1, None), empty(2, None), empty(3, None)];
        rows[0].parent = Some(1);
        let ids = |rows: &[Container]| rows[0].and_above(rows).map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(&rows), [1, 2]);
        assert_eq!(upwards(&rows, 0).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(upwards(&rows, 9).collect::<Vec<_>>(), [9]);

        // A parent that is not there, and a circle.
        rows[1].parent = Some(9);
        assert_eq!(ids(&rows), [1, 2]);
        rows[1].parent = Some(0);
        assert_eq!(ids(&rows).len(), DEPTH_MAX);
        assert_eq!(upwards(&rows, 0).count(), DEPTH_MAX);
        assert_eq!(upwards(&rows, 2).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn counters_of_a_group_are_those_between_its_readings() {
        let raw = group_raw();
        assert_eq!(GroupDelta::of(&raw), None);

        let before = GroupCounters {
            read_ns: 2_000,
            periods: Some(20),
            throttled_periods: Some(7),
            pressure: Some(Pressure { cpu_some_us: 4, ..Pressure::default() }),
            memory_max_events: Some(1),
            oom_events: None,
            tier_pages: None,
        };
        let delta = GroupDelta::of(&GroupRaw { counters_before: Some(before), ..raw.clone() }).unwrap();
        assert_eq!((delta.interval_ns, delta.periods, delta.throttled_periods), (3_000, Ok(10), Ok(0)));
        let pressure = Pressure { cpu_some_us: 5, memory_some_us: 4, memory_full_us: 1 };
        assert_eq!(delta.pressure, Ok(pressure));
        assert_eq!((delta.memory_max_events, delta.oom_events), (not_kept(), Err(Missing::FirstInterval)));

        let used = |bytes| DisksUsed::from([("0000:3b:00.0".into(), DiskUse { bytes, requests: 1 })]);
        assert_eq!(delta.disks, not_kept());
        let mut with_disks = GroupRaw { disks: Ok(used(9)), counters_before: Some(before), ..raw.clone() };
        let of = |raw: &GroupRaw| GroupDelta::of(raw).unwrap().disks;
        assert_eq!(of(&with_disks), Err(Missing::FirstInterval));
        with_disks.disks_before = Some(DisksUsed::new());
        assert_eq!(of(&with_disks), Ok(used(9)), "the first request of the group to it");
        with_disks.disks_before = Some(used(5));
        let newer = DiskUse { bytes: 4, requests: 0 };
        assert_eq!(of(&with_disks), Ok(DisksUsed::from([("0000:3b:00.0".into(), newer)])));

        let same_time = GroupCounters { read_ns: 5_000, ..before };
        assert_eq!(GroupDelta::of(&GroupRaw { counters_before: Some(same_time), ..raw }), None);
    }
}
