//! Cache lines that threads take from each other: from sampled loads and stores to lines with the code of both sides.
//!
//! A line is contended if a load of it was answered by the cache of another core with the line modified
//! there. Sampled stores to the same line are the other side. Only lines with such loads are listed.

#![warn(missing_docs)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::window::{Places, WINDOW_NS};
use crate::model::access::lines::{
    ContendedLine, ContendedLines, LINE_SHIFT, LINES_LISTED, LineSide, SIDES_LISTED, Transfer,
};
use crate::model::process::ProcessId;
use crate::model::stacks::Function;
use crate::model::units::NodeId;

/// Samples of all processes that a window keeps: those of ten seconds on 128 CPUs, some 8 MB.
const SAMPLES_MAX: usize = 128 * 1024;

/// Loads that another core answered, from which on a line is listed: one alone happens to any data that moves.
const LOADS_MIN: u64 = 3;

/// A sampled access that may be one side of a contended line. Its address has no text form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LineSample {
    /// Virtual address of the access.
    pub address: u64,
    /// Address of the instruction; 0: not known.
    pub code: u64,
    /// The node of the CPU.
    pub cpu_node: Option<NodeId>,
    /// The node of the page by its physical address.
    pub page_node: Option<NodeId>,
    /// The cache of another core that answered; `None`: a store.
    pub transfer: Option<Transfer>,
}

impl LineSample {
    /// The number of its page of 2 to the power of `page_shift` bytes.
    pub fn page(&self, page_shift: u32) -> u64 {
        self.address >> page_shift
    }
}

/// Samples of one interval by process.
pub type LineBatch = BTreeMap<ProcessId, Vec<LineSample>>;

/// A sample whose mapping was looked up.
struct PlacedSample {
    sample: LineSample,
    mapping: Option<Arc<str>>,
    page_node: Option<NodeId>,
}

/// Samples of one process and interval, looked up.
#[derive(Default)]
pub struct PlacedLines(Vec<PlacedSample>);

/// The samples with the results about their pages, of 2 to the power of `page_shift` bytes.
pub fn place(samples: Vec<LineSample>, places: &Places, page_shift: u32) -> PlacedLines {
    let mut names: HashMap<usize, Arc<str>> = HashMap::new();
    let mut placed = |sample: LineSample| {
        let place = places.pages.get(&sample.page(page_shift));
        let name = place.and_then(|place| Some((place.mapping, places.mappings.get(place.mapping)?)));
        let mapping = name.map(|(at, (_, _, name))| {
            Arc::clone(names.entry(at).or_insert_with(|| Arc::from(name.as_str())))
        });
        let page_node = sample.page_node.or(place.and_then(|place| place.node));
        PlacedSample { sample, mapping, page_node }
    };
    PlacedLines(samples.into_iter().map(&mut placed).collect())
}

/// Samples of the last ten seconds.
#[derive(Default)]
pub struct LineWindow {
    intervals: VecDeque<(u64, BTreeMap<ProcessId, PlacedLines>)>,
    samples: usize,
}

impl LineWindow {
    /// Adds an interval that ended at `to_ns`, and forgets the intervals that ended ten seconds earlier.
    /// Returns the number of samples forgotten for lack of room.
    pub fn add(&mut self, to_ns: u64, lines: BTreeMap<ProcessId, PlacedLines>) -> u64 {
        let mut left_out = 0;
        self.samples += count(&lines);
        self.intervals.push_back((to_ns, lines));
        while let Some((end_ns, oldest)) = self.intervals.front() {
            let is_over = end_ns + WINDOW_NS <= to_ns;
            if !is_over && self.samples <= SAMPLES_MAX {
                break;
            }
            let forgotten = count(oldest);
            left_out += if is_over { 0 } else { forgotten as u64 };
            self.samples -= forgotten;
            self.intervals.pop_front();
        }
        left_out
    }

    /// Addresses of code in loads that another core answered and in stores, each once, by process.
    pub fn code(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        let all = self.intervals.iter().flat_map(|(_, lines)| lines);
        let codes = all.flat_map(|(process, lines)| lines.0.iter().map(|one| (*process, one.sample.code)));
        let mut codes: Vec<_> = codes.filter(|(_, code)| *code != 0).collect();
        codes.sort_unstable();
        codes.dedup();
        codes.into_iter()
    }

    /// Contended lines of each process that has any; `name` returns the function of an address of a process.
    pub fn sum(
        &self,
        name: impl Fn(ProcessId, u64) -> Option<Arc<Function>>,
    ) -> BTreeMap<ProcessId, ContendedLines> {
        let mut by_process: BTreeMap<ProcessId, Vec<&PlacedSample>> = BTreeMap::new();
        for (process, lines) in self.intervals.iter().flat_map(|(_, lines)| lines) {
            by_process.entry(*process).or_default().extend(&lines.0);
        }
        let found = by_process
            .into_iter()
            .map(|(process, samples)| (process, contended(&samples, |code| name(process, code))));
        found.filter(|(_, lines)| lines.loads > 0).collect()
    }
}

