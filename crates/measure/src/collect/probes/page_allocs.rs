//! The nodes on which tasks get their pages (`page_allocs.bpf.c`).

mod pace;

use std::cell::RefCell;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, Object};

use self::pace::Pace;
use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::object;
use crate::collect::skel::page_allocs::{PageAllocsSkel, PageAllocsSkelBuilder};
use crate::host::btf::Feature;
use crate::host::page_nodes::PageFacts;
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::model::units::CpuId;
use crate::model::wire::AllocPace;
use crate::sys::Mapping;

pub use self::pace::PageBudget;

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
    open.maps.task_recs.reuse_fd(shared.records.as_fd()).context("sharing the task storage map")?;
    open.maps.cpus.reuse_fd(maps.cpus).context("sharing the state of CPUs")?;
    open.maps.cpu_topo.reuse_fd(maps.cpu_topo).context("sharing the places of CPUs")?;
    open.maps.alloc_pace.set_max_entries(maps.possible_cpus)?;
    open.maps.alloc_shifts.set_max_entries(maps.possible_cpus)?;
    let skel = object::load("page_allocs", open)?;
    let bytes = maps.possible_cpus as usize * size_of::<AllocPace>();
    let paces =
        Mapping::new(skel.maps.alloc_pace.as_fd(), bytes).context("mapping the counts of allocations")?;
    let attached = Attached::all(skel, "loaded, attached to the allocation of pages")?;
    Ok(Box::new(PageProbe { attached, paces, pace: RefCell::new(Pace::new(shared.page_budget)) }))
}

impl PageProbe {
    fn set_shift(&self, cpu: CpuId, shift: u32) -> Result<()> {
        let map = &self.attached.skel.maps.alloc_shifts;
        let update = map.update(&cpu.0.to_ne_bytes(), &shift.to_ne_bytes(), MapFlags::ANY);
        update.with_context(|| format!("setting which share of CPU {cpu}'s allocations is counted"))
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
