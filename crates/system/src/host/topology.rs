//! The topology of this machine, as the kernel shows it.
//!
//! Sources: the kernel's Documentation/ABI/stable/sysfs-devices-node,
//! Documentation/ABI/stable/sysfs-devices-system-cpu, Documentation/ABI/testing/sysfs-devices-system-cpu
//! (caches) and Documentation/admin-guide/cputopology.rst. It is one reading at one time: CPUs and nodes
//! that come or go later are not seen until the next [`read`].

mod cpus;
mod devices;
mod nodes;

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, anyhow, bail};

use crate::model::topology::{Device, Topology, format_cpulist, parse_cpulist};
use crate::model::units::{CpuId, NodeId};

pub use self::devices::{IrqCounts, pci_address};

/// Reads `sys/` and `proc/` below `root`; `/` is the real machine.
///
/// Files that old kernels or virtual machines lack are done without.
///
/// # Errors
/// A malformed file: its name, the expected format, and the text.
pub fn read(root: &Path) -> Result<Topology> {
    let root = Root(root);
    let node_map = nodes::read_map(&root)?;
    let cpus::Cpus { cpus, llcs, cores, sockets, possible, hidden } = cpus::read(&root, &node_map)?;
    let mut nodes = nodes::read(&root, &node_map, &cpus)?;
    let contradictions = [nodes::emulated(&node_map), cpus::hidden_from_us(&hidden)];
    let unplaced_devices = devices::place(devices::read(&root, &cpus)?, &mut nodes);
    Ok(Topology {
        nodes,
        cpus,
        llcs,
        cores,
        sockets,
        possible_cpus: possible,
        possible_nodes: node_map.possible,
        offline_nodes: node_map.offline,
        numa: node_map.numa,
        unplaced_devices,
        calibration: None,
        contradictions: contradictions.into_iter().flatten().collect(),
        places: Vec::new(),
    })
}

/// Whether a CPU reports that it is online; false if it does not report.
pub fn is_online(root: &Path, cpu: CpuId) -> bool {
    cpus::is_online(&Root(root), cpu.0).unwrap_or(false)
}

/// The difference, in words, between online CPUs of `topology` and those of the running kernel; `None` where they are the same.
/// Files of another machine say nothing about tasks of this one.
pub fn differs_from_kernel(topology: &Topology) -> Option<String> {
    let own = Path::new("/");
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let possible = parse_cpulist(possible.trim()).ok()?;
    let ours: Vec<u32> = possible.into_iter().filter(|cpu| is_online(own, CpuId(*cpu))).collect();
    let theirs: Vec<u32> = topology.online_cpus().map(|cpu| cpu.id.0).collect();
    (ours != theirs).then(|| {
        let list = |cpus: Vec<u32>| format_cpulist(cpus);
        format!("its CPUs are {}, but those of this kernel are {}", list(theirs), list(ours))
    })
}

/// The nodes whose CPUs handle the interrupts of a device now; see [`Device::irq_nodes`].
///
/// # Errors
/// A malformed file.
pub fn irq_nodes_now(topology: &Topology, root: &Path, device: &Device) -> Result<Vec<NodeId>> {
    devices::irq_nodes(&Root(root), device, &topology.cpus)
}

/// Counts of the interrupts of the PCI function of this address, by node.
///
/// # Errors
/// A malformed file; or a list of counts that the kernel truncated at the size of a page.
pub fn irq_counts_now(topology: &Topology, root: &Path, address: &str) -> Result<IrqCounts> {
    devices::irq_counts(&Root(root), address, topology)
}

/// The directory that holds `sys/` and `proc/`: `/` on the real machine, a fixture in tests.
struct Root<'a>(pub &'a Path);

impl Root<'_> {
    /// The full path of `relative` ("sys/devices/…"), as errors name it.
    fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// The file's text, or `None` if the file does not exist.
    ///
    /// ENODEV and ENXIO count as absent: sysfs answers so when the CPU or device went away between listing
    /// and reading.
    fn text(&self, relative: &str) -> Result<Option<String>> {
        let path = self.path(relative);
        match fs::read(&path) {
            // Garbage bytes survive as U+FFFD, so that the parser's error can show them.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if absent(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// The file's value, or `None` if the file does not exist. If `parse` refuses the text, the error names
    /// the file, what was `expected` and the text.
    fn value<T, E: Into<anyhow::Error>>(
        &self,
        relative: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(relative)? else { return Ok(None) };
        match parse(text.trim()) {
            Ok(value) => Ok(Some(value)),
            Err(cause) => Err(self.garbled(relative, expected, &text, cause)),
        }
    }

    /// Like [`Root::value`] for a file that every kernel has.
    fn required<T, E: Into<anyhow::Error>>(
        &self,
        relative: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T> {
        match self.value(relative, expected, parse)? {
            Some(value) => Ok(value),
            None => bail!(
                "reading {}: expected {expected}, but there is no such file",
                self.path(relative).display()
            ),
        }
    }

    /// Names of the entries of a directory, sorted; empty if the directory does not exist.
    fn entries(&self, relative: &str) -> Result<Vec<String>> {
        let path = self.path(relative);
        let listing = match fs::read_dir(&path) {
            Ok(listing) => listing,
            Err(error) if absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("listing {}", path.display())),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.with_context(|| format!("listing {}", path.display()))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn garbled(
        &self,
        relative: &str,
        expected: &str,
        text: &str,
        cause: impl Into<anyhow::Error>,
    ) -> anyhow::Error {
        /// Enough to recognise the text; a garbled file may be long.
        const SHOWN: usize = 80;
        let mut read: String = text.trim_end().chars().take(SHOWN).collect();
        if read.len() < text.trim_end().len() {
            read.push('…');
        }
        let path = self.path(relative);
        anyhow!("reading {}: expected {expected}, read {read:?}: {:#}", path.display(), cause.into())
    }
}

fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// The number in a directory name such as `cpu12`, `node3` or `index0`.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
