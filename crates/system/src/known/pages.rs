//! Memory on a node: preferred there, touched, and looked up page by page.

use std::fs;
use std::io;

use crate::sys::{self, PageAdvice, Region};

/// Memory that is touched between two looks at the room that is left, in bytes.
pub const STEP: usize = 16 << 20;

/// Addresses that one call looks up.
const LOOKED_UP: usize = 4096;

/// Memory with present pages.
pub struct Placed {
    pub region: Region,
    /// The node it is to be on; `None` where the machine has no nodes to choose from.
    pub node: Option<u32>,
    /// The part in huge pages, 0..=1; `None` where the kernel does not report it.
    pub huge_share: Option<f64>,
}

/// The reason why memory is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMemory {
    /// The kernel refused the region or the node.
    #[error("{0}")]
    Refused(String),
    /// The caller found that too little would be left.
    #[error("no room: {0}")]
    NoRoom(String),
}

/// Allocates `bytes` of memory that prefers `node`, in huge pages if `huge`; this thread touches them. `room`
/// runs before each [`STEP`] and returns an error if no more may be taken.
///
/// # Errors
/// Such memory is unavailable; all of it is freed.
pub fn on_node(
    bytes: usize,
    node: Option<u32>,
    huge: bool,
    mut room: impl FnMut() -> Result<(), String>,
) -> Result<Placed, NoMemory> {
    let refused = |action: &str, error: io::Error| NoMemory::Refused(format!("{action}: {error}"));
    let mut region = Region::new(bytes).map_err(|error| refused("mmap", error))?;
    let asked = region.advise(if huge { PageAdvice::Huge } else { PageAdvice::Small });
    if let Some(node) = node {
        region.prefer(node).map_err(|error| refused(&format!("preferring node {node}"), error))?;
    }
    let (step, page) = (STEP / size_of::<u64>(), rustix::param::page_size() / size_of::<u64>());
    for words in region.words_mut().chunks_mut(step) {
        room().map_err(NoMemory::NoRoom)?;
        words.iter_mut().step_by(page).for_each(|word| *word = 1);
    }
    let mut huge_share = huge_share(&region);
    if huge && (asked.is_err() || huge_share.is_some_and(|share| share < 0.99)) {
        // Where huge pages are switched off, this call still makes them.
        let _ = region.advise(PageAdvice::Collapse);
        huge_share = self::huge_share(&region);
    }
    Ok(Placed { region, node, huge_share })
}

impl Placed {
    /// Part of its pages that are on its node now, 0..=1; 1 where it has none to be on.
    ///
    /// # Errors
    /// The errno of move_pages(2).
    pub fn on_node_share(&self) -> io::Result<f64> {
        let Some(node) = self.node else { return Ok(1.0) };
        let nodes = nodes_of(&self.region)?;
        let there = nodes.iter().filter(|found| **found == node as i32).count();
        Ok(there as f64 / nodes.len().max(1) as f64)
    }
}

/// The node of each page of `region`, or a negative errno. Huge pages count as the small ones that they are made of.
///
/// # Errors
/// The errno of move_pages(2): ENOSYS without CONFIG_NUMA.
pub fn nodes_of(region: &Region) -> io::Result<Vec<i32>> {
    let pages: Vec<u64> = (0..region.bytes())
        .step_by(rustix::param::page_size())
        .map(|at| region.address() + at as u64)
        .collect();
    let mut nodes = Vec::with_capacity(pages.len());
    for some in pages.chunks(LOOKED_UP) {
        nodes.extend(sys::nodes_of_pages(0, some)?);
    }
    Ok(nodes)
}

/// Part of `region` in huge pages.
fn huge_share(region: &Region) -> Option<f64> {
    let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
    let range = region.address()..region.address() + region.bytes() as u64;
    Some(huge_bytes(&smaps, range) as f64 / region.bytes() as f64)
}

/// Bytes in huge pages (`AnonHugePages`) of the mappings in `smaps` that begin in `range` or reach into it. The kernel merges
/// neighbours, so that a mapping may be longer than the region; the sum is cut at the length of the range.
fn huge_bytes(smaps: &str, range: std::ops::Range<u64>) -> u64 {
    let (mut inside, mut bytes) = (false, 0u64);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        {
            inside = from < range.end && to > range.start;
        } else if first == "AnonHugePages:" && inside {
            let kib: u64 = second.and_then(|number| number.parse().ok()).unwrap_or(0);
            bytes = bytes.saturating_add(kib.saturating_mul(1024));
        }
    }
    bytes.min(range.end - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_there_and_on_the_node() {
        let small = on_node(4 << 20, Some(0), false, || Ok(())).unwrap();
        assert_eq!(small.on_node_share().unwrap(), 1.0);
        assert!(small.huge_share.is_none_or(|share| share == 0.0));
        let nodes = nodes_of(&small.region).unwrap();
        assert_eq!(nodes.len(), (4 << 20) / rustix::param::page_size());
        assert!(nodes.iter().all(|node| *node == 0));
    }

    #[test]
    fn room_is_asked_before_each_step() {
        let mut asked = 0;
        let refused = on_node(4 * STEP, None, true, || {
            asked += 1;
            if asked < 3 { Ok(()) } else { Err("full".into()) }
        });
        assert_eq!(refused.err(), Some(NoMemory::NoRoom("full".into())));
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let refused = on_node(1, Some(1023), true, || Ok(())).err().unwrap();
        assert!(refused.to_string().starts_with("preferring node 1023: "), "{refused}");
    }

    #[test]
    fn huge_pages_of_the_range_are_counted() {
        let smaps = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size: 4096 kB
AnonHugePages:      4096 kB
7f0000400000-7f0000800000 rw-p 00000000 00:00 0  [anon:x]
AnonHugePages:      2048 kB
7f0000800000-7f0000a00000 rw-p 00000000 00:00 0
AnonHugePages:      2048 kB
";
        assert_eq!(huge_bytes(smaps, 0x7f00_0040_0000..0x7f00_0080_0000), 2 << 20);
        assert_eq!(huge_bytes(smaps, 0x7f00_0000_0000..0x7f00_00a0_0000), 8 << 20);
        assert_eq!(huge_bytes(smaps, 0..4096), 0);
    }
}
