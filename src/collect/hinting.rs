//! The probe of NUMA hinting faults (`hinting.bpf.c`), and what is left where no function can be hooked.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use super::ladder;
use super::skel::hinting::{HintingSkel, HintingSkelBuilder};

/// How hinting faults are counted, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// At the entry of `task_numa_fault`, by a trampoline.
    Fentry,
    /// At the same place, by a breakpoint.
    Kprobe,
    /// From what the task structure holds at each walk.
    TaskStructure,
}

impl Rung {
    /// What it is, in words.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Fentry => "fentry of task_numa_fault",
            Rung::Kprobe => "kprobe of task_numa_fault",
            Rung::TaskStructure => "numa_faults_locality of the task structure",
        }
    }
}

/// The loaded and attached probe. Dropping it detaches it.
pub struct HintProbe {
    // The link goes before the object it belongs to.
    _link: Link,
    rung: Rung,
    skel: HintingSkel<'static>,
}

/// What became of the ladder: the probe where a function can be hooked, and why the rungs above were not taken.
pub struct Ladder {
    pub probe: Option<HintProbe>,
    pub refused: Vec<(Rung, String)>,
}

impl Ladder {
    /// Takes the first rung that holds.
    pub fn climb(records: &OwnedFd) -> Ladder {
        let rungs = [Rung::Fentry, Rung::Kprobe];
        let (probe, refused) = ladder::climb(rungs, |rung| HintProbe::start(records, rung));
        Ladder { probe, refused }
    }

    /// The rung in use.
    pub fn rung(&self) -> Rung {
        self.probe.as_ref().map_or(Rung::TaskStructure, |probe| probe.rung)
    }

    /// The rung, and why not a better one.
    pub fn words(&self) -> String {
        let refusals = ladder::refusals(&self.refused, Rung::name);
        let separator = if refusals.is_empty() { "" } else { "; " };
        format!("by {}{separator}{refusals}", self.rung().name())
    }
}

impl HintProbe {
    /// Loads and attaches the program of one rung, to count into `records`.
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
            Rung::Kprobe => &skel.progs.on_hint_fault_kprobe,
            _ => &skel.progs.on_hint_fault,
        };
        let link = program.attach().context("attaching to task_numa_fault")?;
        Ok(HintProbe { _link: link, rung, skel })
    }

    /// The program that is attached, by name.
    pub fn program(&self) -> (&'static str, BorrowedFd<'_>) {
        let programs = &self.skel.progs;
        match self.rung {
            Rung::Kprobe => ("on_hint_fault_kprobe", programs.on_hint_fault_kprobe.as_fd()),
            _ => ("on_hint_fault", programs.on_hint_fault.as_fd()),
        }
    }
}
