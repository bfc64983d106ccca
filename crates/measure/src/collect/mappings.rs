//! The mappings of one process that a person asked for: size, policy, and where the pages of each are.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::placement::draw::{self, Random, Ranges};
use super::placement::target::{Finder, Lines, Target, parse_line, reason};
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::text;

/// Rows kept: those with most memory.
const ROWS_MAX: usize = 2000;
/// Time to count every page of a gigabyte of small pages: /proc/PID/numa_maps took 28 to 34 ms (docs/performance.md).
const WALK_NS_PER_GIB: u64 = 32_000_000;

/// One mapping. Texts are clean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    pub start: u64,
    pub bytes: u64,
    /// Path or name; empty for anonymous memory.
    pub name: String,
    /// Named as in numa(7); only a walk reads it.
    pub policy: Option<String>,
    /// Resident memory by node id, in bytes.
    pub by_node: Vec<f64>,
}

impl Mapping {
    pub fn resident(&self) -> f64 {
        // The sum of no numbers would be -0.
        self.by_node.iter().fold(0.0, |sum, bytes| sum + bytes)
    }
}

/// The mappings of a process, those with most memory first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mappings {
    /// Every page was counted; otherwise pages were picked at random, with this error in points for all of the
    /// memory together. Single mappings are less certain.
    pub error_points: Option<f64>,
    pub rows: Vec<Mapping>,
    /// Mappings there are; `rows` may have fewer.
    pub count: usize,
}

/// Time to count every page of a process with so much memory, in ns: huge pages are faster.
pub fn walk_ns(rss_bytes: u64) -> u64 {
    ((u128::from(rss_bytes) * u128::from(WALK_NS_PER_GIB)) >> 30) as u64
}

fn list(target: &Target) -> Result<Vec<Mapping>, Missing> {
    let failed = |error: std::io::Error| reason("reading maps of the process", &error);
    let mut lines = Lines::new(target.file(c"maps").map_err(failed)?);
    let mut rows = Vec::new();
    while let Some(line) = lines.next_line().map_err(failed)? {
        if let Some(found) = parse_line(line) {
            let name = text::clean(found.name);
            rows.push(Mapping {
                start: found.start,
                bytes: found.end - found.start,
                name,
                ..Mapping::default()
            });
        }
    }
    Ok(rows)
}

fn sorted(mut rows: Vec<Mapping>, error_points: Option<f64>) -> Mappings {
    let count = rows.len();
    rows.sort_by(|a, b| b.resident().total_cmp(&a.resident()).then(a.start.cmp(&b.start)));
    rows.truncate(ROWS_MAX);
    Mappings { error_points, rows, count }
}

/// From pages picked at random.
///
/// # Errors
/// The reason why the mappings cannot be read.
pub fn sampled(root: &Path, process: ProcessId, rss: u64, page_size: u64) -> Result<Mappings, Missing> {
    let target = Target::open(root, process.0, process.1)
        .map_err(|error| reason("opening /proc/PID of the process", &error))?;
    let mut rows = list(&target)?;
    let pagemap =
        target.file(c"pagemap").map_err(|error| reason("reading pagemap of the process", &error))?;
    let mut finder = Finder::new(pagemap, true, rss, page_size);
    let mut ranges = Ranges::default();
    let mut lines =
        Lines::new(target.file(c"maps").map_err(|error| reason("reading maps of the process", &error))?);
    while let Ok(Some(line)) = lines.next_line() {
        if let Some(mapping) = parse_line(line) {
            let added = finder.add(&mapping, &mut ranges);
            added.map_err(|error| reason("listing present pages of the process", &error))?;
        }
    }
    let mut hits: Vec<(u64, usize)> = Vec::new();
    let ask = |pages: &[u64]| {
        finder.wait_for_lock(pages.first().copied().unwrap_or(0))?;
        let nodes = target.nodes(pages, page_size)?;
        let there = pages
            .iter()
            .zip(&nodes)
            .filter_map(|(page, node)| usize::try_from(*node).ok().map(|node| (*page * page_size, node)));
        hits.extend(there);
        Ok(nodes)
    };
    // Any seed will do: it is looked at once.
    let found = draw::draw(&ranges, &mut Random(process.1 ^ rss), ask)
        .map_err(|error| reason("locating pages of the process", &error))?;
    let bytes = found.space as f64 * page_size as f64 / f64::from(found.asked.max(1));
    for (address, node) in hits {
        let at = rows.partition_point(|row| row.start <= address);
        if let Some(row) = at.checked_sub(1).and_then(|at| rows.get_mut(at)) {
            add(row, node, bytes);
        }
    }
    for row in &mut rows {
        // One sampled page represents many: no mapping has more than its size.
        let scale = (row.bytes as f64 / row.resident()).min(1.0);
        row.by_node.iter_mut().for_each(|on| *on *= scale);
    }
    Ok(sorted(rows, Some(found.error_points)))
}

fn add(row: &mut Mapping, node: usize, bytes: f64) {
    if row.by_node.len() <= node {
        row.by_node.resize(node + 1, 0.0);
    }
    row.by_node[node] += bytes;
}

/// From every page: takes [`walk_ns`], and holds up what the process does with its memory meanwhile.
///
/// # Errors
/// The reason why the mappings cannot be read.
pub fn exact(root: &Path, process: ProcessId) -> Result<Mappings, Missing> {
    let target = Target::open(root, process.0, process.1)
        .map_err(|error| reason("opening /proc/PID of the process", &error))?;
    let mut rows = list(&target)?;
    let failed = |error: std::io::Error| reason("reading its numa_maps", &error);
    let at: HashMap<u64, usize> = rows.iter().enumerate().map(|(at, row)| (row.start, at)).collect();
    let mut lines = Lines::new(target.file(c"numa_maps").map_err(failed)?);
    while let Some(line) = lines.next_line().map_err(failed)? {
        if let Some(NumaLine { start, policy, by_node, .. }) = parse_numa_line(line)
            && let Some(at) = at.get(&start)
        {
            rows[*at].policy = Some(policy);
            by_node.into_iter().for_each(|(node, bytes)| add(&mut rows[*at], node, bytes));
        }
    }
    Ok(sorted(rows, None))
}