fn count(lines: &BTreeMap<ProcessId, PlacedLines>) -> usize {
    lines.values().map(|lines| lines.0.len()).sum()
}

/// The lines of one process.
fn contended(samples: &[&PlacedSample], name: impl Fn(u64) -> Option<Arc<Function>>) -> ContendedLines {
    let mut by_line: BTreeMap<u64, (u64, Vec<&PlacedSample>)> = BTreeMap::new();
    for one in samples {
        let (loads, of_line) = by_line.entry(one.sample.address >> LINE_SHIFT).or_default();
        *loads += u64::from(one.sample.transfer.is_some());
        of_line.push(one);
    }
    let loads = by_line.values().map(|(loads, _)| loads).sum();
    let mut lines: Vec<_> = by_line.into_values().filter(|(loads, _)| *loads >= LOADS_MIN).collect();
    // Lines with as many loads stay in the order of their addresses.
    lines.sort_by_key(|(loads, _)| std::cmp::Reverse(*loads));
    lines.truncate(LINES_LISTED);
    ContendedLines { loads, listed: lines.into_iter().map(|(_, samples)| line(&samples, &name)).collect() }
}

fn line(samples: &[&PlacedSample], name: impl Fn(u64) -> Option<Arc<Function>>) -> ContendedLine {
    let mut found = ContendedLine::default();
    let mut names: HashMap<u64, Option<Arc<Function>>> = HashMap::new();
    let mut sides: BTreeMap<_, LineSide> = BTreeMap::new();
    for PlacedSample { sample, mapping, page_node } in samples {
        let (store, far) = (sample.transfer.is_none(), sample.transfer == Some(Transfer::Far));
        found.stores += u64::from(store);
        found.loads += u64::from(!store);
        found.far += u64::from(far);
        // The last ones count: pages move.
        found.page_node = page_node.or(found.page_node);
        if let Some(mapping) = mapping {
            found.mapping = mapping.to_string();
        }
        let function = names.entry(sample.code).or_insert_with(|| name(sample.code)).clone();
        let offset = (sample.address & ((1 << LINE_SHIFT) - 1)) as u8;
        let key = (store, offset, sample.cpu_node, function.clone());
        let cpu_node = sample.cpu_node;
        let new = || LineSide { store, function, offset, cpu_node, ..LineSide::default() };
        let side = sides.entry(key).or_insert_with(new);
        side.samples += 1;
        side.far += u64::from(far);
    }
    found.sides = sides.into_values().collect();
    found.sides.sort_by_key(|side| std::cmp::Reverse(side.samples));
    keep_both(&mut found.sides);
    found
}

/// Leaves [`SIDES_LISTED`] of them: half of the room is for loads and half for stores, as far as they need it.
fn keep_both(sides: &mut Vec<LineSide>) {
    let stores = sides.iter().filter(|side| side.store).count();
    let loads = sides.len() - stores;
    let half = SIDES_LISTED / 2;
    let most = |own: usize, other: usize| own.min(half.max(SIDES_LISTED.saturating_sub(other)));
    let (mut of_loads, mut of_stores) = (most(loads, stores), most(stores, loads));
    sides.retain(|side| {
        let left = if side.store { &mut of_stores } else { &mut of_loads };
        left.checked_sub(1).map(|fewer| *left = fewer).is_some()
    });
}

#[cfg(test)]
mod tests {
    use super::super::window::AccessPlace;
    use super::*;

    const PROCESS: ProcessId = (7, 1);
    const SHIFT: u32 = 12;
    const S: u64 = 1_000_000_000;

    fn sample(address: u64, code: u64, cpu: u32, transfer: Option<Transfer>) -> LineSample {
        LineSample { address, code, cpu_node: Some(NodeId(cpu)), page_node: None, transfer }
    }

    fn places() -> Places {
        let place = |mapping, node| AccessPlace { mapping, node: Some(NodeId(node)) };
        Places {
            mappings: vec![(0x1000, 0x1000, "[heap]".into()), (0x8000, 0x1000, String::new())],
            pages: HashMap::from([(1, place(0, 1)), (8, place(1, 0))]),
            no_nodes: None,
        }
    }

    /// Functions of 16 bytes.
    fn name(code: u64) -> Option<Arc<Function>> {
        let name = Some(format!("f{}", code >> 4));
        (code != 0).then(|| Arc::new(Function { name, module: "program".into(), kernel: false }))
    }

