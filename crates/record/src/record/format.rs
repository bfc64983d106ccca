//! Common parts of every recording: version, kinds of frames, the limits that readers keep, and the head that explains the rest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::payload::Delta;
use super::{columns, sections};
use crate::model::coded::varint::Malformed;
use crate::model::coded::{ENTRY, PER_BYTE, Room};
use crate::model::sample::{Counts, CpuRaw, HostFacts, NodeRaw, Sample, TaskRaw};
use crate::model::topology::{PLACES_MAX, Place};
use crate::model::units::NodeId;

pub use crate::model::coded::{MAX_FLOWS, MAX_NAMES, MAX_NODES, MAX_TEXT, TooLarge};

/// Version of the format. A reader opens every version up to its own. Columns and sections may be added
/// without a new version: readers skip unknown ones, and report missing ones.
pub const FORMAT: u16 = 1;

/// Samples from one keyframe to the next.
pub const KEY_EVERY: u32 = 60;

/// At this distance of samples, and at a keyframe, a delta needs only the keyframe. So it can be read however
/// much is lost before it.
pub const ANCHOR_EVERY: u32 = 30;

/// Bytes that are lost together: a block of a disk or of a file system.
pub const SECTOR: u64 = 4096;

/// Samples that the loss of any one sector costs at most.
pub const LOSS: u32 = 8;

/// Bytes of a frame with a sample at least, so that no sector has a part of more than [`LOSS`] of them.
pub const MIN_FRAME: usize = SECTOR as usize / (LOSS as usize - 1) + 1;

/// Minimum samples between a head or a keyframe and its copy: this many frames and one more may be lost in a
/// row.
pub const APART: u32 = 3;

/// Keyframes from one copy of the head to the next.
pub const HEAD_EVERY: u32 = 8;

/// Bytes of a frame's payload before compression and after it. 100,000 tasks need about 10 MB.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// Bytes of a payload that every frame may have.
const RAW_FREE: usize = 1 << 20;

/// Beyond that, for each byte in the file. Payloads of real machines become two to six times as long.
const RAW_PER_BYTE: usize = 64;

/// Bytes that `stored` bytes of a file may become when they are decompressed.
pub const fn raw_limit(stored: usize) -> usize {
    RAW_FREE + RAW_PER_BYTE * stored
}

/// Bytes that must be stored of a payload, so that it is within [`raw_limit`].
pub const fn least_stored(raw: usize) -> usize {
    raw.saturating_sub(RAW_FREE).div_ceil(RAW_PER_BYTE)
}

/// Rows of one kind in one sample: threads of a machine, or ends of processes in an interval.
pub const MAX_ROWS: usize = 1 << 19;

/// Cells of one column of one sample. 100,000 tasks on 256 nodes have 26 million.
pub const MAX_CELLS: usize = 1 << 25;

/// Bytes that the per-node times of all rows of a sample may take.
pub const MAX_NODE_TIMES: usize = 256 << 20;

/// Frames of all stacks of one sample: as many as 20,000 stacks a second have, a hundred deep.
pub const MAX_FRAMES: usize = 1 << 21;

/// CPUs of a machine: eight times what Linux can be built for (NR_CPUS is at most 8192).
pub const MAX_CPUS: usize = 1 << 16;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A [`Head`] as JSON. The first frame of a file, and again when the facts of the host change.
    Head = 1,
    /// A whole sample.
    Key = 2,
    /// Differences from a keyframe.
    Delta = 3,
    /// A [`Gap`] as JSON.
    Gap = 4,
    /// An [`End`] as JSON: nothing is written after it.
    End = 5,
}

impl FrameKind {
    pub fn from_byte(byte: u8) -> Option<FrameKind> {
        [FrameKind::Head, FrameKind::Key, FrameKind::Delta, FrameKind::Gap, FrameKind::End]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// True for frames that hold a sample.
    pub fn is_sample(self) -> bool {
        matches!(self, FrameKind::Key | FrameKind::Delta)
    }
}

/// Explains everything that follows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub format: u16,
    /// Version of the program that wrote it.
    pub writer: String,
    /// The same in all files of one run of the recorder: their counters go on from file to file.
    pub session: String,
    /// Counts the files of a session from zero.
    pub number: u32,
    /// Nominal length of an interval, ns.
    pub interval_ns: u64,
    /// Rows that are left out of the recording, in words; empty when none are.
    pub folded: String,
    pub host: HostFacts,
    pub columns: Columns,
    /// Parts of a sample that came after the first recordings, and are in this one.
    #[serde(default)]
    pub sections: Vec<String>,
}

/// The columns of the rows, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    pub task: Vec<ColumnInfo>,
    pub cpu: Vec<ColumnInfo>,
    pub node: Vec<ColumnInfo>,
}

/// One column: the name of the field, and what its numbers are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnInfo {
    pub name: String,
    pub unit: String,
}

/// Samples that were taken and not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub reason: String,
    /// Wall clock of the first of them, ns since 1970.
    pub from_wall_ns: i64,
    pub samples: u64,
}

/// Why a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The recorder was stopped.
    Stopped,
    /// The next file of the session continues.
    Rotated,
}