/// A line of numa_maps, see numa(7).
pub(super) struct NumaLine {
    start: u64,
    /// As numa(7) writes it, with its nodes.
    pub(super) policy: String,
    /// Node and bytes.
    pub(super) by_node: Vec<(usize, f64)>,
    /// Of a mapping of hugetlbfs: the size of its pages, bytes.
    pub(super) huge_page_bytes: Option<u64>,
}

pub(super) fn parse_numa_line(line: &[u8]) -> Option<NumaLine> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    // Two modes have two words (mpol_to_str() of mm/mempolicy.c).
    let first = words.next()?;
    let policy = match first {
        "prefer" | "weighted" => {
            let mut rest = words.clone();
            match rest.next().filter(|word| word.starts_with("(many)") || word.starts_with("interleave")) {
                Some(second) => {
                    words = rest;
                    format!("{first} {second}")
                }
                None => first.to_owned(),
            }
        }
        _ => first.to_owned(),
    };
    let policy = text::clean_str(&policy);
    let mut pages: Vec<(usize, u64)> = Vec::new();
    let (mut page_bytes, mut is_huge) = (4096, false);
    // A path may look like anything, but has no unescaped blank and begins with file=.
    for word in words.filter(|word| !word.starts_with("file=")) {
        if let Some(kib) = word.strip_prefix("kernelpagesize_kB=").and_then(|kib| kib.parse::<u64>().ok()) {
            page_bytes = kib.saturating_mul(1024);
        } else if word == "huge" {
            is_huge = true;
        } else if let Some((node, count)) = word.strip_prefix('N').and_then(|word| word.split_once('=')) {
            let node = node.parse().ok().filter(|node| *node < draw::NODES_MAX as usize);
            pages.extend(node.zip(count.parse::<u64>().ok()));
        }
    }
    let by_node = pages.into_iter().map(|(node, count)| (node, count as f64 * page_bytes as f64)).collect();
    Some(NumaLine { start, policy, by_node, huge_page_bytes: is_huge.then_some(page_bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_mapping_count_with_their_size() {
        let line = b"7f00 bind:0-1 file=/dev/N0=9 anon=3 dirty=3 N0=1 N3=2 kernelpagesize_kB=2048";
        let NumaLine { start, policy, by_node, huge_page_bytes } = parse_numa_line(line).unwrap();
        assert_eq!((start, policy.as_str(), huge_page_bytes), (0x7f00, "bind:0-1", None));
        assert_eq!(by_node, [(0, 2097152.0), (3, 4194304.0)]);
    }

    #[test]
    fn policies_of_two_words_keep_both_and_their_nodes() {
        let of = |line: &str| parse_numa_line(line.as_bytes()).unwrap();
        assert_eq!(of("7f00 prefer (many):0 anon=1 N1=1 kernelpagesize_kB=4").policy, "prefer (many):0");
        let weighted = of("7f00 weighted interleave=static:0-1 anon=1 N1=1 kernelpagesize_kB=4");
        assert_eq!((weighted.policy.as_str(), weighted.by_node.len()), ("weighted interleave=static:0-1", 1));
        assert_eq!(of("7f00 prefer:1 anon=1 N1=1 kernelpagesize_kB=4").policy, "prefer:1");
        assert_eq!(of("7f00 default file=/weighted N0=1 kernelpagesize_kB=4").policy, "default");
    }

    #[test]
    fn mappings_of_hugetlbfs_are_told_from_transparent_huge_pages() {
        let of = |line: &str| parse_numa_line(line.as_bytes()).unwrap().huge_page_bytes;
        assert_eq!(
            of("7f00 default file=/dev/hugepages/pool huge dirty=3 N1=3 kernelpagesize_kB=2048"),
            Some(2 << 20)
        );
        assert_eq!(
            of("7f00 default file=/SYSV00000000\\040(deleted) huge N0=1 kernelpagesize_kB=1048576"),
            Some(1 << 30)
        );
        assert_eq!(of("7f00 default anon=512 dirty=512 N1=512 kernelpagesize_kB=4"), None);
        assert_eq!(of("7f00 default file=/huge N1=512 kernelpagesize_kB=4"), None);
    }

    #[test]
    fn hostile_lines_are_left_out() {
        for line in [&b""[..], b"zz default", b"7f00"] {
            assert!(parse_numa_line(line).is_none());
        }
        assert!(parse_numa_line(b"7f00 default N99999999=1").unwrap().by_node.is_empty());
    }

    #[test]
    fn only_whole_numbers_are_numbers_of_pages() {
        for line in ["N0=-1", "N0=nan", "N0=inf", "N0=1.5"] {
            let line = format!("7f00 default {line} kernelpagesize_kB=4");
            assert!(parse_numa_line(line.as_bytes()).unwrap().by_node.is_empty(), "{line}");
        }
        let line = b"7f00 default N0=1 kernelpagesize_kB=-4";
        assert_eq!(parse_numa_line(line).unwrap().by_node, [(0, 4096.0)]);
    }

    #[test]
    fn a_walk_of_two_hundred_gigabytes_takes_seconds() {
        assert_eq!(walk_ns(200 << 30) / 1_000_000, 6400);
    }
}
