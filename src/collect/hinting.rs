//! The probe of NUMA hinting faults (`hinting.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};

use super::rung::Rung;
use super::skel::hinting::{HintingSkel, HintingSkelBuilder};
use crate::model::sample::Hints;
use crate::model::wire::{CpuHints, Wire};

/// What is left where no function can be hooked.
pub const WITHOUT: &str = "numa_faults_locality of the task structure";

/// The loaded and attached probe. Dropping it detaches it.
pub struct HintProbe {
    // The link goes before the object it belongs to.
    _link: Link,
    rung: Rung,
    skel: HintingSkel<'static>,
}

impl HintProbe {
    /// Loads and attaches the program of one rung at `task_numa_fault`, to count into `records`.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain. EPERM where the host forbids trampolines, ENOTSUPP
    /// (524) where the architecture has none for functions, ENOENT without CONFIG_KPROBES.
    pub fn start(records: &OwnedFd, rung: Rung) -> Result<HintProbe> {
        // One per run of the program: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = HintingSkelBuilder::default().open(object).context("opening hinting.bpf.o")?;
        open.maps.task_recs.reuse_fd(records.as_fd()).context("sharing the task storage map")?;
        open.progs.on_hint_fault.set_autoload(rung == Rung::Fentry);
        open.progs.on_hint_fault_kprobe.set_autoload(rung == Rung::Kprobe);
        let skel = open.load().context("loading hinting.bpf.o")?;
        let program = match rung {
            Rung::Fentry => &skel.progs.on_hint_fault,
            Rung::Kprobe => &skel.progs.on_hint_fault_kprobe,
        };
        let link = program.attach().context("attaching to task_numa_fault")?;
        Ok(HintProbe { _link: link, rung, skel })
    }

    /// Faults on each possible CPU, by id, since start.
    ///
    /// # Errors
    /// The kernel refuses to read the map; the errno is in the chain.
    pub fn by_cpu(&self) -> Result<Vec<Hints>> {
        let values = self.skel.maps.cpu_hints.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.context("reading hinting faults by CPU")?.unwrap_or_default();
        let parsed = values.iter().filter_map(|bytes| CpuHints::from_bytes(bytes));
        Ok(parsed.map(|hints| Hints { faults: hints.faults, remote: hints.remote }).collect())
    }

    /// The program that is attached, by name.
    pub fn program(&self) -> (&'static str, BorrowedFd<'_>) {
        let programs = &self.skel.progs;
        match self.rung {
            Rung::Fentry => ("on_hint_fault", programs.on_hint_fault.as_fd()),
            Rung::Kprobe => ("on_hint_fault_kprobe", programs.on_hint_fault_kprobe.as_fd()),
        }
    }
}
