//! Decoded accesses of the last seconds, added up by process.

#![warn(missing_docs)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::next_runs::NextRun;
use super::objects::{PlacedObjects, is_shared};
use super::sample::Outcome;
use super::touches::Touches;
use crate::model::access::answers::{AccessClass, Answers};
use crate::model::access::{
    AccessSource, ByNodes, MappingUse, MemoryUse, MemoryUses, SampledEvent, add_by_nodes,
};
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::model::units::NodeId;

/// Length of the window.
pub const WINDOW_NS: u64 = 10_000_000_000;

/// Mappings of a process that are kept in one result: the most used ones.
const MAPPINGS_MAX: usize = 1000;

/// Samples of one process whose pages are not looked up yet.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: MemoryUse,
    /// Samples by page and node of the CPU.
    pages: HashMap<(u64, Option<NodeId>), f64>,
    /// Followed samples in the same way.
    next_pages: HashMap<(u64, Option<NodeId>), f64>,
    /// Accesses that a PMU sampled.
    events: Vec<EventAt>,
    /// Followed samples by pages of the next two runs and node of the CPU.
    pairs: HashMap<(u64, u64, Option<NodeId>), u64>,
}

/// An access that a PMU sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventAt {
    /// Its page, by number.
    pub page: Option<u64>,
    /// The node of the page by its physical address.
    pub page_node: Option<NodeId>,
    /// The node of the CPU.
    pub cpu_node: Option<NodeId>,
    /// The place that answered.
    pub class: AccessClass,
    /// Cycles that it took.
    pub cycles: Option<u32>,
}

/// Samples of one interval by process.
pub type Batch = BTreeMap<ProcessId, Tally>;

/// The mapping of a page, and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPlace {
    /// Index among the mappings of the answer.
    pub mapping: usize,
    /// The node of the page; `None`: not known.
    pub node: Option<NodeId>,
}

/// The answer about pages of one process.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// First address, size and name.
    pub mappings: Vec<(u64, u64, String)>,
    /// By page number; pages without an entry lie in no mapping.
    pub pages: HashMap<u64, AccessPlace>,
    /// Why nodes are not known, if so.
    pub no_nodes: Option<Missing>,
}

impl Tally {
    /// Adds one sample; `None` is one in the kernel. Pages have 2 to the power of `page_shift` bytes.
    pub fn add(&mut self, outcome: Option<Outcome>, cpu_node: Option<NodeId>, page_shift: u32) {
        let counts = &mut self.counts;
        let Some(outcome) = outcome else {
            counts.kernel += 1;
            return;
        };
        counts.samples += 1;
        let count = match outcome {
            Outcome::Address(_) | Outcome::Pair(..) => &mut counts.with_address,
            Outcome::Plain => &mut counts.plain,
            Outcome::Gone => &mut counts.gone,
            Outcome::Nowhere => &mut counts.nowhere,
            Outcome::Unknown => &mut counts.unknown,
        };
        *count += 1;
        for (address, share) in outcome.addresses() {
            *self.pages.entry((address >> page_shift, cpu_node)).or_default() += share;
        }
    }

    /// Adds a sample at memory whose program was followed. One that was not resolved counts with its own address.
    pub fn add_next(&mut self, next: &NextRun, page_shift: u32) {
        let runs = &mut self.counts.next_runs;
        runs.followed += 1;
        let page = |address: u64| address >> page_shift;
        let [first, second] = next.runs;
        let Some(first) = first else {
            for (address, share) in next.outcome.addresses() {
                *self.next_pages.entry((page(address), next.cpu_node)).or_default() += share;
            }
            if let Some(why) = next.end {
                *runs.ends.entry(why).or_default() += 1;
            }
            return;
        };
        runs.resolved += 1;
        runs.gone_resolved += u64::from(next.outcome == Outcome::Gone);
        *self.next_pages.entry((page(first), next.cpu_node)).or_default() += 1.0;
        if let Some(second) = second {
            *self.pairs.entry((page(first), page(second), next.cpu_node)).or_default() += 1;
        }
    }

    /// Adds an access that a PMU sampled.
    pub fn add_event(&mut self, event: EventAt) {
        self.events.push(event);
    }

    /// Counts a sample that was not followed for want of time.
    pub fn leave_out(&mut self) {
        self.counts.next_runs.left_out += 1;
    }

