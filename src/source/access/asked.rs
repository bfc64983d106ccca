//! A batch of samples whose pages are being looked up: the question, and the answers to it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::access::lines::{LineBatch, PlacedLines, place as place_lines};
use crate::access::objects::PlacedObjects;
use crate::access::touches::Touches;
use crate::access::window::{AccessPlace, Batch, Losses, Places};
use crate::collect::access::lookup;
use crate::collect::mm_reader::wire::{JOBS_MAX, Job, PagesPlaced, PagesTurn};
use crate::model::access::MemoryUse;
use crate::model::process::ProcessId;
use crate::model::sample::Missing;
use crate::model::units::NodeId;

/// Pages that are looked up with one sample, of all processes: a packet holds them.
const PAGES_MAX: usize = 6000;

/// Time to look them up.
const BUDGET: Duration = Duration::from_millis(20);

/// A batch whose pages are being looked up.
pub(super) struct Asked {
    pub from_ns: u64,
    pub to_ns: u64,
    pub batch: Batch,
    /// Pages asked about.
    pub pages: HashMap<ProcessId, Vec<u64>>,
    pub found: BTreeMap<ProcessId, MemoryUse>,
    /// Sides of contended lines whose pages are not looked up yet, and the others.
    pub lines: LineBatch,
    pub placed_lines: BTreeMap<ProcessId, PlacedLines>,
    /// Samples in memory whose first touch is known.
    pub placed_objects: BTreeMap<ProcessId, PlacedObjects>,
    pub lost: Losses,
    pub page_shift: u32,
}

impl Asked {
    /// The pages of these processes, as many as fit into one question; `None`: nothing to ask. `seed` selects
    /// the ones left out if there are too many.
    pub(super) fn question(&mut self, mut jobs: Vec<Job>, seed: u64) -> Option<PagesTurn> {
        // A packet holds at most this many; samples of the others count without a mapping.
        jobs.truncate(JOBS_MAX);
        let mut left = PAGES_MAX;
        let mut pages = Vec::new();
        jobs.retain(|job| {
            let mut of_job = self.batch.get(&job.process).map(|tally| tally.pages()).unwrap_or_default();
            // Pages of loads are among them already.
            let of_lines = self.lines.get(&job.process).into_iter().flatten();
            of_job.extend(of_lines.map(|sample| sample.page(self.page_shift)));
            of_job.sort_unstable();
            of_job.dedup();
            let of_job = thinned(of_job, lookup::PAGES_MAX.min(left), seed);
            if of_job.is_empty() {
                return false;
            }
            left -= of_job.len();
            self.pages.insert(job.process, of_job.clone());
            pages.push(of_job);
            true
        });
        (!jobs.is_empty()).then_some(PagesTurn { jobs, pages, budget: BUDGET })
    }

    /// Takes the answer about the pages of a process, whose first `touches` are known.
    pub(super) fn take(
        &mut self,
        process: ProcessId,
        placed: Result<PagesPlaced, Missing>,
        touches: Option<&Touches>,
    ) {
        let Some(tally) = self.batch.remove(&process) else { return };
        let asked = self.pages.remove(&process).unwrap_or_default();
        let places = match placed {
            Ok(placed) => places(&asked, placed),
            Err(why) => Places { no_nodes: Some(why), ..Places::default() },
        };
        if let Some(lines) = self.lines.remove(&process) {
            self.placed_lines.insert(process, place_lines(lines, &places, self.page_shift));
        }
        if let Some(touches) = touches {
            self.placed_objects.insert(process, tally.by_object(&places, touches));
        }
        self.found.insert(process, tally.place(&places));
    }
}

fn places(asked: &[u64], placed: PagesPlaced) -> Places {
    let place = |(page, (mapping, node)): (&u64, &(i32, i32))| {
        let mapping = usize::try_from(*mapping).ok()?;
        let node = u32::try_from(*node).ok().map(NodeId);
        Some((*page, AccessPlace { mapping, node }))
    };
    Places {
        pages: asked.iter().zip(&placed.pages).filter_map(place).collect(),
        mappings: placed.mappings,
        no_nodes: placed.no_nodes,
    }
}

/// Processes in the order in which they are looked up, as far as the time allows: the wanted ones, then all
/// others from the one at `begin` on. Otherwise the time would always go to those with the lowest ids.
pub(super) fn by_turns(mut processes: Vec<ProcessId>, begin: usize, wanted: &[ProcessId]) -> Vec<ProcessId> {
    let begin = begin.min(processes.len());
    processes.rotate_left(begin);
    let place = |process: &ProcessId| wanted.iter().position(|one| one == process).unwrap_or(wanted.len());
    processes.sort_by_key(place);
    processes
}

/// At most `most` of `pages`, evenly spread; `seed` sets where they begin.
fn thinned(pages: Vec<u64>, most: usize, seed: u64) -> Vec<u64> {
    if pages.len() <= most {
        return pages;
    }
    let Some(step) = pages.len().checked_div(most).map(|step| step + 1) else { return Vec::new() };
    pages.into_iter().skip(seed as usize % step).step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_processes_are_looked_up_first_and_others_by_turns() {
        let all: Vec<ProcessId> = (1..=5).map(|pid| (pid, 1)).collect();
        let order = |begin, wanted: &[u32]| {
            let wanted: Vec<ProcessId> = wanted.iter().map(|pid| (*pid, 1)).collect();
            by_turns(all.clone(), begin, &wanted).iter().map(|process| process.0).collect::<Vec<u32>>()
        };
        assert_eq!(order(0, &[]), [1, 2, 3, 4, 5]);
        assert_eq!(order(3, &[5, 2, 9]), [5, 2, 4, 1, 3]);
        assert!(by_turns(Vec::new(), 3, &[]).is_empty());
    }

    #[test]
    fn too_many_pages_are_thinned_evenly() {
        let pages: Vec<u64> = (0..10_000).collect();
        for seed in 0..10 {
            let kept = thinned(pages.clone(), 1500, seed);
            assert!((1000..=1500).contains(&kept.len()), "{}", kept.len());
            let middle = kept.iter().filter(|page| **page < 5000).count() as f64 / kept.len() as f64;
            assert!((middle - 0.5).abs() < 0.01);
        }
        assert!(thinned(pages.clone(), 0, 1).is_empty());
        assert_eq!(thinned(pages[..9].to_vec(), 9, 1), pages[..9]);
    }
}
