//! The nodes on which tasks get their pages (`page_allocs.bpf.c`), and the share of page allocations that are counted one by
//! one, by CPU.
//!
//! Counting one takes 20 to 70 ns (docs/performance.md). On a CPU that allocates more often than the budget
//! allows, one in 2^shift is chosen at random, and counts 2^shift times: sums stay right on average. The
//! distance to the next one is uniform up to twice the mean. So the relative standard error of a count of n
//! chosen ones is about 1/sqrt(n) for one task among many, and 0.6/sqrt(n) for one that allocates alone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, Object};

use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::maps;
use crate::collect::object;
use crate::collect::skel::page_allocs::{PageAllocsSkel, PageAllocsSkelBuilder};
use crate::host::btf::Feature;
use crate::host::page_nodes::PageFacts;
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::model::wire::AllocPace;
use crate::sys::Mapping;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::PageAlloc, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    several_nodes: true,
    ..Probe::new("new pages by node", Facility::NewPages, start)
};

struct PageProbe {
    attached: Attached<PageAllocsSkel<'static>>,
    /// [`AllocPace`] of each possible CPU.
    paces: Mapping,
    pace: RefCell<Pace>,
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let mut open = object::open("page_allocs", PageAllocsSkelBuilder::default())?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("page_allocs.bpf.o has no .rodata")?;
    rodata.nr_nodes = shared.layout.nodes;
    rodata.pages_at = shared.layout.pages_at();
    let facts = PageFacts::of(shared.types()?)?;
    rodata.node_shift = facts.node_shift()?;
    rodata.gfp_this_node = facts.gfp_this_node;
    let maps = shared.maps()?;
    maps::share(&mut open.maps.task_recs, shared.records)?;
    open.maps.cpus.reuse_fd(maps.cpus).context("sharing the state of CPUs")?;
    open.maps.cpu_topo.reuse_fd(maps.cpu_topo).context("sharing the table of places of CPUs")?;
    open.maps.alloc_pace.set_max_entries(maps.possible_cpus)?;
    open.maps.alloc_shifts.set_max_entries(maps.possible_cpus)?;
    let skel = object::load("page_allocs", open)?;
    let bytes = maps.possible_cpus as usize * size_of::<AllocPace>();
    let paces =
        Mapping::new(skel.maps.alloc_pace.as_fd(), bytes).context("mmap of the counters of allocations")?;
    let attached = Attached::all(skel, "loaded, attached to page allocation")?;
    Ok(Box::new(PageProbe { attached, paces, pace: RefCell::new(Pace::new(shared.page_budget)) }))
}

impl PageProbe {
    fn set_shift(&self, cpu: CpuId, shift: u32) -> Result<()> {
        let map = &self.attached.skel.maps.alloc_shifts;
        let update = map.update(&cpu.0.to_ne_bytes(), &shift.to_ne_bytes(), MapFlags::ANY);
        update.with_context(|| format!("setting the allocation sampling rate of CPU {cpu}"))
    }
}

impl Running for PageProbe {
    fn object(&self) -> Option<&Object> {
        self.attached.object()
    }

    fn words(&self) -> String {
        self.attached.words()
    }

    /// Keeps the number of allocations that are counted one by one within the budget.
    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        let counts = readings.topology.cpus.iter().filter_map(|cpu| {
            let pace: AllocPace = self.paces.get(cpu.id.index() * size_of::<AllocPace>())?;
            Some((cpu.id, pace.allocs))
        });
        let mut pace = self.pace.borrow_mut();
        let was_sampled = pace.samples();
        for (cpu, shift) in pace.take(readings.mono_ns, counts) {
            self.set_shift(cpu, shift).map_err(|error| Missing::Lost(format!("{error:#}")))?;
        }
        if pace.samples() != was_sampled {
            readings.notes.push(pace.words());
        }
        Ok(())
    }
}

/// Allocations of user pages that are counted one by one, a second and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBudget(pub u64);

impl PageBudget {
    /// All of them, whatever that costs.
    pub const ALL: PageBudget = PageBudget(u64::MAX);
}

impl Default for PageBudget {
    /// A hundred thousand: 0.2 to 0.7 % of a CPU.
    fn default() -> PageBudget {
        PageBudget(100_000)
    }
}

/// One in 65,536: then any rate of allocations fits into the budget. page_allocs.bpf.c has the same constant.
const SHIFT_MAX: u32 = 16;

