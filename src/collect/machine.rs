//! The readings that belong to no task: memory of the nodes, reclaim, swap, interrupts. What cannot be read
//! is missing with its reason; the rest goes on.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;

use anyhow::{Error, Result};

use super::interrupts::InterruptReader;
use super::nodes::NodeReader;
use super::reasons::Reasons;
use super::reclaim::ReclaimProbe;
use super::vmstat::VmStatReader;
use super::zones::ZoneReader;
use crate::model::facility::Facility;
use crate::model::sample::{Missing, NodeRaw, VmStat};
use crate::model::topology::Topology;
use crate::model::units::CpuId;

/// What one look at the machine brought.
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
    reclaim: Option<ReclaimProbe>,
    page_size: u64,
    reasons: Reasons,
}

impl MachineReader {
    /// Opens the files below `root` and starts the reclaim probe. A probe that does not start is a reason in
    /// [`MachineReader::missing`].
    ///
    /// # Errors
    /// A file that every kernel has cannot be opened.
    pub fn start(root: &Path, topology: &Topology, page_size: u64) -> Result<MachineReader> {
        let mut reader = MachineReader {
            nodes: NodeReader::open(root, topology)?,
            zones: ZoneReader::new(root),
            vmstat: VmStatReader::open(root)?,
            interrupts: InterruptReader::open(root)?,
            reclaim: None,
            page_size,
            reasons: Reasons::default(),
        };
        let now = reader.vmstat.read()?;
        let reclaim = ReclaimProbe::start(topology.possible_nodes, &now);
        reader.reclaim = reader.reasons.started(reclaim, Facility::Reclaim);
        Ok(reader)
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
        if let Some(probe) = &self.reclaim
            && let Err(missing) = probe.read(&mut machine.nodes, &machine.vm)
        {
            self.reasons.add(Facility::Reclaim, &missing);
        }
        Ok(machine)
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        self.reclaim.iter().flat_map(ReclaimProbe::programs)
    }

    /// Facilities that could not be read, and why; once missing, missing for good.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}

fn lost(file: &str, error: impl Into<Error>) -> Missing {
    Missing::Lost(format!("reading {file}: {:#}", error.into()))
}
