//! Rows of programs and containers: sums over the time of a report, in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lanes::{NODES_MAX, Sources};
use super::track::Grid;
use crate::entity::program_of;
use crate::metric::over::{Over, Quotient};
use crate::metric::{Metric, placement, task};
use crate::model::sample::{Comm, HostFacts, Names};
use crate::snapshot::{IdHash, Snapshot, Tally, Task};

/// Rows that are kept apart at most: names come from strangers.
const ROWS_MAX: usize = 20_000;
/// Rows that become one when there are more: those with the least time so far.
const MERGED: usize = 4_000;
/// Processes kept in excess of twice the current number; beyond that, ended ones are dropped.
const SEEN_SPARE: usize = 1_000;
/// Processes of a program whose time is kept apart.
const PROCESSES: usize = 4;

/// Sums of a row in one part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Time on a CPU, ns.
    pub run_ns: f32,
    /// Time with memory of other nodes, and the time for which that is known, ns.
    pub remote_ns: f32,
    /// See `remote_ns`.
    pub placed_ns: f32,
    /// Instructions, and the cycles that they took.
    pub instructions: f32,
    /// See `instructions`.
    pub cycles: f32,
    /// Time it waited for a CPU, ns.
    pub wait_ns: f32,
}

/// A metric of rows, and whether the host cannot measure it.
struct Column<R: 'static> {
    metric: &'static Metric<R>,
    is_missing: bool,
}

impl<R> Column<R> {
    fn of(metric: &'static Metric<R>) -> Column<R> {
        Column { metric, is_missing: false }
    }

    /// See [`Metric::read`].
    fn number(&self, row: &R, snapshot: &Snapshot) -> Option<f64> {
        if self.is_missing { None } else { (self.metric.value)(row, snapshot).ok()?.number() }
    }

    /// See [`Metric::quotient`].
    fn quotient(&self, row: &R, snapshot: &Snapshot) -> Option<Quotient> {
        let Over::Quotient(of) = self.metric.over else { return None };
        if self.is_missing { None } else { of(row, snapshot).ok() }
    }
}

/// The metrics that rows have, of one kind of row.
pub struct Columns<R: 'static> {
    remote: Column<R>,
    remote_error: Column<R>,
    ipc: Column<R>,
    cpu: Column<R>,
    wait: Column<R>,
    moves: Column<R>,
    /// The sums and values of `remote` and `remote_error`, which are found together.
    share: fn(&R, &Snapshot) -> Option<placement::Share>,
    /// The host whose missing metrics are known: each name is looked up once for it, and not for each row of
    /// each interval.
    host: Option<Arc<HostFacts>>,
}

impl<R> Columns<R> {
    /// The columns among these metrics; `None` where one is not there. `share`: [`placement::share_of_task`] or its like.
    pub fn of(
        metrics: &'static [Metric<R>],
        share: fn(&R, &Snapshot) -> Option<placement::Share>,
    ) -> Option<Columns<R>> {
        let find = |id: &str| metrics.iter().find(|metric| metric.id == id).map(Column::of);
        Some(Columns {
            remote: find(placement::REMOTE_PCT.id)?,
            remote_error: find(placement::REMOTE_ERROR_POINTS.id)?,
            ipc: find(task::IPC.id)?,
            cpu: find(task::CPU_PCT.id)?,
            wait: find(task::RUNQ_WAIT_PCT.id)?,
            moves: find(task::NODE_MIGRATIONS_PER_S.id)?,
            share,
            host: None,
        })
    }

    /// Notes the missing metrics on the host of the next rows.
    pub fn note_host(&mut self, host: &Arc<HostFacts>) {
        if self.host.as_ref().is_some_and(|before| Arc::ptr_eq(before, host)) {
            return;
        }
        let Columns { remote, remote_error, ipc, cpu, wait, moves, .. } = self;
        for column in [remote, remote_error, ipc, cpu, wait, moves] {
            column.is_missing = host.missing.contains_key(column.metric.missing_as());
        }
        self.host = Some(Arc::clone(host));
    }
}

