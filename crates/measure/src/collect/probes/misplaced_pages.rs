//! The nodes between which NUMA balancing sets out to move pages (`misplaced_pages.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::OpenSkel;

use super::{Attached, Probe, Running, Shared};
use crate::collect::attach::{AttachMethod, attach_with_fallback};
use crate::collect::object;
use crate::collect::skel::misplaced_pages::{MisplacedPagesSkel, MisplacedPagesSkelBuilder};
use crate::host::btf::Feature;
use crate::host::page_nodes::PageFacts;
use crate::model::facility::Facility;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::MigratePages, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    several_nodes: true,
    // Pages are counted there.
    builds_on: Some(Facility::MovedPages),
    ..Probe::new("pages moved from node to node", Facility::PageFlows, start)
};

/// The function that moves a page to the node from which it is used: by its folio since 6.7 (commit 73eab3ca481e),
/// by its page before.
const FUNCTIONS: [&str; 2] = ["migrate_misplaced_folio", "migrate_misplaced_page"];

/// Differences between kernels.
struct Place {
    function: &'static str,
    /// The position of the argument with the target node, from 0.
    node_at: u32,
    /// The lowest bit of the node in `page->flags`.
    node_shift: u32,
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let types = shared.types()?;
    let known = FUNCTIONS.iter().find_map(|name| Some((*name, types.of_function(name)?)));
    let (function, count) = known.with_context(|| format!("the kernel has no {}", FUNCTIONS.join(" or ")))?;
    ensure!([2, 3].contains(&count), "{function} has {count} arguments; expected 2 or 3");
    let node_shift = PageFacts::of(types)?.node_shift()?;
    let place = Place { function, node_at: count as u32 - 1, node_shift };
    let attached = attach_with_fallback(&AttachMethod::ALL, |method| attach(shared, &place, method));
    Ok(Box::new(attached.with_context(|| format!("{function} cannot be hooked"))?.probe))
}

fn attach(
    shared: &Shared<'_>,
    place: &Place,
    method: AttachMethod,
) -> Result<Attached<MisplacedPagesSkel<'static>>> {
    let function = place.function;
    let mut open = object::open("misplaced_pages", MisplacedPagesSkelBuilder::default())?;
    open.maps.task_recs.reuse_fd(shared.records.as_fd()).context("sharing the task storage map")?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("misplaced_pages.bpf.o has no .rodata")?;
    (rodata.node_at, rodata.node_shift) = (place.node_at, place.node_shift);
    method.select(open.open_object_mut());
    if method == AttachMethod::Fentry {
        let target = open.progs.on_misplaced.set_attach_target(0, Some(function.into()));
        target.with_context(|| format!("finding {function}"))?;
    }
    let skel = object::load("misplaced_pages", open)?;
    let link = match method {
        AttachMethod::Fentry => skel.progs.on_misplaced.attach(),
        AttachMethod::Kprobe => skel.progs.on_misplaced_kprobe.attach_kprobe(false, function),
    };
    let link = link.with_context(|| format!("attaching to {function}"))?;
    Ok(Attached { _links: vec![link], skel, words: format!("by {} of {function}", method.name()) })
}
