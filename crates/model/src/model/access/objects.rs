//! Memory of a process by the code that touched it first, and the use of that memory.

#![warn(missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ByNodes;
use crate::model::coded::varint::Malformed;
use crate::model::coded::{Codec, Coded, Count, Counted, In, MAX_NODES, Numbered, Out, coded};
use crate::model::stacks::Function;
use crate::model::units::NodeId;

/// The key of the reason why no object is known, beside those of metrics.
pub const OBJECTS: &str = "objects";

/// The reason.
pub const NO_TOUCH: &str =
    "no first touch of the memory in use was sampled: --access or u in the details starts that";

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
