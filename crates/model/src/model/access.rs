//! Memory in use: the result of sampled accesses, by process. It holds no address inside a mapping.

#![warn(missing_docs)]

pub mod answers;
pub mod latency;
pub mod lines;
pub mod next_runs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::answers::Answers;
use self::lines::{ContendedLines, Object};
use self::next_runs::NextRuns;
use super::process::ProcessId;
use super::sample::Missing;
use super::units::NodeId;

/// Samples with an address from which on a share is meaningful.
pub const ENOUGH: f64 = 100.0;

/// Mappings of a process that output and recordings list: the most used ones.
pub const MAPPINGS_LISTED: usize = 50;

/// Beginning of the causes that are counted of SPE alone: stretches and bytes, not samples, and none of the clock.
pub const OF_SPE: &str = "spe_";

/// Samples of an event that were left out: none of the clock.
pub const EVENTS_LEFT_OUT: &str = "events_left_out";

/// Samples of contended lines that were left out: they are in all other numbers.
pub const LINES_LEFT_OUT: &str = "lines_left_out";

/// First touches that were lost: no sample of memory use.
pub const TOUCHES_LEFT_OUT: &str = "touches_left_out";

/// Share of lost samples from which on shares say nothing.
const LOST_MAX: f64 = 0.05;

/// The sampler of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSource {
    /// A clock: shares are shares of time.
    Clock,
    /// Loads that a PMU of Intel samples, above a threshold.
    Pebs,
    /// Operations that a PMU of AMD samples.
    Ibs,
    /// Operations that Arm's Statistical Profiling Extension samples, above a threshold.
    Spe,
}

impl AccessSource {
    /// All of them.
    const ALL: [AccessSource; 4] =
        [AccessSource::Clock, AccessSource::Pebs, AccessSource::Ibs, AccessSource::Spe];

    /// Its name in JSON and in recordings.
    pub fn id(self) -> &'static str {
        match self {
            AccessSource::Clock => "clock",
            AccessSource::Pebs => "pebs",
            AccessSource::Ibs => "ibs",
            AccessSource::Spe => "spe",
        }
    }

    /// The sampler of this name; `None` for one that is not known.
    pub fn of_id(id: &str) -> Option<AccessSource> {
        AccessSource::ALL.into_iter().find(|source| source.id() == id)
    }
}

/// Memory in use in a sliding window.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryUses {
    /// The sampler of shares of time.
    pub source: AccessSource,
    /// The event of a PMU that is sampled, too, if so.
    pub event: Option<SampledEvent>,
    /// Length of the window in seconds: shorter soon after the start.
    pub window_s: f64,
    /// Processes that were sampled.
    pub processes: BTreeMap<ProcessId, Arc<MemoryUse>>,
}

/// An event of a PMU whose samples have addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledEvent {
    /// The way of sampling; not the clock.
    pub source: AccessSource,
    /// Accesses faster than this number of cycles are not sampled.
    pub threshold: Option<u32>,
}

/// Samples of one process in the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUse {
    /// Samples in user mode.
    pub samples: u64,
    /// Samples with an address, without memory, with an address that is gone, behind a jump, without an answer.
    pub with_address: u64,
    /// The instruction accesses no memory.
    pub plain: u64,
    /// The instruction has overwritten its address.
    pub gone: u64,
    /// The instruction before is not known.
    pub nowhere: u64,
    /// Code that could not be read or decoded.
    pub unknown: u64,
    /// Samples in the kernel, which have no address.
    pub kernel: u64,
    /// Samples of all processes that were lost in the window, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Samples of all processes in the window.
    pub of_all: u64,
    /// Samples that were followed to the next run of their instruction.
    pub next_runs: NextRuns,
    /// Addresses whose mapping was not found.
    pub unmapped: f64,
    /// Why nodes of pages are not known, if so.
    pub no_nodes: Option<Missing>,
    /// Mappings that were accessed, the most used one first.
    pub mappings: Vec<MappingUse>,
    /// Samples in mappings that are not listed one by one.
    pub rest: RestUse,
    /// Accesses that a PMU sampled.
    pub answers: Answers,
    /// Cache lines that its threads take from each other, as far as a PMU sampled them.
    pub lines: ContendedLines,
    /// Its memory by the code that touched it first, the most used one first.
    pub objects: Vec<Object>,
}

/// Samples in mappings that are not listed, in the same way as those of [`MappingUse`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestUse {
    /// See [`MappingUse::by_node`].
    pub by_node: ByNodes,
    /// See [`MappingUse::next_by_node`].
    pub next_by_node: ByNodes,
}

/// Samples in one mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingUse {
    /// First address of the mapping.
    pub start: u64,
    /// Size of the mapping in bytes.
    pub bytes: u64,
    /// Path or name, clean; empty for anonymous memory.
    pub name: String,
    /// Samples by node of the page (`None`: not known) and node of the CPU.
    pub by_node: ByNodes,
    /// Followed samples in the same way: by the page of the next run, or of the sampled one where that is not known.
    pub next_by_node: ByNodes,
    /// Accesses in it that a PMU sampled.
    pub answers: Answers,
}

