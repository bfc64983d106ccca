//! Watermarks of nodes (/proc/zoneinfo): free memory below which the kernel begins to reclaim.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// Watermarks change with `vm.min_free_kbytes`, hotplug and pressure: seldom. The file has a line for each
/// CPU of each zone, which is much on a large machine.
const EVERY: Duration = Duration::from_secs(10);

/// One node, all its zones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Pages below which an allocation wakes kswapd (`low`).
    pub low: u64,
    /// Pages that the page allocator hands out (`managed`).
    pub managed: u64,
}

/// Reads the watermarks now and then.
pub struct ZoneReader {
    path: PathBuf,
    read_at: Option<Instant>,
    marks: BTreeMap<u32, Watermarks>,
}

impl ZoneReader {
    pub fn new(root: &Path) -> ZoneReader {
        ZoneReader { path: root.join("proc/zoneinfo"), read_at: None, marks: BTreeMap::new() }
    }

    /// The watermarks by node id, not older than ten seconds.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn marks(&mut self) -> io::Result<&BTreeMap<u32, Watermarks>> {
        if self.read_at.is_none_or(|at| at.elapsed() >= EVERY) {
            self.marks = parse(&fs::read_to_string(&self.path)?);
            self.read_at = Some(Instant::now());
        }
        Ok(&self.marks)
    }
}

/// Blocks begin with `Node 0, zone   Normal`; the fields are indented below it.
fn parse(text: &str) -> BTreeMap<u32, Watermarks> {
    let mut marks: BTreeMap<u32, Watermarks> = BTreeMap::new();
    let mut node = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            node = rest.split(',').next().and_then(|id| id.trim().parse().ok());
            continue;
        }
        let (Some(node), Some((name, value))) = (node, line.trim().split_once(' ')) else { continue };
        let Ok(pages) = value.trim().parse::<u64>() else { continue };
        let entry = marks.entry(node).or_default();
        match name {
            "low" => entry.low = entry.low.saturating_add(pages),
            "managed" => entry.managed = entry.managed.saturating_add(pages),
            _ => {}
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_of_a_node_are_summed() {
        let marks = parse(
            "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 2174\n  pages free     3840\n        \
             low      13\n        managed  3840\n  pagesets\n    cpu: 0\n              count:    0\n              \
             high:     0\nNode 0, zone   Normal\n  pages free     9\n        low      100\n        managed  50000\n\
             Node 1, zone   Normal\n        low      7\n        managed  70\n",
        );
        assert_eq!(marks[&0], Watermarks { low: 113, managed: 53_840 });
        assert_eq!(marks[&1], Watermarks { low: 7, managed: 70 });
    }

    #[test]
    fn more_pages_than_can_be_counted_are_as_many_as_can() {
        let zone = format!("Node 0, zone Normal\n low {0}\n managed {0}\n", u64::MAX);
        assert_eq!(parse(&zone.repeat(2))[&0], Watermarks { low: u64::MAX, managed: u64::MAX });
    }
}
