//! The way from intervals to a report: one pass, in memory that does not grow with the length of a recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gaps::{Gap, Missing};
use super::hot_spots::Hot;
use super::lanes::{Id, Lane, NODES_MAX};
use super::matrix::Matrices;
use super::programs::{Columns, Rows, add_at, parts_of};
use super::track::Grid;
use super::{About, Options, Report};
use crate::entity::container_name;
use crate::finding::verdict::Verdict;
use crate::finding::{Blind, Engine, Finding};
use crate::hot::profile::Profile;
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::placement;
use crate::metric::task::TASK_METRICS;
use crate::model::group::GroupKind;
use crate::model::sample::HostFacts;
use crate::model::stacks::StackBatch;
use crate::snapshot::{Container, Snapshot, Task, counted_twice};
use crate::text::{clean_str, one_line};

/// An interval, and its place in the recording.
pub struct Interval<'a> {
    /// Rows are processes.
    pub snapshot: &'a Snapshot,
    /// Samples are missing in it.
    pub is_interrupted: bool,
    /// Stacks that were sampled in it.
    pub hot: Option<StackBatch>,
}

/// A report in the making.
pub struct Fold {
    options: Options,
    grid: Grid,
    parts: Grid,
    nodes: Vec<u32>,
    lanes: Vec<Lane>,
    /// Time of each bucket that was covered without a hole, ns.
    measured_ns: Vec<f64>,
    /// Time of each bucket in any interval, ns.
    time_ns: Vec<f64>,
    /// Buckets that overlap a hole reported in the recording.
    gaps: Vec<bool>,
    programs: Rows,
    /// Names of programs by the words that rows have in their place.
    replaced: BTreeMap<String, String>,
    containers: Rows,
    of_tasks: Columns<Task>,
    of_containers: Columns<Container>,
    matrices: Matrices,
    /// `None` while another thread holds it.
    engine: Option<Engine>,
    profile: Profile,
    missing: Missing,
    about: Option<About>,
    /// Busy time of CPUs, ns, and the time that they were online, by id.
    cpus: BTreeMap<u32, (f64, f64)>,
    /// Total and free memory at the end of the last interval, bytes, by node id.
    memory: BTreeMap<u32, (u64, u64)>,
    /// Cumulative losses of the sample before.
    lost: (BTreeMap<String, u64>, u64),
    span: Option<(i64, i64)>,
    intervals: usize,
    total_ns: f64,
    /// Intervals without a hole, and their time, ns.
    whole: (usize, f64),
    own_ns: f64,
    own_rss: u64,
}

/// CPUs that the picture of the machine has at most.
const CPUS_MAX: usize = 4096;

impl Fold {
    /// For the time from the first to the second of `span` (ns since 1970), with intervals of this length in ns. `host`: the
    /// machine at the beginning.
    pub fn new(options: Options, span: (i64, i64), interval_ns: i64, host: &HostFacts) -> Option<Fold> {
        let grid = Grid::new(span, interval_ns, options.points);
        let mut nodes: Vec<u32> = host.topology.nodes.iter().map(|node| node.id.0).collect();
        nodes.truncate(NODES_MAX);
        Some(Fold {
            parts: parts_of(&grid),
            lanes: Id::ALL.iter().map(|id| Lane::new(*id, &nodes, &grid)).collect(),
            measured_ns: vec![0.0; grid.count],
            time_ns: vec![0.0; grid.count],
            gaps: vec![false; grid.count],
            programs: Rows::default(),
            replaced: BTreeMap::new(),
            containers: Rows::default(),
            of_tasks: Columns::of(TASK_METRICS, placement::share_of_task)?,
            of_containers: Columns::of(CONTAINER_METRICS, placement::share_of_container)?,
            matrices: Matrices::new(&nodes, &parts_of(&grid)),
            engine: Some(Engine::default()),
            profile: Profile::default(),
            missing: Missing::default(),
            about: None,
            cpus: BTreeMap::new(),
            memory: BTreeMap::new(),
            lost: (BTreeMap::new(), 0),
            span: None,
            intervals: 0,
            total_ns: 0.0,
            whole: (0, 0.0),
            own_ns: 0.0,
            own_rss: 0,
            options,
            grid,
            nodes,
        })
    }

    /// Hands out the engine of findings, which is half of the work. Its holder gives it each interval and each new run.
    pub fn lend_engine(&mut self) -> Engine {
        self.engine.take().unwrap_or_default()
    }