/// Samples by node of the page (`None`: not known) and node of the CPU.
pub type ByNodes = BTreeMap<(Option<NodeId>, Option<NodeId>), f64>;

impl MappingUse {
    /// Samples in it. Copies count half a sample for each side.
    pub fn samples(&self) -> f64 {
        sum(self.by_node.values())
    }

    /// Samples whose page is on another node than the CPU, and all samples with both nodes known.
    pub fn remote(&self) -> (f64, f64) {
        remote(&self.by_node)
    }

    /// Followed samples in it.
    pub fn followed(&self) -> f64 {
        sum(self.next_by_node.values())
    }
}

/// The sum of numbers; that of none is 0, and not the -0 with which the standard library begins.
pub fn sum<'a>(numbers: impl Iterator<Item = &'a f64>) -> f64 {
    0.0 + numbers.sum::<f64>()
}

/// Adds `more` to `sum`, pair by pair.
pub fn add_by_nodes(sum: &mut ByNodes, more: &ByNodes) {
    more.iter().for_each(|(nodes, samples)| *sum.entry(*nodes).or_default() += samples);
}

/// Samples whose page is on another node than the CPU, and all samples with both nodes known.
pub fn remote(by_node: &ByNodes) -> (f64, f64) {
    let known = by_node.iter().map(|((page, cpu), samples)| (*page, *cpu, *samples));
    known.fold((0.0, 0.0), |(remote, all), (page, cpu, samples)| match (page, cpu) {
        (Some(page), Some(cpu)) if page != cpu => (remote + samples, all + samples),
        (Some(_), Some(_)) => (remote, all + samples),
        _ => (remote, all),
    })
}

/// Bytes of a map by nodes on the heap: its nodes have room for eleven entries, and are half full at least.
fn node_bytes(map: &ByNodes) -> usize {
    const ENTRIES: usize = 11;
    let nodes = map.len().div_ceil(ENTRIES / 2);
    nodes * ENTRIES * size_of::<((Option<NodeId>, Option<NodeId>), f64)>()
}

impl MemoryUse {
    /// Bytes of memory that it takes, as estimated.
    pub fn heap_bytes(&self) -> usize {
        let of = |mapping: &MappingUse| {
            mapping.name.len() + node_bytes(&mapping.by_node) + node_bytes(&mapping.next_by_node)
        };
        let lines = self.lines.listed.iter().map(|line| size_of_val(line) + size_of_val(&line.sides[..]));
        size_of::<MemoryUse>()
            + size_of_val(&self.mappings[..])
            + self.mappings.iter().map(of).sum::<usize>()
            + node_bytes(&self.rest.by_node)
            + node_bytes(&self.rest.next_by_node)
            + self.next_runs.by_mapping.len() * 2 * size_of::<[u64; 3]>()
            + lines.sum::<usize>()
            + size_of_val(&self.objects[..])
            + self.objects.iter().map(Object::heap_bytes).sum::<usize>()
    }

    /// Addresses that were found in mappings.
    pub fn placed(&self) -> f64 {
        sum(self.by_nodes().flat_map(BTreeMap::values))
    }

    /// Samples by nodes: of each mapping, and of all unlisted ones.
    fn by_nodes(&self) -> impl Iterator<Item = &ByNodes> {
        self.mappings.iter().map(|mapping| &mapping.by_node).chain([&self.rest.by_node])
    }

    /// Followed samples in the same way.
    fn next_by_nodes(&self) -> impl Iterator<Item = &ByNodes> {
        self.mappings.iter().map(|mapping| &mapping.next_by_node).chain([&self.rest.next_by_node])
    }

    /// Followed samples of all mappings by the nodes of page and CPU, where both are known.
    pub fn followed_by_nodes(&self) -> BTreeMap<(NodeId, NodeId), f64> {
        let mut sum = BTreeMap::new();
        for ((page, cpu), samples) in self.next_by_nodes().flatten() {
            if let (Some(page), Some(cpu)) = (page, cpu) {
                *sum.entry((*page, *cpu)).or_default() += samples;
            }
        }
        sum
    }

    /// Lists at most the first `most` mappings and merges the others into one place. Sums do not change.
    pub fn list_no_more_than(&mut self, most: usize) {
        if self.mappings.len() <= most {
            return;
        }
        for mapping in self.mappings.drain(most..) {
            add_by_nodes(&mut self.rest.by_node, &mapping.by_node);
            add_by_nodes(&mut self.rest.next_by_node, &mapping.next_by_node);
        }
        let listed: BTreeSet<u64> = self.mappings.iter().map(|mapping| mapping.start).collect();
        self.next_runs.list_only(&listed);
    }

    /// Samples at instructions that access memory, whether or not their address is known.
    pub fn at_memory(&self) -> u64 {
        self.with_address + self.gone
    }

    /// Samples by node of the page.
    pub fn by_page_node(&self) -> BTreeMap<NodeId, f64> {
        let mut by_node = BTreeMap::new();
        for ((page, _), samples) in self.by_nodes().flatten() {
            if let Some(page) = page {
                *by_node.entry(*page).or_default() += samples;
            }
        }
        by_node
    }

