//! The sampling of memory use as a source offers it: the sampler, the decoder, and the reader that looks up
//! pages. Registers and code end here: only numbers of pages go further, and the results are sums by mapping.

mod asked;
mod budgeted;
mod lines;
mod spe;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use libbpf_rs::Program;

use self::asked::{Asked, by_turns};
use self::budgeted::Budgeted;
use self::lines::{Lines, Names, Objects, line_sample};
use self::spe::Spe;
use crate::access::sample::{Attribution, Decoders, EventAccess, Outcome, RawSample, Registers};
use crate::access::self_check::Verdict;
use crate::access::window::{Batch, EventAt, Losses, Places, Window};
use crate::collect::access::follow::{BATCH_MAX, BUDGET as FOLLOW_BUDGET, Done, Followers, Job as FollowJob};
use crate::collect::access::{AccessProbe, rate, self_check};
use crate::collect::mm_reader::MmReader;
use crate::collect::mm_reader::wire::{Job, Turn};
use crate::collect::placement::draw::Random;
use crate::host::clock::thread_time;
use crate::host::kernel::numa_balancing;
use crate::host::page_nodes::MemoryBlocks;
use crate::model::access::answers::AccessClass;
use crate::model::access::{EVENTS_LEFT_OUT, LINES_LEFT_OUT, MemoryUses, SampledEvent};
use crate::model::facility::Facility;
use crate::model::process::ProcessId;
use crate::model::sample::{Missing, TaskRaw};
use crate::model::topology::Topology;
use crate::model::units::{CpuId, NodeId};
use crate::pmu::data_src;
use crate::pmu::memory_event::{self, MemoryEvent};
use crate::program::helper::OWN_PROGRAM;

/// Where this machine's files are.
const ROOT: &str = "/";
/// Bit of kernel.numa_balancing: NUMA_BALANCING_MEMORY_TIERING.
const BALANCING_TIERS: i64 = 2;
/// Samples of events that are kept between two samples of ours: as many as there are in a minute, some 5 MB.
const EVENTS_MAX: usize = 120_000;

/// There while memory use is sampled.
pub struct Access {
    probe: AccessProbe,
    /// The meaning of samples of the clock, or why they are not taken.
    clock: Result<Verdict, Missing>,
    /// Events of a PMU that are sampled, too, or why none is.
    events: Result<Vec<MemoryEvent>, Missing>,
    /// Events of stores that are sampled beside them.
    stores: Vec<MemoryEvent>,
    /// Arm's way of sampling accesses, if available.
    spe: Option<Spe>,
    blocks: MemoryBlocks,
    /// Samples of events since pages were last asked about: the kept ones, and the number beyond.
    events_kept: usize,
    events_left_out: u64,
    decoders: Decoders,
    reader: MmReader,
    /// Follows samples to the next run of their instruction. Absent where no thread can be started.
    followers: Option<Followers>,
    /// Samples for it.
    waiting: Vec<FollowJob>,
    random: Random,
    page_shift: u32,
    /// Samples since pages were last asked about.
    fresh: Batch,
    asked: Option<Asked>,
    window: Window,
    /// CLOCK_MONOTONIC up to which samples are in batches, and losses up to then.
    until_ns: u64,
    lost: Losses,
    known: Arc<MemoryUses>,
    lines: Lines,
    objects: Objects,
    names: Names,
    /// First touches are sampled, too; `Err`: they should be, and why they are not.
    touches: Option<Result<(), Missing>>,
    /// The CPUs that are sampled.
    cpus: Vec<CpuId>,
    /// The processes whose pages are looked up first.
    first: Vec<ProcessId>,
    /// There where chosen processes are sampled within a budget, and not all.
    budgeted: Option<Budgeted>,
    /// CPU time of the calling thread for it so far.
    own: Duration,
}

/// The processes that are sampled.
pub enum Sampled {
    /// All in scope, with the events of a PMU, too.
    All,
    /// As many of these as fit into a hundredth of a CPU, the most important one first. Without an event of a
    /// PMU: it would take a counter from those that are shown.
    Budgeted(Vec<ProcessId>),
}

