//! The sampling of stacks as a source offers it: the sampler, and the thread that names what it saw.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::Program;

use crate::collect::hot::{HotProbe, Sampling};
use crate::model::stacks::StackBatch;
use crate::model::units::CpuId;
use crate::program::helper::OWN_PROGRAM;
use crate::symbolize::Namer;

/// Exists while hot spots are shown.
pub struct Hot {
    probe: HotProbe,
    namer: Namer,
}

impl Hot {
    /// Starts both; see [`HotProbe::start`] for the arguments.
    ///
    /// # Errors
    /// The sampler cannot be loaded or started, or no thread can be created.
    pub fn start(
        sampling: Sampling,
        records: &OwnedFd,
        scoped: bool,
        cgroup_subsys: Option<u32>,
        cpus: &[CpuId],
    ) -> Result<Hot> {
        let probe = HotProbe::start(sampling, records, scoped, cgroup_subsys, cpus)?;
        Ok(Hot {
            probe,
            namer: Namer::start(PathBuf::from(OWN_PROGRAM))
                .context("starting the thread that names functions")?,
        })
    }

    /// Samples since the previous call. Waits up to `patience` for names; slower ones come with a later call.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn news(&mut self, patience: Duration) -> Result<StackBatch> {
        let stacks = self.probe.take()?;
        let places = stacks.iter().flat_map(|stack| stack.places().map(|place| (place, stack.process)));
        self.namer.ask(places);
        let sampling = self.probe.sampling();
        Ok(StackBatch {
            event: sampling.event.name.clone(),
            hz: sampling.hz,
            names: self.namer.answers(patience),
            lost: self.probe.lost(),
            stacks,
        })
    }

    /// Moves samples out of the kernel's ring.
    ///
    /// # Errors
    /// The ring could not be read.
    pub fn gather(&self) -> Result<()> {
        self.probe.gather()
    }

    /// The sampler's programs.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        self.probe.programs()
    }

    /// Becomes readable when that ring is half full.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.probe.fd()
    }

    /// Sets whether tasks without a record are out of scope from now on.
    pub fn set_scoped(&mut self, scoped: bool) {
        self.probe.set_scoped(scoped);
    }

    /// Samples on the CPUs that are online now.
    ///
    /// # Errors
    /// The event cannot be sampled on one of them.
    pub fn follow(&mut self, cpus: &[CpuId]) -> Result<()> {
        self.probe.follow(cpus)
    }
}