    /// Samples whose page is on another node than the CPU, and all samples with both nodes known.
    pub fn remote(&self) -> (f64, f64) {
        self.by_nodes().map(remote).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Followed samples whose page is on another node than the CPU, and all followed samples with both nodes
    /// known.
    pub fn remote_by_count(&self) -> (f64, f64) {
        self.next_by_nodes().map(remote).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Followed samples that were found in mappings.
    pub fn placed_by_count(&self) -> f64 {
        sum(self.next_by_nodes().flat_map(BTreeMap::values))
    }

    /// Whether so few samples of the clock were lost that shares say something.
    ///
    /// # Errors
    /// Too many were.
    pub fn complete(&self) -> Result<(), Missing> {
        self.has_all_but(|cause| {
            cause.starts_with(OF_SPE) || [EVENTS_LEFT_OUT, LINES_LEFT_OUT, TOUCHES_LEFT_OUT].contains(&cause)
        })
    }

    /// The same of samples of an event.
    ///
    /// # Errors
    /// Too many were.
    pub fn events_complete(&self) -> Result<(), Missing> {
        self.has_all_but(|cause| {
            cause.starts_with(OF_SPE) || [LINES_LEFT_OUT, TOUCHES_LEFT_OUT].contains(&cause)
        })
    }

    fn has_all_but(&self, is_other: impl Fn(&str) -> bool) -> Result<(), Missing> {
        let of_samples = self.lost.iter().filter(|(cause, _)| !is_other(cause));
        let lost: u64 = of_samples.map(|(_, count)| count).sum();
        if lost as f64 > LOST_MAX * (lost + self.of_all) as f64 {
            return Err(Missing::Lost(format!("{lost} of {} samples were lost", lost + self.of_all)));
        }
        Ok(())
    }

    /// Whether there are enough samples for shares.
    ///
    /// # Errors
    /// Why there are not.
    pub fn sound(&self) -> Result<(), Missing> {
        let no = |why: String| Err(Missing::NotCollected(why));
        self.complete()?;
        if (self.with_address as f64) < ENOUGH {
            let (with, all) = (self.with_address, self.samples);
            return no(format!("{with} of {all} samples have an address, but shares need at least {ENOUGH}"));
        }
        let memory = self.at_memory() + self.nowhere;
        if self.with_address * 2 < memory {
            let (gone, nowhere) = (self.gone, self.nowhere);
            return no(format!(
                "less than half of its memory samples have an address: {gone} addresses were overwritten, \
                 {nowhere} samples follow a jump"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, samples: f64) -> MappingUse {
        let by_node = |samples| ByNodes::from([((Some(NodeId(1)), Some(NodeId(0))), samples)]);
        MappingUse {
            start,
            bytes: 4096,
            name: String::new(),
            by_node: by_node(samples),
            next_by_node: by_node(2.0 * samples),
            answers: Answers::default(),
        }
    }

    #[test]
    fn sums_stay_as_they_are_when_fewer_mappings_are_listed() {
        let all = MemoryUse {
            mappings: vec![mapping(0x1000, 5.0), mapping(0x2000, 3.0), mapping(0x3000, 0.5)],
            next_runs: NextRuns {
                by_mapping: [((0x1000, 0x2000), 3), ((0x3000, 0x2000), 4), ((0x2000, 0x1000), 5)].into(),
                ..NextRuns::default()
            },
            ..MemoryUse::default()
        };
        let mut fewer = all.clone();
        fewer.list_no_more_than(3);
        assert_eq!(fewer, all);
        fewer.list_no_more_than(1);
        assert_eq!((fewer.mappings.len(), fewer.rest.by_node.len()), (1, 1));
        assert_eq!((fewer.placed(), fewer.placed_by_count()), (8.5, 17.0));
        assert_eq!((fewer.remote(), fewer.remote_by_count()), (all.remote(), all.remote_by_count()));
        assert_eq!(fewer.by_page_node(), all.by_page_node());
        assert_eq!(fewer.next_runs.by_mapping, [((0x1000, 0), 3), ((0, 0), 4), ((0, 0x1000), 5)].into());
    }

    #[test]
    fn no_sample_is_zero_without_a_sign() {
        let (found, mapping) =
            (MemoryUse::default(), MappingUse { by_node: ByNodes::new(), ..mapping(0x1000, 1.0) });
        for none in [found.placed(), found.placed_by_count(), mapping.samples()] {
            assert_eq!(format!("{none:.0}"), "0");
        }
    }

    #[test]
    fn losses_of_others_say_nothing_against_the_clock() {
        let of = |cause: &str| {
            let found = MemoryUse { of_all: 100, lost: [(cause.into(), 50)].into(), ..MemoryUse::default() };
            (found.complete().is_ok(), found.events_complete().is_ok())
        };
        assert_eq!(of("ring_full"), (false, false));
        assert_eq!(of("events_left_out"), (true, false));
        let others = ["lines_left_out", "spe_left_out", "spe_no_task", "touches_left_out"];
        assert_eq!(others.map(of), [(true, true); 4]);
    }
}