impl Access {
    /// Loads the sampler, checks what its samples mean on this CPU, which is kept in `checked`, and starts it on `cpus`.
    /// `records` is the task storage map; `now_ns` is CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// Why there are no samples, or why they say nothing here.
    pub fn start(
        (records, scoped): (&OwnedFd, bool),
        cpus: &[CpuId],
        sampled: Sampled,
        checked: &mut Option<Result<Verdict, Missing>>,
        page_size: u64,
        now_ns: u64,
    ) -> Result<Access, Missing> {
        let failed = |error: anyhow::Error| Missing::Unsupported(format!("{error:#}"));
        let count = cpus.len() as u32;
        let mut probe = AccessProbe::load(records, rate(count), count).map_err(failed)?;
        let began = thread_time();
        let clock = checked.get_or_insert_with(|| self_check::run(&probe)).clone();
        let check_ns = thread_time().saturating_sub(began).as_nanos() as u64;
        probe.set_scoped(scoped);
        let root = Path::new(ROOT);
        let (events, spe) = match &sampled {
            Sampled::All => sample_events(&mut probe, cpus, root),
            Sampled::Budgeted(_) => {
                let why = "sampled only with --access or with u in the details; by default, a clock triggers the samples";
                (Err(Missing::NotCollected(why.into())), None)
            }
        };
        let event = sampled_event(&events, spe.as_ref());
        // Each page fault of the machine pays for it: not by default.
        let touches = matches!(sampled, Sampled::All).then(|| follow_touches(&mut probe, root, cpus));
        let budgeted = match sampled {
            Sampled::All => None,
            Sampled::Budgeted(wanted) => {
                probe.choose(Some(&[])).map_err(failed)?;
                // Time of the program in the self-check is in that of the thread.
                Some(Budgeted::new(wanted, rate(count), now_ns, (probe.cost_ns(), check_ns)))
            }
        };
        match &clock {
            Ok(_) => probe.follow(cpus).map_err(failed)?,
            Err(why) if event.is_none() => return Err(why.clone()),
            Err(_) => {}
        }
        let attribution = clock.as_ref().map_or(Attribution::Behind, |verdict| verdict.attribution);
        // Contended lines have one side without them, and no other number needs them.
        let stores = event.map(|_| memory_event::stores(root)).unwrap_or_default();
        let stores = probe.follow_stores(cpus, &stores).map(|()| stores).unwrap_or_default();
        Ok(Access {
            lost: probe.lost(),
            probe,
            clock,
            events_kept: 0,
            events_left_out: 0,
            // Physical addresses come from events alone.
            blocks: event.map(|_| MemoryBlocks::read(root, page_size)).unwrap_or_default(),
            events,
            stores,
            spe,
            decoders: Decoders::default(),
            reader: MmReader::new(PathBuf::from(OWN_PROGRAM)),
            followers: Followers::start(attribution, page_size, now_ns),
            waiting: Vec::new(),
            random: Random(now_ns),
            page_shift: page_size.trailing_zeros(),
            fresh: Batch::new(),
            asked: None,
            window: Window::default(),
            until_ns: now_ns,
            known: Arc::new(Window::default().sum(event)),
            lines: Lines::default(),
            objects: Objects::default(),
            names: Names::default(),
            touches,
            cpus: cpus.to_vec(),
            first: Vec::new(),
            budgeted,
            own: Duration::ZERO,
        })
    }

    /// Has others chosen, where not all processes are sampled, and looked up first: the most important one in front.
    pub fn want(&mut self, wanted: &[ProcessId]) {
        self.first = wanted.to_vec();
        if let Some(budgeted) = &mut self.budgeted {
            budgeted.wanted = wanted.to_vec();
        }
    }

    /// Whether the self-check confirms samples of the clock, if they are taken.
    pub fn is_checked(&self) -> bool {
        self.clock.as_ref().map_or(true, |verdict| verdict.is_checked)
    }

