//! Cache lines that threads of one process take from each other, as samples of a PMU show them; and memory of a process by the
//! code that touched it first, with the use of that memory.

#![warn(missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ByNodes;
use crate::model::coded::varint::Malformed;
use crate::model::coded::{Codec, Coded, Count, Counted, In, MAX_NODES, Numbered, Out, coded};
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
        (side.offset < 1 << LINE_SHIFT).then_some(()).ok_or(Malformed("an access begins after the end of its cache line"))
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

/// The key of the reason why no object is known, beside those of metrics.
pub const OBJECTS: &str = "objects";

/// The reason.
pub const NO_TOUCH: &str =
    "no first touch of this memory was sampled: start sampling with --access, or with u in the details";

/// Objects of a process that are kept: the most used ones.
pub const OBJECTS_LISTED: usize = 20;

/// Functions of a stack that are kept, from the innermost one on.
pub const FUNCTIONS_LISTED: usize = 4;

/// The memory whose pages one stack touched first: the kernel chose their node then, by where that thread ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// The function that touched it and its callers, innermost first, those of C libraries left out;
    /// [`FUNCTIONS_LISTED`] at most. Callers are known as far as the program has frame pointers.
    pub functions: Vec<Arc<Function>>,
    /// Sampled first touches by node of the CPU, where that is known.
    pub touched_on: BTreeMap<NodeId, u64>,
    /// Name of the mapping in which it is used most, clean; empty for anonymous memory.
    pub mapping: String,
    /// Samples in it, as in [`super::MappingUse::by_node`].
    pub by_node: ByNodes,
    /// Followed samples in it, as in [`super::MappingUse::next_by_node`].
    pub next_by_node: ByNodes,
}

// A later version may list more than this one.
coded!(
    Object {
        mapping: Numbered,
        functions,
        touched_on: TouchedOn,
        by_node: Counted,
        next_by_node: Counted,
    },
    most 1000, "objects of a process"
);

/// Counts by node, which is written as one that may be absent.
struct TouchedOn;

impl Codec<BTreeMap<NodeId, u64>> for TouchedOn {
    fn put<'v>(touched: &'v BTreeMap<NodeId, u64>, out: &mut Out<'v>) {
        out.map(touched, (MAX_NODES, "nodes"), |out, node, count| {
            NodeId::put_option(Some(node), out);
            Count::put(count, out);
        });
    }

    fn get(input: &mut In<'_, '_>) -> Result<BTreeMap<NodeId, u64>, Malformed> {
        input.map(MAX_NODES, |input| {
            let node = NodeId::get_option(input)?.ok_or(Malformed("a node is missing"))?;
            Ok((node, Count::get(input)?))
        })
    }
}

impl Object {
    /// Samples in it. Copies count half a sample for each side.
    pub fn samples(&self) -> f64 {
        super::sum(self.by_node.values())
    }

    /// Samples whose page is on another node than the CPU, and all samples with both nodes known.
    pub fn remote(&self) -> (f64, f64) {
        super::remote(&self.by_node)
    }

    /// Followed samples in it.
    pub fn followed(&self) -> f64 {
        super::sum(self.next_by_node.values())
    }

    /// Bytes that it takes on the heap beside its functions, which are shared, as estimated.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&self.functions[..])
            + self.mapping.len()
            + self.touched_on.len() * 2 * size_of::<(NodeId, u64)>()
            + super::node_bytes(&self.by_node)
            + super::node_bytes(&self.next_by_node)
    }
}
