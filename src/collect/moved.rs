//! The probe of pages that NUMA balancing sets out to move (`moved.bpf.c`), and what a host says that lets no function
//! be hooked.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::rung::{Ladder, Rung};
use super::skel::moved::{MovedSkel, MovedSkelBuilder};
use crate::host::page_flags::PageFacts;
use crate::host::types::Types;

/// What moves a page to the node from which it is used: by its folio since 6.7 (commit 73eab3ca481e), by its page
/// before.
const FUNCTIONS: [&str; 2] = ["migrate_misplaced_folio", "migrate_misplaced_page"];

/// The loaded and attached probe. Dropping it detaches it.
pub struct MoveProbe {
    // The link goes before the object it belongs to.
    _link: Link,
    rung: Rung,
    function: &'static str,
    skel: MovedSkel<'static>,
}

impl MoveProbe {
    /// Loads and attaches the program, to note in `records`, by the first hook that the host takes.
    ///
    /// # Errors
    /// The kernel does not say what the program must know, or lets the function be hooked in no way; each way has its
    /// errno.
    pub fn start(records: &OwnedFd, types: &Types) -> Result<MoveProbe> {
        let known = FUNCTIONS.iter().find_map(|name| Some((*name, types.of_function(name)?)));
        let (function, count) =
            known.with_context(|| format!("the kernel has no {}", FUNCTIONS.join(" or ")))?;
        ensure!([2, 3].contains(&count), "{function} has {count} arguments, 2 or 3 are known");
        let node_shift = PageFacts::of(types)?.node_shift()?;
        let place = Place { function, node_at: count as u32 - 1, node_shift };
        let ladder = Ladder::climb(|rung| MoveProbe::hook(records, &place, rung));
        let (_, probe) = ladder.into_probe().with_context(|| format!("{function} cannot be hooked"))?;
        Ok(probe)
    }

    fn hook(records: &OwnedFd, place: &Place, rung: Rung) -> Result<MoveProbe> {
        let function = place.function;
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = MovedSkelBuilder::default().open(object).context("opening moved.bpf.o")?;
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("moved.bpf.o has no .rodata")?;
        (rodata.node_at, rodata.node_shift) = (place.node_at, place.node_shift);
        open.progs.on_misplaced.set_autoload(rung == Rung::Fentry);
        open.progs.on_misplaced_kprobe.set_autoload(rung == Rung::Kprobe);
        if rung == Rung::Fentry {
            let target = open.progs.on_misplaced.set_attach_target(0, Some(function.into()));
            target.with_context(|| format!("finding {function}"))?;
        }
        let skel = open.load().context("loading moved.bpf.o")?;
        let link = match rung {
            Rung::Fentry => skel.progs.on_misplaced.attach(),
            Rung::Kprobe => skel.progs.on_misplaced_kprobe.attach_kprobe(false, function),
        };
        let link = link.with_context(|| format!("attaching to {function}"))?;
        Ok(MoveProbe { _link: link, rung, function, skel })
    }

    /// What is hooked, and how.
    pub fn words(&self) -> String {
        format!("by {} of {}", self.rung.name(), self.function)
    }

    /// The program that is attached, by name.
    pub fn program(&self) -> (&'static str, BorrowedFd<'_>) {
        let programs = &self.skel.progs;
        match self.rung {
            Rung::Fentry => ("on_misplaced", programs.on_misplaced.as_fd()),
            Rung::Kprobe => ("on_misplaced_kprobe", programs.on_misplaced_kprobe.as_fd()),
        }
    }
}

/// What differs between kernels.
struct Place {
    function: &'static str,
    /// The argument that says which node the page is to be on, from 0.
    node_at: u32,
    /// The lowest bit of the node in `page->flags`.
    node_shift: u32,
}