/// One process of a program: id and start, time, and the time that may be of others.
type Share = ((u32, u64), f64, f64);

/// Sums of a row over the time of a report.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// CPU time, ns; waits, ns; moves between nodes, a count.
    pub run_ns: f64,
    pub wait_ns: f64,
    pub moves: f64,
    /// Over time with known memory: see [`crate::snapshot::Remote`].
    pub remote: Quotient,
    /// Instructions over cycles.
    pub ipc: Quotient,
    /// Resident memory × time, and the time in which it was not zero.
    pub rss: Quotient,
    /// The most resident memory at the end of an interval, bytes.
    pub rss_most: f64,
    /// Time on the CPUs of each node, ns, and memory × time on each, by node id.
    pub run_by_node: Vec<f64>,
    pub memory_by_node: Vec<f64>,
    /// The source of `remote`.
    pub sources: Sources,
    /// By part of the time, if not empty. Ascending.
    pub parts: Vec<(u16, Part)>,
    /// Processes that it was.
    pub processes: usize,
    shares: Vec<Share>,
}

/// Adds to the place of a node.
pub fn add_at(list: &mut Vec<f64>, at: usize, more: f64) {
    if at >= NODES_MAX {
        return;
    }
    if list.len() <= at {
        list.resize(at + 1, 0.0);
    }
    list[at] += more;
}

impl Sums {
    /// Adds a row of an interval of the host that was noted. `shares` of the interval lie in these parts.
    pub fn add<R>(
        &mut self,
        columns: &Columns<R>,
        (row, task): (&R, &Task),
        snapshot: &Snapshot,
        shares: &[(usize, f64)],
    ) {
        let ns = snapshot.interval_ns.unwrap_or(0) as f64;
        let number = |column: &Column<R>| column.number(row, snapshot);
        if let Some((_, Ok(memory))) = task.memory() {
            for (node, bytes) in memory.bytes_by_node.iter().enumerate() {
                add_at(&mut self.memory_by_node, node, bytes * ns);
            }
        }
        if matches!(task.delta, Tally::Nothing) {
            return;
        }
        let run_ns = number(&columns.cpu).unwrap_or(0.0) / 100.0 * ns;
        let wait_ns = number(&columns.wait).unwrap_or(0.0) / 100.0 * ns;
        self.run_ns += run_ns;
        self.wait_ns += wait_ns;
        self.moves += number(&columns.moves).unwrap_or(0.0) * ns / 1e9;
        for (node, ns) in task.delta.run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            add_at(&mut self.run_by_node, node, *ns as f64);
        }
        let several = snapshot.host.topology.nodes.len() > 1;
        let share = if several && !columns.remote.is_missing { (columns.share)(row, snapshot) } else { None };
        let share = share.filter(|share| share.sums.den > 0.0);
        let ipc = columns.ipc.quotient(row, snapshot).filter(|sums| sums.den > 0.0);
        if let Some(share) = &share {
            self.remote.add(share.sums);
            let error = Some(share.error_points).filter(|_| !columns.remote_error.is_missing);
            self.sources.add(&share.value, error, run_ns);
        }
        if let Some(sums) = ipc {
            self.ipc.add(sums);
        }
        let (remote, ipc) = (share.map(|share| share.sums).unwrap_or_default(), ipc.unwrap_or_default());
        for (at, share) in shares {
            let part = self.part(*at as u16);
            let add = |sum: &mut f32, more: f64| *sum += (more * share) as f32;
            add(&mut part.run_ns, run_ns);
            add(&mut part.remote_ns, remote.num);
            add(&mut part.placed_ns, remote.den);
            add(&mut part.instructions, ipc.num);
            add(&mut part.cycles, ipc.den);
            add(&mut part.wait_ns, wait_ns);
        }
    }

    fn part(&mut self, at: u16) -> &mut Part {
        let place = match self.parts.binary_search_by_key(&at, |(at, _)| *at) {
            Ok(place) => place,
            Err(place) => {
                self.parts.insert(place, (at, Part::default()));
                place
            }
        };
        &mut self.parts[place].1
    }

    /// Notes the time of one of its processes: the few with the most time are kept (Metwally and others,
    /// Space-Saving, 2005).
    fn note_process(&mut self, process: (u32, u64), ns: f64) {
        if let Some(known) = self.shares.iter_mut().find(|(id, ..)| *id == process) {
            known.1 += ns;
        } else if self.shares.len() < PROCESSES {
            self.shares.push((process, ns, 0.0));
        } else if let Some(least) = self.shares.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *least = (process, least.1 + ns, least.1);
        }
    }

    /// The process that certainly has more than half of its time.
    pub fn main_pid(&self) -> Option<u32> {
        let main = self.shares.iter().find(|(_, ns, of_others)| ns - of_others > self.run_ns / 2.0)?;
        Some(main.0.0)
    }

    /// Adds another row.
    fn join(&mut self, other: &Sums) {
        self.run_ns += other.run_ns;
        self.wait_ns += other.wait_ns;
        self.moves += other.moves;
        for (mine, theirs) in [(&mut self.remote, other.remote), (&mut self.ipc, other.ipc)] {
            if theirs.den > 0.0 {
                mine.add(theirs);
            }
        }
        // Memory of several rows is a sum over the same time.
        self.rss = Quotient::of(self.rss.num + other.rss.num, self.rss.den.max(other.rss.den));
        for (mine, theirs) in
            [(&mut self.run_by_node, &other.run_by_node), (&mut self.memory_by_node, &other.memory_by_node)]
        {
            theirs.iter().enumerate().for_each(|(at, more)| add_at(mine, at, *more));
        }
        self.sources.join(&other.sources);
        self.processes += other.processes;
        for (at, more) in &other.parts {
            let part = self.part(*at);
            part.run_ns += more.run_ns;
            part.remote_ns += more.remote_ns;
            part.placed_ns += more.placed_ns;
            part.instructions += more.instructions;
            part.cycles += more.cycles;
            part.wait_ns += more.wait_ns;
        }
    }
}

