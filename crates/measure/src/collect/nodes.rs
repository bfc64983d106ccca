//! The memory of each node: `meminfo` and `numastat` below /sys/devices/system/node/nodeN.

use std::path::Path;

use anyhow::{Context, Result};

use super::host_state::KeptFile;
use crate::model::sample::{FilePages, NodeRaw};
use crate::model::topology::Topology;
use crate::model::units::NodeId;

/// The files of one node.
struct NodeFiles {
    id: NodeId,
    meminfo: KeptFile,
    numastat: Option<KeptFile>,
}

/// Reads every node of a topology.
pub struct NodeReader {
    files: Vec<NodeFiles>,
}

impl NodeReader {
    /// Opens the files of all nodes below `root` ("/" for this machine).
    ///
    /// # Errors
    /// A `meminfo` cannot be opened. A kernel without CONFIG_NUMA has none; /proc/meminfo replaces it.
    pub fn open(root: &Path, topology: &Topology) -> Result<NodeReader> {
        let mut files = Vec::new();
        for node in &topology.nodes {
            let dir = root.join(format!("sys/devices/system/node/node{}", node.id));
            let meminfo = if dir.exists() { dir.join("meminfo") } else { root.join("proc/meminfo") };
            let opening = || format!("opening {}", meminfo.display());
            files.push(NodeFiles {
                id: node.id,
                meminfo: KeptFile::open(meminfo.clone()).with_context(opening)?,
                numastat: KeptFile::open(dir.join("numastat")).ok(),
            });
        }
        Ok(NodeReader { files })
    }

    /// The state of all nodes now.
    ///
    /// # Errors
    /// A file could not be read again.
    pub fn read(&mut self) -> Result<Vec<NodeRaw>> {
        let read = |node: &mut NodeFiles| {
            let mut raw = NodeRaw { id: node.id.0, ..NodeRaw::default() };
            let reading = |file: &str| format!("reading {file} of node {}", node.id);
            let meminfo = node.meminfo.read().with_context(|| reading("meminfo"))?;
            parse_meminfo(meminfo, &mut raw);
            if let Some(numastat) = &mut node.numastat {
                parse_numastat(numastat.read().with_context(|| reading("numastat"))?, &mut raw);
            }
            Ok(raw)
        };
        self.files.iter_mut().map(read).collect()
    }
}

/// Lines are `Node 0 MemTotal: 123 kB` in sysfs and `MemTotal: 123 kB` in /proc.
fn parse_meminfo(text: &str, raw: &mut NodeRaw) {
    let [mut active, mut inactive, mut shmem, mut dirty] = [None; 4];
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let name = name.rsplit(' ').next().unwrap_or(name);
        let mut words = value.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let bytes = if words.next() == Some("kB") { number.saturating_mul(1024) } else { number };
        match name {
            "MemTotal" => raw.mem_total_bytes = bytes,
            "MemFree" => raw.mem_free_bytes = bytes,
            // /proc/meminfo of a kernel without NUMA has Cached instead.
            "FilePages" | "Cached" => raw.mem_file_bytes = bytes,
            "AnonPages" => raw.mem_anon_bytes = bytes,
            "Slab" => raw.mem_slab_bytes = bytes,
            "Active(file)" => active = Some(bytes),
            "Inactive(file)" => inactive = Some(bytes),
            "Shmem" => shmem = Some(bytes),
            "Dirty" => dirty = Some(bytes),
            "HugePages_Total" => raw.huge_total = number,
            "HugePages_Free" => raw.huge_free = number,
            _ => {}
        }
    }
    if let (Some(active_bytes), Some(inactive_bytes), Some(shmem_bytes), Some(dirty_bytes)) =
        (active, inactive, shmem, dirty)
    {
        raw.file_pages = Some(FilePages { active_bytes, inactive_bytes, shmem_bytes, dirty_bytes });
    }
}

