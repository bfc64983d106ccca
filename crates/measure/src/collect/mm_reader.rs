//! Readings that wait for the lock of another process's address space.
//!
//! The files maps, numa_maps, smaps_rollup and cmdline of /proc/PID, and move_pages(2), wait while that lock
//! is held for writing. That takes seconds while a large process forks, or for ever if its owner wants it. No
//! signal ends the wait of move_pages, and a process with a thread in it cannot end. So a separate process
//! reads them (`child.rs`). It gets one request per sample and nothing waits for it. If it does not answer it
//! is left behind, and the process it was reading is remembered ([`Locked`]). The detail view has a thread that may wait
//! for an answer ([`Closer`]).

pub mod child;
pub mod wire;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use serde::de::DeserializeOwned;

use self::wire::{Answer, Job, Question, Turn};
use crate::collect::mappings::{Mappings, walk_ns};
use crate::collect::proc_details;
use crate::host::processes;
use crate::model::process::{Details, ProcessId};
use crate::model::sample::Missing;
use crate::program::helper::{self, Failure, HelperProcess};

/// A reading that waits for longer than this has no value. Beyond the budget of its turn.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A working reader may take this long: the kernel reads 30 GiB of small pages in a second.
const WORK_MAX: Duration = Duration::from_secs(30);

/// The reader is at work if it used at least 1/`AT_WORK` of a CPU since the last look.
const AT_WORK: u32 = 10;

/// No job was begun.
const NONE: u64 = u64::MAX;

/// The reader, started when it is first asked. Dropped, it is ended.
pub struct MmReader {
    process: HelperProcess,
    /// Shared with the reader, which writes there with which job it is busy.
    mark: Option<File>,
    turn: Option<Asked>,
    locked: Locked,
    trouble: Option<String>,
    told: bool,
}

/// The turn that has not ended.
struct Asked {
    at: Instant,
    budget: Duration,
    jobs: Vec<(ProcessId, u32)>,
    /// When the reader was looked at last, and its CPU time then.
    seen: (Instant, u64),
}

/// Answers that have come since the question.
#[derive(Default)]
pub struct Came {
    pub answers: Vec<Answer>,
    /// The turn ended early: missing answers have to be requested again.
    pub broken: bool,
    /// The process that broke it, and why it has no values.
    pub locked: Option<(ProcessId, Missing)>,
}

impl MmReader {
    /// `program` is numatop-ng itself.
    pub fn new(program: PathBuf) -> MmReader {
        MmReader {
            process: HelperProcess::new(program, child::NAME, WAIT_MAX)
                .with_variable(processes::environment()),
            mark: None,
            turn: None,
            locked: Locked::default(),
            trouble: None,
            told: false,
        }
    }

    /// Whether it has answered everything.
    pub fn is_free(&self) -> bool {
        self.turn.is_none()
    }

