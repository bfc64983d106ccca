//! One process in the detail view: a separate thread asks about it and may wait for an answer.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use serde::de::DeserializeOwned;

use super::child;
use super::wire::Question;
use crate::collect::mappings::{Mappings, walk_ns};
use crate::collect::proc_details;
use crate::host::processes;
use crate::model::process::Details;
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::program::helper::{Failure, HelperProcess};

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
        let file = made.map(File::from).map_err(|error| format!("making a file for the answer: {error}"))?;
        let length: u64 =
            self.process.ask_within(question, Some(&file), most).map_err(|failure| match failure {
                Failure::Slow => {
                    format!(
                        "its address space is locked or very large: no answer within {} s",
                        most.as_secs()
                    )
                }
                Failure::Died => {
                    "the numatop-ng helper that reads this process's memory map has ended".into()
                }
                Failure::NotStarted | Failure::GivenUp => {
                    "the helper that reads it could not start, or waits for locked address spaces".into()
                }
            })?;
        let mut bytes = Vec::new();
        // The reader wrote at the beginning, and moved nothing.
        (&file)
            .take(length)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("reading the answer: {error}"))?;
        serde_json::from_slice(&bytes).map_err(|error| format!("reading the answer: {error}"))
    }
}
