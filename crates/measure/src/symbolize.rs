//! Names of places in stacks.
//!
//! The files with names belong to the users who are watched. So a separate process opens them with care
//! (`open.rs`); it is left behind if a filesystem does not answer (`namer.rs`). Another process, without any
//! rights, reads them and may end at any time (`child.rs`): a hostile file costs only its own names. A thread
//! that blocks neither sampling nor the screen asks the first, which asks the second.

pub mod child;
pub mod client;
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
pub mod table;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use self::ledger::{Allotment, DEATH, Ledger};
use self::names::{Answers, Said};
use self::open::Reach;
use self::queue::{Batch, Queue, Turn};
use crate::host::processes;
use crate::model::process::ProcessId;
use crate::model::stacks::{CodePlace, Function};
use crate::program::helper::{Failure, HelperProcess};

/// Places that are remembered as asked for; then all may be asked for again.
const ASKED_MAX: usize = 100_000;
/// Bytes of a name; C++ has some of many thousand.
pub const NAME_MAX: usize = 400;
/// Processes through which a place is asked for at the same time.
const PROCESSES_MAX: usize = 4;
/// The period after which a user who has used up the time for names has a turn again.
const AGAIN: Duration = Duration::from_millis(100);

/// A place, and the process it was sampled in.
type Question = (CodePlace, ProcessId);

/// Questions to the thread that knows names.
struct Asked {
    questions: Vec<Question>,
    /// Known names may have been forgotten, and are invalid.
    anew: bool,
}

/// Answers of that thread.
struct Named {
    names: Vec<(CodePlace, Arc<Function>)>,
    /// Places that are worth another question.
    again: Vec<CodePlace>,
}

