//! Memory by kind: of a process, and of a node.

use serde::{Deserialize, Serialize};

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
