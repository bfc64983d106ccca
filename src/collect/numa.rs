//! The probe of what NUMA balancing does with tasks: moved, swapped with another, left where it is (`numa.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::skel::numa::{NumaSkel, NumaSkelBuilder};

/// The loaded and attached probe. Dropping it detaches it.
pub struct NumaProbe {
    // The links go before the object they belong to.
    _links: [Link; 3],
    skel: NumaSkel<'static>,
}

impl NumaProbe {
    /// Loads and attaches the probe, to count into `records`.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain.
    pub fn start(records: &OwnedFd) -> Result<NumaProbe> {
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = NumaSkelBuilder::default().open(object).context("opening numa.bpf.o")?;
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        let skel = open.load().context("loading numa.bpf.o")?;
        let links = [
            skel.progs.on_move_numa.attach().context("attaching to sched_move_numa")?,
            skel.progs.on_swap_numa.attach().context("attaching to sched_swap_numa")?,
            skel.progs.on_stick_numa.attach().context("attaching to sched_stick_numa")?,
        ];
        Ok(NumaProbe { _links: links, skel })
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> [(&'static str, BorrowedFd<'_>); 3] {
        let programs = &self.skel.progs;
        [
            ("on_move_numa", programs.on_move_numa.as_fd()),
            ("on_swap_numa", programs.on_swap_numa.as_fd()),
            ("on_stick_numa", programs.on_stick_numa.as_fd()),
        ]
    }
}