    /// Whether chosen processes are sampled, within a budget.
    pub fn is_budgeted(&self) -> bool {
        self.budgeted.is_some()
    }

    /// Adapts rate and processes to the cost.
    fn keep_to_budget(&mut self, now_ns: u64) -> Result<()> {
        let followed = self.followers.as_ref().map_or(Duration::ZERO, Followers::spent);
        let ours = (self.own + followed).as_nanos() as u64;
        let spent_ns = self.probe.cost_ns() + ours + self.reader.cpu_ns();
        let Some(budgeted) = &mut self.budgeted else { return Ok(()) };
        let change = budgeted.turn(now_ns, spent_ns);
        if let Some(pace) = change.pace {
            self.probe.set_rate(pace.map_or(0, |pace| pace.hz));
            self.probe.follow(&self.cpus)?;
        }
        self.probe.choose(Some(&change.processes))
    }

    /// Moves samples out of the kernel's ring and decodes them.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn gather(&mut self, topology: &Topology) -> Result<()> {
        let began = thread_time();
        self.decode(topology)?;
        self.own += thread_time().saturating_sub(began);
        Ok(())
    }

    fn decode(&mut self, topology: &Topology) -> Result<()> {
        let attribution = self.clock.as_ref().map_or(Attribution::Behind, |verdict| verdict.attribution);
        for sample in self.probe.take()? {
            let node = topology.cpu(sample.cpu).and_then(|cpu| cpu.node);
            if let Some(event) = &sample.event {
                self.take_event(sample.process, event, node);
                continue;
            }
            if let Some(touch) = &sample.touch {
                self.objects.add((sample.process, sample.tid), touch, node, self.page_shift);
                continue;
            }
            let outcome = sample.user.as_ref().map(|state| self.decoders.outcome(state, attribution));
            self.fresh.entry(sample.process).or_default().add(outcome, node, self.page_shift);
            if let Some(outcome) = outcome.filter(|outcome| outcome.is_memory()) {
                self.keep(sample, outcome, node);
            }
        }
        Ok(())
    }

    /// Keeps a sampled access, if it fits.
    fn take_event(&mut self, process: ProcessId, event: &EventAccess, cpu_node: Option<NodeId>) {
        let Some(found) = self.event_at(event, cpu_node) else { return };
        if self.events_kept >= EVENTS_MAX {
            self.events_left_out += 1;
            return;
        }
        self.events_kept += 1;
        let tally = self.fresh.entry(process).or_default();
        // Stores of Intel are samples of another event, which reveals little about the place that answered:
        // shares and latencies are those of loads.
        if self.stores.is_empty() || !event.source.is_some_and(data_src::is_store) {
            tally.add_event(found);
        }
        if let Some(side) = line_sample(event, cpu_node, found.page_node) {
            self.lines.add(process, side);
        }
    }

    /// Keeps accesses that Arm's SPE sampled, in the same way.
    fn take_spe(&mut self, topology: &Topology, tasks: &[Arc<TaskRaw>]) {
        let Some(spe) = &mut self.spe else { return };
        let of_cpu = |cpu: CpuId| topology.cpu(cpu).and_then(|cpu| cpu.node);
        let nodes = (of_cpu, |physical| self.blocks.node(physical));
        let room = EVENTS_MAX.saturating_sub(self.events_kept);
        for sampled in spe.take(Path::new(ROOT), &self.cpus, tasks, nodes, (self.page_shift, room)) {
            self.events_kept += 1;
            self.fresh.entry(sampled.process).or_default().add_event(sampled.event);
            if let Some(side) = sampled.side {
                self.lines.add(sampled.process, side);
            }
        }
    }

    /// Samples that are missing since the start, by cause.
    fn lost_so_far(&self) -> Losses {
        let mut lost = self.probe.lost();
        lost.extend(self.spe.iter().flat_map(Spe::lost));
        lost
    }

    /// A sampled access by page; `None` for instructions that access no memory, which IBS samples as well.
    fn event_at(&self, event: &EventAccess, cpu_node: Option<NodeId>) -> Option<EventAt> {
        // Every driver gives a source; a sample of the kernel itself has none here.
        let class = data_src::class(event.source?);
        let is_access = class != AccessClass::NoAccess;
        is_access.then(|| EventAt {
            page: event.address.map(|address| address >> self.page_shift),
            page_node: event.physical.and_then(|physical| self.blocks.node(physical)),
            cpu_node,
            class,
            cycles: event.cycles,
        })
    }

    /// Keeps a sample at memory for the follower.
    fn keep(&mut self, sample: RawSample, outcome: Outcome, cpu_node: Option<NodeId>) {
        let (Some(state), Some(_)) = (sample.user, &self.followers) else { return };
        // The arm64 side has a decoder alone.
        if !matches!(state.registers, Registers::X86(_)) {
            return;
        }
        let process = sample.process;
        self.waiting.push(FollowJob { process, state, outcome, cpu_node });
        if self.waiting.len() > BATCH_MAX {
            // The oldest or the newest alone would be of one part of the interval.
            let at = self.random.below(self.waiting.len() as u64) as usize;
            let left_out = self.waiting.swap_remove(at);
            self.add_done(vec![(left_out.process, None)]);
        }
    }

    /// Takes samples that were followed, and hands over those since. Their pages are asked about with the next question.
    fn follow_programs(&mut self) {
        let Some(followers) = &mut self.followers else { return };
        let budget = self.budgeted.as_ref().map_or(FOLLOW_BUDGET, Budgeted::for_following);
        let mut done = followers.take();
        done.extend(followers.offer(std::mem::take(&mut self.waiting), budget));
        self.add_done(done);
    }

    fn add_done(&mut self, done: Vec<Done>) {
        for (process, next) in done {
            let tally = self.fresh.entry(process).or_default();
            match next {
                Some(next) => tally.add_next(&next, self.page_shift),
                None => tally.leave_out(),
            }
        }
    }

    /// Takes results about pages, asks about those of new samples, and returns the last ten seconds of
    /// processes with a row. Never waits. `now_ns` is CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn turn(
        &mut self,
        topology: &Topology,
        (tasks, exited): (&[Arc<TaskRaw>], &[Arc<TaskRaw>]),
        now_ns: u64,
    ) -> Result<Arc<MemoryUses>> {
        let began = thread_time();
        self.decode(topology)?;
        self.take_spe(topology, tasks);
        self.follow_programs();
        let rows = tasks.iter().chain(exited).map(|task| task.process()).collect();
        self.names.take();
        self.objects.settle(&rows, now_ns, &mut self.names);
        self.look_up(tasks, now_ns);
        self.own += thread_time().saturating_sub(began);
        self.keep_to_budget(now_ns)?;
        Ok(with_a_row(&self.known, rows))
    }

    /// Takes what was found out about pages, and asks about those of new samples.
    fn look_up(&mut self, tasks: &[Arc<TaskRaw>], now_ns: u64) {
        let came = self.reader.take();
        if let Some(asked) = &mut self.asked {
            for (process, placed) in came.answers.into_iter().flat_map(|answer| answer.pages) {
                asked.take(process, placed, self.objects.of(process));
            }
            if let Some((process, why)) = came.locked {
                asked.take(process, Err(why), None);
            }
        }
        if self.reader.is_free() {
            if let Some(asked) = self.asked.take() {
                self.finish(asked);
            }
            self.ask(tasks, now_ns);
        }
    }

    fn finish(&mut self, mut asked: Asked) {
        for (process, tally) in asked.batch {
            asked.found.insert(process, tally.place(&Places::default()));
        }
        let (lines, left_out) =
            self.lines.finish(asked.to_ns, asked.lines, asked.placed_lines, self.page_shift, &mut self.names);
        let objects = self.objects.finish(asked.to_ns, asked.placed_objects);
        if left_out > 0 {
            *asked.lost.entry(LINES_LEFT_OUT).or_default() += left_out;
        }
        self.window.add(asked.from_ns, asked.to_ns, asked.found, asked.lost);
        let mut known = self.window.sum(sampled_event(&self.events, self.spe.as_ref()));
        for (process, lines) in lines {
            if let Some(found) = known.processes.get_mut(&process) {
                Arc::make_mut(found).lines = lines;
            }
        }
        for (process, objects) in objects {
            if let Some(found) = known.processes.get_mut(&process) {
                Arc::make_mut(found).objects = objects;
            }
        }
        self.known = Arc::new(known);
    }

    fn ask(&mut self, tasks: &[Arc<TaskRaw>], now_ns: u64) {
        let lost = self.lost_so_far();
        let since = lost
            .iter()
            .map(|(cause, count)| (*cause, count.saturating_sub(self.lost.get(cause).copied().unwrap_or(0))));
        let mut asked = Asked {
            from_ns: std::mem::replace(&mut self.until_ns, now_ns),
            to_ns: now_ns,
            batch: std::mem::take(&mut self.fresh),
            pages: HashMap::new(),
            found: BTreeMap::new(),
            lines: std::mem::take(&mut self.lines.fresh),
            placed_lines: BTreeMap::new(),
            placed_objects: BTreeMap::new(),
            lost: since.collect(),
            page_shift: self.page_shift,
        };
        let left_out = std::mem::take(&mut self.events_left_out);
        if left_out > 0 {
            asked.lost.insert(EVENTS_LEFT_OUT, left_out);
        }
        self.events_kept = 0;
        self.lost = lost;
        let begin = self.random.below(asked.batch.len().max(1) as u64) as usize;
        let order = by_turns(asked.batch.keys().copied().collect(), begin, &self.first);
        let uids: HashMap<ProcessId, u32> = tasks.iter().map(|task| (task.process(), task.uid)).collect();
        let job = |process: ProcessId| {
            let uid = uids.get(&process).copied().unwrap_or(0);
            Job { process, uid, rss_bytes: 0, careful: false }
        };
        let mut jobs: Vec<Job> = order.into_iter().map(job).collect();
        self.reader.admit(&mut jobs);
        let Some(pages) = asked.question(jobs, now_ns) else {
            self.finish(asked);
            return;
        };
        self.reader.ask(Turn { pages: Some(pages), ..Turn::default() }, &[]);
        self.asked = Some(asked);
    }

    /// Why samples of an event say nothing, where that has changed since the call before; `Some(None)`: they do again.
    pub fn news(&mut self) -> Option<Option<Missing>> {
        let spe = self.spe.as_mut()?;
        spe.has_news().then(|| spe.missing())
    }

    /// Why parts are missing: the clock, and the event of a PMU.
    pub fn missing(&self) -> impl Iterator<Item = (Facility, Missing)> {
        let clock = self.clock.as_ref().err().map(|why| (Facility::MemoryUse, why.clone()));
        let of_events = match &self.spe {
            Some(spe) => spe.missing(),
            None => self.events.as_ref().err().cloned(),
        };
        clock.into_iter().chain(of_events.map(|why| (Facility::MemoryEvents, why)))
    }

    /// Why contended lines are not seen, or not on all CPUs, though an event is sampled.
    pub fn no_lines(&self) -> Option<Missing> {
        self.spe.as_ref().and_then(Spe::no_lines)
    }

    /// Why first touches are not sampled, though they were asked for.
    pub fn no_touches(&self) -> Option<Missing> {
        self.touches.as_ref().and_then(|touches| touches.as_ref().err().cloned())
    }

    /// The sampler's programs.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        self.probe.programs()
    }

    /// Becomes readable when the ring is half full.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.probe.fd()
    }

    /// Sets whether tasks without a record are out of scope from now on.
    pub fn set_scoped(&mut self, scoped: bool) {
        self.probe.set_scoped(scoped);
    }

    /// Samples on the CPUs that are online now.
    ///
    /// # Errors
    /// The clock cannot be sampled on one of them.
    pub fn follow(&mut self, cpus: &[CpuId]) -> Result<()> {
        self.cpus = cpus.to_vec();
        if let Ok(events) = &self.events {
            let followed = self.probe.follow_events(cpus, events);
            followed.map_err(|why| anyhow!("{why}"))?;
            if self.probe.follow_stores(cpus, &self.stores).is_err() {
                self.stores = Vec::new();
            }
        }
        if let Some(touches) = &mut self.touches {
            *touches = follow_touches(&mut self.probe, Path::new(ROOT), cpus);
        }
        if let Some(spe) = &mut self.spe {
            let followed = spe.follow(Path::new(ROOT), cpus);
            followed.map_err(|why| anyhow!("{why}"))?;
        }
        if self.clock.is_ok() { self.probe.follow(cpus) } else { Ok(()) }
    }

    /// CPU time of the reader so far, in ns, and memory that is its alone, in bytes.
    pub fn reader_uses(&mut self, page_size: u64) -> (u64, u64) {
        self.reader.uses(page_size)
    }
}

