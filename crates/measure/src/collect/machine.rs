//! The files of the machine as a whole: memory of the nodes, swap, pressure, times of the CPUs; and the resources that numatop-ng
//! itself uses. A file that cannot be read is missing with its reason; the others are still read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Error, Result};
use rustix::time::ClockId;

use super::host_state::{CpuTimes, CpuTimesReader, HostStateReader, VmStatReader, ZoneReader};
use super::nodes::NodeReader;
use super::probes::Reasons;
use crate::host::clock::clock;
use crate::model::facility::Facility;
use crate::model::sample::{MachineRaw, Missing, NodeRaw, SelfUsage, VmStat};
use crate::model::topology::Topology;
use crate::model::units::CpuId;
use crate::program::helper::resident_pages;

/// One reading of the machine.
#[derive(Debug, Default)]
pub struct Machine {
    pub nodes: Vec<NodeRaw>,
    pub vm: VmStat,
    pub state: MachineRaw,
    /// By CPU; empty where they cannot be read.
    pub cpu_times: BTreeMap<CpuId, CpuTimes>,
}

/// Metrics of swap, which the machine counts.
const SWAP: [&str; 3] = ["swap_pages_per_s", "swap_in_pages_per_s", "swap_out_pages_per_s"];

/// All readers, and what they failed to read.
pub struct MachineReader {
    nodes: NodeReader,
    zones: ZoneReader,
    vmstat: VmStatReader,
    state: HostStateReader,
    cpu_times: CpuTimesReader,
    page_size: u64,
    reasons: Reasons,
    /// Metrics whose counts the files lack, and why; `None` before the first reading.
    absent: Option<BTreeMap<&'static str, Missing>>,
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
            state: HostStateReader::new(root),
            cpu_times: CpuTimesReader::open(root)?,
            page_size,
            reasons: Reasons::default(),
            absent: None,
        })
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The memory of a node or /proc/vmstat cannot be read again.
    pub fn read(&mut self) -> Result<Machine> {
        let mut machine = Machine {
            nodes: self.nodes.read()?,
            vm: self.vmstat.read()?,
            state: self.state.read(),
            cpu_times: BTreeMap::new(),
        };
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
        match self.cpu_times.read() {
            Ok(times) => machine.cpu_times = times,
            Err(error) => {
                let why = lost("/proc/stat", error);
                self.reasons.add(Facility::Irq, &why);
                self.reasons.add(Facility::Steal, &why);
            }
        }
        if self.absent.is_none() {
            let has_swap = machine.state.swap_total_bytes.is_some_and(|bytes| bytes > 0);
            let why = self.vmstat.no_swap_counts(has_swap)?;
            self.absent = Some(SWAP.iter().filter_map(|id| Some((*id, why.clone()?))).collect());
        }
        Ok(machine)
    }

    /// Metrics whose counts the files of this kernel lack, and why.
    pub fn absent(&self) -> impl Iterator<Item = (&'static str, &Missing)> {
        self.absent.iter().flatten().map(|(id, why)| (*id, why))
    }

    /// Facilities that could not be read, and why; once missing, missing for good.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}

fn lost(file: &str, error: impl Into<Error>) -> Missing {
    Missing::Lost(format!("reading {file}: {:#}", error.into()))
}

/// CPU time and memory of this process. `sample_ns` is left at zero.
pub fn self_usage(page_size: u64) -> SelfUsage {
    let cpu_ns = clock(ClockId::ProcessCPUTime).as_nanos() as u64;
    let statm = fs::read_to_string("/proc/self/statm").ok();
    let pages = statm.and_then(|statm| resident_pages(&statm));
    let rss_bytes = pages.map_or(0, |[resident, _]| resident * page_size);
    SelfUsage { cpu_ns, rss_bytes, sample_ns: 0 }
}

/// Bytes of a page on this machine.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