    /// Asks, with the iterators that the turn names. Only while it is free, and only about processes for which
    /// [`MmReader::admit`] has a place.
    pub fn ask(&mut self, mut turn: Turn, iterators: &[OwnedFd]) {
        let jobs: Vec<_> = turn.jobs().map(|job| (job.process, job.uid)).collect();
        if jobs.is_empty() {
            return;
        }
        let budget = turn.budget();
        if self.mark.is_none() {
            let made = rustix::fs::memfd_create("nng-pages", MemfdFlags::CLOEXEC);
            self.mark = made.ok().map(File::from);
        }
        if let Some(mark) = &self.mark {
            let _ = mark.write_all_at(&NONE.to_ne_bytes(), 0);
        }
        // Without a mark its place would be an iterator's: then none is handed over.
        let files: Vec<BorrowedFd<'_>> = match (&self.mark, &mut turn.placement) {
            (Some(mark), _) => iter::once(mark.as_fd()).chain(iterators.iter().map(AsFd::as_fd)).collect(),
            (None, placement) => {
                placement.iter_mut().for_each(|placement| placement.iterators.clear());
                Vec::new()
            }
        };
        match self.process.tell(&Question::Turn(Box::new(turn)), &files) {
            Ok(()) => {
                let at = Instant::now();
                self.turn = Some(Asked { at, budget, jobs, seen: (at, self.process.cpu_ns()) });
            }
            Err(failure) => self.complain(failure),
        }
    }

    /// Takes the answers so far, and leaves behind a reader that hangs.
    pub fn take(&mut self) -> Came {
        let mut came = Came::default();
        while self.turn.is_some() {
            match self.process.heard::<Answer>() {
                Ok(Some(answer)) => {
                    let placed = answer.placed.iter().map(|placed| &placed.process);
                    let looked_up = answer.pages.iter().map(|(process, _)| process);
                    let others = answer.abouts.iter().map(|(process, _)| process).chain(looked_up);
                    let others = others.chain(answer.policies.iter().map(|(process, ..)| process));
                    for process in placed.chain(others) {
                        self.locked.clear(process);
                    }
                    if answer.end.is_some() {
                        self.turn = None;
                    }
                    came.answers.push(answer);
                }
                Ok(None) => {
                    if let Some(failure) = self.overdue(Instant::now()) {
                        self.give_up(failure, &mut came);
                    }
                    break;
                }
                Err(helper::Failure::NotStarted) => {
                    (self.turn, came.broken) = (None, true);
                    self.complain(helper::Failure::NotStarted);
                }
                Err(_) => self.give_up(Unread::Died, &mut came),
            }
        }
        came
    }

    /// Whether it is late, and not because it has work to do.
    fn overdue(&mut self, now: Instant) -> Option<Unread> {
        let turn = self.turn.as_mut()?;
        let late = now.saturating_duration_since(turn.at).saturating_sub(turn.budget);
        let seen = std::mem::replace(&mut turn.seen, (now, self.process.cpu_ns()));
        let worked = Duration::from_nanos(turn.seen.1.saturating_sub(seen.1)) * AT_WORK >= now - seen.0;
        match late {
            late if late >= WORK_MAX => Some(Unread::Slow(WORK_MAX)),
            late if late >= WAIT_MAX && !worked && !self.process.is_runnable() => {
                Some(Unread::Waited(WAIT_MAX))
            }
            _ => None,
        }
    }

    fn give_up(&mut self, failure: Unread, came: &mut Came) {
        let mut bytes = [0; 8];
        let read = self.mark.as_ref().map(|mark| mark.read_exact_at(&mut bytes, 0));
        let at = read.is_some_and(|read| read.is_ok()).then(|| u64::from_ne_bytes(bytes));
        let culprit = self.turn.take().and_then(|turn| turn.jobs.get(usize::try_from(at?).ok()?).copied());
        self.process.leave(culprit.map(|(_, uid)| uid));
        // A reader that is left behind may write there yet.
        self.mark = None;
        came.broken = true;
        came.locked =
            culprit.map(|(process, uid)| (process, self.locked.note(process, uid, failure, Instant::now())));
    }

    /// Once is enough: the state is permanent.
    fn complain(&mut self, failure: helper::Failure) {
        if !self.told && failure == helper::Failure::NotStarted {
            self.told = true;
            self.trouble = Some(
                "from now on, process fields and memory by node are unknown: the helper that reads them could not start"
                    .into(),
            );
        }
    }

    /// A warning to show.
    pub fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Takes those out that may not be asked about now, and puts those last that may be locked.
    pub fn admit(&self, jobs: &mut Vec<Job>) {
        if self.locked.is_empty() && self.process.left_behind(None) == 0 {
            return;
        }
        let now = Instant::now();
        jobs.retain(|job| self.locked.allows(&job.process, self.process.left_behind(Some(job.uid)), now));
        for job in jobs.iter_mut() {
            job.careful = self.locked.suspects(job.uid);
        }
        jobs.sort_by_key(|job| job.careful);
    }

    /// Forgets processes that are not `alive`; calls it only if there are any to forget.
    pub fn retain_alive(&mut self, alive: impl FnOnce() -> HashSet<ProcessId>) {
        if !self.locked.is_empty() {
            let alive = alive();
            self.locked.retain(|process| alive.contains(process));
        }
    }

    /// CPU time of readers so far, in ns.
    pub fn cpu_ns(&mut self) -> u64 {
        self.process.cpu_ns()
    }

    /// CPU time of readers so far, in ns, and memory that is the reader's alone, in bytes.
    pub fn uses(&mut self, page_size: u64) -> (u64, u64) {
        (self.process.cpu_ns(), self.process.private_pages() * page_size)
    }
}