/// Uses of these processes. Processes that ended seconds ago would be in samples and recordings for nothing.
fn with_a_row(known: &Arc<MemoryUses>, rows: HashSet<ProcessId>) -> Arc<MemoryUses> {
    let mut uses = Arc::clone(known);
    if uses.processes.keys().any(|process| !rows.contains(process)) {
        Arc::make_mut(&mut uses).processes.retain(|process, _| rows.contains(process));
    }
    uses
}

/// Starts sampling first touches on `cpus` of the machine below `root`.
fn follow_touches(probe: &mut AccessProbe, root: &Path, cpus: &[CpuId]) -> Result<(), Missing> {
    // With memory tiers the kernel does not count all faults that it asked for (task_numa_fault of kernel/sched/fair.c).
    if numa_balancing(root).known().is_some_and(|mode| mode & BALANCING_TIERS != 0) {
        let why =
            "kernel.numa_balancing promotes pages of slow memory, and its faults resemble first touches";
        return Err(Missing::Unsupported(why.into()));
    }
    probe.follow_touches(cpus).map_err(|error| Missing::Unsupported(format!("page faults: {error:#}")))
}

/// Has events of a PMU sampled on `cpus`, or those of Arm's SPE, on the machine below `root`.
fn sample_events(
    probe: &mut AccessProbe,
    cpus: &[CpuId],
    root: &Path,
) -> (Result<Vec<MemoryEvent>, Missing>, Option<Spe>) {
    let found = memory_event::find(root).and_then(|found| probe.follow_events(cpus, &found).map(|()| found));
    match (found, Spe::start(root, cpus)) {
        (Err(_), Err(why)) => (Err(why), None),
        (Err(no_event), Ok(spe)) => (Err(no_event), spe),
        (events, _) => (events, None),
    }
}

/// The kind of the events, which is the same for all cores of a machine.
fn sampled_event(events: &Result<Vec<MemoryEvent>, Missing>, spe: Option<&Spe>) -> Option<SampledEvent> {
    match events.as_ref().ok().and_then(|events| events.first()) {
        Some(event) => Some(SampledEvent { source: event.source, threshold: event.threshold }),
        None => spe.map(Spe::sampled_event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_without_a_row_are_left_out() {
        let processes = [((1, 1), Arc::default()), ((2, 1), Arc::default())].into();
        let known = MemoryUses { processes, ..Window::default().sum(None) };
        let known = Arc::new(known);
        assert!(Arc::ptr_eq(&with_a_row(&known, [(1, 1), (2, 1), (3, 1)].into()), &known));
        // The id of a process that has ended is another's.
        let left = with_a_row(&known, [(1, 1), (2, 9)].into());
        assert_eq!(left.processes.keys().collect::<Vec<_>>(), [&(1, 1)]);
    }
}
