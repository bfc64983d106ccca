//! The balancing probe: pages that are moved between nodes, by task (`balance.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::skel::balance::{BalanceSkel, BalanceSkelBuilder};

/// The loaded and attached probe. Dropping it detaches it.
pub struct BalanceProbe {
    // The link goes before the object it belongs to.
    _migrate: Link,
    skel: BalanceSkel<'static>,
}

impl BalanceProbe {
    /// Loads and attaches the probe, to count into `records`.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain.
    pub fn start(records: &OwnedFd) -> Result<BalanceProbe> {
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = BalanceSkelBuilder::default().open(object).context("opening balance.bpf.o")?;
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        let skel = open.load().context("loading balance.bpf.o")?;
        let migrate = skel.progs.on_migrate_pages.attach().context("attaching to mm_migrate_pages")?;
        Ok(BalanceProbe { _migrate: migrate, skel })
    }

    /// The program that is attached, by name.
    pub fn program(&self) -> (&'static str, BorrowedFd<'_>) {
        ("on_migrate_pages", self.skel.progs.on_migrate_pages.as_fd())
    }
}
