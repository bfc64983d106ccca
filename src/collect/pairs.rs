//! Counters from node to node that programs add to, as user space reads them.

use std::mem::size_of;
use std::os::fd::AsRawFd;

use anyhow::Result;

use super::records::MappedArray;
use super::wire::Wire;
use crate::host::topology::Topology;
use crate::sample::Flow;
use crate::units::Nid;

/// An mmapable array map with a counter at `from * nodes + to`.
pub struct Pairs {
    counts: MappedArray,
    nodes: usize,
}

impl Pairs {
    /// Entries that the map must have on a machine with so many possible nodes.
    pub fn entries(nodes: u32) -> u32 {
        nodes * nodes
    }

    /// Maps the map behind `fd`.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn new(fd: &impl AsRawFd, nodes: u32) -> Result<Pairs> {
        let counts = MappedArray::new(fd, size_of::<u64>(), Pairs::entries(nodes) as usize)?;
        Ok(Pairs { counts, nodes: nodes as usize })
    }

    /// What was counted between the nodes of the machine since the map was made; pairs without any are left out.
    pub fn flows(&self, topology: &Topology) -> Vec<Flow> {
        let nodes = || topology.nodes.iter().map(|node| node.id);
        let flow = |from: Nid, to: Nid| {
            let at = (from.index() * self.nodes + to.index()) * size_of::<u64>();
            let count = u64::from_bytes(self.counts.bytes().get(at..)?)?;
            (count > 0).then_some(Flow { from, to, count })
        };
        nodes().flat_map(|from| nodes().filter_map(move |to| flow(from, to))).collect()
    }
}