/// An answer that takes longer has none.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A walk over all pages may take several times what it should.
const WALKS: u32 = 4;

/// A process without an answer from /proc is asked again after this; others are asked with each sample.
const PAUSE: Duration = Duration::from_secs(30);

/// Asks a separate reader, started with the first question. Dropping this ends the reader.
pub struct Closer {
    process: HelperProcess,
    /// The last process without an answer, why, and since when.
    locked: Option<(ProcessId, String, Instant)>,
}

impl Closer {
    /// `program` is numatop-ng itself.
    pub fn new(program: PathBuf) -> Closer {
        let process = HelperProcess::new(program, child::NAME, ANSWER_MAX);
        Closer { process: process.with_variable(processes::environment()), locked: None }
    }

    /// The answer of /proc about a process; without its command line where that is locked.
    ///
    /// # Errors
    /// The process has ended, or another one has its id now.
    pub fn inspect(&mut self, process: ProcessId) -> Result<Details, String> {
        self.locked.take_if(|(other, _, since)| *other != process || since.elapsed() >= PAUSE);
        let asked = match &self.locked {
            Some((_, why, _)) => Err(why.clone()),
            None => self.ask(&Question::Inspect(process), ANSWER_MAX),
        };
        asked.unwrap_or_else(|why| {
            self.locked.get_or_insert_with(|| (process, why.clone(), Instant::now()));
            let why = Missing::Lost(why);
            proc_details::read_without_memory(processes::root(), process.0, process.1, why)
                .map_err(|error| format!("{error:#}"))
        })
    }

    /// The mappings of a process with so much memory: from a sample, or `exact` from every page.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub fn map(&mut self, process: ProcessId, rss_bytes: u64, exact: bool) -> Result<Mappings, String> {
        let walk = if exact { Duration::from_nanos(walk_ns(rss_bytes)) * WALKS } else { Duration::ZERO };
        let asked = Question::Map { process, rss_bytes, exact };
        self.ask::<Result<Mappings, Missing>>(&asked, ANSWER_MAX + walk)?
            .map_err(|missing| missing.to_string())
    }

    fn ask<A: DeserializeOwned>(&mut self, question: &Question, most: Duration) -> Result<A, String> {
        let made = rustix::fs::memfd_create("nng-pages", MemfdFlags::CLOEXEC);
        let file =
            made.map(File::from).map_err(|error| format!("creating a file for the mappings: {error}"))?;
        let length: u64 =
            self.process.ask_within(question, Some(&file), most).map_err(|failure| match failure {
                Failure::Slow => {
                    format!(
                        "the process's address space is locked or very large: no reply within {} s",
                        most.as_secs()
                    )
                }
                Failure::Died => {
                    "the numatop-ng helper that reads this process's memory map has ended".into()
                }
                Failure::NotStarted | Failure::GivenUp => {
                    "the helper that reads the process's memory map could not start, or waits for locked \
                     address spaces"
                        .into()
                }
            })?;
        let mut bytes = Vec::new();
        // The reader wrote at the beginning, and moved nothing.
        (&file)
            .take(length)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("reading the mappings from the helper: {error}"))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("reading the mappings from the helper: {error}"))
    }
}

/// A process is asked again after this, then after twice as long each time.
const LOCKED_PAUSE: Duration = Duration::from_secs(60);