/// A row and its name. The name is clean.
#[derive(Clone, Debug)]
pub struct ProgramRow {
    pub name: String,
    /// Of a program: the container that it is in.
    pub container: Option<String>,
    pub sums: Sums,
}

/// The rows that are shown, and all others.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// By CPU time, the most first.
    pub rows: Vec<ProgramRow>,
    /// Rows that are not shown.
    pub others: usize,
    /// Their sums; `None` without rows, or if rows are parts of each other.
    pub rest: Option<Sums>,
    /// Rows that were merged because there were too many names.
    pub merged: usize,
}

/// Identity of a row: its container and its name.
pub type ProgramKey = (Option<String>, String);

/// Rows of programs by name and cgroup.
type Programs = HashMap<(Comm, u64), usize, IdHash>;

/// Rows in the making.
#[derive(Debug, Default)]
pub struct Rows {
    ids: HashMap<ProgramKey, usize>,
    rows: BTreeMap<usize, (ProgramKey, Sums)>,
    next: usize,
    merged: usize,
    rest: Sums,
    /// Rows of programs by name and cgroup, as long as names of cgroups are these: building the words of a
    /// row costs more than finding it.
    known: (Option<Arc<Names>>, Programs),
    /// Processes with their row and their last interval: this one, the previous one, or an older one, which
    /// is ignored.
    seen: HashMap<(u32, u64, usize), usize, IdHash>,
    /// Processes of this interval, and the number of intervals before.
    now: usize,
    interval: usize,
    /// Resident memory at the end of this interval.
    rss: HashMap<usize, f64, IdHash>,
}

