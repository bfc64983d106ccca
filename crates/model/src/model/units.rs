//! Types that keep the numbers of nodes and CPUs apart.

#![warn(missing_docs)]

use std::fmt;

use serde::{Deserialize, Serialize};

/// A NUMA node id as in `/sys/devices/system/node/nodeN`: 0..1024, may be sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// A logical CPU id as in `/sys/devices/system/cpu/cpuN`: may be sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl NodeId {
    /// The id as an index into a table over possible nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl CpuId {
    /// The id as an index into a table over possible CPUs.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
