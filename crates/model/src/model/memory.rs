//! Memory by kind, of a process and of a node; and nodes of objects of shared memory, drawn from the page cache.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::coded::coded;
use crate::model::coded::{Copied, Key};
use crate::model::sample::{SharedObject, is_part};

/// Resident memory of a process by kind, and its memory in swap. All of its threads share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// `MM_ANONPAGES`, in bytes.
    pub anon_bytes: u64,
    /// `MM_FILEPAGES`, in bytes: pages of mapped files, without those of tmpfs and of shared memory.
    pub file_bytes: u64,
    /// `MM_SHMEMPAGES`, in bytes: tmpfs, System V and anonymous shared memory.
    pub shmem_bytes: u64,
    /// `MM_SWAPENTS`, in bytes: not resident.
    pub swap_bytes: u64,
}

/// Pages of files on a node by kind, and shared memory, which the kernel counts among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePages {
    /// `Active(file)` of the node's meminfo.
    pub active_bytes: u64,
    /// `Inactive(file)`.
    pub inactive_bytes: u64,
    /// `Shmem`: tmpfs and shared memory, which nothing but swapping frees.
    pub shmem_bytes: u64,
    /// `Dirty`: to be written before it can be dropped.
    pub dirty_bytes: u64,
}

/// Pages of hugetlbfs of one size that a process has, and the pools that they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// By node id; nodes without any, and with an empty pool, are left out.
    pub by_node: BTreeMap<u32, HugeNode>,
}

/// Pages of one size on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugeNode {
    /// Pages of the process.
    pub used: u64,
    /// Pages of the node's pool: `nr_hugepages`.
    pub total: u64,
    /// Of these, pages that no mapping has: `free_hugepages`.
    pub free: u64,
}

// No architecture has as many sizes.
coded!(HugePages { page_bytes, by_node }, most 64, "sizes of pages");

coded!(HugeNode { used, total, free });

impl HugePages {
    /// Pages of the process, in bytes.
    pub fn bytes(&self) -> u64 {
        let pages = self.by_node.values().fold(0u64, |sum, node| sum.saturating_add(node.used));
        pages.saturating_mul(self.page_bytes)
    }
}

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
