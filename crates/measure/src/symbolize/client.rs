//! The client of the symbolizer: questions, each about an open file, their answers, and the files that the symbolizer does
//! not answer for.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::child;
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

/// Places in one question. Their names fit one packet, whatever is in them.
pub const PLACES_MAX: usize = 32;

/// A question about the file that comes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The build id of an ELF file and where its split symbols are.
    Identify,
    /// The functions at these offsets into an ELF file.
    Offsets(Vec<u64>),
    /// The functions at these addresses, as the symbols of an ELF file have them.
    Addresses(Vec<u64>),
    /// The functions at these addresses of the process that wrote this perf map.
    PerfMap(Vec<u64>),
    /// The functions at these addresses of the kernel; the file is `/proc/kallsyms`.
    Kernel(Vec<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// `None`: no 64-bit ELF file of this machine's byte order with a build id.
    Identity(Option<Identity>),
    /// One for each place of the question, in its order.
    Found(Vec<Found>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Shorter ids are filled with zeros.
    pub build_id: [u8; 20],
    /// The name in `.gnu_debuglink`.
    pub link: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Clean, and not longer than a line.
    pub name: Option<String>,
    /// The module of a kernel function, or the reason for which one of a file has no name; clean.
    pub module: Option<String>,
    /// The address that symbols have for an offset into an ELF file.
    pub address: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::program::helper::{receive, send};

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    #[test]
    fn a_question_arrives_with_its_file() {
        let (ours, theirs) = pair();
        let question = Question::Offsets(vec![1, u64::MAX]);
        let file = File::open("/proc/self/exe").unwrap();
        send(&ours, &question, &[file.as_fd()]).unwrap();
        let (arrived, files) = receive::<Question>(&theirs).unwrap().unwrap();
        assert_eq!(arrived, question);
        let mut magic = [0; 4];
        (&files[0]).read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF");
        drop(ours);
        assert_eq!(receive::<Question>(&theirs).unwrap().map(|(question, _)| question), None);
    }

    #[test]
    fn the_longest_answer_fits_a_packet() {
        let (ours, theirs) = pair();
        let longest = "\\".repeat(super::super::NAME_MAX);
        let found = Found { name: Some(longest.clone()), module: Some(longest), address: Some(u64::MAX) };
        let answer = Answer::Found(vec![found; PLACES_MAX]);
        send(&ours, &answer, &[]).unwrap();
        assert_eq!(receive::<Answer>(&theirs).unwrap().unwrap().0, answer);
    }
}
