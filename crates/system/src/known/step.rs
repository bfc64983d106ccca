//! Deeds whose traces the kernel counts one by one: pages, switches, moves, CPU time, memory on nodes.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::asm::{self, Work};
use super::pages;
use crate::host::clock;
use crate::sys::{self, PageAdvice, Region};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Nothing but an answer: what that alone costs.
    Rest,
    /// Touches `count` small pages, once each, and gives them back.
    Pages { count: u32 },
    /// Sends a byte to and fro between two threads on one CPU, `count` times.
    Trips { cpu: u32, count: u32 },
    /// Moves to these CPUs in turn, `count` times.
    Moves { cpus: Vec<u32>, count: u32 },
    /// Uses so much CPU time on a CPU.
    Burn { cpu: u32, ms: u32 },
    /// Touches `count` small pages of a node on a CPU, and gives them back.
    Allocate { cpu: u32, node: u32, count: u32 },
    /// Touches small pages on each of these nodes, and keeps them until the next [`Step::Place`].
    Place { pages: Vec<(u32, u32)> },
    /// Reads the pages that were placed, each as often as any other, on a CPU.
    Use { cpu: u32, ms: u32 },
    /// Moves pages from one node to another with move_pages(2).
    MovePages { from: u32, to: u32, count: u32 },
}

/// The traces of a deed, as the process that did it knows them. A deed fills in the fields that it affects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Minor faults of the whole process, by getrusage(2).
    pub minor_faults: u64,
    /// Context switches of the whole process, by getrusage(2).
    pub switches: u64,
    /// Times the thread was found on another CPU than before.
    pub moves: u64,
    /// Pages that are on each node, by move_pages(2); for [`Step::Place`] and [`Step::Use`] those of the whole process, by
    /// /proc/self/numa_maps.
    pub pages: Vec<(u32, u64)>,
    /// Pages that move_pages(2) reports as moved: they were on another node, and are now on the requested
    /// one.
    pub moved_pages: u64,
}

/// Does deeds, and keeps the memory that it placed.
#[derive(Default)]
pub struct StepRunner {
    placed: Vec<Region>,
}

type Done = Result<(), String>;

impl StepRunner {
    /// Does it.
    ///
    /// # Errors
    /// It cannot be done here, in words.
    pub fn act(&mut self, deed: &Step) -> Result<Truth, String> {
        let mut truth = Truth::default();
        let before = sys::process_events();
        self.work(deed, &mut truth)?;
        let after = sys::process_events();
        truth.minor_faults = after.minor_faults - before.minor_faults;
        truth.switches = after.voluntary + after.involuntary - before.voluntary - before.involuntary;
        Ok(truth)
    }

    fn work(&mut self, deed: &Step, truth: &mut Truth) -> Done {
        match deed {
            Step::Rest => Ok(()),
            Step::Pages { count } => small_pages(None, *count).map(drop),
            Step::Trips { cpu, count } => trips(*cpu, *count).map_err(|error| error.to_string()),
            Step::Moves { cpus, count } => {
                let mut at = sys::current_cpu();
                for turn in 0..*count as usize {
                    go_to(cpus[turn % cpus.len().max(1)])?;
                    let now = sys::current_cpu();
                    truth.moves += u64::from(now != at);
                    at = now;
                }
                Ok(())
            }
            Step::Burn { cpu, ms } => {
                go_to(*cpu)?;
                let end = clock::thread_time() + Duration::from_millis((*ms).into());
                while clock::thread_time() < end {
                    asm::work(Work::Additions, 1000);
                }
                Ok(())
            }
            Step::Allocate { cpu, node, count } => {
                go_to(*cpu)?;
                let region = small_pages(Some(*node), *count)?;
                truth.pages = by_node(&[region], *count)?;
                Ok(())
            }
            Step::Place { pages } => {
                self.placed.clear();
                for (node, count) in pages {
                    self.placed.push(small_pages(Some(*node), *count)?);
                }
                truth.pages = of_process()?;
                Ok(())
            }
            Step::Use { cpu, ms } => {
                go_to(*cpu)?;
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis((*ms).into()) {
                    self.placed.iter().for_each(|region| asm::read(region.words()));
                }
                truth.pages = of_process()?;
                Ok(())
            }
            Step::MovePages { from, to, count } => {
                let region = small_pages(Some(*from), *count)?;
                let page = rustix::param::page_size() as u64;
                let addresses: Vec<u64> =
                    (0..u64::from(*count)).map(|at| region.address() + at * page).collect();
                let nodes = vec![*to as i32; addresses.len()];
                let asked = |error: io::Error| format!("move_pages: {error}");
                let before = sys::nodes_of_pages(0, &addresses).map_err(asked)?;
                let after = sys::move_pages(&addresses, &nodes).map_err(asked)?;
                truth.moved_pages = moved(&before, &after, *to);
                truth.pages = by_node(&[region], *count)?;
                Ok(())
            }
        }
    }
}

/// Pages that moved to a node from another one. A negative number is the errno of a page that did not move.
fn moved(before: &[i32], after: &[i32], to: u32) -> u64 {
    let pages = before.iter().zip(after);
    pages.filter(|(before, after)| **before != to as i32 && **after == to as i32).count() as u64
}

fn go_to(cpu: u32) -> Done {
    sys::run_on(&[cpu]).map_err(|error| format!("CPU {cpu}: {error}"))
}

