//! Placement of the memory of processes: some of them are looked at with each sample, within a budget of time.

pub mod draw;
pub mod objects;
pub mod policies;
pub mod rows;
pub mod schedule;
pub mod target;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::draw::{Found, Random, Ranges};
use self::objects::{Drawn, Draws, WANTED_MAX, Wanted};
use self::policies::Rest;
use self::schedule::{Candidate, Look};
use self::target::{Finder, Lines, Target, parse_line, reason};
use super::mm_reader::MmReader;
use super::mm_reader::wire::{Answer, JOBS_MAX, Job, Placed, PlacementTurn};
use crate::model::inputs::Inputs;
use crate::model::process::ProcessId;
use crate::model::sample::{Missing, PagesByPolicy, PlacementRaw, PolicyBytes, Reading, TaskRaw};
use crate::program::helper::FILES_MAX;

/// The budget for looking at memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// 20 ms in an interval or 1 % of a CPU, whichever is less. Time that one interval does not use is the next one's.
    #[default]
    Small,
    /// So much in each interval; zero: never look.
    Fixed(Duration),
}

const SMALL: Duration = Duration::from_millis(20);
const SHARE: f64 = 0.01;
/// The least reserve before a draw of a thousand pages begins.
pub const DRAW: Duration = Duration::from_millis(1);
/// Mappings after which the clock is read.
const STEP: usize = 64;
/// Parts of an address space that are remembered: several times what vm.max_map_count usually allows.
const PARTS_MAX: usize = 1 << 18;

/// A process whose mappings are being read: that may take several intervals.
pub struct Walk {
    target: Target,
    lines: Lines<File>,
    finder: Finder,
    ranges: Ranges,
    mappings: usize,
}

impl Walk {
    /// Begins with `process`, which has so much resident memory. `scans`: whether the kernel may have PAGEMAP_SCAN.
    ///
    /// # Errors
    /// The reason why its placement is unavailable.
    pub fn open(
        root: &Path,
        process: ProcessId,
        rss_bytes: u64,
        page_size: u64,
        scans: bool,
    ) -> Result<Walk, Missing> {
        let target = Target::open(root, process.0, process.1)
            .map_err(|error| reason("opening files of the process", &error))?;
        let maps = target.file(c"maps").map_err(|error| reason("reading maps of the process", &error))?;
        let pagemap =
            target.file(c"pagemap").map_err(|error| reason("reading pagemap of the process", &error))?;
        Ok(Walk {
            target,
            lines: Lines::new(maps),
            finder: Finder::new(pagemap, scans, rss_bytes, page_size),
            ranges: Ranges::default(),
            mappings: 0,
        })
    }