impl Rows {
    /// The sums of a row, which are made if it is new.
    pub fn of(&mut self, key: ProgramKey) -> (usize, &mut Sums) {
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None => {
                if self.rows.len() >= ROWS_MAX {
                    self.merge();
                }
                self.next += 1;
                self.ids.insert(key.clone(), self.next);
                self.rows.insert(self.next, (key, Sums::default()));
                self.next
            }
        };
        let row = self.rows.get_mut(&id).expect("each id has a row");
        (id, &mut row.1)
    }

    /// The same of the program of a task.
    pub fn of_program(&mut self, task: &Task, snapshot: &Snapshot) -> (usize, &mut Sums) {
        let (names, known) = &mut self.known;
        if !names.as_ref().is_some_and(|names| Arc::ptr_eq(names, &snapshot.names)) {
            *names = Some(Arc::clone(&snapshot.names));
            known.clear();
        }
        let program = (task.raw.comm, task.raw.cgroup_id);
        let id = match known.get(&program).filter(|id| self.rows.contains_key(id)) {
            Some(id) => *id,
            None => {
                let id = self.of(program_of(task, snapshot)).0;
                if self.known.1.len() >= ROWS_MAX {
                    self.known.1.clear();
                }
                self.known.1.insert(program, id);
                id
            }
        };
        let row = self.rows.get_mut(&id).expect("each id has a row");
        (id, &mut row.1)
    }

    /// Notes a process of a row in this interval.
    pub fn note_process(&mut self, id: usize, task: &Task) {
        let (pid, start_ns) = task.raw.process();
        let last = self.seen.insert((pid, start_ns, id), self.interval);
        let is_new = last.is_none_or(|last| last + 1 < self.interval);
        self.now += usize::from(last != Some(self.interval));
        if let Some((_, sums)) = self.rows.get_mut(&id) {
            sums.processes += usize::from(is_new);
            if task.run_ns() > 0 {
                sums.note_process((pid, start_ns), task.run_ns() as f64);
            }
        }
    }

    /// Notes resident memory of a row at the end of this interval, in bytes.
    pub fn note_memory(&mut self, id: usize, bytes: u64) {
        if bytes > 0 {
            *self.rss.entry(id).or_default() += bytes as f64;
        }
    }

    /// Takes from a row memory by node, in bytes, that its processes share and that was noted more than once. `ns` is the length of
    /// the interval.
    pub fn note_counted_twice(&mut self, id: usize, twice: &[f64], ns: f64) {
        if let Some(bytes) = self.rss.get_mut(&id) {
            *bytes = (*bytes - twice.iter().sum::<f64>()).max(0.0);
        }
        if let Some((_, sums)) = self.rows.get_mut(&id) {
            for (bytes, twice) in sums.memory_by_node.iter_mut().zip(twice) {
                *bytes = (*bytes - twice * ns).max(0.0);
            }
        }
    }

    /// Ends an interval of this length in ns.
    pub fn end_interval(&mut self, ns: f64) {
        // Ended processes are dropped now and then.
        if self.seen.len() > 2 * self.now + SEEN_SPARE {
            let interval = self.interval;
            self.seen.retain(|_, last| *last == interval);
        }
        (self.now, self.interval) = (0, self.interval + 1);
        for (id, bytes) in self.rss.drain() {
            if let Some((_, sums)) = self.rows.get_mut(&id) {
                sums.rss.add(Quotient::of(bytes * ns, ns));
                sums.rss_most = sums.rss_most.max(bytes);
            }
        }
    }

    /// Makes one of the rows with the least time so far.
    fn merge(&mut self) {
        let mut by_time: Vec<(usize, f64)> =
            self.rows.iter().map(|(id, (_, sums))| (*id, sums.run_ns)).collect();
        by_time.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        for (id, _) in by_time.into_iter().take(MERGED) {
            if let Some((key, sums)) = self.rows.remove(&id) {
                self.ids.remove(&key);
                self.rest.join(&sums);
                self.merged += 1;
            }
        }
    }

    /// The `top` rows with the most time that `keeps` lets through. `adds_up`: no row is a part of another, so that all
    /// others are one row.
    pub fn finish(self, top: usize, adds_up: bool, keeps: impl Fn(&ProgramKey) -> bool) -> Table {
        let (mut rows, mut rest) = (Vec::new(), self.rest);
        let mut others = self.merged;
        for (key, sums) in self.rows.into_values() {
            // A row without CPU time is left out.
            if keeps(&key) && sums.run_ns > 0.0 {
                rows.push(ProgramRow { container: key.0, name: key.1, sums });
            } else {
                rest.join(&sums);
                others += 1;
            }
        }
        rows.sort_by(|a, b| b.sums.run_ns.total_cmp(&a.sums.run_ns).then_with(|| a.name.cmp(&b.name)));
        for row in rows.drain(top.min(rows.len())..) {
            rest.join(&row.sums);
            others += 1;
        }
        Table { rows, others, rest: (adds_up && others > 0).then_some(rest), merged: self.merged }
    }
}

