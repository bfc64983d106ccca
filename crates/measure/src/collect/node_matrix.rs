//! Counters from node to node that programs add to, as user space reads them.

use std::mem::size_of;
use std::os::fd::AsFd;

use anyhow::{Context, Result};

use crate::model::sample::Flow;
use crate::model::topology::Topology;
use crate::model::units::NodeId;
use crate::sys::Mapping;

/// An mmapable array map with a counter at `from * nodes + to`.
pub struct NodeMatrix {
    counts: Mapping,
    nodes: usize,
}

impl NodeMatrix {
    /// Entries that the map needs on a machine with `nodes` possible nodes.
    pub fn entries(nodes: u32) -> u32 {
        nodes * nodes
    }

    /// Maps the map behind `fd`.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn new(fd: impl AsFd, nodes: u32) -> Result<NodeMatrix> {
        let bytes = size_of::<u64>() * NodeMatrix::entries(nodes) as usize;
        let counts = Mapping::new(fd, bytes).context("mapping counters from node to node")?;
        Ok(NodeMatrix { counts, nodes: nodes as usize })
    }

    /// Counts between the nodes of the machine since the map was made; empty pairs are left out.
    pub fn flows(&self, topology: &Topology) -> Vec<Flow> {
        let nodes = || topology.nodes.iter().map(|node| node.id);
        let flow = |from: NodeId, to: NodeId| {
            let at = (from.index() * self.nodes + to.index()) * size_of::<u64>();
            let count: u64 = self.counts.get(at)?;
            (count > 0).then_some(Flow { from, to, count })
        };
        nodes().flat_map(|from| nodes().filter_map(move |to| flow(from, to))).collect()
    }
}