/// A region whose first `count` small pages are present, on a node if one is named.
fn small_pages(node: Option<u32>, count: u32) -> Result<Region, String> {
    let page = rustix::param::page_size();
    let mut region = Region::new(count as usize * page).map_err(|error| format!("mmap: {error}"))?;
    // A kernel without huge pages has small ones anyway.
    let _ = region.advise(PageAdvice::Small);
    if let Some(node) = node {
        region.prefer(node).map_err(|error| format!("preferring node {node}: {error}"))?;
    }
    let words = region.words_mut().iter_mut().step_by(page / size_of::<u64>());
    words.take(count as usize).for_each(|word| *word = 1);
    Ok(region)
}

/// Present pages, by node; the first `most` of each region.
fn by_node(regions: &[Region], most: u32) -> Result<Vec<(u32, u64)>, String> {
    let mut counts = std::collections::BTreeMap::new();
    for region in regions {
        let nodes = pages::nodes_of(region).map_err(|error| format!("move_pages: {error}"))?;
        for node in nodes.into_iter().take(most as usize).filter_map(|node| u32::try_from(node).ok()) {
            *counts.entry(node).or_insert(0) += 1;
        }
    }
    Ok(counts.into_iter().collect())
}

/// Pages of this process on each node, by the kernel's own walk.
fn of_process() -> Result<Vec<(u32, u64)>, String> {
    let text = std::fs::read_to_string("/proc/self/numa_maps");
    Ok(of_numa_maps(&text.map_err(|error| format!("/proc/self/numa_maps: {error}"))?))
}

/// Sums of `N0=12` in the lines of a numa_maps file.
fn of_numa_maps(text: &str) -> Vec<(u32, u64)> {
    let mut counts = std::collections::BTreeMap::new();
    for word in text.split_whitespace() {
        let count = word.strip_prefix('N').and_then(|rest| rest.split_once('='));
        if let Some((Ok(node), Ok(pages))) =
            count.map(|(node, pages)| (node.parse::<u32>(), pages.parse::<u64>()))
        {
            *counts.entry(node).or_insert(0) += pages;
        }
    }
    counts.into_iter().collect()
}

/// Two threads on one CPU: each byte is waited for, so that a trip is two switches.
fn trips(cpu: u32, count: u32) -> io::Result<()> {
    let ((mut here, mut there), (mut back, mut answer)) = (io::pipe()?, io::pipe()?);
    sys::run_on(&[cpu])?;
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            let mut byte = [0];
            while here.read(&mut byte)? == 1 {
                answer.write_all(&byte)?;
            }
            Ok(())
        });
        let mut byte = [0];
        let mut go = || -> io::Result<()> {
            for _ in 0..count {
                there.write_all(&byte)?;
                back.read_exact(&mut byte)?;
            }
            Ok(())
        };
        let went = go();
        drop(there);
        went.and(other.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(deed: &Step) -> Truth {
        StepRunner::default().act(deed).unwrap()
    }

    /// Other tests of this process fault and switch too: only a least number can be checked.
    #[test]
    fn deeds_leave_traces() {
        let cpu = sys::current_cpu().unwrap();
        assert!(act(&Step::Pages { count: 500 }).minor_faults >= 500);
        assert!(act(&Step::Trips { cpu, count: 100 }).switches >= 200);
        let (before, pid) = (clock::thread_time(), std::process::id());
        let cpu_ns = sys::process_cpu_ns(pid).unwrap();
        act(&Step::Burn { cpu, ms: 20 });
        assert!(clock::thread_time() - before >= Duration::from_millis(20));
        assert!(sys::process_cpu_ns(pid).unwrap() - cpu_ns >= 20_000_000);
        assert_eq!(act(&Step::Moves { cpus: vec![cpu; 2], count: 10 }).moves, 0);
        assert_eq!(act(&Step::Allocate { cpu, node: 0, count: 100 }).pages, [(0, 100)]);
    }

    #[test]
    fn placed_memory_stays_until_other_is_placed() {
        let mut doer = StepRunner::default();
        let of = |truth: Truth| truth.pages.iter().map(|(_, pages)| pages).sum::<u64>();
        let placed = of(doer.act(&Step::Place { pages: vec![(0, 30_000)] }).unwrap());
        assert!(placed >= 30_000, "{placed}");
        let cpu = sys::current_cpu().unwrap();
        assert!(of(doer.act(&Step::Use { cpu, ms: 1 }).unwrap()) >= 30_000);
        assert_eq!(doer.placed.len(), 1);
        doer.act(&Step::Place { pages: vec![] }).unwrap();
        assert!(doer.placed.is_empty());
        assert_eq!(act(&Step::MovePages { from: 0, to: 0, count: 10 }).pages, [(0, 10)]);
    }

    #[test]
    fn a_page_that_was_there_or_did_not_go_is_not_moved() {
        let busy = -libc::EBUSY;
        assert_eq!(moved(&[0, 0, 1, 0], &[1, busy, 1, 0], 1), 1);
        assert_eq!(moved(&[0; 3], &[0; 3], 0), 0);
    }

    #[test]
    fn pages_of_all_mappings_are_added_up() {
        let maps = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n7f01 prefer:1 file=/x/N7=y N1=5\nN=3 Nx=1\n";
        assert_eq!(of_numa_maps(maps), [(0, 1), (1, 7)]);
    }

    #[test]
    fn what_cannot_be_done_is_an_error() {
        for deed in [Step::Burn { cpu: 1 << 20, ms: 1 }, Step::Allocate { cpu: 0, node: 1023, count: 1 }] {
            assert!(StepRunner::default().act(&deed).is_err(), "{deed:?}");
        }
    }
}