/// Parts of the time that rows have at most.
pub const PARTS: usize = 240;

/// The parts of a grid, as rows have them.
pub fn parts_of(grid: &Grid) -> Grid {
    grid.coarser(PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::TaskRaw;

    #[test]
    fn too_many_names_become_one_row_and_no_time_is_lost() {
        let mut rows = Rows::default();
        let names = ROWS_MAX + 10;
        for at in 0..names {
            rows.of((None, format!("program {at}"))).1.run_ns = at as f64;
        }
        let table = rows.finish(3, true, |_| true);
        assert!(table.merged >= MERGED && table.rows.len() == 3);
        assert_eq!(table.rows[0].name, format!("program {}", names - 1));
        let all: f64 = table.rows.iter().map(|row| row.sums.run_ns).sum::<f64>() + table.rest.unwrap().run_ns;
        assert_eq!(all, (0..names).map(|at| at as f64).sum::<f64>());
        assert_eq!(table.others, names - 3);
    }

    #[test]
    fn a_process_counts_again_where_an_interval_was_without_it() {
        let mut rows = Rows::default();
        let id = rows.of((None, "a".into())).0;
        let task = |pid| {
            let raw = TaskRaw { pid, ..TaskRaw::default() };
            Task::new(Arc::new(raw))
        };
        // Twice in one interval, as an ended process and as a living one.
        for pids in [&[1, 2, 1][..], &[1, 2], &[2], &[1, 2]] {
            pids.iter().for_each(|pid| rows.note_process(id, &task(*pid)));
            rows.end_interval(1e9);
        }
        assert_eq!(rows.rows[&id].1.processes, 3);
        for pid in 0..100_000 {
            rows.note_process(id, &task(pid));
            rows.end_interval(1e9);
        }
        assert!(rows.seen.len() <= SEEN_SPARE + 3);
        assert_eq!(rows.rows[&id].1.processes, 3 + 100_000);
    }

    #[test]
    fn a_pid_stands_for_a_program_only_if_it_is_most_of_it() {
        let mut sums = Sums { run_ns: 100.0, ..Sums::default() };
        sums.note_process((7, 1), 60.0);
        sums.note_process((8, 1), 40.0);
        assert_eq!(sums.main_pid(), Some(7));
        // Ten short ones; the last of them represent all earlier ones.
        let mut many = Sums { run_ns: 100.0, ..Sums::default() };
        (0..10).for_each(|pid| many.note_process((pid, 1), 10.0));
        assert_eq!(many.main_pid(), None);
    }

    #[test]
    fn all_others_have_the_parts_of_all_others() {
        let mut rows = Rows::default();
        for (name, at) in [("a", 0u16), ("b", 3), ("c", 3)] {
            let sums = rows.of((None, name.into())).1;
            sums.run_ns = 5.0;
            sums.rss = Quotient::of(if name == "a" { 10.0 } else { 2.0 }, 2.0);
            sums.parts = vec![(at, Part { run_ns: 5.0, ..Part::default() })];
        }
        let rest = rows.finish(0, true, |_| true).rest.unwrap();
        assert_eq!(rest.rss.value(), 7.0);
        let parts: Vec<(u16, f32)> = rest.parts.iter().map(|(at, part)| (*at, part.run_ns)).collect();
        assert_eq!(parts, [(0, 5.0), (3, 10.0)]);
    }
}
