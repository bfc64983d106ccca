//! The process that reads what the lock of another address space guards, and may wait for it for ever.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::wire::{AboutTurn, Answer, End, Job, PagesTurn, Placed, PlacementTurn, Question, Turn};
use crate::collect::access::lookup;
use crate::collect::placement::draw::Random;
use crate::collect::placement::rows::{Counted, Mappings};
use crate::collect::placement::target::reason;
use crate::collect::placement::{DRAW, Walk, policies};
use crate::collect::{machine, mappings, proc_details, proc_fields};
use crate::host::clock::mono_ns;
use crate::host::processes;
use crate::model::process::{ProcFields, ProcessId};
use crate::model::sample::Reading;
use crate::program::helper;

/// The name under which the tool starts itself to read about other processes.
pub const NAME: &str = "numatop-ng-pages";

/// Bytes of answers that are kept back: one more fits the packet with them.
const KEPT_MAX: usize = 48 << 10;

/// Answers questions until the input ends.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"nng-pages");
    let root = processes::root();
    let mut reads: Option<Reads> = None;
    helper::serve_many(
        NAME,
        || Ok(()),
        |question: Question, files, reply| {
            let mut files = files.into_iter();
            match (question, files.next()) {
                (Question::Turn(turn), mark) => {
                    let mut mark = |at| {
                        if let Some(mark) = &mark {
                            let _ = mark.write_all_at(&u64::to_ne_bytes(at), 0);
                        }
                    };
                    let reads = reads.get_or_insert_with(|| Reads::new(root, mono_ns()));
                    reads.turn(&turn, files.collect(), &mut mark, &mut |answer| reply.send(answer))
                }
                (Question::Inspect((pid, start_ns)), Some(file)) => {
                    let found = proc_details::read(root, pid, start_ns).map_err(|error| format!("{error:#}"));
                    reply.send(&written(&file, &found)?)
                }
                (Question::Map { process, rss_bytes, exact }, Some(file)) => {
                    let found = match exact {
                        true => mappings::exact(root, process),
                        false => mappings::sampled(root, process, rss_bytes, machine::page_size()),
                    };
                    reply.send(&written(&file, &found)?)
                }
                (_, None) => Err(io::ErrorKind::InvalidInput.into()),
            }
        },
    )
}

fn written(file: &File, found: &impl Serialize) -> io::Result<u64> {
    let bytes = serde_json::to_vec(found)?;
    file.write_all_at(&bytes, 0)?;
    Ok(bytes.len() as u64)
}

/// Readings below a root, and the state kept between two turns.
pub struct Reads {
    root: PathBuf,
    page_size: u64,
    random: Random,
    /// Whether the kernel may have PAGEMAP_SCAN.
    scans: bool,
    walking: Option<(ProcessId, Walk)>,
}

/// The message, and its form.
struct Told<'a> {
    answer: Answer,
    bytes: usize,
    /// Jobs that were begun.
    begun: u64,
    mark: &'a mut dyn FnMut(u64),
    send: &'a mut dyn FnMut(&Answer) -> io::Result<()>,
}

impl Told<'_> {
    fn begin(&mut self, job: &Job, at: usize) -> io::Result<()> {
        if job.careful || self.bytes >= KEPT_MAX {
            self.flush()?;
        }
        (self.mark)(self.begun + at as u64);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let answer = std::mem::take(&mut self.answer);
        if std::mem::take(&mut self.bytes) > 0 || answer.end.is_some() {
            (self.send)(&answer)?;
        }
        Ok(())
    }
}

impl Reads {
    /// For the machine below `root` (`/`). `seed` makes draws differ from run to run.
    pub fn new(root: &Path, seed: u64) -> Reads {
        let page_size = machine::page_size();
        Reads { root: root.into(), page_size, random: Random(seed), scans: true, walking: None }
    }

    /// Takes a turn. `mark` gets the number of each job that begins, and `send` the answers. `iterators` has one file for each entry
    /// of [`PlacementTurn::iterators`].
    ///
    /// # Errors
    /// The error of `send`.
    pub fn turn(
        &mut self,
        turn: &Turn,
        iterators: Vec<File>,
        mark: &mut dyn FnMut(u64),
        send: &mut dyn FnMut(&Answer) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut told = Told { answer: Answer::default(), bytes: 0, begun: 0, mark, send };
        let mut end = End::default();
        if let Some(placement) = &turn.placement {
            end.placement_used = self.place(placement, iterators, &mut told)?;
            end.walking = self.walking.as_ref().map(|(process, _)| *process);
            told.begun += placement.jobs.len() as u64;
            if let Some(job) = &placement.policies {
                end.policies_used = self.read_policies(job, &mut told)?;
                told.begun += 1;
            }
        }
        if let Some(about) = &turn.about {
            end.about = Some((about.asked, self.read_about(about, &mut told)?));
            told.begun += about.lists.iter().map(Vec::len).sum::<usize>() as u64;
        }
        if let Some(pages) = &turn.pages {
            self.look_up(pages, &mut told)?;
        }
        told.answer.end = Some(end);
        told.flush()
    }