    /// Takes the engine back, once it has seen all.
    pub fn take_back(&mut self, engine: Engine) {
        self.engine = Some(engine);
    }

    /// Notes that later samples do not continue the earlier ones, and the hole in between.
    pub fn interrupt(&mut self, gap: Gap) {
        self.engine.iter_mut().for_each(Engine::interrupt);
        self.lost = (BTreeMap::new(), 0);
        self.gap(gap);
    }

    fn gap(&mut self, gap: Gap) {
        let (first, last) = (self.grid.bucket(gap.from_ns), self.grid.bucket(gap.to_ns));
        self.gaps.iter_mut().take(last + 1).skip(first).for_each(|is_gap| *is_gap = true);
        self.missing.gap(gap);
    }

    /// Notes the losses that a sample has without an interval before it: they are from before.
    pub fn begin(&mut self, lost: BTreeMap<String, u64>, exit_lost_ns: u64) {
        self.lost = (lost, exit_lost_ns);
    }

    /// Notes the facts of a sample besides its numbers.
    pub fn notes(&mut self, wall_ns: i64, notes: &[String]) {
        self.missing.notes(wall_ns, notes);
    }

    /// Notes the names of programs by the words that rows have in their place: [`Options::comm`] is about names.
    pub fn replaced(&mut self, names: BTreeMap<String, String>) {
        self.replaced = names;
    }

    /// Notes bytes at the end of the recording that are no whole frame.
    pub fn torn(&mut self, bytes: u64) {
        self.missing.torn_bytes = bytes;
    }

    /// Takes the next interval.
    pub fn take(&mut self, interval: Interval<'_>) {
        let Interval { snapshot, is_interrupted, hot } = interval;
        let Some(ns) = snapshot.interval_ns.filter(|ns| *ns > 0) else { return };
        let to = snapshot.wall_ns;
        let from = to.saturating_sub(i64::try_from(ns).unwrap_or(i64::MAX));
        self.intervals += 1;
        self.total_ns += ns as f64;
        self.span = Some((self.span.map_or(from, |(first, _)| first), to));
        if !is_interrupted {
            self.whole = (self.whole.0 + 1, self.whole.1 + ns as f64);
        }
        if is_interrupted {
            // Its notes say why.
            let why = snapshot.notes.iter().map(|note| one_line(note)).collect();
            self.gap(Gap::pause((from, to), why));
        } else {
            self.missing.notes(to, &snapshot.notes);
        }
        self.missing.losses(&self.lost, snapshot);
        self.lost = (snapshot.lost.clone(), snapshot.exit_lost_ns);
        let shares = self.grid.spread((from, to));
        for (bucket, share) in shares.iter().filter(|_| !is_interrupted) {
            self.measured_ns[*bucket] += share * ns as f64;
        }
        for (bucket, share) in &shares {
            self.time_ns[*bucket] += share * ns as f64;
        }
        for lane in &mut self.lanes {
            lane.take(snapshot, &shares, !is_interrupted);
        }
        let parts = self.parts.spread((from, to));
        self.rows(snapshot, &parts, ns as f64);
        self.matrices.take(snapshot, &parts);
        self.machine(snapshot, ns as f64);
        if let Some(engine) = &mut self.engine {
            engine.take(snapshot);
        }
        if let Some(batch) = hot {
            self.profile.add(batch);
        }
    }

    fn rows(&mut self, snapshot: &Snapshot, parts: &[(usize, f64)], ns: f64) {
        self.of_tasks.note_host(&snapshot.host);
        self.of_containers.note_host(&snapshot.host);
        let mut sharers: BTreeMap<usize, Vec<&Task>> = BTreeMap::new();
        for (at, task) in snapshot.tasks.iter().enumerate() {
            let (id, sums) = self.programs.of_program(task, snapshot);
            sums.add(&self.of_tasks, (task, task), snapshot, parts);
            self.programs.note_process(id, task);
            if !task.exited {
                self.programs.note_memory(id, task.rss_bytes);
            }
            if snapshot.sharers.binary_search(&at).is_ok() {
                sharers.entry(id).or_default().push(task);
            }
        }
        for (id, tasks) in sharers {
            self.programs.note_counted_twice(id, &counted_twice(tasks.into_iter()), ns);
        }
        self.programs.end_interval(ns);
        for row in &snapshot.containers {
            // A cgroup that only holds others has no row.
            if row.kind() == GroupKind::Group && !row.own_tasks {
                continue;
            }
            let Some(name) = container_name(row, snapshot) else { continue };
            let (id, sums) = self.containers.of((None, name));
            sums.add(&self.of_containers, (row, &row.sum), snapshot, parts);
            let by_node = row.raw.as_ref().and_then(|raw| raw.mem_bytes_by_node.as_ref().ok());
            for (node, bytes) in by_node.into_iter().flatten() {
                add_at(&mut sums.memory_by_node, *node as usize, *bytes as f64 * ns);
            }
            self.containers.note_memory(id, row.sum.rss_bytes);
        }
        self.containers.end_interval(ns);
    }

