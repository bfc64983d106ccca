//! The nodes on which tasks get their pages (`page_allocs.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;

use super::{Attached, Probe, Running, Shared};
use crate::collect::object;
use crate::collect::skel::page_allocs::PageAllocsSkelBuilder;
use crate::host::btf::Feature;
use crate::host::page_flags::PageFacts;
use crate::model::facility::Facility;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::PageAlloc, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    several_nodes: true,
    ..Probe::new("new pages by node", Facility::NewPages, start)
};

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
    let skel = open.load().context("loading page_allocs.bpf.o")?;
    Ok(Box::new(Attached::all(skel, "loaded, attached to the allocation of pages")?))
}