/// A file that was cut has no number: 0 would be a measurement.
fn parse_numastat(text: &str, raw: &mut NodeRaw) {
    let mut read = raw.clone();
    let mut found = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(Ok(pages))) = (words.next(), words.next().map(str::parse::<u64>)) else {
            continue;
        };
        let field = match name {
            "numa_hit" => &mut read.numa_hit,
            "numa_miss" => &mut read.numa_miss,
            "numa_foreign" => &mut read.numa_foreign,
            "interleave_hit" => &mut read.interleave_hit,
            "local_node" => &mut read.local_node,
            "other_node" => &mut read.other_node,
            _ => continue,
        };
        *field = pages;
        found += 1;
    }
    if found == 6 {
        *raw = read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_meminfo() {
        let mut raw = NodeRaw::default();
        parse_meminfo(
            "Node 1 MemTotal:       98304 kB\nNode 1 MemFree:          33 kB\nNode 1 FilePages:      64 kB\n\
             Node 1 AnonPages:      12 kB\nNode 1 Slab:      8 kB\nNode 1 HugePages_Total:     4\nNode 1 HugePages_Free:      3\n",
            &mut raw,
        );
        assert_eq!(raw.mem_total_bytes, 98304 * 1024);
        assert_eq!(raw.mem_free_bytes, 33 * 1024);
        assert_eq!((raw.mem_file_bytes, raw.mem_anon_bytes, raw.mem_slab_bytes), (65536, 12288, 8192));
        assert_eq!((raw.huge_total, raw.huge_free), (4, 3));
        assert_eq!(raw.file_pages, None);
    }

    #[test]
    fn files_of_a_node_are_told_by_kind() {
        let mut raw = NodeRaw::default();
        let text = "Node 1 Active:         500 kB\nNode 1 Active(file):   40 kB\nNode 1 Inactive(file):  30 kB\n\
                    Node 1 Dirty:            2 kB\nNode 1 FilePages:       99 kB\nNode 1 ShmemHugePages:   7 kB\n";
        parse_meminfo(text, &mut raw);
        assert_eq!(raw.file_pages, None, "a part is not there");
        parse_meminfo(&format!("{text}Node 1 Shmem:           20 kB\n"), &mut raw);
        let kib = |kib: u64| kib * 1024;
        let [active_bytes, inactive_bytes, shmem_bytes, dirty_bytes] = [kib(40), kib(30), kib(20), kib(2)];
        assert_eq!(
            raw.file_pages,
            Some(FilePages { active_bytes, inactive_bytes, shmem_bytes, dirty_bytes })
        );
    }

    #[test]
    fn more_memory_than_can_be_counted_is_as_much_as_can() {
        let mut raw = NodeRaw::default();
        parse_meminfo(&format!("Node 1 MemTotal: {} kB\n", u64::MAX), &mut raw);
        assert_eq!(raw.mem_total_bytes, u64::MAX);
    }

    #[test]
    fn numastat_of_a_busy_host() {
        let mut raw = NodeRaw::default();
        parse_numastat(
            "numa_hit 129600200\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 108648\nlocal_node 129576548\nother_node 23652\n",
            &mut raw,
        );
        assert_eq!(raw.numa_hit, raw.local_node + raw.other_node);
        assert_eq!(raw.interleave_hit, 108_648);
    }

    #[test]
    fn a_numastat_that_was_cut_counts_nothing() {
        let whole = "numa_hit 5\nnuma_miss 4\nnuma_foreign 3\ninterleave_hit 2\nlocal_node 1\nother_node 9\n";
        for cut in [
            &whole[..whole.len() - 3],
            "",
            &whole.replace('4', "-4"),
            &whole.replace('4', "18446744073709551616"),
        ] {
            let mut raw = NodeRaw::default();
            parse_numastat(cut, &mut raw);
            assert_eq!(raw, NodeRaw::default(), "{cut}");
        }
    }
}