/// Asks the thread that knows names. Dropped, it ends the thread.
pub struct Namer {
    questions: Sender<Asked>,
    answers: Receiver<Named>,
    asked: HashSet<CodePlace>,
    /// Places that have no answer yet, and the processes through which they were asked for.
    open: HashMap<CodePlace, Vec<ProcessId>>,
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
        Ok(Namer { questions, answers, asked: HashSet::new(), open: HashMap::new() })
    }

    /// Asks for the names of places that were not asked for yet. A place in a file without an answer is also
    /// asked for through other processes: the first may be of a user whose turn comes late.
    pub fn ask(&mut self, places: impl Iterator<Item = Question>) {
        let anew = self.asked.len() > ASKED_MAX;
        if anew {
            self.asked.clear();
        }
        let is_new = |(place, process): &Question| {
            let first = self.asked.insert(*place);
            let may_wait = first || matches!(place, CodePlace::File(..)) && self.open.contains_key(place);
            if !may_wait {
                return false;
            }
            let processes = self.open.entry(*place).or_default();
            let new = processes.len() < PROCESSES_MAX && !processes.contains(process);
            if new {
                processes.push(*process);
            }
            new
        };
        let questions: Vec<Question> = places.filter(is_new).collect();
        if !questions.is_empty() || anew {
            // It fails where that thread is gone: no answer is waited for then.
            let _ = self.questions.send(Asked { questions, anew });
        }
    }

    /// The names known by now; waits up to `patience` for the others.
    pub fn answers(&mut self, patience: Duration) -> Vec<(CodePlace, Arc<Function>)> {
        let until = Instant::now() + patience;
        let mut names = Vec::new();
        loop {
            // Better answers may come for places that have one.
            let left = match self.open.is_empty() {
                true => Duration::ZERO,
                false => until.saturating_duration_since(Instant::now()),
            };
            let Ok(more) = self.answers.recv_timeout(left) else { break };
            for (place, _) in &more.names {
                self.open.remove(place);
            }
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
/// The time that opening a file which others serve may take.
const OPENING_MAX: Duration = Duration::from_secs(1);
/// Processes that wait for files which do not answer. After the first number no file on a served filesystem
/// is opened; after the second no names are looked for, since files of local filesystems always answer.
const LEFT_SERVED_MAX: usize = 16;
const LEFT_BEHIND_MAX: usize = 24;
/// Processes whose files did not answer that are remembered.
const HUNG_MAX: usize = 4096;

/// The kernel's places are looked up for root, and so are files of its processes.
const ROOT: u32 = 0;

/// Asks about a batch. The error: the reason, and the device that did not answer.
fn ask(namer: &mut HelperProcess, batch: &Batch) -> Result<Answers, (Failure, Option<String>)> {
    namer.tell(batch, &[]).map_err(|failure| (failure, None))?;
    let (mut device, mut is_opening) = (None, false);
    loop {
        let most = if is_opening { OPENING_MAX } else { BATCH_MAX };
        match namer.next_within(most, None) {
            Ok(Said::Names(answers)) => return Ok(answers),
            Ok(Said::Opens(what)) => (device, is_opening) = (Some(what), true),
            Ok(Said::Opened) => is_opening = false,
            Err(failure) => return Err((failure, device)),
        }
    }
}

/// Answers questions until the input ends.
fn work(program: PathBuf, asked: &Receiver<Asked>, answers: &Sender<Named>) {
    let mut namer = HelperProcess::new(program, namer::NAME, BATCH_MAX)
        .with_left_behind_max(LEFT_BEHIND_MAX)
        .with_variable(processes::environment());
    let mut ledger = Ledger::default();
    let (mut queue, mut served) = (Queue::default(), Queue::default());
    let mut allotment = Allotment::default();
    let mut hung: HashSet<ProcessId> = HashSet::new();
    loop {
        // Requests that came meanwhile are in the queue before a turn is given.
        let now = Instant::now();
        let more = match (queue.turn(&ledger, now), served.turn(&ledger, now)) {
            (Turn::Empty, Turn::Empty) => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (Turn::Now, _) | (_, Turn::Now) => asked.recv_timeout(Duration::ZERO),
            _ => asked.recv_timeout(AGAIN),
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
        let now = Instant::now();
        let (mut batch, is_served) = match queue.next(&ledger, now) {
            Some(batch) => (batch, false),
            None => match served.next(&ledger, now) {
                Some(batch) => (batch, true),
                None => continue,
            },
        };
        namer.reap();
        let may_wait = namer.left_behind(None) < LEFT_SERVED_MAX && ledger.may_have_served(batch.owner);
        batch.reach =
            Reach { served: is_served, paths: may_wait || batch.owner == ROOT, refused: ledger.refused() };
        let began = Instant::now();
        let is_hung = is_served && !may_wait
            || batch
                .process
                .is_some_and(|process| hung.contains(&process) || ledger.is_given_up(batch.owner));
        let told = if is_hung { Err((Failure::GivenUp, None)) } else { ask(&mut namer, &batch) };
        let mut found = told.unwrap_or_else(|(failure, device)| {
            match (failure, device, batch.process) {
                (Failure::Slow, Some(device), _) => ledger.device_hung(batch.owner, device),
                (Failure::Slow, None, Some(process)) => {
                    if hung.len() >= HUNG_MAX {
                        hung.clear();
                    }
                    hung.insert(process);
                    ledger.hung(batch.owner);
                }
                _ => {}
            }
            Answers::without(&batch.places, "[files of the process]", failure)
        });
        if let Some(process) = batch.process {
            served.add_later(batch.owner, process, std::mem::take(&mut found.later));
        }
        let took = began.elapsed() + if found.died { DEATH } else { Duration::ZERO };
        ledger.charge(batch.owner, took, Instant::now());
        for (place, _) in found.names.iter().filter(|(_, function)| function.name.is_some()) {
            queue.answered(*place);
            served.answered(*place);
        }
        let share = |(place, function)| (place, allotment.share(batch.owner, function));
        let named = Named { names: found.names.into_iter().map(share).collect(), again: found.again };
        if named.names.is_empty() && named.again.is_empty() {
            continue;
        }
        if answers.send(named).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::BuildId;

    #[test]
    fn a_place_without_an_answer_is_asked_for_through_other_processes() {
        let ((questions, asked), (sender, answers)) = (channel(), channel());
        let mut namer = Namer { questions, answers, asked: HashSet::new(), open: HashMap::new() };
        let place = CodePlace::File(BuildId([7; 20]), 64);
        for pid in [1, 1, 2, 3, 4, 5, 6] {
            namer.ask([(place, (pid, 1)), (CodePlace::Kernel(1), (pid, 1))].into_iter());
        }
        let through = |asked: &Receiver<Asked>| -> Vec<u32> {
            let questions = asked.try_iter().flat_map(|asked| asked.questions);
            questions.filter(|question| question.0 == place).map(|question| question.1.0).collect()
        };
        assert_eq!(through(&asked), [1, 2, 3, 4]);
        let function = Arc::new(Function { name: None, module: "a".into(), kernel: false });
        sender.send(Named { names: vec![(place, function)], again: Vec::new() }).unwrap();
        assert_eq!(namer.answers(Duration::ZERO).len(), 1);
        namer.ask([(place, (7, 1))].into_iter());
        assert!(through(&asked).is_empty(), "it has its answer");
    }
}