    /// The pages that were accessed or will be, each once.
    pub fn pages(&self) -> Vec<u64> {
        let of_runs = self.pages.keys().chain(self.next_pages.keys()).map(|(page, _)| *page);
        let of_pairs = self.pairs.keys().flat_map(|(first, second, _)| [*first, *second]);
        let of_events = self.events.iter().filter_map(|event| event.page);
        let mut pages: Vec<u64> = of_runs.chain(of_pairs).chain(of_events).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Samples in pages whose first touch is known, by the code that made it. Memory of files and shared memory is left out.
    pub fn by_object(&self, places: &Places, touches: &Touches) -> PlacedObjects {
        let mut placed = PlacedObjects::default();
        for (pages, followed) in [(&self.pages, false), (&self.next_pages, true)] {
            for ((page, cpu_node), samples) in pages {
                let Some(place) = places.pages.get(page) else { continue };
                let Some((_, _, name)) = places.mappings.get(place.mapping) else { continue };
                if let Some(object) = touches.object_at(*page)
                    && !is_shared(name)
                {
                    placed.add(object, name, (place.node, *cpu_node), *samples, followed);
                }
            }
        }
        placed
    }

    /// With the results about its pages.
    pub fn place(self, places: &Places) -> MemoryUse {
        let mut found = self.counts;
        let mapping = |(start, bytes, name): &(u64, u64, String)| MappingUse {
            start: *start,
            bytes: *bytes,
            name: name.clone(),
            by_node: ByNodes::new(),
            next_by_node: ByNodes::new(),
            answers: Answers::default(),
        };
        let mut mappings: Vec<MappingUse> = places.mappings.iter().map(mapping).collect();
        for ((page, cpu_node), samples) in self.pages {
            let place = places.pages.get(&page);
            match place.and_then(|place| Some((mappings.get_mut(place.mapping)?, place.node))) {
                Some((mapping, node)) => *mapping.by_node.entry((node, cpu_node)).or_default() += samples,
                None => found.unmapped += samples,
            }
        }
        for ((page, cpu_node), samples) in self.next_pages {
            if let Some(place) = places.pages.get(&page)
                && let Some(mapping) = mappings.get_mut(place.mapping)
            {
                *mapping.next_by_node.entry((place.node, cpu_node)).or_default() += samples;
            }
        }
        for ((first, second, cpu_node), samples) in self.pairs {
            let (Some(first), Some(second)) = (places.pages.get(&first), places.pages.get(&second)) else {
                continue;
            };
            let start = |place: &AccessPlace| mappings.get(place.mapping).map(|mapping| mapping.start);
            if let (Some(one), Some(other)) = (start(first), start(second)) {
                *found.next_runs.by_mapping.entry((one, other)).or_default() += samples;
            }
            if let (Some(cpu), Some(one), Some(other)) = (cpu_node, first.node, second.node) {
                *found.next_runs.by_remote.entry((one != cpu, other != cpu)).or_default() += samples;
            }
        }
        for event in self.events {
            let place = event.page.and_then(|page| places.pages.get(&page));
            // The physical address is that of the moment of the access.
            let page_node = event.page_node.or(place.and_then(|place| place.node));
            let elsewhere = page_node.zip(event.cpu_node).map(|(page, cpu)| page != cpu);
            found.answers.add(event.class, elsewhere, event.cycles);
            if let Some(mapping) = place.and_then(|place| mappings.get_mut(place.mapping)) {
                mapping.answers.add(event.class, elsewhere, event.cycles);
            }
        }
        let is_used = |mapping: &MappingUse| {
            !mapping.by_node.is_empty() || !mapping.next_by_node.is_empty() || mapping.answers.accesses() > 0
        };
        mappings.retain(is_used);
        (found.mappings, found.no_nodes) = (mappings, places.no_nodes.clone());
        found
    }
}

fn add_counts(sum: &mut MemoryUse, more: &MemoryUse) {
    sum.samples += more.samples;
    sum.with_address += more.with_address;
    sum.plain += more.plain;
    sum.gone += more.gone;
    sum.nowhere += more.nowhere;
    sum.unknown += more.unknown;
    sum.kernel += more.kernel;
    sum.unmapped += more.unmapped;
    sum.next_runs.add(&more.next_runs);
    sum.answers.add_all(&more.answers);
}

/// Losses by cause, as differences.
pub type Losses = BTreeMap<&'static str, u64>;

/// The intervals of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub struct Window {
    intervals: VecDeque<(u64, u64, BTreeMap<ProcessId, MemoryUse>, Losses)>,
}

