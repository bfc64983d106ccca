//! The report of a recording: from intervals to a model, and from that to a page, JSON or text. Pure.
//!
//! A recording is read once (`fold.rs`), into sums by bucket of time, by row and by pair of nodes. Every
//! value shown is a quotient of two such sums. So a report of a part equals that part of a report.

pub mod clock;
pub mod fold;
pub mod gaps;
pub mod hot_spots;
pub mod json;
pub mod lanes;
pub mod matrix;
pub mod page;
pub mod picture;
pub mod programs;
pub mod shell;
pub mod text;
pub mod track;
pub mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use gaps::Missing;
use hot_spots::Hot;
use lanes::{Id, Lane};
use matrix::Matrices;
use programs::Table;
use regex_lite::Regex;

use self::track::Grid;
use crate::finding::verdict::Verdict;
use crate::finding::{Blind, Finding};
use crate::model::sample::HostFacts;
use crate::text::one_line;

/// Rows of programs, and points of a line, where nothing else is asked for.
pub const TOP: u32 = 20;
pub const POINTS: u32 = 1440;

/// Choices of a report.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows of programs, and of containers.
    pub top: usize,
    /// Buckets at most, above 0.
    pub points: usize,
    /// Names of programs that have rows of their own, as they are before words are put in their place.
    pub comm: Option<Regex>,
    /// The first line, in place of host and day.
    pub title: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { top: TOP as usize, points: POINTS as usize, comm: None, title: None }
    }
}

/// The machine of a report. Texts are clean.
#[derive(Clone, Debug)]
pub struct About {
    pub hostname: String,
    pub kernel: String,
    pub cpu_model: String,
    /// Empty when everything was watched.
    pub scope: String,
    pub host: Arc<HostFacts>,
    /// Times that the machine was started in the recording, 1 or more.
    pub boots: usize,
    /// Times that its nodes, CPUs or devices changed.
    pub changes: usize,
}

impl About {
    fn of(host: &Arc<HostFacts>) -> About {
        About {
            hostname: one_line(&host.hostname),
            kernel: one_line(&host.kernel),
            cpu_model: one_line(&host.cpu_model),
            scope: one_line(&host.scope),
            host: Arc::clone(host),
            boots: 1,
            changes: 0,
        }
    }
}

/// Everything that a report shows.
#[derive(Debug)]
pub struct Report {
    pub title: Option<String>,
    pub about: About,
    /// The beginning of the first interval and the end of the last, ns since 1970.
    pub span: (i64, i64),
    pub intervals: usize,
    /// Time of all intervals, ns.
    pub total_ns: f64,
    /// The mean length of an interval without a hole, ns; 0 if none exists.
    pub interval_ns: f64,
    pub grid: Grid,
    /// Time of intervals in each bucket, ns.
    pub time_ns: Vec<f64>,
    /// The time axis of sums of rows: whole numbers of buckets.
    pub parts: Grid,
    /// Buckets in which samples are missing.
    pub gaps: Vec<bool>,
    pub lanes: Vec<Lane>,
    /// Node ids, ascending.
    pub nodes: Vec<u32>,
    pub matrices: Matrices,
    pub programs: Table,
    pub containers: Table,
    /// See [`fold`]: causes before symptoms, the gravest first.
    pub findings: Vec<Finding>,
    /// The verdict at the end.
    pub verdict: Verdict,
    pub blind: Vec<Blind>,
    pub hot: Option<Hot>,
    pub missing: Missing,
    /// Busy time of CPUs, ns, and the time that they were online, by id.
    pub cpus: BTreeMap<u32, (f64, f64)>,
    /// Total and free memory at the end, bytes, by node id.
    pub memory: BTreeMap<u32, (u64, u64)>,
    /// CPU time of the recorder, ns, and its memory at most, bytes.
    pub own_ns: f64,
    pub own_rss: u64,
}

impl Report {
    /// A lane of the timeline.
    pub fn lane(&self, id: Id) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.id == id)
    }

    /// The machine has several nodes.
    pub fn has_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// CPU time of a row as a number of CPUs.
    pub fn cpus_of(&self, run_ns: f64) -> f64 {
        run_ns / self.total_ns.max(1.0)
    }
}