    fn sum(batches: &[&[LineSample]]) -> ContendedLines {
        let mut window = LineWindow::default();
        for (at, batch) in (1..).zip(batches) {
            let placed = place(batch.to_vec(), &places(), SHIFT);
            assert_eq!(window.add(at * S, [(PROCESS, placed)].into()), 0);
        }
        window.sum(|_, code| name(code)).remove(&PROCESS).unwrap_or_default()
    }

    fn names(line: &ContendedLine) -> Vec<(bool, String, u8, u32, u64, u64)> {
        let side = |side: &LineSide| {
            let name = side.function.as_ref().map_or("?".into(), |function| function.to_string());
            (side.store, name, side.offset, side.cpu_node.unwrap().0, side.samples, side.far)
        };
        line.sides.iter().map(side).collect()
    }

    #[test]
    fn a_line_has_the_code_of_both_sides() {
        use Transfer::{Far, Near};
        let first = [sample(0x1040, 0x10, 0, Some(Far)), sample(0x1040, 0x18, 0, Some(Far))];
        // The other side came in another interval, and writes another word of the line.
        let second = [
            sample(0x1048, 0x20, 1, None),
            sample(0x1048, 0x20, 1, None),
            sample(0x1048, 0x24, 1, None),
            sample(0x1040, 0x10, 1, Some(Near)),
            // Next to it, and stored to by one thread only.
            sample(0x1080, 0x30, 0, None),
        ];
        let found = sum(&[&first, &second]);
        assert_eq!((found.loads, found.listed.len()), (3, 1));
        let line = &found.listed[0];
        assert_eq!((line.mapping.as_str(), line.page_node), ("[heap]", Some(NodeId(1))));
        assert_eq!((line.loads, line.far, line.stores), (3, 2, 3));
        let expected = [
            (true, "f2".into(), 8, 1, 3, 0),
            (false, "f1".into(), 0, 0, 2, 2),
            (false, "f1".into(), 0, 1, 1, 0),
        ];
        assert_eq!(names(line), expected);
        assert_eq!(line.offsets(), [0, 8]);
    }

    #[test]
    fn the_physical_address_says_the_node_of_a_page() {
        let one = LineSample { page_node: Some(NodeId(3)), ..sample(0x8000, 0, 0, Some(Transfer::Near)) };
        let line = sum(&[&[one; 3]]).listed.remove(0);
        assert_eq!((line.page_node, line.mapping.as_str()), (Some(NodeId(3)), ""));
        assert_eq!(names(&line), [(false, "?".into(), 0, 0, 3, 0)]);
    }

    #[test]
    fn lines_that_are_not_taken_often_are_not_listed() {
        let load = sample(0x1000, 0x10, 0, Some(Transfer::Near));
        assert_eq!(sum(&[&[load; 2]]), ContendedLines { loads: 2, listed: Vec::new() });
        let store = sample(0x1000, 0x10, 0, None);
        assert_eq!(sum(&[&[store; 9]]), ContendedLines::default(), "it was stored to, and never taken");
    }

    #[test]
    fn the_most_contended_lines_and_sides_are_kept() {
        let mut samples = Vec::new();
        for line in 0..30 {
            let load = sample(0x1000 + line * 64, 0x10, 0, Some(Transfer::Near));
            samples.extend(std::iter::repeat_n(load, 3 + line as usize));
        }
        // More code on the loading side than fits, and one that stores.
        samples.extend((0..40).map(|at| sample(0x1000, 0x100 * (at + 1), 0, Some(Transfer::Far))));
        samples.push(sample(0x1000, 0x50, 1, None));
        let found = sum(&[&samples]);
        assert_eq!((found.loads, found.listed.len()), (samples.len() as u64 - 1, LINES_LISTED));
        let (first, last) = (&found.listed[0], &found.listed[LINES_LISTED - 1]);
        assert_eq!((first.loads, first.far, last.loads), (43, 40, 14));
        assert_eq!(
            (first.sides.len(), first.sides.iter().filter(|side| side.store).count()),
            (SIDES_LISTED, 1)
        );
    }

    #[test]
    fn samples_of_ten_seconds_are_kept_and_not_too_many() {
        let mut window = LineWindow::default();
        let placed = |samples: usize| {
            let load = sample(0x1000, 0x10, 0, Some(Transfer::Near));
            [(PROCESS, place(vec![load; samples], &places(), SHIFT))].into()
        };
        for at in 1..=12 {
            window.add(at * S, placed(10));
        }
        assert_eq!(window.sum(|_, _| None)[&PROCESS].loads, 100);
        assert_eq!(window.code().collect::<Vec<_>>(), [(PROCESS, 0x10)]);
        assert_eq!(window.add(12 * S, placed(SAMPLES_MAX)), 100);
        assert_eq!(window.sum(|_, _| None)[&PROCESS].loads, SAMPLES_MAX as u64);
        window.add(40 * S, BTreeMap::new());
        assert!(window.sum(|_, _| None).is_empty());
    }
}