    /// Reads mappings until all are known (true) or `deadline` has come.
    ///
    /// # Errors
    /// The reason why its placement is unavailable.
    pub fn step(&mut self, deadline: Option<Instant>) -> Result<bool, Missing> {
        loop {
            let line =
                self.lines.next_line().map_err(|error| reason("reading maps of the process", &error))?;
            let Some(line) = line else { return Ok(true) };
            if let Some(mapping) = parse_line(line) {
                let added = self.finder.add(&mapping, &mut self.ranges);
                added.map_err(|error| reason("listing present pages of the process", &error))?;
                self.mappings += 1;
            }
            if self.ranges.parts() > PARTS_MAX {
                return Err(Missing::NotCollected(format!(
                    "its memory has more than {PARTS_MAX} parts, too many to sample"
                )));
            }
            let look = self.mappings.is_multiple_of(STEP);
            if look && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    /// Draws pages at random and asks for their nodes. `seen` gets the number and the node of each page that is present.
    ///
    /// # Errors
    /// The reason why its placement is unavailable.
    pub fn draw(
        &self,
        random: &mut Random,
        page_size: u64,
        mut seen: impl FnMut(u64, u32),
    ) -> Result<Found, Missing> {
        let ask = |pages: &[u64]| {
            self.finder.wait_for_lock(pages.first().copied().unwrap_or(0))?;
            let nodes = self.target.nodes(pages, page_size)?;
            let found =
                pages.iter().zip(&nodes).filter_map(|(page, status)| Some((*page, draw::node(*status)?)));
            found.for_each(|(page, node)| seen(page, node));
            Ok(nodes)
        };
        let found = draw::draw(&self.ranges, random, ask)
            .map_err(|error| reason("locating pages of the process", &error))?;
        self.target.check().map_err(|error| reason("locating pages of the process", &error))?;
        match found.pages() {
            0 => Err(Missing::NotCollected(format!(
                "none of {} sampled addresses in {} of its memory has a page",
                found.asked,
                crate::text::quantity::bytes((found.space * page_size) as f64)
            ))),
            _ => Ok(found),
        }
    }

    /// Whether the kernel has PAGEMAP_SCAN, as far as it was needed.
    pub fn scans(&self) -> bool {
        self.finder.scans()
    }

    /// Mappings read so far.
    pub fn mappings(&self) -> usize {
        self.mappings
    }

    /// Parts of its address space to draw from, so far.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }
}

/// The known facts of every process, and the order of turns. The reader of other address spaces looks.
pub struct Placements {
    budget: Budget,
    /// Time that may be used now.
    credit: Duration,
    last: Option<Instant>,
    known: Arc<BTreeMap<u64, Arc<PlacementRaw>>>,
    looks: HashMap<ProcessId, Look>,
    /// Processes that were asked about, as they were then.
    asked: HashMap<ProcessId, Look>,
    /// A process whose mappings are being read.
    walking: Option<ProcessId>,
    /// Processes on the screen; the first one is sampled most closely.
    focus: Vec<ProcessId>,
    /// Between looks at policies.
    rest: Rest,
    /// Of pages of shared memory.
    draws: Draws,
    page_size: u64,
}

/// Iterators of a turn at most: one descriptor each, beside that of the mark.
const ITERATORS_MAX: usize = FILES_MAX - 1;
/// Mappings from which on their policies are not read with each look, but once in [`policies::OLD_NS`].
const MANY_MAPPINGS: u32 = 4096;

/// The least time for a process, as far as lists of them are concerned.
const LOOK: Duration = Duration::from_micros(50);

impl Placements {
    /// `seed` makes draws differ from run to run.
    pub fn new(budget: Budget, page_size: u64, seed: u64) -> Placements {
        Placements {
            budget,
            draws: Draws::new(seed),
            page_size,
            // A first result: the first interval shows the processes requested at its beginning.
            credit: SMALL,
            last: None,
            known: Arc::default(),
            looks: HashMap::new(),
            asked: HashMap::new(),
            walking: None,
            focus: Vec::new(),
            rest: Rest::default(),
        }
    }

    /// Processes that go before others: first the selected one, then those on the screen.
    pub fn focus(&mut self, processes: Vec<ProcessId>) {
        self.focus = processes;
    }

    /// Forgets ended processes, and returns the next ones to look at. Results come to [`Placements::take`].
    /// `sizes`: memory of each node in bytes; `now_ns` is CLOCK_MONOTONIC.
    pub fn turn(
        &mut self,
        tasks: &[Arc<TaskRaw>],
        sizes: &BTreeMap<u32, u64>,
        now_ns: u64,
        reader: &MmReader,
    ) -> Option<PlacementTurn> {
        if self.budget == Budget::Fixed(Duration::ZERO) {
            return None;
        }
        let now = Instant::now();
        let since = self.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        self.credit = match self.budget {
            Budget::Small => (self.credit + since.mul_f64(SHARE)).min(SMALL),
            Budget::Fixed(budget) => budget,
        };
        if reader.is_free() {
            self.look_again();
        }
        let candidates = schedule::candidates(tasks, now_ns, &self.looks, &self.focus);
        self.looks.retain(|process, _| candidates.contains_key(process));
        if self.known.len() > self.looks.len() {
            let known = Arc::make_mut(&mut self.known);
            known.retain(|pid, raw| candidates.contains_key(&(*pid as u32, raw.start_ns)));
        }
        if !reader.is_free() || self.credit < DRAW {
            return None;
        }
        let mut order = schedule::order(candidates);
        // Continues with this one first: two large processes in turns would never be done.
        order.sort_by_key(|candidate| Some(candidate.process) != self.walking);
        let mut jobs: Vec<Job> = order
            .iter()
            .map(|candidate| {
                let (process, uid, rss_bytes) = (candidate.process, candidate.uid, candidate.look.rss_bytes);
                Job { process, uid, rss_bytes, careful: false }
            })
            .collect();
        reader.admit(&mut jobs);
        jobs.truncate(((self.credit.as_micros() / LOOK.as_micros()) as usize).clamp(1, JOBS_MAX));
        let begun = self.walking.and_then(|process| Some((process, *self.asked.get(&process)?)));
        let iterators = self.iterators(&jobs, &order, now_ns);
        self.draws.forget(now_ns);
        let known = iterators.iter().filter_map(|(process, _)| known_policies(&self.known, process));
        self.draws.begin(known.flat_map(|pages| &pages.objects), self.page_size, now_ns);
        self.asked = order.into_iter().map(|candidate| (candidate.process, candidate.look)).collect();
        // A change while its mappings are read is not known then.
        self.asked.extend(begun);
        let policies = self.policies_of(tasks, sizes, now_ns, reader);
        Some(PlacementTurn { jobs, budget: self.credit, iterators, policies })
    }

    /// Processes of the first jobs whose policies are to be read with their pages, and a thread of each.
    fn iterators(&self, jobs: &[Job], order: &[Candidate], now_ns: u64) -> Vec<(ProcessId, u32)> {
        let threads: HashMap<ProcessId, u32> =
            order.iter().map(|candidate| (candidate.process, candidate.tid)).collect();
        let is_due = |process: &ProcessId| {
            known_policies(&self.known, process).is_none_or(|pages| {
                pages.mappings <= MANY_MAPPINGS || now_ns.saturating_sub(pages.read_ns) >= policies::OLD_NS
            })
        };
        jobs.iter()
            .take(ITERATORS_MAX)
            .filter_map(|job| Some((job.process, *threads.get(&job.process)?)))
            .filter(|(process, tid)| *tid != 0 && is_due(process))
            .collect()
    }

    /// Looks again at an unchanged process for each object whose nodes have not been requested yet.
    fn look_again(&mut self) {
        let mut urgent = BTreeMap::new();
        for (pid, raw) in &*self.known {
            let pages = raw.by_policy.iter().filter(|pages| pages.mappings <= MANY_MAPPINGS);
            for object in pages.flat_map(|pages| &pages.objects) {
                if urgent.len() < WANTED_MAX && self.draws.is_urgent(object) {
                    urgent.entry(object.id()).or_insert((*pid as u32, raw.start_ns));
                }
            }
        }
        self.looks.retain(|process, _| !urgent.values().any(|one| one == process));
    }

    /// Pages of objects whose nodes are asked for in this turn.
    pub fn wanted(&self) -> &[Wanted] {
        self.draws.wanted()
    }

    /// Takes the answers, see [`Draws::end`].
    pub fn take_drawn(&mut self, drawn: Option<Vec<Option<Vec<Drawn>>>>, now_ns: u64) {
        self.draws.end(drawn, now_ns);
    }

    /// Takes the results.
    pub fn take(&mut self, answer: &mut Answer) {
        for placed in answer.placed.drain(..) {
            self.note(placed);
        }
        for (process, read_ns, found) in answer.policies.drain(..) {
            self.note_policies(process, read_ns, found);
        }
        if let Some(end) = &answer.end {
            if end.policies_used > Duration::ZERO {
                self.rest.begin(Instant::now(), end.policies_used);
            }
            self.credit = self.credit.saturating_sub(end.placement_used);
            self.walking = end.walking;
        }
    }

    /// A process did not let itself be looked at.
    pub fn take_locked(&mut self, process: ProcessId, now_ns: u64, why: &Missing) {
        self.note(Placed { process, read_ns: now_ns, found: Err(why.clone()), by_policy: None });
    }

    /// The reader has been replaced: unfinished work starts again.
    pub fn take_broken(&mut self) {
        self.walking = None;
        self.draws.give_up();
    }

    fn note(&mut self, placed: Placed) {
        let Placed { process, read_ns, found, by_policy } = placed;
        let Some(look) = self.asked.get(&process) else { return };
        self.looks.insert(process, Look { at_ns: read_ns, ..*look });
        let id = u64::from(process.0);
        let before = self.known.get(&id).filter(|before| before.start_ns == process.1);
        let policies = before.and_then(|before| before.policies.clone());
        // A look without an iterator keeps the known policies, for as long as they are valid.
        let kept = before.and_then(|before| before.by_policy.clone());
        let kept = kept.filter(|pages| read_ns.saturating_sub(pages.read_ns) < policies::OLD_NS);
        let (by_policy, why) = match by_policy {
            Some(Ok(pages)) => (Some(Arc::new(pages)), None),
            Some(Err(why)) => (kept, Some((read_ns, Err(why)))),
            None => (kept, None),
        };
        let policies = policies.or(why);
        let raw = PlacementRaw { start_ns: process.1, read_ns, found, policies, by_policy };
        Arc::make_mut(&mut self.known).insert(id, Arc::new(raw));
    }

    fn note_policies(&mut self, process: ProcessId, read_ns: u64, found: Reading<PolicyBytes>) {
        if let Some(raw) = Arc::make_mut(&mut self.known).get_mut(&process.0.into())
            && raw.start_ns == process.1
        {
            Arc::make_mut(raw).policies = Some((read_ns, found));
        }
    }

    /// The process whose policies are read in this turn.
    fn policies_of(
        &mut self,
        tasks: &[Arc<TaskRaw>],
        sizes: &BTreeMap<u32, u64>,
        now_ns: u64,
        reader: &MmReader,
    ) -> Option<Job> {
        if !self.rest.is_over(Instant::now()) {
            return None;
        }
        let job = policies::next(tasks, &self.known, sizes, now_ns)?;
        if let Err(why) = policies::affordable(job.rss_bytes) {
            self.note_policies(job.process, now_ns, Err(why));
            return None;
        }
        let mut admitted = vec![job];
        reader.admit(&mut admitted);
        admitted.pop()
    }

    /// Adds the nodes of objects.
    pub fn add_to(&self, inputs: &mut Inputs) {
        inputs.object_nodes = self.draws.known();
    }

    /// The last answers, by process id.
    pub fn known(&self) -> Arc<BTreeMap<u64, Arc<PlacementRaw>>> {
        Arc::clone(&self.known)
    }
}

/// Policies of a process, where they were read.
fn known_policies<'a>(
    known: &'a BTreeMap<u64, Arc<PlacementRaw>>,
    process: &ProcessId,
) -> Option<&'a PagesByPolicy> {
    let raw = known.get(&process.0.into()).filter(|raw| raw.start_ns == process.1);
    raw.and_then(|raw| raw.by_policy.as_deref())
}

/// The placement of one process now, whatever it takes.
///
/// # Errors
/// The reason why it is unavailable.
pub fn once(
    root: &Path,
    process: ProcessId,
    rss_bytes: u64,
    page_size: u64,
    random: &mut Random,
) -> Result<Found, Missing> {
    let mut walk = Walk::open(root, process, rss_bytes, page_size, true)?;
    walk.step(None)?;
    walk.draw(random, page_size, |_, _| {})
}
