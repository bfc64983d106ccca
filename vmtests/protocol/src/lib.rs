//! Messages between the runner and a guest. The plan goes to the guest, in a file of the initramfs. The
//! events go to the runner, as JSON lines on the second serial port.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where the runner puts the plan in the initramfs.
///
/// A file, not the kernel command line: that is limited to 2048 bytes, and the distances of sixteen nodes
/// alone take half of this.
pub const PLAN_PATH: &str = "/plan.json";
/// Where the runner puts the tool in the initramfs.
pub const TOOL_PATH: &str = "/bin/numatop-ng";
/// The last line of a guest that came to its end; nothing else counts as success.
pub const EXIT_WORD: &str = "EXIT";
/// A case that takes longer hangs. No measure of anything: the longest takes two minutes on a quiet host, and three times as
/// long on a busy one.
pub const CASE_LIMIT: Duration = Duration::from_secs(600);

/// The orders of a guest: its identity and its cases.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The line that answers are written to, for example `/dev/ttyS1`; `None` in a shell guest.
    pub results: Option<String>,
    /// The line a person sits at in a shell guest.
    pub console: String,
    /// Cases to run, in this order. Empty: the guest is for a shell.
    pub cases: Vec<String>,
    /// The options of QEMU; the cases compare the kernel and the tool with it.
    pub machine: Machine,
    /// Whether the tool is in the initramfs.
    pub tool: bool,
    pub shell: Option<Shell>,
}

/// The terminal of the person in front of a shell guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shell {
    pub term: String,
    pub rows: u16,
    pub cols: u16,
}

/// A machine for QEMU to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub topology: String,
    pub sockets: u32,
    pub threads_per_core: u32,
    pub nodes: Vec<Node>,
    /// Row by row; `distances[i][j]` is the cost from node i to node j, 10 on the diagonal.
    pub distances: Vec<Vec<u32>>,
    pub pmu: Pmu,
    /// `integrity` or `confidentiality` when the kernel was started locked down.
    pub lockdown: Option<String>,
    /// Further words of the kernel's command line.
    pub boot: Option<String>,
    /// QEMU's name of the processor, where it is not the one with all that QEMU can do.
    pub processor: Option<String>,
    /// The node of the NVMe disk, if there is a disk with one controller.
    pub disk_node: Option<u32>,
    /// Nodes of the controllers of an NVMe disk with several paths.
    pub disk_paths: Vec<u32>,
    /// The file system on the disk, which is all zeros without one.
    pub disk_format: Option<String>,
    /// The memory of nodes as the firmware describes it (HMAT); empty without a description.
    pub hmat: Vec<Hmat>,
}

/// The firmware's description of accesses from a node to the memory of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hmat {
    /// The node of the CPU.
    pub from: u32,
    /// The node of the memory.
    pub to: u32,
    /// Latency.
    pub ns: u64,
    /// Bandwidth.
    pub gib_per_s: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The CPUs of this node, ascending; empty for a memory-only node.
    pub cpus: Vec<u32>,
    pub mem_mib: u64,
}

/// The abilities of the guest's performance counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pmu {
    /// No PMU at all: every x86 guest under TCG, and arm64 with `pmu=off`.
    Absent,
    /// PMUv3 without `-icount`: cycles count host time, instructions cannot be opened.
    CyclesOnly,
    /// PMUv3 with `-icount shift=N`: cycles are instructions × 2^N, so IPC is 2^-N exactly.
    Icount { shift: u32 },
}

impl Machine {
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpus.len() as u32).sum()
    }

    pub fn cpu_nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty())
    }

    pub fn node_of_cpu(&self, cpu: u32) -> Option<usize> {
        self.nodes.iter().position(|node| node.cpus.contains(&cpu))
    }
}

/// The end of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// One line from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The guest is in user space and starts its cases.
    Ready { kernel: String, arch: String, uptime: f64 },
    /// A case begins.
    Begin { case: String, about: String },
    /// A sentence of the case's report.
    Say { case: String, text: String },
    /// One comparison with a truth.
    Check { case: String, ok: bool, what: String, want: String, got: String },
    /// A value worth keeping beyond pass and fail: load reasons, verifier counts, a screen.
    Data { case: String, key: String, value: Value },
    /// A case is over.
    End { case: String, outcome: Outcome, reason: Option<String>, seconds: f64 },
}

/// A line from the guest, read.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Event(Event),
    Exit(i32),
}

/// Reads one line of the result channel.
///
/// # Errors
/// The line is neither an event nor an exit code.
pub fn parse_line(line: &str) -> Result<Line, String> {
    let line = line.trim();
    if let Some(code) = line.strip_prefix(EXIT_WORD) {
        return code.trim().parse().map(Line::Exit).map_err(|_| format!("no exit code in {line:?}"));
    }
    serde_json::from_str(line)
        .map(Line::Event)
        .map_err(|error| format!("not a result line ({error}): {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_went() {
        let event = Event::Check {
            case: "nodes".into(),
            ok: false,
            what: "CPUs of node 1".into(),
            want: "2-3".into(),
            got: "2".into(),
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(parse_line(&text), Ok(Line::Event(event)));
        assert_eq!(parse_line("EXIT 1\r\n"), Ok(Line::Exit(1)));
    }

    #[test]
    fn noise_is_an_error_with_the_noise_in_it() {
        assert!(parse_line("[    2.31] printk").unwrap_err().contains("printk"));
        assert!(parse_line("EXIT").unwrap_err().contains("EXIT"));
    }
}
