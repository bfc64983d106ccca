//! Nodes of objects of shared memory, drawn from the page cache.

use crate::model::coded::{Copied, Key, coded};
use crate::model::sample::{SharedObject, is_part};

/// The identity of an object of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// Device of its filesystem.
    pub device: u32,
    /// A SysV segment has its id here.
    pub inode: u64,
    /// Differs between objects that have the same inode one after the other.
    pub generation: u32,
}

coded!(ObjectId { device, inode, generation });
impl Copied for ObjectId {}
impl Key for ObjectId {}

impl SharedObject {
    /// Its identity.
    pub fn id(&self) -> ObjectId {
        ObjectId { device: self.device, inode: self.inode, generation: self.generation }
    }
}

/// Pages of an object, whether a process has them in its page tables or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectNodes {
    /// CLOCK_MONOTONIC when they were drawn.
    pub read_ns: u64,
    /// Pages asked for. Pages missing in `by_node` are holes or in swap.
    pub asked: u32,
    /// Pages in memory by node id.
    pub by_node: Vec<u32>,
    /// Of these, pages on a node that the policy of the object names.
    pub meant: Vec<u32>,
    /// All shares together are this near the truth in 95 of 100 draws, in hundredths of a percentage point.
    pub error_hundredths: u32,
}

coded!(
    ObjectNodes { read_ns, asked, by_node, meant, error_hundredths },
    check |nodes: &ObjectNodes| is_part(&nodes.meant, &nodes.by_node)
);