impl Window {
    /// Adds an interval that lasted from `from_ns` to `to_ns`, and forgets the intervals that ended ten
    /// seconds earlier.
    pub fn add(&mut self, from_ns: u64, to_ns: u64, uses: BTreeMap<ProcessId, MemoryUse>, lost: Losses) {
        self.intervals.push_back((from_ns, to_ns, uses, lost));
        // The newest one stays, however long it is.
        while self.intervals.len() > 1
            && self.intervals.front().is_some_and(|(_, end_ns, ..)| end_ns + WINDOW_NS <= to_ns)
        {
            self.intervals.pop_front();
        }
    }

    /// The sum of the window; `event` is sampled beside the clock.
    pub fn sum(&self, event: Option<SampledEvent>) -> MemoryUses {
        let mut sums: BTreeMap<ProcessId, (MemoryUse, BTreeMap<u64, MappingUse>)> = BTreeMap::new();
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        let mut of_all = 0;
        for (_, _, uses, losses) in &self.intervals {
            losses.iter().for_each(|(cause, count)| *lost.entry((*cause).to_string()).or_default() += count);
            for (process, found) in uses {
                of_all += found.samples + found.kernel;
                let (sum, mappings) = sums.entry(*process).or_default();
                add_counts(sum, found);
                sum.no_nodes.clone_from(&found.no_nodes);
                found.mappings.iter().for_each(|mapping| add_mapping(mappings, mapping));
            }
        }
        let finish = |(process, (mut sum, mappings)): (ProcessId, (MemoryUse, BTreeMap<u64, MappingUse>))| {
            sum.mappings = mappings.into_values().collect();
            let used = |mapping: &MappingUse| {
                (mapping.samples(), mapping.followed(), mapping.answers.accesses() as f64)
            };
            sum.mappings.sort_by(|one, other| {
                let (one, other) = (used(one), used(other));
                other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1)).then(other.2.total_cmp(&one.2))
            });
            sum.list_no_more_than(MAPPINGS_MAX);
            (sum.lost, sum.of_all) = (lost.clone(), of_all);
            (process, Arc::new(sum))
        };
        let from = self.intervals.front().map_or(0, |(from, ..)| *from);
        let to = self.intervals.back().map_or(0, |(_, to, ..)| *to);
        MemoryUses {
            source: AccessSource::Clock,
            event,
            window_s: to.saturating_sub(from) as f64 / 1e9,
            processes: sums.into_iter().map(finish).collect(),
        }
    }
}

