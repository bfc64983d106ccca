//! The files of the machine as a whole: memory of the nodes, swap, interrupts. A file that cannot be read
//! is missing with its reason; the rest goes on.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Error, Result};

use super::interrupts::InterruptReader;
use super::nodes::NodeReader;
use super::reasons::Reasons;
use super::vmstat::VmStatReader;
use super::watermarks::ZoneReader;
use crate::model::facility::Facility;
use crate::model::sample::{Missing, NodeRaw, VmStat};
use crate::model::topology::Topology;
use crate::model::units::CpuId;

/// One reading of the machine.
#[derive(Debug, Default)]
pub struct Machine {
    pub nodes: Vec<NodeRaw>,
    pub vm: VmStat,
    /// See [`crate::model::sample::CpuRaw::irq_ns`].
    pub irq_ns: BTreeMap<CpuId, u64>,
}

/// All readers, and what they failed to read.
pub struct MachineReader {
    nodes: NodeReader,
    zones: ZoneReader,
    vmstat: VmStatReader,
    interrupts: InterruptReader,
    page_size: u64,
    reasons: Reasons,
}

impl MachineReader {
    /// Opens the files below `root`.
    ///
    /// # Errors
    /// A file that every kernel has cannot be opened.
    pub fn open(root: &Path, topology: &Topology, page_size: u64) -> Result<MachineReader> {
        Ok(MachineReader {
            nodes: NodeReader::open(root, topology)?,
            zones: ZoneReader::new(root),
            vmstat: VmStatReader::open(root)?,
            interrupts: InterruptReader::open(root)?,
            page_size,
            reasons: Reasons::default(),
        })
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The memory of a node or /proc/vmstat cannot be read again.
    pub fn read(&mut self) -> Result<Machine> {
        let mut machine =
            Machine { nodes: self.nodes.read()?, vm: self.vmstat.read()?, irq_ns: BTreeMap::new() };
        match self.zones.marks() {
            Ok(marks) => {
                for node in &mut machine.nodes {
                    let marks = marks.get(&node.id).copied().unwrap_or_default();
                    node.low_watermark_bytes = marks.low.saturating_mul(self.page_size);
                    node.managed_bytes = marks.managed.saturating_mul(self.page_size);
                }
            }
            Err(error) => self.reasons.add(Facility::Watermarks, &lost("/proc/zoneinfo", error)),
        }
        match self.interrupts.read() {
            Ok(times) => machine.irq_ns = times,
            Err(error) => self.reasons.add(Facility::Irq, &lost("/proc/stat", error)),
        }
        Ok(machine)
    }

    /// Facilities that could not be read, and why; once missing, missing for good.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}

fn lost(file: &str, error: impl Into<Error>) -> Missing {
    Missing::Lost(format!("reading {file}: {:#}", error.into()))
}
