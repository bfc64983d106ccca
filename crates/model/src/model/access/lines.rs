//! Cache lines that threads of one process take from each other, as samples of a PMU show them.

#![warn(missing_docs)]

use std::sync::Arc;

use crate::model::coded::varint::Malformed;
use crate::model::coded::{Count, Numbered, coded};
use crate::model::stacks::Function;
use crate::model::units::NodeId;

/// Bytes of a line as a power of two. That of most CPUs; where lines are longer, one of them is listed as several.
pub const LINE_SHIFT: u32 = 6;

/// The key of the reason why no line is seen, beside those of metrics.
pub const CONTENDED_LINES: &str = "contended_lines";

/// Lines of a process that are kept: the most contended ones.
pub const LINES_LISTED: usize = 20;

/// Sides of a line that are kept: those with most samples.
pub const SIDES_LISTED: usize = 16;

/// The cache that held a line requested by a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// One of the own node.
    Near,
    /// One of another node.
    Far,
}

/// Lines of a process that another core held when they were loaded. It holds no address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContendedLines {
    /// Sampled loads that the cache of another core answered, of all lines.
    pub loads: u64,
    /// The lines with most of them first, [`LINES_LISTED`] at most.
    pub listed: Vec<ContendedLine>,
}

/// One of these lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContendedLine {
    /// Name of its mapping, clean; empty for anonymous memory and where it is not known.
    pub mapping: String,
    /// The node of its page, where that is known.
    pub page_node: Option<NodeId>,
    /// Its sampled loads that the cache of another core answered.
    pub loads: u64,
    /// Loads among them that the cache of another node answered.
    pub far: u64,
    /// Sampled stores to it.
    pub stores: u64,
    /// Code that loads it, and code that stores to it, the most frequent one first; [`SIDES_LISTED`] at most.
    pub sides: Vec<LineSide>,
}

/// Accesses of one function to one place in a line, from one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineSide {
    /// It stores; else it loads.
    pub store: bool,
    /// The function; `None` where it has no name, or none yet.
    pub function: Option<Arc<Function>>,
    /// First byte of the access in the line, 0 to 63.
    pub offset: u8,
    /// The node of the CPU.
    pub cpu_node: Option<NodeId>,
    /// Sampled accesses.
    pub samples: u64,
    /// Loads among them that the cache of another node answered.
    pub far: u64,
}

coded!(ContendedLines { loads: Count, listed });

// A later version may list more of both than this one.
coded!(
    ContendedLine { mapping: Numbered, page_node, loads: Count, far: Count, stores: Count, sides },
    most 1000, "contended lines"
);
coded!(
    LineSide { store, offset, cpu_node, samples: Count, far: Count, function },
    most 1000, "sides of a contended line",
    check |side: &LineSide| {
        (side.offset < 1 << LINE_SHIFT).then_some(()).ok_or(Malformed("an access begins beyond its line"))
    }
);

impl ContendedLine {
    /// Bytes at which it is loaded or stored to, as far as listed, in their order.
    pub fn offsets(&self) -> Vec<u8> {
        let mut offsets: Vec<u8> = self.sides.iter().map(|side| side.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}