const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Readers that one user's processes may hold at the same time, so that there are some for others.
const HELD_MAX: usize = 2;

/// The reason why a reading came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It waited for this time and used no CPU.
    Waited(Duration),
    /// It was still working after this time.
    Slow(Duration),
    /// The reader ended.
    Died,
}

struct Entry {
    uid: u32,
    failures: u32,
    not_before: Instant,
}

/// Processes that made a reader hang.
#[derive(Default)]
pub struct Locked {
    processes: HashMap<ProcessId, Entry>,
}

impl Locked {
    /// Remembers a process of a user, and returns the reason for its missing value.
    pub fn note(&mut self, process: ProcessId, uid: u32, failure: Unread, now: Instant) -> Missing {
        let entry = self.processes.entry(process).or_insert(Entry { uid, failures: 0, not_before: now });
        let pause = LOCKED_PAUSE.saturating_mul(1 << entry.failures.min(16)).min(PAUSE_MAX);
        (entry.failures, entry.not_before) = (entry.failures + 1, now + pause);
        Missing::Lost(reason(failure, pause))
    }

    /// It answered.
    pub fn clear(&mut self, process: &ProcessId) {
        self.processes.remove(process);
    }

    /// Drops processes that have ended.
    pub fn retain(&mut self, mut is_alive: impl FnMut(&ProcessId) -> bool) {
        self.processes.retain(|process, _| is_alive(process));
    }

    /// Whether a process may be read, given that `held` readers wait for processes of its user.
    pub fn allows(&self, process: &ProcessId, held: usize, now: Instant) -> bool {
        held < HELD_MAX && self.processes.get(process).is_none_or(|entry| now >= entry.not_before)
    }

    /// Whether a process of this user is remembered: his are read about after all others.
    pub fn suspects(&self, uid: u32) -> bool {
        self.processes.values().any(|entry| entry.uid == uid)
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }
}

fn reason(failure: Unread, pause: Duration) -> String {
    let why = match failure {
        Unread::Waited(time) => {
            format!("its address space is locked: no reply within {} s", time.as_secs())
        }
        Unread::Slow(time) => format!("reading its memory takes longer than {} s", time.as_secs()),
        Unread::Died => "the numatop-ng helper that reads this process's memory map has ended".into(),
    };
    format!("{why}; retried after {} s", pause.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = (7, 1);

    const WAITED: Unread = Unread::Waited(Duration::from_secs(1));

    #[test]
    fn a_locked_process_is_asked_again_later_and_later() {
        let (mut locked, mut now) = (Locked::default(), Instant::now());
        assert!(locked.allows(&PROCESS, 0, now) && !locked.suspects(1000));
        for pause in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            let why = locked.note(PROCESS, 1000, WAITED, now).to_string();
            assert!(why.contains("locked") && why.ends_with(&format!("after {pause} s")), "{why}");
            assert!(!locked.allows(&PROCESS, 0, now + Duration::from_secs(pause - 1)));
            now += Duration::from_secs(pause);
            assert!(locked.allows(&PROCESS, 0, now));
        }
        locked.clear(&PROCESS);
        assert!(locked.note(PROCESS, 1000, WAITED, now).to_string().ends_with("after 60 s"));
    }

    #[test]
    fn the_same_id_later_is_another_process() {
        let (mut locked, now) = (Locked::default(), Instant::now());
        locked.note(PROCESS, 1000, WAITED, now);
        assert!(locked.allows(&(7, 2), 0, now));
        assert!(locked.suspects(1000) && !locked.suspects(1001));
        locked.retain(|_| false);
        assert!(locked.is_empty());
    }

    #[test]
    fn a_user_holds_some_readers_and_not_all() {
        let (locked, now) = (Locked::default(), Instant::now());
        assert!(locked.allows(&PROCESS, HELD_MAX - 1, now));
        assert!(!locked.allows(&PROCESS, HELD_MAX, now));
    }
}
