//! Names of places in stacks.
//!
//! Files that say them belong to the users who are watched. So they are opened with care (`open.rs`) by a process of its
//! own, which is left behind when a filesystem does not answer (`namer.rs`), and read by another, which has no rights and
//! may end at any time (`child.rs`): a hostile file costs the names in it. A thread that neither samples nor the screen
//! wait for asks the first, which asks the second.

mod allotment;
pub mod child;
mod client;
mod confine;
pub mod demangle;
pub mod elf;
mod ledger;
pub mod listing;
pub mod namer;
mod names;
mod objects;
mod open;
pub mod process;
mod queue;
pub mod sections;
mod split;
pub mod table;
pub mod wire;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use self::allotment::Allotment;
use self::ledger::{DEATH, Ledger};
use self::names::Answers;
use self::queue::{Queue, Turn};
use crate::model::process::ProcessId;
use crate::model::stacks::{Function, Place};
use crate::program::helper::{Failure, HelperProcess};

/// Places that are remembered as asked for; then all may be asked for again.
const ASKED_MAX: usize = 100_000;
/// Bytes of a name; C++ has some of many thousand.
pub const NAME_MAX: usize = 400;
/// The period after which a user who has used up the time for names has a turn again.
const AGAIN: Duration = Duration::from_millis(100);

/// A place, and the process it was seen in.
type Question = (Place, ProcessId);

/// Questions to the thread that knows names.
struct Asked {
    questions: Vec<Question>,
    /// Names that were found before may have been forgotten, and do not count any more.
    anew: bool,
}

/// Answers of that thread.
struct Named {
    names: Vec<(Place, Arc<Function>)>,
    /// Places that are worth asking for once more.
    again: Vec<Place>,
}

/// Asks the thread that knows names. Dropped, it ends the thread.
pub struct Namer {
    questions: Sender<Asked>,
    answers: Receiver<Named>,
    asked: HashSet<Place>,
    /// Places that have no answer yet.
    open: usize,
}

impl Namer {
    /// Starts the thread. `program` is numatop-ng itself, which it starts as its symbolizer.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(program: PathBuf) -> io::Result<Namer> {
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        thread::Builder::new().name("symbols".into()).spawn(move || work(program, &asked, &sender))?;
        Ok(Namer { questions, answers, asked: HashSet::new(), open: 0 })
    }

    /// Asks for the names of places that were not asked for before.
    pub fn ask(&mut self, places: impl Iterator<Item = Question>) {
        let anew = self.asked.len() > ASKED_MAX;
        if anew {
            self.asked.clear();
        }
        let questions: Vec<Question> = places.filter(|(place, _)| self.asked.insert(*place)).collect();
        let count = questions.len();
        if (count > 0 || anew) && self.questions.send(Asked { questions, anew }).is_ok() {
            self.open += count;
        }
    }

    /// The names that are known by now; waits up to `patience` for those that are not.
    pub fn answers(&mut self, patience: Duration) -> Vec<(Place, Arc<Function>)> {
        let until = Instant::now() + patience;
        let mut names = Vec::new();
        while self.open > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(more) = self.answers.recv_timeout(left) else { break };
            self.open = self.open.saturating_sub(more.names.len());
            names.extend(more.names);
            for place in more.again {
                self.asked.remove(&place);
            }
        }
        names
    }
}

/// A batch of places that takes longer has no names: a file takes two seconds at most, so this is one that cannot be opened.
const BATCH_MAX: Duration = Duration::from_secs(5);
/// Processes that wait for files which do not answer: a user has two of them at most (`symbolize/ledger.rs`), so that it
/// takes many users before no names are looked for.
const LEFT_BEHIND_MAX: usize = 16;
/// Processes whose files did not answer that are remembered.
const HUNG_MAX: usize = 4096;

/// Answers questions until no more can come.
fn work(program: PathBuf, asked: &Receiver<Asked>, answers: &Sender<Named>) {
    let mut namer = HelperProcess::new(program, namer::NAME, BATCH_MAX).with_left_behind_max(LEFT_BEHIND_MAX);
    let mut ledger = Ledger::default();
    let mut queue = Queue::default();
    let mut allotment = Allotment::default();
    let mut hung: HashSet<ProcessId> = HashSet::new();
    loop {
        // Requests that came meanwhile are in the queue before a turn is given.
        let more = match queue.turn(&ledger, Instant::now()) {
            Turn::Empty => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Turn::Later => asked.recv_timeout(AGAIN),
            Turn::Now => asked.recv_timeout(Duration::ZERO),
        };
        match more {
            Ok(Asked { questions, anew }) => {
                if anew {
                    allotment = Allotment::default();
                }
                let refused = queue.add(questions);
                if !refused.is_empty() && answers.send(Named { names: refused, again: Vec::new() }).is_err() {
                    return;
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(batch) = queue.next(&ledger, Instant::now()) else { continue };
        let began = Instant::now();
        let is_hung =
            batch.process.is_some_and(|process| hung.contains(&process) || ledger.is_given_up(batch.owner));
        let told = if is_hung { Err(Failure::GivenUp) } else { namer.ask::<Answers>(&batch, None) };
        let found = told.unwrap_or_else(|failure| {
            if failure == Failure::Slow
                && let Some(process) = batch.process
            {
                if hung.len() >= HUNG_MAX {
                    hung.clear();
                }
                hung.insert(process);
                ledger.hung(batch.owner);
            }
            Answers::without(&batch.places, "[files of the process]", failure)
        });
        let took = began.elapsed() + if found.died { DEATH } else { Duration::ZERO };
        ledger.charge(batch.owner, took, Instant::now());
        let share = |(place, function)| (place, allotment.share(batch.owner, function));
        let named = Named { names: found.names.into_iter().map(share).collect(), again: found.again };
        if answers.send(named).is_err() {
            return;
        }
    }
}
