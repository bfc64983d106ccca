//! The balancing probe: pages that are moved, by task and reason (`balance.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::pairs::Pairs;
use super::skel::balance::{BalanceSkel, BalanceSkelBuilder};
use crate::host::types::Types;

/// The loaded and attached probe. Dropping it detaches it.
pub struct BalanceProbe {
    // The link goes before the object it belongs to.
    _migrate: Link,
    pairs: Pairs,
    skel: BalanceSkel<'static>,
}

impl BalanceProbe {
    /// Loads and attaches the probe, to count into `records`, on a machine with so many possible nodes.
    ///
    /// # Errors
    /// The kernel does not say what the tracepoint tells, or loading or attaching failed; the errno is in the chain.
    pub fn start(records: &OwnedFd, nodes: u32, types: &Types) -> Result<BalanceProbe> {
        let arguments = types.of_tracepoint("mm_migrate_pages")?;
        // The reason is the last.
        ensure!([7, 8].contains(&arguments), "mm_migrate_pages has {arguments} arguments, 7 or 8 are known");
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = BalanceSkelBuilder::default().open(object).context("opening balance.bpf.o")?;
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("balance.bpf.o has no .rodata")?;
        (rodata.nr_nodes, rodata.reason_at) = (nodes, arguments as u32 - 1);
        open.maps.moves.set_max_entries(Pairs::entries(nodes))?;
        let skel = open.load().context("loading balance.bpf.o")?;
        let migrate = skel.progs.on_migrate_pages.attach().context("attaching to mm_migrate_pages")?;
        let pairs = Pairs::new(skel.maps.moves.as_fd(), nodes)?;
        Ok(BalanceProbe { _migrate: migrate, pairs, skel })
    }

    /// Pages that balancing moved from node to node: none while no [`super::moved::MoveProbe`] says where.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// The program that is attached, by name.
    pub fn program(&self) -> (&'static str, BorrowedFd<'_>) {
        ("on_migrate_pages", self.skel.progs.on_migrate_pages.as_fd())
    }
}
