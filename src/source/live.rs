//! Samples of the running machine.

mod events;
mod hotplug;
mod memory;
mod missing;
mod start;
mod take;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::Program;

use self::events::{Fresh, Rotation};
use self::memory::Accesses;
use super::access::Access;
use super::hot::Hot;
use super::{Focus, Source, Trees, poll};
use crate::calibrate::store::Wanted;
use crate::collect::check::HostCheck;
use crate::collect::hot::Sampling;
use crate::collect::isolated::IsolatedCpus;
use crate::collect::machine::MachineReader;
use crate::collect::mm_reader::MmReader;
use crate::collect::object;
use crate::collect::placement::{Budget, Placements};
use crate::collect::probes::Probes;
use crate::collect::probes::page_allocs::PageBudget;
use crate::collect::proc_fields::AboutReader;
use crate::collect::sched::SchedProbe;
use crate::collect::table::TaskTable;
use crate::collect::tasks::TaskProbe;
use crate::collect::turns::Turns;
use crate::container::groups::CgroupTracker;
use crate::container::scope::Scope;
use crate::container::select::Wants;
use crate::container::visible::VisibleNames;
use crate::host::cgroups::Hierarchy;
use crate::host::clock;
use crate::host::roots::Roots;
use crate::host::users::Getent;
use crate::metric::needs::Demand;
use crate::model::group;
use crate::model::sample::{HostFacts, Names, Sample};
use crate::model::stacks::StackBatch;
use crate::model::topology::Division;
use crate::model::units::CpuId;
use crate::overhead::{ReadCost, Statistics};
use crate::pmu::sets::Choice;
use crate::program::slack::Slack;
use crate::sys;

/// Where this machine's files are.
const ROOT: &str = "/";

/// Tasks to watch, and means to watch them.
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    pub scope: Scope,
    /// The part of the scope that cgroups decide.
    pub wants: Wants,
    /// The hierarchy in which cgroups are looked for; `None` leaves the choice to us.
    pub hierarchy: Option<Hierarchy>,
    /// Sockets of runtimes that may be asked for names of containers.
    pub runtime_sockets: Vec<PathBuf>,
    /// The user's name of the scope; empty for everything.
    pub scope_text: String,
    /// The name of the machine, if not the kernel's.
    pub host_name: Option<String>,
    /// Root of the host's files, if not our own.
    pub host_root: Option<PathBuf>,
    /// Counters to read at context switches; unsupported ones are left out with a reason.
    pub events: Choice,
    /// Length of the turns that the groups of `events` have; `None`: all are open at once.
    pub event_turn: Option<Duration>,
    /// The counts here of each set that may be chosen later. Found out before anything is open: counters that are in
    /// use cannot be tried.
    pub sets: Vec<(&'static str, Choice)>,
    /// The way stacks are sampled while hot spots are shown.
    pub sampling: Sampling,
    /// The sets of CPUs by which the time of each task is kept.
    pub division: Division,
    /// Count pages by node even with a single node.
    pub count_pages: bool,
    /// Page allocations that are counted one by one; beyond it, some of them stand for all.
    pub page_budget: PageBudget,
    /// The budget for finding out where memory is.
    pub placement_budget: Budget,
    /// Interrupt CPUs that are isolated or run without a tick, as all others that are busy.
    pub flush_isolated: bool,
    /// Read the files of limits and memory of cgroups.
    pub group_limits: bool,
    /// Start the probes of these facilities and no others.
    pub demand: Demand,
    /// The profile with the costs between nodes.
    pub profile: Wanted,
}

impl LiveOptions {
    /// Roots of files of the kernel and of the host.
    pub fn roots(&self) -> Roots<'_> {
        let own = Path::new(ROOT);
        Roots::new(own, self.host_root.as_deref().unwrap_or(own))
    }
}

