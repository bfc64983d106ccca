//! Jobs of the process that measures, and its answers: a line of JSON each.

use serde::{Deserialize, Serialize};

use crate::known::asm::Work;
use crate::known::chase::Round;
use crate::known::counted::Load;
use crate::known::step::{Step, Truth};
use crate::known::stream::Stream;
use crate::model::event::Event;

/// The memory of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Walk {
    /// Walked in groups of huge pages, flushed before each pass.
    Flushed,
    /// Larger than the caches, not flushed.
    Evicted,
    /// Small pages, walked over everything at random.
    SmallPages,
    /// Huge pages, walked over as much memory in groups.
    HugePages,
}

/// Loads on two threads of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmtLoad {
    /// Additions that wait for each other.
    Waiting,
    /// Independent additions.
    Additions,
    /// Jumps that no predictor knows.
    Branches,
    /// Loads that wait for each other.
    Memory,
}

impl SmtLoad {
    /// All of them.
    pub const ALL: [SmtLoad; 4] = [SmtLoad::Waiting, SmtLoad::Additions, SmtLoad::Branches, SmtLoad::Memory];

    /// Its loop in registers; `None` for the walk.
    pub fn work(self) -> Option<Work> {
        match self {
            SmtLoad::Waiting => Some(Work::Additions),
            SmtLoad::Additions => Some(Work::Independent),
            SmtLoad::Branches => Some(Work::Coin),
            SmtLoad::Memory => None,
        }
    }
}

/// Limits of the memory that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of a cache line.
    pub line_bytes: u32,
    /// Free memory of a node that has to stay, in bytes.
    pub keep_bytes: u64,
}

/// A load that is counted by the thread that does it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// The event.
    pub event: Event,
    /// The event that it is a share of.
    pub whole: Option<Event>,
    pub load: Load,
    pub cpu: u32,
    /// The node of its memory, and the CPU that touches it.
    pub node: u32,
    pub touched_by: u32,
    /// A CPU of another node that writes its lines.
    pub writer: Option<u32>,
    /// Repeats of both lengths, in turns.
    pub repeats: u32,
    /// Counts all of the job, user and kernel, in one counter, and nothing else.
    pub all: bool,
    pub limits: Limits,
}

/// Counts of a load. Each is the difference of a run of twice the length and a run of the length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// The difference of the two lengths: rounds of a loop, loads of a walk.
    pub amount: u64,
    /// In user space, and in the kernel, of each repeat.
    pub user: Vec<i64>,
    pub kernel: Vec<i64>,
    /// The whole that contains this share, in user space.
    pub whole: Vec<i64>,
    /// The least part of the time in which the counters counted, 0..=1.
    pub running: f64,
    /// The part of the memory on its node, 0..=1; 1 where none matters.
    pub on_node: f64,
    /// All of the job, where that was asked for.
    pub all: Option<u64>,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Memory for a walk on `node`, touched from `cpu`; the walk goes through its lines in `orders` orders.
    /// Answered by [`Answer::Memory`].
    Walk { walk: Walk, node: u32, bytes: u64, cpu: u32, orders: u32, limits: Limits },
    /// Memory for streams on `node`, touched from `cpu`. Answered by [`Answer::Memory`].
    Streams { node: u32, bytes: u64, cpu: u32, limits: Limits },
    /// Gives all memory of walks of this kind, or of streams, back.
    Forget { walk: Option<Walk> },
    /// Spins on a CPU for this time.
    Warm { cpu: u32, ms: u32 },
    /// Walks from `cpu`, while `awake` spins and `traffic` reads memory of streams on `traffic_node`. Answered by
    /// [`Answer::Round`].
    Latency {
        walk: Walk,
        node: u32,
        cpu: u32,
        ms: u32,
        awake: Option<u32>,
        traffic: Vec<u32>,
        traffic_node: u32,
    },
    /// Streams memory of `node` from `cpus`. Answered by [`Answer::Speeds`].
    Bandwidth { kind: Stream, node: u32, cpus: Vec<u32>, windows: u32, ms: u32 },
    /// Sends a line between two CPUs. Answered by [`Answer::Times`].
    Line { first: u32, second: u32, two_lines: bool, ms: u32 },
    /// Latency of each huge page of `bytes` of memory of `node`. Answered by [`Answer::Times`].
    EachPage { node: u32, bytes: u64, cpu: u32, limits: Limits },
    /// Rates of a load on `cpus` at the same time, with `bytes` of memory of `node` for each. Answered by [`Answer::Rates`].
    Rates { load: SmtLoad, cpus: Vec<u32>, node: u32, bytes: u64, ms: u32, limits: Limits },
    /// Counts a load with an event. Answered by [`Answer::Counted`].
    Count(Box<Count>),
    /// Does something that the kernel counts. Answered by [`Answer::Did`].
    Do(Step),
}

/// The answer to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// Memory is allocated.
    Memory { huge_share: Option<f64>, on_node: f64 },
    /// A round of a walk; the part of its pages that were on their node before and after, the lesser; GB/s of the traffic.
    Round { round: Round, on_node: f64, traffic_gbs: f64 },
    /// GB/s of each window; as above.
    Speeds { gbs: Vec<f64>, on_node: f64 },
    /// ns of each sample.
    Times { ns: Vec<f64> },
    /// Rounds per µs of each CPU.
    Rates { rates: Vec<f64> },
    /// It was counted.
    Counted(Counts),
    /// It was done, and came to this.
    Did(Truth),
    /// It could not be done, in words.
    Failed { why: String },
}