/// The allocations of each CPU as of the last look, and the shift that followed from them.
#[derive(Debug)]
struct Pace {
    budget: PageBudget,
    seen_ns: Option<u64>,
    cpus: BTreeMap<CpuId, Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u64,
    shift: u32,
    per_s: u64,
}

impl Pace {
    fn new(budget: PageBudget) -> Pace {
        Pace { budget, seen_ns: None, cpus: BTreeMap::new() }
    }

    /// Takes the counts since start of each CPU at a moment (CLOCK_MONOTONIC); returns the shifts that change.
    fn take(&mut self, now_ns: u64, counts: impl Iterator<Item = (CpuId, u64)>) -> Vec<(CpuId, u32)> {
        let since = self.seen_ns.replace(now_ns).map(|then| now_ns.saturating_sub(then));
        let mut changes = Vec::new();
        for (cpu, count) in counts {
            let seen = self.cpus.entry(cpu).or_insert(Seen { count, ..Seen::default() });
            let new = count.saturating_sub(seen.count);
            seen.count = count;
            let Some(ns) = since.filter(|ns| *ns > 0) else { continue };
            seen.per_s = (u128::from(new) * 1_000_000_000 / u128::from(ns)) as u64;
            let shift = shift_for(seen.per_s, self.budget);
            if std::mem::replace(&mut seen.shift, shift) != shift {
                changes.push((cpu, shift));
            }
        }
        changes
    }

    /// Whether any CPU has allocations that are not counted one by one.
    fn samples(&self) -> bool {
        self.cpus.values().any(|seen| seen.shift > 0)
    }

    /// A note for the moment at which sampling begins or ends.
    fn words(&self) -> String {
        match self.busiest().filter(|(_, seen)| seen.shift > 0) {
            None => "user page allocations are no longer sampled: all are counted".to_owned(),
            Some((cpu, seen)) => format!(
                "CPU {cpu} allocates user pages {} times a second: only one in {}, at random, is counted, so new \
                 pages by node are estimates",
                seen.per_s,
                1u64 << seen.shift
            ),
        }
    }

    /// The CPU that allocates most often.
    fn busiest(&self) -> Option<(CpuId, Seen)> {
        self.cpus.iter().map(|(cpu, seen)| (*cpu, *seen)).max_by_key(|(_, seen)| seen.per_s)
    }
}

/// The smallest power of two that brings a rate into the budget.
fn shift_for(per_s: u64, budget: PageBudget) -> u32 {
    let times = per_s.div_ceil(budget.0.max(1)).max(1);
    times.next_power_of_two().trailing_zeros().min(SHIFT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_rate_is_brought_into_the_budget_and_no_further() {
        let budget = PageBudget(100_000);
        let shifts = [0, 99_999, 100_000, 100_001, 200_000, 200_001, 812_000, u64::MAX]
            .map(|per_s| shift_for(per_s, budget));
        assert_eq!(shifts, [0, 0, 0, 1, 1, 2, 4, SHIFT_MAX]);
        assert_eq!(shift_for(u64::MAX, PageBudget::ALL), 0);
        assert_eq!(shift_for(3, PageBudget(0)), 2);
    }

    #[test]
    fn each_cpu_has_a_shift_of_its_own_which_follows_its_rate() {
        let mut pace = Pace::new(PageBudget(1_000));
        let (quiet, busy) = (CpuId(0), CpuId(3));
        // Counts from before the first look say nothing of a rate.
        assert_eq!(pace.take(SECOND, [(quiet, 5), (busy, 1 << 40)].into_iter()), []);
        let step = |pace: &mut Pace, at: u64, count: u64| {
            pace.take(at * SECOND, [(quiet, 5), (busy, (1 << 40) + count)].into_iter())
        };
        assert_eq!(step(&mut pace, 2, 4_000), [(busy, 2)]);
        assert!(pace.samples());
        assert!(
            pace.words()
                .starts_with("CPU 3 allocates user pages 4000 times a second: only one in 4, at random, is")
        );
        assert_eq!(step(&mut pace, 3, 8_000), [], "as before");
        // Two seconds for as much: half of the rate.
        assert_eq!(step(&mut pace, 5, 12_000), [(busy, 1)]);
        assert_eq!(step(&mut pace, 6, 12_100), [(busy, 0)]);
        assert!(!pace.samples());
        assert_eq!(pace.words(), "user page allocations are no longer sampled: all are counted");
        // The same moment again, and a clock that does not advance.
        assert_eq!(step(&mut pace, 6, 99_000), []);
    }
}