/// The probes and readers that make samples.
pub struct LiveSource {
    host: Arc<HostFacts>,
    check: HostCheck,
    sched: SchedProbe,
    tasks: TaskProbe,
    machine: MachineReader,
    table: TaskTable,
    groups: CgroupTracker,
    group_limits: bool,
    /// Reads what the locks of other address spaces guard.
    mm_reader: MmReader,
    placements: Placements,
    about: AboutReader,
    probes: Probes,
    demand: Demand,
    /// Of the whole machine.
    names: Arc<Names>,
    /// Names of users that /etc/passwd does not have; `None` where the users are those of another root.
    getent: Option<Getent>,
    visible: VisibleNames,
    /// The scope was changed while running: tasks that leave it with the next walk are not reported.
    forget: bool,
    online: Vec<CpuId>,
    /// CPUs that no sample interrupts.
    isolated: IsolatedCpus,
    /// Parts of the machine that are read in turns.
    turns: Turns,
    /// Facilities of files and probes that had failed when reasons were last given.
    lacking: usize,
    /// Failed reads of counters on each CPU at the last look.
    failed_reads: BTreeMap<CpuId, u64>,
    notes: Vec<String>,
    /// CPUs are up to date for the next sample, and that took this time.
    prepared: Option<Duration>,
    page_size: u64,
    /// Root of files about the whole machine.
    files: PathBuf,
    multiplexed: bool,
    rotation: Option<Rotation>,
    /// The scope of the command line, in words.
    scope_text: String,
    /// The task storage map.
    records: OwnedFd,
    /// The v1 controller that names cgroups, by index.
    cgroup_subsys: Option<u32>,
    sampling: Sampling,
    hot: Option<Hot>,
    accesses: Accesses,
    sets: Vec<(&'static str, Choice)>,
    profile: Wanted,
    fresh: Fresh,
    /// The cost of reading one counter.
    read_cost: Option<ReadCost>,
    statistics: Option<object::Recording>,
    slack: Slack,
}

impl LiveSource {
    /// Reads the cgroup tree again when it changed, and has the scope follow.
    /// `unknown`: cgroups of tasks that have no name.
    fn follow_cgroups(&mut self, unknown: &[u64]) -> Result<()> {
        let changes = self.tasks.cgroup_changes();
        let before = self.groups.scope().clone();
        let is_read = self.groups.follow(changes, unknown, &mut self.names);
        self.notes.extend(self.groups.take_troubles());
        if !is_read {
            return Ok(());
        }
        self.sched.set_scoped(self.groups.scope().at_switches());
        self.tasks.set_scope(&before, self.groups.scope())
    }
}

impl Source for LiveSource {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.host)
    }

    fn prepare(&mut self) -> Result<()> {
        self.prepared = Some(self.bring_up_to_date()?);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => self.bring_up_to_date()?,
        };
        let mut sample = self.take()?;
        sample.own.sample_ns += prepared.as_nanos() as u64;
        self.slack.give_back(Instant::now(), sys::trim_heap);
        Ok(Some(sample))
    }

    fn note(&mut self, word: String) {
        self.notes.push(word);
    }

    fn focus(&mut self, focus: Focus) {
        self.about.focus(focus.processes.clone(), focus.suspects, focus.asked);
        self.sample_these(focus.accesses);
        self.placements.focus(focus.processes.unwrap_or_default());
        self.groups.focus(focus.groups);
    }

    fn set_scope(&mut self, cgroup: Option<u64>) -> Result<()> {
        let before = self.groups.scope().clone();
        let text = match cgroup {
            None => {
                self.groups.narrow(None, &self.names);
                self.scope_text.clone()
            }
            Some(id) => {
                let path = self.names.cgroups.get(&id).context("the cgroup has been removed")?;
                let group = self.names.groups.get(&id);
                let name = group.map_or_else(|| group::show(path), |group| group.name.clone());
                self.groups.narrow(Some(path.clone()), &self.names);
                name
            }
        };
        let scoped = !self.groups.scope().is_everything();
        self.sched.set_scoped(self.groups.scope().at_switches());
        if let Some(hot) = &mut self.hot {
            hot.set_scoped(scoped);
        }
        if let Some(access) = &mut self.accesses.running {
            access.set_scoped(scoped);
        }
        self.tasks.set_scope(&before, self.groups.scope())?;
        self.forget = true;
        self.visible.forget();
        Arc::make_mut(&mut self.host).scope = text;
        Ok(())
    }

    fn set_events(&mut self, set: &str) -> Result<()> {
        self.count(set)
    }

    fn set_hot(&mut self, on: bool) -> Result<()> {
        self.hot = None;
        if on {
            let scoped = !self.groups.scope().is_everything();
            let sampling = self.sampling.clone().bounded(self.online.len() as u32);
            let hot = Hot::start(sampling, &self.records, scoped, self.cgroup_subsys, &self.online);
            self.hot = Some(hot.context("sampling stacks")?);
        }
        Ok(())
    }

    fn set_access(&mut self, on: bool) -> Result<()> {
        self.sample_all(on);
        Ok(())
    }

    fn set_statistics(&mut self, on: bool) -> Result<()> {
        self.statistics = None;
        if on {
            self.statistics = Some(object::Recording::start()?);
        }
        Ok(())
    }

    fn statistics(&mut self) -> Result<Option<Statistics>> {
        if self.statistics.is_none() {
            return Ok(None);
        }
        let sampler = self.hot.iter().flat_map(Hot::programs);
        let sampler = sampler.chain(self.accesses.running.iter().flat_map(Access::programs));
        let programs = self.sched.programs().chain(self.tasks.programs()).chain(sampler);
        let runs = |program: Program<'_>| {
            Ok((program.name().to_string_lossy().into_owned(), object::runs(program.as_fd())?))
        };
        Ok(Some(Statistics {
            mono_ns: clock::mono_ns(),
            programs: programs.chain(self.probes.programs()).map(runs).collect::<Result<_>>()?,
            counters: self.sched.events().len(),
            read: self.read_cost,
            scaled: self.multiplexed,
        }))
    }

    fn trees(&self) -> Trees {
        // Ends first: a task that ends meanwhile is alive, and one that is born meanwhile is, too.
        let (at_switches, freed) = (self.sched.ended(), self.tasks.records_and_ends().1);
        let (records, _) = self.tasks.records_and_ends();
        Trees { born: self.tasks.tree_births(), alive: records.saturating_sub(at_switches + freed) }
    }

    fn hot_news(&mut self, patience: Duration) -> Result<Option<StackBatch>> {
        self.hot.as_mut().map(|hot| hot.news(patience)).transpose()
    }

    /// Empties the kernel's rings whenever one is half full, so that nothing is lost during a long interval.
    fn wait(&mut self, due: Instant, stop: BorrowedFd<'_>) -> Result<bool> {
        loop {
            let mut fds = vec![stop, self.tasks.exit_fd()];
            fds.extend(self.hot.as_ref().map(Hot::fd));
            let hot = fds.len();
            fds.extend(self.accesses.running.as_ref().map(Access::fd));
            match poll(&fds, due).context("waiting for the next sample")? {
                None => return Ok(false),
                Some(0) => return Ok(true),
                Some(1) => self.tasks.gather_exits()?,
                Some(at) if at < hot => self.hot.as_ref().map_or(Ok(()), Hot::gather)?,
                Some(_) => {
                    if let Some(access) = &mut self.accesses.running {
                        access.gather(&self.host.topology)?;
                    }
                }
            }
        }
    }
}

/// Time since `mono_ns`, a sample's time.
pub fn since(mono_ns: u64) -> Duration {
    Duration::from_nanos(clock::mono_ns().saturating_sub(mono_ns))
}
