//! The probes of pages: on which node tasks get them (`pages.bpf.c`), which are moved (`balance.bpf.c`), and from
//! where to where (`moved.bpf.c`).

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::balance::BalanceProbe;
use super::moved::MoveProbe;
use super::reasons::Reasons;
use super::sched::SchedProbe;
use super::skel::pages::{PagesSkel, PagesSkelBuilder};
use crate::host::page_flags::PageFacts;
use crate::host::types::Types;
use crate::model::facility::Facility;
use crate::model::sample::{Flow, Missing};
use crate::model::topology::Topology;

/// All of them, as far as they work here. Dropping it detaches them.
pub struct PageProbes {
    new: Option<PageProbe>,
    moved: Option<BalanceProbe>,
    moving: Option<MoveProbe>,
    reasons: Reasons,
}

impl PageProbes {
    /// Starts the probes; new pages are counted where the records of `sched` have room for them, nodes between which
    /// pages move where `wanted` says yes to that. One that does not start is a reason in
    /// [`PageProbes::missing`].
    pub fn start(
        sched: &SchedProbe,
        records: &OwnedFd,
        root: &Path,
        wanted: impl Fn(Facility) -> bool,
    ) -> PageProbes {
        let mut reasons = Reasons::default();
        let layout = sched.layout();
        let types = match Types::read(root) {
            Ok(types) => types,
            Err(error) => {
                let why = Missing::Unsupported(format!("{error:#}"));
                if layout.pages {
                    reasons.add(Facility::NewPages, &why);
                }
                reasons.add(Facility::MovedPages, &why);
                return PageProbes { new: None, moved: None, moving: None, reasons };
            }
        };
        let new = layout.pages.then(|| PageProbe::start(sched, records, &types));
        let new = new.and_then(|probe| reasons.started(probe, Facility::NewPages));
        let moved = BalanceProbe::start(records, layout.nodes, &types);
        let moved = reasons.started(moved, Facility::MovedPages);
        let moving =
            (moved.is_some() && wanted(Facility::PageFlows)).then(|| MoveProbe::start(records, &types));
        let moving = moving.and_then(|probe| reasons.started(probe, Facility::PageFlows));
        PageProbes { new, moved, moving, reasons }
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let new = self.new.iter().map(|probe| ("on_page_alloc", probe.skel.progs.on_page_alloc.as_fd()));
        let moved = self.moved.iter().map(BalanceProbe::program);
        new.chain(moved).chain(self.moving.iter().map(MoveProbe::program))
    }

    /// Pages that NUMA balancing moved from node to node since start.
    pub fn flows(&self, topology: &Topology) -> Vec<Flow> {
        self.moved.as_ref().map_or_else(Vec::new, |probe| probe.pairs().flows(topology))
    }

    /// Facilities that did not start, and why.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}

/// The loaded and attached probe. Dropping it detaches it.
pub struct PageProbe {
    // The link goes before the object it belongs to.
    _alloc: Link,
    skel: PagesSkel<'static>,
}

impl PageProbe {
    /// Loads and attaches the probe, to count into the records of `sched`, whose layout must have room for
    /// pages.
    ///
    /// # Errors
    /// The kernel's type information does not say where the node of a page is, or loading or attaching
    /// failed; the errno is in the chain.
    pub fn start(sched: &SchedProbe, records: &OwnedFd, types: &Types) -> Result<PageProbe> {
        let layout = sched.layout();
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = PagesSkelBuilder::default().open(object).context("opening pages.bpf.o")?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("pages.bpf.o has no .rodata")?;
        rodata.nr_nodes = layout.nodes;
        rodata.pages_at = layout.pages_at();
        let facts = PageFacts::of(types)?;
        rodata.node_shift = facts.node_shift()?;
        rodata.gfp_this_node = facts.gfp_this_node;
        let shared = sched.shared_maps();
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        open.maps.cpus.reuse_fd(shared.cpus).context("sharing the state of CPUs")?;
        open.maps.places.reuse_fd(shared.places).context("sharing the places of CPUs")?;
        let skel = open.load().context("loading pages.bpf.o")?;
        let alloc = skel.progs.on_page_alloc.attach().context("attaching to mm_page_alloc")?;
        Ok(PageProbe { _alloc: alloc, skel })
    }
}
