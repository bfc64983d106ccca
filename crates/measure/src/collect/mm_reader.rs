//! Readings that wait for the lock of another process's address space.
//!
//! The files maps, numa_maps, smaps_rollup and cmdline of /proc/PID, and move_pages(2), wait while that lock
//! is held for writing. That takes seconds while a large process forks, or for ever if its owner wants it. No
//! signal ends the wait of move_pages, and a process with a thread in it cannot end. So a separate process
//! reads them (`child.rs`). It gets one request per sample and nothing waits for it. If it does not answer it
//! is left behind, and the process it was reading is remembered (`locked.rs`).

pub mod child;
pub mod closer;
pub mod locked;
pub mod wire;

use std::collections::HashSet;
use std::fs::File;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;

use self::locked::{Failure, Locked};
use self::wire::{Answer, Job, Question, Turn};
use crate::host::processes;
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::program::helper::{self, HelperProcess};

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
                Err(_) => self.give_up(Failure::Died, &mut came),
            }
        }
        came
    }

    /// Whether it is late, and not because it has work to do.
    fn overdue(&mut self, now: Instant) -> Option<Failure> {
        let turn = self.turn.as_mut()?;
        let late = now.saturating_duration_since(turn.at).saturating_sub(turn.budget);
        let seen = std::mem::replace(&mut turn.seen, (now, self.process.cpu_ns()));
        let worked = Duration::from_nanos(turn.seen.1.saturating_sub(seen.1)) * AT_WORK >= now - seen.0;
        match late {
            late if late >= WORK_MAX => Some(Failure::Slow(WORK_MAX)),
            late if late >= WAIT_MAX && !worked && !self.process.is_runnable() => {
                Some(Failure::Waited(WAIT_MAX))
            }
            _ => None,
        }
    }

    fn give_up(&mut self, failure: Failure, came: &mut Came) {
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
                "memory by node and fields of processes are unknown now: the helper that reads them could not start"
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
