//! Questions to the reader of other address spaces, and its answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::collect::mappings::walk_ns;
use crate::model::process::ProcessId;
use crate::model::process::{Asked, ProcFields};
use crate::model::sample::{Missing, PagesByPolicy, PagesFound, PolicyBytes, Reading};

/// Processes in one list of a question: three lists fit one packet.
pub const JOBS_MAX: usize = 768;

/// A process to read about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub process: ProcessId,
    /// The user it runs as: for the one who asks.
    #[serde(skip)]
    pub uid: u32,
    pub rss_bytes: u64,
    /// Another process of its user was locked: all known results are sent before this one is touched.
    pub careful: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// Readings of many processes, in this order. Answered by [`Answer`]s; the last one has an end.
    Turn(Box<Turn>),
    /// All about one process. Answered by its length: the answer itself is written to the file that comes with this.
    Inspect(ProcessId),
    /// Its mappings, with every page counted or from a sample; answered in the same way.
    Map { process: ProcessId, rss_bytes: u64, exact: bool },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub placement: Option<PlacementTurn>,
    pub about: Option<AboutTurn>,
    /// Asked of a reader that has no other part: three lists fill a packet.
    pub pages: Option<PagesTurn>,
}

/// Mappings and nodes of pages, see [`crate::collect::access::lookup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PagesTurn {
    pub jobs: Vec<Job>,
    /// Page numbers of each job, ascending.
    pub pages: Vec<Vec<u64>>,
    pub budget: Duration,
}

/// The answer about pages of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PagesPlaced {
    /// First address, size in bytes, and name of mappings.
    pub mappings: Vec<(u64, u64, String)>,
    /// By page asked for: index of its mapping, and its node; negative where it has none.
    pub pages: Vec<(i32, i32)>,
    /// Why nodes are not known, if so.
    pub no_nodes: Option<Missing>,
}

/// Where memory is, within a budget of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementTurn {
    pub jobs: Vec<Job>,
    pub budget: Duration,
    /// Processes that come with an iterator over their mappings, and the thread by which it is made. The
    /// descriptors of iterators follow that of the mark, in this order.
    pub iterators: Vec<(ProcessId, u32)>,
    /// A process whose memory policies are read from numa_maps, too, whatever that takes.
    pub policies: Option<Job>,
}

/// See [`crate::collect::proc_fields`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AboutTurn {
    pub asked: Asked,
    /// Processes in focus, and the others.
    pub lists: [Vec<Job>; 2],
    /// The room of the first list, and of both together.
    pub for_first: Duration,
    pub for_all: Duration,
    /// The debt of each.
    pub debts: [Duration; 2],
}

impl Turn {
    /// Every process, in the order in which they are read about.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        let placement = self.placement.iter().flat_map(|turn| turn.jobs.iter().chain(&turn.policies));
        let pages = self.pages.iter().flat_map(|turn| &turn.jobs);
        placement.chain(self.about.iter().flat_map(|turn| turn.lists.iter().flatten())).chain(pages)
    }

    /// Time it may take.
    pub fn budget(&self) -> Duration {
        let placement = self.placement.as_ref().map_or(Duration::ZERO, |turn| {
            let walk_ns = turn.policies.map_or(0, |job| walk_ns(job.rss_bytes));
            turn.budget + Duration::from_nanos(walk_ns)
        });
        let pages = self.pages.as_ref().map_or(Duration::ZERO, |turn| turn.budget);
        placement + pages + self.about.as_ref().map_or(Duration::ZERO, |turn| turn.for_all)
    }
}

/// Readings since the answer before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub placed: Vec<Placed>,
    /// Each with CLOCK_MONOTONIC when it was read.
    pub policies: Vec<(ProcessId, u64, Reading<PolicyBytes>)>,
    pub abouts: Vec<(ProcessId, Reading<ProcFields>)>,
    pub pages: Vec<(ProcessId, Reading<PagesPlaced>)>,
    pub end: Option<End>,
}

/// Where the memory of a process is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub process: ProcessId,
    /// CLOCK_MONOTONIC when it was looked at.
    pub read_ns: u64,
    pub found: Reading<PagesFound>,
    /// The same pages by policy, where the process came with an iterator.
    pub by_policy: Option<Reading<PagesByPolicy>>,
}

impl Placed {
    /// Its maximum size in a packet, in bytes.
    pub fn bytes(&self) -> usize {
        let nodes = self.found.as_ref().map_or(0, |found| found.by_node.len());
        let by_policy = self.by_policy.as_ref().and_then(|pages| pages.as_ref().ok());
        200 + nodes * 8
            + by_policy.map_or(200, |pages| 400 + nodes * 32 + pages.objects.len() * (300 + nodes * 8))
    }
}

/// Nothing more comes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The cost of [`PlacementTurn`].
    pub placement_used: Duration,
    /// The cost of reading policies.
    pub policies_used: Duration,
    /// A process whose mappings are not all read: the next turn continues with it.
    pub walking: Option<ProcessId>,
    /// The answers to [`AboutTurn`], and its new debts.
    pub about: Option<(Asked, [Duration; 2])>,
}