fn add_mapping(sums: &mut BTreeMap<u64, MappingUse>, mapping: &MappingUse) {
    let sum = sums.entry(mapping.start).or_insert_with(|| MappingUse {
        by_node: ByNodes::new(),
        next_by_node: ByNodes::new(),
        answers: Answers::default(),
        ..mapping.clone()
    });
    // It may have grown, and its address may be another mapping's now: the last one counts.
    sum.bytes = mapping.bytes;
    sum.name.clone_from(&mapping.name);
    add_by_nodes(&mut sum.by_node, &mapping.by_node);
    add_by_nodes(&mut sum.next_by_node, &mapping.next_by_node);
    sum.answers.add_all(&mapping.answers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::next_runs::GaveUp;

    const PROCESS: ProcessId = (7, 1);
    const S: u64 = 1_000_000_000;

    fn places() -> Places {
        let place = |mapping, node| AccessPlace { mapping, node: Some(NodeId(node)) };
        Places {
            mappings: vec![(0x1000, 0x2000, "heap".into()), (0x8000, 0x1000, "shared".into())],
            pages: HashMap::from([(1, place(0, 0)), (2, place(0, 1)), (8, place(1, 1))]),
            no_nodes: None,
        }
    }

    fn found() -> MemoryUse {
        let mut tally = Tally::default();
        let on = Some(NodeId(0));
        for outcome in [
            Outcome::Address(0x1008),
            Outcome::Address(0x2008),
            Outcome::Pair(0x1010, 0x8000),
            Outcome::Address(0x9999_9000),
            Outcome::Plain,
            Outcome::Gone,
            Outcome::Nowhere,
            Outcome::Unknown,
        ] {
            tally.add(Some(outcome), on, 12);
        }
        tally.add(None, on, 12);
        assert_eq!(tally.pages(), [1, 2, 8, 0x99999]);
        tally.place(&places())
    }

    #[test]
    fn samples_go_to_the_mapping_and_nodes_of_their_pages() {
        let found = found();
        assert_eq!((found.samples, found.with_address, found.kernel), (8, 4, 1));
        assert_eq!((found.plain, found.gone, found.nowhere, found.unknown), (1, 1, 1, 1));
        assert_eq!(found.unmapped, 1.0);
        assert_eq!(found.placed(), 3.0);
        assert_eq!(found.remote(), (1.5, 3.0));
        assert_eq!(found.by_page_node(), BTreeMap::from([(NodeId(0), 1.5), (NodeId(1), 1.5)]));
    }

    #[test]
    fn next_runs_go_to_mappings_and_unresolved_ones_to_their_own_address() {
        let mut tally = Tally::default();
        let next =
            |outcome, runs| NextRun { outcome, cpu_node: Some(NodeId(0)), runs, end: Some(GaveUp::Branch) };
        tally.add_next(&next(Outcome::Gone, [Some(0x1000), Some(0x2000)]), 12);
        tally.add_next(&next(Outcome::Address(0x1000), [Some(0x8000), None]), 12);
        tally.add_next(&next(Outcome::Pair(0x1000, 0x2000), [None, None]), 12);
        tally.add_next(&next(Outcome::Gone, [None, None]), 12);
        tally.leave_out();
        assert_eq!(tally.pages(), [1, 2, 8]);
        let found = tally.place(&places());
        let runs = &found.next_runs;
        assert_eq!((runs.followed, runs.resolved, runs.gone_resolved, runs.left_out), (4, 2, 1, 1));
        assert_eq!(runs.ends, BTreeMap::from([(GaveUp::Branch, 2)]));
        assert_eq!(found.remote_by_count(), (1.5, 3.0));
        assert_eq!((found.placed_by_count(), found.placed()), (3.0, 0.0));
        assert_eq!(runs.by_remote, BTreeMap::from([((false, true), 1)]));
        assert_eq!(runs.by_mapping, BTreeMap::from([((0x1000, 0x1000), 1)]));
    }

    #[test]
    fn sampled_accesses_go_to_their_mapping_and_the_node_of_their_address() {
        let mut tally = Tally::default();
        let event = EventAt {
            page: Some(2),
            page_node: None,
            cpu_node: Some(NodeId(0)),
            class: AccessClass::Dram { remote: false },
            cycles: Some(300),
        };
        // Page 2 is on node 1, unless the physical address contradicts.
        tally.add_event(event);
        tally.add_event(EventAt { page_node: Some(NodeId(0)), cycles: None, ..event });
        // Without an address only the class is known.
        tally.add_event(EventAt { page: None, class: AccessClass::Dram { remote: true }, ..event });
        assert_eq!(tally.pages(), [2]);
        let found = tally.place(&places());
        assert_eq!((found.answers.memory(), found.answers.accesses()), ((2, 3), 3));
        assert_eq!(found.answers.remote.latencies.loads(), 2);
        assert_eq!((found.mappings.len(), found.mappings[0].answers.memory()), (1, (1, 2)));
    }

    #[test]
    fn a_window_is_ten_seconds_long() {
        let mut window = Window::default();
        let once = || BTreeMap::from([(PROCESS, found())]);
        for second in 0..30 {
            window.add(second * S, (second + 1) * S, once(), Losses::from([("ring_full", 2)]));
        }
        let sum = window.sum(None);
        assert_eq!(sum.window_s, 10.0);
        let process = &sum.processes[&PROCESS];
        assert_eq!((process.samples, process.lost["ring_full"], process.of_all), (80, 20, 90));
        assert_eq!(process.mappings[0].name, "heap");
        assert_eq!(process.mappings[0].samples(), 25.0);
    }

    #[test]
    fn shares_have_reasons_where_they_say_nothing() {
        let mut found = found();
        found.with_address = 99;
        assert!(found.sound().unwrap_err().to_string().contains("shares need at least 100"));
        (found.with_address, found.gone) = (200, 150);
        assert_eq!(found.sound(), Ok(()));
        found.gone = 300;
        assert!(found.sound().unwrap_err().to_string().contains("less than half"));
        (found.of_all, found.lost) = (1000, [("ring_full".to_string(), 100)].into());
        assert!(matches!(found.sound(), Err(Missing::Lost(_))));
    }
}