    fn machine(&mut self, snapshot: &Snapshot, ns: f64) {
        for cpu in snapshot.cpus.iter().filter(|cpu| cpu.online).take(CPUS_MAX) {
            let sums = self.cpus.entry(cpu.id).or_default();
            *sums = (sums.0 + cpu.busy_ns as f64, sums.1 + ns);
        }
        let memory = snapshot.nodes.iter().take(NODES_MAX);
        self.memory =
            memory.map(|node| (node.raw.id, (node.raw.mem_total_bytes, node.raw.mem_free_bytes))).collect();
        self.own_ns += snapshot.own.cpu_ns as f64;
        self.own_rss = self.own_rss.max(snapshot.own.raw.rss_bytes);
        let is_same = self.about.as_ref().is_some_and(|about| Arc::ptr_eq(&about.host, &snapshot.host));
        if !is_same {
            let mut about = About::of(&snapshot.host);
            if let Some(before) = &self.about {
                about.changes = before.changes + usize::from(before.host.topology != about.host.topology);
                about.boots = before.boots + usize::from(before.host.boot_id != about.host.boot_id);
            }
            for (metric, why) in &snapshot.host.missing {
                self.missing.not_measured.insert(clean_str(metric), one_line(&why.to_string()));
            }
            self.about = Some(about);
        }
    }

    /// The report; `None` without any interval.
    pub fn finish(mut self) -> Option<Report> {
        let (about, span) = (self.about?, self.span?);
        // A bucket that is mostly measured is no hole.
        let third = self.grid.width_ns as f64 / 3.0;
        self.gaps.iter_mut().zip(&self.measured_ns).for_each(|(is_gap, ns)| *is_gap &= *ns < third);
        let comm = self.options.comm.as_ref();
        let keeps = |(_, name): &super::programs::ProgramKey| {
            comm.is_none_or(|comm| comm.is_match(self.replaced.get(name).unwrap_or(name)))
        };
        let engine = self.engine.unwrap_or_default();
        let findings = found(&engine);
        let (verdict, blind) = (Verdict::of(&engine), engine.blind().to_vec());
        for lane in &mut self.lanes {
            if about.host.topology.nodes.len() == 1 && lane.id.needs_nodes() {
                lane.missing = Some("the machine has one node".into());
            }
        }
        Some(Report {
            title: self.options.title.clone(),
            programs: self.programs.finish(self.options.top, true, keeps),
            containers: self.containers.finish(self.options.top, false, |_| true),
            about,
            span,
            intervals: self.intervals,
            total_ns: self.total_ns,
            interval_ns: self.whole.1 / self.whole.0.max(1) as f64,
            parts: self.parts,
            grid: self.grid,
            time_ns: self.time_ns,
            gaps: self.gaps,
            lanes: self.lanes,
            matrices: self.matrices,
            findings,
            verdict,
            blind: blind.into_iter().map(|blind| Blind { words: one_line(&blind.words), ..blind }).collect(),
            hot: Hot::of(&self.profile),
            missing: self.missing,
            cpus: self.cpus,
            memory: self.memory,
            own_ns: self.own_ns,
            own_rss: self.own_rss,
            nodes: self.nodes,
        })
    }
}

/// All findings that were shown at any time: causes before symptoms, the most severe first. Then come the
/// ones open at the end, then those that lasted longest.
fn found(engine: &Engine) -> Vec<Finding> {
    let mut all: Vec<Finding> = engine.findings().iter().chain(engine.ended()).cloned().collect();
    let key = |finding: &Finding| {
        (
            finding.is_symptom(),
            std::cmp::Reverse(finding.severity),
            finding.rank.is_none(),
            finding.rank,
            std::cmp::Reverse(finding.held_ns),
            finding.key.clone(),
        )
    };
    all.sort_by_key(key);
    all
}
