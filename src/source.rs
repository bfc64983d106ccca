//! Sources of samples: this machine, recordings, a made-up machine. Everything downstream is the same for all of them.

pub mod access;
pub mod demo;
pub mod hot;
pub mod live;
pub mod merge;
pub mod recorded;
pub mod recording;
pub mod witness;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
pub use numatop_ng_demo::synthetic;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::collect::mappings::Mappings;
use crate::model::process::Asked;
use crate::model::process::Details;
use crate::model::process::ProcessId;
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::overhead::Statistics;
use crate::record::recorder::Progress;

/// The rows and fields that are shown now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Focus {
    /// The most important one first; `None`: no preference.
    pub processes: Option<Vec<ProcessId>>,
    /// Groups of cgroups, by the id of their top.
    pub groups: Vec<u64>,
    /// Fields that are read of processes beside their counts, of these first; none if no process is shown.
    pub asked: Asked,
    /// Processes for which a condition of a finding holds: their texts are always read.
    pub suspects: Vec<ProcessId>,
    /// Processes whose accesses are sampled as far as a hundredth of a CPU goes, the most important one first; `None`: not
    /// wanted at all.
    pub accesses: Option<Vec<ProcessId>>,
}

/// Tasks of the trees that a live source watches, as of the moment at which it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trees {
    /// Threads that were born into them since the start.
    pub born: u64,
    /// Threads that are counted and whose end was not seen yet.
    pub alive: u64,
}

/// A stream of samples of one host.
pub trait Source {
    /// Facts about the host.
    fn host(&self) -> Arc<HostFacts>;

    /// Does what the next sample needs before its time is read: the length of an interval is known when this is done.
    ///
    /// # Errors
    /// The source cannot go on.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// The next sample, or `None` at the end of a finite source.
    ///
    /// # Errors
    /// The source cannot go on.
    fn next(&mut self) -> Result<Option<Sample>>;

    /// Has the next sample say this in its notes. Dropped where samples are not taken but read.
    fn note(&mut self, _word: String) {}

    /// Watches only the cgroup of this id and those below it; `None`: the scope of the start.
    ///
    /// # Errors
    /// The source cannot change its scope, or the cgroup does not exist.
    fn set_scope(&mut self, _cgroup: Option<u64>) -> Result<()> {
        bail!("only a live measurement can change its scope")
    }

    /// Counts this set of events from now on (a name in [`crate::pmu::sets::SETS`]).
    ///
    /// # Errors
    /// The source cannot count anything else, or has no such set.
    fn set_events(&mut self, _set: &str) -> Result<()> {
        bail!("the counters of a recording are fixed")
    }

    /// Begins to sample the stacks of tasks, or ends it.
    ///
    /// # Errors
    /// The source has no stacks, or they cannot be sampled here.
    fn set_hot(&mut self, _on: bool) -> Result<()> {
        bail!("hot spots can be sampled only on the running machine")
    }

    /// Stacks that were sampled since the call before; `None` while they are not. Waits up to `patience`
    /// for the names of functions.
    ///
    /// # Errors
    /// The source cannot go on.
    fn hot_news(&mut self, _patience: Duration) -> Result<Option<StackBatch>> {
        Ok(None)
    }

    /// The mappings of a process, of a source that has them at hand; `exact`: by a look at every page.
    fn mappings(&mut self, _process: ProcessId, _exact: bool) -> Option<Result<Mappings, String>> {
        None
    }

    /// Begins to sample which memory is used, or ends it. If samples are unusable, metrics are missing with
    /// the reason.
    ///
    /// # Errors
    /// The source has no samples of memory use.
    fn set_access(&mut self, _on: bool) -> Result<()> {
        bail!("memory use can be sampled only on the running machine")
    }

    /// Begins to keep statistics on the BPF programs of the source, or ends it.
    ///
    /// # Errors
    /// The source has no programs, or the kernel refuses.
    fn set_statistics(&mut self, _on: bool) -> Result<()> {
        bail!("a replay has no measurement cost")
    }

    /// The statistics at this moment; `None` while they are not kept.
    ///
    /// # Errors
    /// The kernel refuses.
    fn statistics(&mut self) -> Result<Option<Statistics>> {
        Ok(None)
    }

    /// Details of one process, by its id and its start in ns since boot; `None`: /proc of this machine has them.
    fn inspect(&mut self, _pid: u32, _start_ns: u64) -> Option<Result<Details>> {
        None
    }

    /// Has these measured before others, where rows take turns.
    fn focus(&mut self, _focus: Focus) {}

    /// Whether the last sample continues the previous one: the same run of the same kernel, so that their
    /// difference is meaningful. Only recordings contain more than one run.
    fn continues(&self) -> bool {
        true
    }

    /// Tasks of the trees that are watched. Only the running machine has any.
    fn trees(&self) -> Trees {
        Trees::default()
    }

    /// The progress of the recording that samples go into on their way.
    fn recording(&self) -> Option<Progress> {
        None
    }

    /// Waits until `due`, doing what the source must do between samples. Returns true when `stop`
    /// became readable before that.
    ///
    /// # Errors
    /// The source cannot go on.
    fn wait(&mut self, due: Instant, stop: BorrowedFd<'_>) -> Result<bool> {
        poll(&[stop], due).map(|readable| readable == Some(0)).context("waiting for the next sample")
    }
}

/// Waits until one of `fds` is readable (its index) or `due` is reached (`None`).
///
/// # Errors
/// The errno of poll(2), interruptions by signals excepted.
pub fn poll(fds: &[BorrowedFd<'_>], due: Instant) -> io::Result<Option<usize>> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(polled.iter().position(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
