//! A process, and the fields from /proc that a column or the detail view asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sample::{Missing, Reading};

/// A process: its id, and the start of its leader in ns since boot.
pub type ProcessId = (u32, u64);

/// The fields that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Command lines, and where processes may run and take memory from.
    pub texts: bool,
    /// Shares of huge pages, for which the kernel looks at every page table.
    pub huge: bool,
}

/// The fields of one process that columns show; samples with them are kept for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcFields {
    /// Command line and affinity.
    pub texts: Reading<Arc<Texts>>,
    /// Share of its resident memory in huge pages, in percent.
    pub huge_pct: Reading<f64>,
}

/// The fields of each process, or why they could not be read.
pub type ProcFieldsOf = BTreeMap<ProcessId, Reading<Arc<ProcFields>>>;

/// Command lines by process, as recordings keep them. Clean.
pub type CommandLines = BTreeMap<ProcessId, Arc<str>>;

impl ProcFields {
    /// The fields of a process whose command line is in a recording.
    pub fn recorded(line: &str) -> ProcFields {
        let not_kept = || Missing::NotCollected("not recorded".into());
        let cmdline = Ok(line.to_owned());
        let texts = Texts { cmdline, cpus_allowed: Err(not_kept()), mems_allowed: Err(not_kept()) };
        ProcFields { texts: Ok(Arc::new(texts)), huge_pct: Err(not_kept()) }
    }
}

/// The command line of a process, and the CPUs and nodes that it may use. Clean, so safe to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texts {
    /// Arguments separated by spaces; empty for kernel threads, and where the process erased them.
    pub cmdline: Reading<String>,
    /// CPUs and nodes that its main thread may use, as lists.
    pub cpus_allowed: Reading<String>,
    /// See `cpus_allowed`.
    pub mems_allowed: Reading<String>,
}

/// The facts of one process for its detail view. Texts are clean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// Process id.
    pub pid: u32,
    /// Start of the process since boot, ns, as it was asked for.
    pub start_ns: u64,
    /// Command line and affinity.
    pub texts: Texts,
    /// Path in each hierarchy, as in cgroups(7).
    pub cgroups: Vec<String>,
    /// Resident anonymous, file and shared memory in bytes, where the kernel separates them (4.5).
    pub rss: Option<[u64; 3]>,
    /// Of its main thread since its start, ns: time on a CPU and time waiting for one.
    pub schedstat: Option<[u64; 2]>,
}