impl Head {
    pub fn new(host: &HostFacts, session: &str, number: u32) -> Head {
        Head {
            format: FORMAT,
            writer: env!("CARGO_PKG_VERSION").to_string(),
            session: session.to_string(),
            number,
            interval_ns: 0,
            folded: String::new(),
            host: host.clone(),
            columns: Columns {
                task: columns::describe(columns::task()),
                cpu: columns::describe(columns::cpu()),
                node: columns::describe(columns::node()),
            },
            sections: sections::added_sections(),
        }
    }

    /// Whether the rest of the program can rely on it: sizes are possible, ids are below them, and lists are
    /// in search order.
    ///
    /// # Errors
    /// The damage, in words.
    pub fn check(&self) -> Result<(), String> {
        let topology = &self.host.topology;
        if self.format > FORMAT {
            return Err(format!(
                "format {} is newer than this program, which supports formats up to {FORMAT}: use numatop-ng {} or later",
                self.format,
                crate::text::clean_str(&self.writer)
            ));
        }
        let (nodes, cpus) = (topology.possible_nodes as usize, topology.possible_cpus as usize);
        if nodes > MAX_NODES || cpus > MAX_CPUS {
            return Err(format!("the recording states {cpus} CPUs and {nodes} nodes, which is not possible"));
        }
        let ascending = topology.nodes.windows(2).all(|pair| pair[0].id < pair[1].id)
            && topology.cpus.windows(2).all(|pair| pair[0].id < pair[1].id);
        let last_node =
            topology.nodes.last().map(|node| node.id).max(topology.offline_nodes.iter().max().copied());
        let known = |node: Option<NodeId>| node.is_none_or(|node| node.index() < nodes);
        let is_place = |place: &Place| known(place.node) && place.cpus.iter().all(|cpu| cpu.index() < cpus);
        let listed: usize = topology.places.iter().map(|place| place.cpus.len()).sum();
        let in_range = known(last_node)
            && topology.places.len() <= PLACES_MAX
            && listed <= cpus
            && topology.places.iter().all(is_place)
            && topology.cpus.last().is_none_or(|cpu| cpu.id.index() < cpus)
            && topology.cpus.iter().all(|cpu| known(cpu.node));
        if !ascending || !in_range || topology.nodes.is_empty() {
            return Err("the description of the recorded machine contradicts itself".into());
        }
        Ok(())
    }
}

/// Refuses a sample whose rows no reader would take. Other sections are counted while they are written.
///
/// # Errors
/// It has more of something than readers take.
pub(super) fn check(sample: &Sample) -> Result<(), TooLarge> {
    let rows = || sample.tasks.iter().chain(&sample.exited);
    let widest = |task: &Arc<TaskRaw>| {
        task.counts.run_ns.len().max(task.counts.by_node.len()).max(task.counts.pages.len())
    };
    let width = rows().map(widest).max().unwrap_or(0);
    let most = sample.tasks.len().max(sample.exited.len());
    // A time, pages, and two counts, for each node.
    let numbers = |counts: &Counts| counts.run_ns.len() + counts.pages.len() + 2 * counts.by_node.len();
    let times: usize = rows().map(|task| numbers(&task.counts)).sum();
    for (within, what) in [
        (most <= MAX_ROWS, "tasks"),
        (width <= MAX_NODES && sample.nodes.len() <= MAX_NODES, "nodes"),
        (most.saturating_mul(width) <= MAX_CELLS, "rows of tasks by node"),
        (times.saturating_mul(size_of::<u64>()) <= MAX_NODE_TIMES, "rows of tasks by node"),
        (sample.cpus.len() <= MAX_CPUS, "CPUs"),
    ] {
        if !within {
            return Err(TooLarge(what));
        }
    }
    Ok(())
}

/// A row that is that of another sample.
const SHARED: usize = 8;

fn of_row<R>() -> usize {
    size_of::<R>() + ENTRY
}

/// Takes memory for `count` rows of this type.
///
/// # Errors
/// So much is not left.
pub(super) fn take_rows<R>(room: &mut Room, count: usize) -> Result<(), Malformed> {
    room.take(count, of_row::<R>())
}

/// Takes memory for rows that are those of another sample.
///
/// # Errors
/// So much is not left.
pub(super) fn take_shared(room: &mut Room, count: usize) -> Result<(), Malformed> {
    room.take(count, SHARED)
}

/// The share of its [`Room`] that a reader takes for a sample of `raw` written bytes, with `noted` bytes of
/// memory for data beside its rows. Never an underestimate.
pub(super) fn needed(delta: Option<Delta<'_>>, sample: &Sample, raw: usize, noted: usize) -> usize {
    let lists = |counts: &Counts| {
        size_of_val(&counts.run_ns[..]) + size_of_val(&counts.pages[..]) + size_of_val(&counts.by_node[..])
    };
    let task = |task: &TaskRaw| of_row::<TaskRaw>() + lists(&task.counts);
    let rows: usize = match delta {
        Some(delta) => delta.changes.rows(sample).map(task).sum(),
        None => sample.tasks.iter().map(|row| task(row)).sum(),
    };
    // All that were in a sample since the keyframe may be in the one before.
    let shared = delta.map_or(0, |delta| SHARED * (delta.key.tasks.len() + sample.tasks.len()));
    raw * PER_BYTE
        + noted
        + rows
        + shared
        + sample.exited.iter().map(|row| task(row)).sum::<usize>()
        + sample.cpus.len() * of_row::<CpuRaw>()
        + sample.nodes.len() * of_row::<NodeRaw>()
}
