//! Where the memory of processes is: looks at some of them with each sample, within a budget of time.

pub mod draw;
pub mod maps;
pub mod present;
pub mod target;
pub mod turn;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::draw::{Found, Random, Ranges};
use self::maps::{Lines, parse_line};
use self::present::Finder;
use self::target::{Target, reason};
use self::turn::{Candidate, Look};
use crate::sample::{Missing, PlacementRaw, TaskRaw};

/// Process id and start of its leader in ns since boot.
pub type Process = (u32, u64);

/// What looking at memory may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// 20 ms in an interval or 1 % of a CPU, whichever is less. What one interval does not use is the next one's.
    #[default]
    Small,
    /// So much in each interval; zero: never look.
    Fixed(Duration),
}

const SMALL: Duration = Duration::from_millis(20);
const SHARE: f64 = 0.01;
/// What is at least kept in reserve before a draw of a thousand pages begins.
const DRAW: Duration = Duration::from_millis(1);
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
    /// Why there will be no placement of it.
    pub fn open(
        root: &Path,
        process: Process,
        rss_bytes: u64,
        page_size: u64,
        scans: bool,
    ) -> Result<Walk, Missing> {
        let target =
            Target::open(root, process.0, process.1).map_err(|error| reason("opening its files", &error))?;
        let maps = target.file(c"maps").map_err(|error| reason("reading its maps", &error))?;
        let pagemap = target.file(c"pagemap").map_err(|error| reason("reading its pagemap", &error))?;
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
    /// Why there will be no placement of it.
    pub fn step(&mut self, deadline: Option<Instant>) -> Result<bool, Missing> {
        loop {
            let line = self.lines.next_line().map_err(|error| reason("reading its maps", &error))?;
            let Some(line) = line else { return Ok(true) };
            if let Some(mapping) = parse_line(line) {
                let added = self.finder.add(&mapping, &mut self.ranges);
                added.map_err(|error| reason("looking for its present pages", &error))?;
                self.mappings += 1;
            }
            if self.ranges.parts() > PARTS_MAX {
                return Err(Missing::NotCollected(format!(
                    "its memory lies in more than {PARTS_MAX} parts: too many to sample"
                )));
            }
            let look = self.mappings.is_multiple_of(STEP);
            if look && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    /// Draws pages from what was found, and asks where they are.
    ///
    /// # Errors
    /// Why there is no placement of it.
    pub fn draw(&self, random: &mut Random, page_size: u64) -> Result<Found, Missing> {
        let ask = |pages: &[u64]| self.target.nodes(pages, page_size);
        let found = draw::draw(&self.ranges, random, ask)
            .map_err(|error| reason("asking where its pages are", &error))?;
        self.target.check().map_err(|error| reason("asking where its pages are", &error))?;
        match found.pages() {
            0 => Err(Missing::NotCollected(format!(
                "none of {} addresses drawn from {} of its memory has a page",
                found.asked,
                crate::metric::format::bytes((found.space * page_size) as f64)
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

/// What is known of every process, and whose turn it is.
pub struct Placements {
    root: PathBuf,
    page_size: u64,
    budget: Budget,
    /// Time that may be used now.
    credit: Duration,
    last: Option<Instant>,
    scans: bool,
    random: Random,
    known: Arc<BTreeMap<u64, Arc<PlacementRaw>>>,
    looks: HashMap<Process, Look>,
    walking: Option<(Process, Look, Walk)>,
    /// Processes that somebody looks at; the first one most closely.
    focus: Vec<Process>,
}

impl Placements {
    /// For the machine below `root`. `seed` makes draws differ from run to run.
    pub fn new(root: &Path, page_size: u64, budget: Budget, seed: u64) -> Placements {
        Placements {
            root: root.into(),
            page_size,
            budget,
            // Something to begin with.
            credit: SMALL / 2,
            last: None,
            scans: true,
            random: Random(seed),
            known: Arc::default(),
            looks: HashMap::new(),
            walking: None,
            focus: Vec::new(),
        }
    }

    /// Who is looked at before others: first the selected process, then those on the screen.
    pub fn focus(&mut self, processes: Vec<Process>) {
        self.focus = processes;
    }

    /// Looks at some processes, and returns what is known of all, by process id. `now_ns` is CLOCK_MONOTONIC.
    pub fn sample(&mut self, tasks: &[Arc<TaskRaw>], now_ns: u64) -> Arc<BTreeMap<u64, Arc<PlacementRaw>>> {
        if self.budget == Budget::Fixed(Duration::ZERO) {
            return Arc::clone(&self.known);
        }
        let began = Instant::now();
        let since = self.last.replace(began).map_or(Duration::ZERO, |last| began - last);
        self.credit = match self.budget {
            Budget::Small => (self.credit + since.mul_f64(SHARE)).min(SMALL),
            Budget::Fixed(budget) => budget,
        };
        let candidates = turn::candidates(tasks, now_ns, &self.looks, &self.focus);
        self.forget(&candidates);
        let deadline = began + self.credit;
        let mut order = turn::order(candidates);
        if let Some((process, ..)) = &self.walking {
            // Goes on first: two large processes that take turns would never be done.
            order.sort_by_key(|candidate| candidate.process != *process);
        }
        for candidate in order {
            if Instant::now() + DRAW > deadline {
                break;
            }
            self.look(&candidate, now_ns, deadline);
        }
        self.credit = self.credit.saturating_sub(began.elapsed());
        Arc::clone(&self.known)
    }

    /// Drops what is known of processes that are gone.
    fn forget(&mut self, alive: &HashMap<Process, Candidate>) {
        self.looks.retain(|process, _| alive.contains_key(process));
        if self.known.len() > self.looks.len() {
            let known = Arc::make_mut(&mut self.known);
            known.retain(|pid, raw| alive.contains_key(&(*pid as u32, raw.start_ns)));
        }
        if self.walking.as_ref().is_some_and(|(process, ..)| !alive.contains_key(process)) {
            self.walking = None;
        }
    }

    /// Goes on with a process until its placement is known or the time is over.
    fn look(&mut self, candidate: &Candidate, now_ns: u64, deadline: Instant) {
        let walking = self.walking.take_if(|(process, ..)| *process == candidate.process);
        let opened = match walking {
            Some((_, look, walk)) => Ok((look, walk)),
            None => {
                let rss = candidate.look.rss_bytes;
                Walk::open(&self.root, candidate.process, rss, self.page_size, self.scans)
                    .map(|walk| (candidate.look, walk))
            }
        };
        let (look, found) = match opened {
            Err(missing) => (candidate.look, Err(missing)),
            Ok((look, mut walk)) => {
                let read = walk.step(Some(deadline));
                self.scans = walk.scans();
                match read {
                    Ok(false) => {
                        self.walking = Some((candidate.process, look, walk));
                        return;
                    }
                    Ok(true) => (look, walk.draw(&mut self.random, self.page_size)),
                    Err(missing) => (look, Err(missing)),
                }
            }
        };
        self.looks.insert(candidate.process, Look { at_ns: now_ns, ..look });
        let (pid, start_ns) = candidate.process;
        let found = found.map(|found| found.to_raw(self.page_size));
        let raw = PlacementRaw { start_ns, read_ns: now_ns, found };
        Arc::make_mut(&mut self.known).insert(pid.into(), Arc::new(raw));
    }
}

/// The placement of one process now, whatever it takes.
///
/// # Errors
/// Why there is none.
pub fn once(
    root: &Path,
    process: Process,
    rss_bytes: u64,
    page_size: u64,
    random: &mut Random,
) -> Result<Found, Missing> {
    let mut walk = Walk::open(root, process, rss_bytes, page_size, true)?;
    walk.step(None)?;
    walk.draw(random, page_size)
}