    fn place(
        &mut self,
        turn: &PlacementTurn,
        iterators: Vec<File>,
        told: &mut Told<'_>,
    ) -> io::Result<Duration> {
        let processes = turn.iterators.iter().map(|(process, _)| *process);
        let iterators: HashMap<ProcessId, File> = processes.zip(iterators).collect();
        let began = Instant::now();
        let deadline = began + turn.budget;
        // A process that is not requested again has ended, or is large and was not worth it.
        self.walking.take_if(|(process, _)| !turn.jobs.iter().any(|job| job.process == *process));
        for (at, job) in turn.jobs.iter().enumerate() {
            if Instant::now() + DRAW > deadline {
                break;
            }
            told.begin(job, at)?;
            if let Some(placed) = self.look(job, deadline, iterators.get(&job.process)) {
                told.bytes += placed.bytes();
                told.answer.placed.push(placed);
            }
        }
        Ok(began.elapsed())
    }

    fn read_policies(&self, job: &Job, told: &mut Told<'_>) -> io::Result<Duration> {
        let began = Instant::now();
        // It may take long: known results do not wait.
        told.flush()?;
        told.begin(job, 0)?;
        let found = policies::read(&self.root, job.process);
        told.bytes += 300;
        told.answer.policies.push((job.process, mono_ns(), found));
        Ok(began.elapsed())
    }

    /// Continues with a process until its placement is known, or the time is over (`None`). Its policies are
    /// read from `iterator`.
    fn look(&mut self, job: &Job, deadline: Instant, iterator: Option<&File>) -> Option<Placed> {
        let nothing = |missing| Placed {
            process: job.process,
            read_ns: mono_ns(),
            found: Err(missing),
            by_policy: None,
        };
        let mut walk = match self.walking.take_if(|(process, _)| *process == job.process) {
            Some((_, walk)) => walk,
            None => {
                let opened = Walk::open(&self.root, job.process, job.rss_bytes, self.page_size, self.scans);
                match opened {
                    Ok(walk) => walk,
                    Err(missing) => return Some(nothing(missing)),
                }
            }
        };
        let read = walk.step(Some(deadline));
        self.scans = walk.scans();
        match read {
            Ok(false) => {
                self.walking = Some((job.process, walk));
                None
            }
            Ok(true) => Some(self.draw(job, &walk, iterator)),
            Err(missing) => Some(nothing(missing)),
        }
    }

    /// Where pages of a process are, and by which policies: these are read first, so that both are of the same moment.
    fn draw(&mut self, job: &Job, walk: &Walk, iterator: Option<&File>) -> Placed {
        let mappings = iterator.map(|rows| {
            let read = Mappings::read(rows, self.page_size);
            read.map_err(|error| reason("reading memory policies of the mappings", &error))
        });
        let mut counted = match &mappings {
            Some(Ok(mappings)) => Some(Counted::new(mappings)),
            _ => None,
        };
        let found = walk.draw(&mut self.random, self.page_size, |page, node| {
            if let Some(counted) = &mut counted {
                counted.add(page, node);
            }
        });
        let read_ns = mono_ns();
        let counted = counted.filter(|_| found.is_ok()).map(|counted| Ok(counted.finish(read_ns)));
        let failed = mappings.and_then(Result::err).map(Err);
        Placed {
            process: job.process,
            read_ns,
            found: found.map(|found| found.to_raw(self.page_size)),
            by_policy: counted.or(failed),
        }
    }

    fn look_up(&mut self, turn: &PagesTurn, told: &mut Told<'_>) -> io::Result<()> {
        let deadline = Instant::now() + turn.budget;
        for (at, (job, pages)) in turn.jobs.iter().zip(&turn.pages).enumerate() {
            if Instant::now() > deadline {
                break;
            }
            told.begin(job, at)?;
            let placed = lookup::places(&self.root, job.process, pages, self.page_size);
            told.bytes += placed.as_ref().map_or(200, lookup::bytes);
            told.answer.pages.push((job.process, placed));
        }
        Ok(())
    }

    /// Gives the new debts.
    fn read_about(&mut self, turn: &AboutTurn, told: &mut Told<'_>) -> io::Result<[Duration; 2]> {
        let [first, others] = &turn.lists;
        let used = self.spend(turn, first, turn.for_first, turn.debts[0], told)?;
        let debt = used.saturating_sub(turn.for_first);
        told.begun += first.len() as u64;
        let for_others = turn.for_all.saturating_sub(used.min(turn.for_first));
        let used = self.spend(turn, others, for_others, turn.debts[1], told)?;
        Ok([debt, used.saturating_sub(for_others)])
    }

    /// Reads about `jobs` until `budget` is used, `debt` included; returns the time used now.
    fn spend(
        &mut self,
        turn: &AboutTurn,
        jobs: &[Job],
        budget: Duration,
        debt: Duration,
        told: &mut Told<'_>,
    ) -> io::Result<Duration> {
        let began = Instant::now();
        for (at, job) in jobs.iter().enumerate() {
            if debt + began.elapsed() >= budget {
                break;
            }
            told.begin(job, at)?;
            let about = proc_fields::read(&self.root, turn.asked, job.process);
            told.bytes += bytes(&about);
            told.answer.abouts.push((job.process, about));
        }
        Ok(debt + began.elapsed())
    }
}

/// The longest answer: a character may be written as two.
fn bytes(about: &Reading<ProcFields>) -> usize {
    let reading = |text: &Reading<String>| text.as_ref().map_or(200, String::len) * 2 + 50;
    let texts = about.as_ref().ok().and_then(|about| about.texts.as_ref().ok());
    200 + texts.map_or(200, |texts| {
        [&texts.cmdline, &texts.cpus_allowed, &texts.mems_allowed].into_iter().map(reading).sum::<usize>()
    })
}
