//! The file of results: one JSON line per event, each with the guest it came from.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vmtests_protocol::Event;

use crate::plan::Job;

/// The guest that a line is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GuestId {
    pub arch: String,
    pub kernel: String,
    pub topology: String,
    pub variant: String,
}

impl GuestId {
    pub fn of(job: &Job) -> Self {
        GuestId {
            arch: job.kernel.arch.debian().to_owned(),
            kernel: job.kernel.name.clone(),
            topology: job.topology.name.clone(),
            variant: job.variant.name().to_owned(),
        }
    }
}

impl std::fmt::Display for GuestId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {}, topology {}", self.kernel, self.arch, self.topology)?;
        if self.variant == "plain" { Ok(()) } else { write!(f, ", {}", self.variant) }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    pub guest: GuestId,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum What {
    Event(Event),
    Guest(GuestEnd),
}

/// The end of a guest as a whole.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct GuestEnd {
    pub package: Option<String>,
    pub seconds: f64,
    /// Boots that died before their ready line and were tried again.
    pub retries: u32,
    /// Why there is no verdict: the kernel or the binaries could not be had.
    pub not_covered: Option<String>,
    /// Why the guest failed apart from its cases: died, deadline, noise.
    pub failed: Option<String>,
}

impl GuestEnd {
    /// A guest that was not started.
    pub fn not_covered(why: String) -> Self {
        GuestEnd { not_covered: Some(why), ..GuestEnd::default() }
    }
}

/// Where lines go; nowhere when no file was asked for.
pub struct Record(Option<File>);

impl Record {
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let open = |path: &Path| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|error| format!("opening {}: {error}", path.display()))
        };
        Ok(Record(path.map(open).transpose()?))
    }

    pub fn add(&mut self, guest: &GuestId, what: What) -> Result<(), String> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let line = Line { guest: guest.clone(), what };
        let text = serde_json::to_string(&line).map_err(|error| format!("writing a result: {error}"))?;
        writeln!(file, "{text}").map_err(|error| format!("writing a result: {error}"))
    }
}

/// Reads a file of results.
pub fn read(text: &str) -> Result<Vec<Line>, String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtests_protocol::Outcome;

    #[test]
    fn lines_come_back_as_they_went() {
        let guest = GuestId {
            arch: "arm64".into(),
            kernel: "6.12".into(),
            topology: "2".into(),
            variant: "plain".into(),
        };
        let end = Event::End { case: "nodes".into(), outcome: Outcome::Passed, reason: None, seconds: 0.25 };
        let line = Line { guest: guest.clone(), what: What::Event(end.clone()) };
        let lines = read(&serde_json::to_string(&line).unwrap()).unwrap();
        assert_eq!(lines[0].guest, guest);
        assert!(matches!(&lines[0].what, What::Event(event) if *event == end));
        assert!(read("{}").unwrap_err().starts_with("line 1"));
    }
}
