//! The probes of pages: on which node tasks get them (`pages.bpf.c`), and which are moved (`balance.bpf.c`).

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Error, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::balance::BalanceProbe;
use super::sched::SchedProbe;
use super::skel::pages::{PagesSkel, PagesSkelBuilder};
use crate::host::page_flags::PageFacts;
use crate::metric::moved::BY_REASON;
use crate::metric::pages::{MIGRATED, PAGES};
use crate::sample::Missing;

/// Both probes, as far as they work here. Dropping it detaches them.
pub struct PageProbes {
    new: Option<PageProbe>,
    moved: Option<BalanceProbe>,
    missing: BTreeMap<&'static str, Missing>,
}

impl PageProbes {
    /// Starts the probes; new pages are counted where the records of `sched` have room for them. One that does
    /// not start is a reason in [`PageProbes::missing`].
    pub fn start(sched: &SchedProbe, records: &OwnedFd, root: &Path) -> PageProbes {
        let mut missing = BTreeMap::new();
        let mut lacks = |ids: &[&'static str], error: Error| {
            let why = Missing::Unsupported(format!("{error:#}"));
            missing.extend(ids.iter().map(|id| (*id, why.clone())));
        };
        let new = sched.layout().pages.then(|| PageProbe::start(sched, records, root)).transpose();
        let new = new.map_err(|error| lacks(&PAGES, error)).ok().flatten();
        let moved = BalanceProbe::start(records, root);
        let moved = moved.map_err(|error| lacks(&[MIGRATED.as_slice(), &BY_REASON].concat(), error)).ok();
        PageProbes { new, moved, missing }
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let new = self.new.iter().map(|probe| ("on_page_alloc", probe.skel.progs.on_page_alloc.as_fd()));
        new.chain(self.moved.iter().map(BalanceProbe::program))
    }

    /// Metric id → why it cannot be measured.
    pub fn missing(&self) -> &BTreeMap<&'static str, Missing> {
        &self.missing
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
    pub fn start(sched: &SchedProbe, records: &OwnedFd, root: &Path) -> Result<PageProbe> {
        let layout = sched.layout();
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = PagesSkelBuilder::default().open(object).context("opening pages.bpf.o")?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("pages.bpf.o has no .rodata")?;
        rodata.nr_nodes = layout.nodes;
        rodata.pages_at = layout.pages_at();
        // The node is at the top of the flags (include/linux/page-flags-layout.h, SPARSEMEM_VMEMMAP).
        let facts = PageFacts::read(root)?;
        let bits = facts.nodes_shift;
        ensure!(bits > 0, "the kernel is built for one node: its pages do not say where they are");
        rodata.node_shift = u64::BITS - bits;
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
