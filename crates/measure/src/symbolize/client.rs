//! The client of the symbolizer, and the files that the symbolizer does not answer for.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use super::child;
use super::wire::{Answer, Question};
use crate::program::helper::{Failure, HelperProcess};

/// The time limit of an answer: a file of half a gigabyte takes a tenth of this, unless it comes from a slow
/// disk.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Failures after which a file is not read again.
const FAILURES_MAX: u32 = 3;
/// Files of one device that may take too long; after that none of its files is read.
const OF_A_DEVICE_MAX: u32 = 2;
/// Symbolizers that wait for files, after which none is asked about files that others serve; and after which none is asked.
const LEFT_SERVED_MAX: usize = 8;
const LEFT_MAX: usize = 12;
/// Files whose failures are remembered.
const FILES_MAX: usize = 65_536;

/// The symbolizer, started when it is first asked. Dropped, it is ended.
pub(super) struct Client {
    process: HelperProcess,
    /// Files without an answer, by device and inode, and how often.
    failures: HashMap<(u64, u64), u32>,
    /// Times that files of a device took too long.
    slow: HashMap<u64, u32>,
}

impl Client {
    /// `program` is numatop-ng itself.
    pub(super) fn new(program: PathBuf) -> Client {
        let process = HelperProcess::new(program, child::NAME, ANSWER_MAX).with_left_behind_max(LEFT_MAX);
        Client { process, failures: HashMap::new(), slow: HashMap::new() }
    }

    /// Asks about `file`, and waits for the answer. `served`: its filesystem answers when a server does.
    ///
    /// # Errors
    /// No answer. The symbolizer is restarted with the next question.
    pub(super) fn ask(&mut self, question: &Question, file: &File, served: bool) -> Result<Answer, Failure> {
        let meta = file.metadata().map_err(|_| Failure::Died)?;
        let key = (meta.dev(), meta.ino());
        if self.failures.get(&key).is_some_and(|failures| *failures >= FAILURES_MAX) {
            return Err(Failure::GivenUp);
        }
        if served {
            self.process.reap();
            let is_slow = self.slow.get(&key.0).is_some_and(|times| *times >= OF_A_DEVICE_MAX);
            if is_slow || self.process.left_behind(None) >= LEFT_SERVED_MAX {
                return Err(Failure::GivenUp);
            }
        }
        self.process.ask(question, Some(file)).inspect_err(|failure| {
            if *failure == Failure::Slow {
                if self.slow.len() >= FILES_MAX {
                    self.slow.clear();
                }
                *self.slow.entry(key.0).or_default() += 1;
            }
            if failure.may_pass() {
                if self.failures.len() >= FILES_MAX {
                    self.failures.clear();
                }
                *self.failures.entry(key).or_default() += 1;
            }
        })
    }
}
