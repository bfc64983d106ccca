//! Samples of the running machine.

mod events;
mod memory;
mod missing;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use libbpf_rs::Program;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::events::Fresh;
use self::missing::with_balancing;
use super::access::Access;
use super::hot::Hot;
use super::{Focus, Source, poll};
use crate::collect::about::AboutReader;
use crate::collect::check::HostCheck;
use crate::collect::hot::Sampling;
use crate::collect::machine::MachineReader;
use crate::collect::mm_reader::MmReader;
use crate::collect::placement::{Budget, Placements};
use crate::collect::plan::Advice;
use crate::collect::probes::{Probes, Readings, Shared};
use crate::collect::records::Layout;
use crate::collect::sched::SchedProbe;
use crate::collect::table::{TaskTable, parse};
use crate::collect::tasks::TaskProbe;
use crate::collect::{own, records, stats};
use crate::container::groups::GroupWatch;
use crate::container::names::Book;
use crate::container::scope::Scope;
use crate::container::select::{Unmatched, Wants};
use crate::container::visible::VisibleNames;
use crate::error::{Exit, Refusal};
use crate::host::cgroups::Hierarchy;
use crate::host::clock;
use crate::host::kernel;
use crate::host::users;
use crate::metric::needs;
use crate::metric::needs::Demand;
use crate::model::cgroup_path;
use crate::model::facility::Facility;
use crate::model::sample::{CpuRaw, HostFacts, Missing, Names, Sample, Slot};
use crate::model::stacks::News;
use crate::model::topology::{Topology, parse_cpulist};
use crate::model::units::CpuId;
use crate::model::wire::Loss;
use crate::overhead::{ReadCost, Statistics};
use crate::pmu::sets::Choice;
use crate::remote::OWN_PROGRAM;

/// Where this machine's files are.
const ROOT: &str = "/";

/// What comes before the time of a sample is read takes less than this, unless the machine is overloaded.
const SLOW: Duration = Duration::from_millis(50);

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
    /// Counters to read at context switches; those that do not work here are left out with a reason.
    pub events: Choice,
    /// What each set that may be chosen later counts here. Found out before anything is open: counters that are in
    /// use cannot be tried.
    pub sets: Vec<(&'static str, Choice)>,
    /// How stacks are sampled while somebody looks at hot spots.
    pub sampling: Sampling,
    /// Count pages by node also where there is only one.
    pub count_pages: bool,
    /// The budget for finding out where memory is.
    pub placement_budget: Budget,
    /// Read the files of limits and memory of cgroups.
    pub group_limits: bool,
    /// Start the probes of these facilities and no others.
    pub demand: Demand,
}

/// The probes and readers that make samples.
pub struct LiveSource {
    host: Arc<HostFacts>,
    check: HostCheck,
    sched: SchedProbe,
    tasks: TaskProbe,
    machine: MachineReader,
    table: TaskTable,
    groups: GroupWatch,
    group_limits: bool,
    /// Reads what the locks of other address spaces guard.
    mm_reader: MmReader,
    placements: Placements,
    about: AboutReader,
    probes: Probes,
    demand: Demand,
    /// Of the whole machine.
    names: Arc<Names>,
    visible: VisibleNames,
    /// The scope was changed while running: who leaves it with the next walk is not reported.
    forget: bool,
    online: Vec<CpuId>,
    /// Facilities of files and probes that had failed when reasons were last given.
    lacking: usize,
    /// Reads of counters that had failed on each CPU when we looked last.
    failed_reads: BTreeMap<CpuId, u64>,
    notes: Vec<String>,
    page_size: u64,
    multiplexed: bool,
    /// The scope of the command line, in words.
    scope_text: String,
    /// The task storage map.
    records: OwnedFd,
    /// The v1 controller that names cgroups, by index.
    cgroup_subsys: Option<u32>,
    sampling: Sampling,
    hot: Option<Hot>,
    access: Option<Access>,
    /// Why memory use is not sampled, though it was asked for.
    access_refused: Option<Missing>,
    sets: Vec<(&'static str, Choice)>,
    fresh: Fresh,
    /// The cost of reading one counter.
    read_cost: Option<ReadCost>,
    statistics: Option<stats::Recording>,
}

impl LiveSource {
    /// Loads and attaches everything.
    ///
    /// # Errors
    /// The essential probes could not be loaded; [`crate::error::explain`] turns that into advice.
    pub fn start(options: LiveOptions) -> Result<LiveSource> {
        let mut check = HostCheck::read(Path::new(ROOT), &options.events);
        let topology = check
            .topology
            .clone()
            .into_known()
            .map_err(anyhow::Error::msg)
            .context("reading the topology")?;
        let hierarchy = options.hierarchy.unwrap_or_else(|| check.cgroups.clone());
        raise_open_files(topology.possible_cpus);
        let events = check.pmu.working();

        let mut names = Arc::new(Names { users: users::read(Path::new(ROOT)), ..Names::default() });
        let book = Book::new(Path::new(ROOT)).asking(&options.runtime_sockets);
        let mut groups =
            GroupWatch::new(Path::new(ROOT), hierarchy.clone(), book, options.wants, options.scope);
        let unmatched = groups.read(0, &mut names);
        let mut notes = groups.take_troubles();
        if !unmatched.is_empty() {
            ensure!(groups.wants.wait, refuse(&unmatched, &notes));
            notes.extend(unmatched.iter().map(|missing| format!("waiting for {}", missing.want)));
        }
        if hierarchy.is_partial() {
            notes.push(PARTIAL.into());
        }
        if check.privileges.host_pid_namespace.is(&false) {
            notes.push(HIDDEN.into());
        }
        let nodes = topology.possible_nodes;
        let mut layout = Layout::new(nodes, topology.smt(), &events);
        layout.pages |= options.count_pages;
        let store = records::create(layout)?;
        let planned = with_balancing(&check);
        let measurable = |needs: &[Facility]| planned.obstacle(needs).is_none();
        let wanted = |facility| {
            let counted = facility == Facility::NewPages && options.count_pages;
            let measurable = counted || needs::of_those_with(facility).any(measurable);
            measurable && options.demand.includes(facility)
        };
        let shared = Shared::new(Path::new(ROOT), &store, layout);
        let mut probes = Probes::default();
        // First, because the programs below take its place where it does not start.
        probes.start(&shared, |facility| facility == Facility::HintFaults && wanted(facility));
        layout.hints_from_task = wanted(Facility::HintFaults) && !probes.runs(Facility::HintFaults);
        let subsys = match &hierarchy.controller {
            Some(controller) => Some(kernel::cgroup_subsys_index(controller)?),
            None => None,
        };
        let scoped = groups.scope().at_switches();
        let mut sched = SchedProbe::start(&topology, (&store, layout), events, scoped, subsys)?;
        let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
        for cpu in &online {
            for refused in sched.online(&topology, *cpu)? {
                if check.pmu.refuse(&sched.events()[refused.slot].name, &refused.why) {
                    notes.push(refused.why.to_string());
                }
            }
        }
        if options.events.takes_turns {
            sched.read_scaled(true);
        }
        let read_cost = online.first().map(|cpu| sched.measure_reads(*cpu)).transpose()?.flatten();
        let tasks =
            TaskProbe::start(&sched, &store, nodes, groups.scope(), subsys, hierarchy.mount.is_some())?;
        let page_size = own::page_size();
        let machine = MachineReader::open(Path::new(ROOT), &topology, page_size)?;
        probes.start(&shared.with(&sched), wanted);
        let host = HostFacts {
            hostname: kernel::read_trimmed("/proc/sys/kernel/hostname"),
            kernel: kernel::read_trimmed("/proc/sys/kernel/osrelease"),
            arch: std::env::consts::ARCH.to_string(),
            cpu_model: kernel::cpu_model(Path::new(ROOT)),
            boot_id: kernel::read_trimmed("/proc/sys/kernel/random/boot_id"),
            topology,
            events: sched.events().to_vec(),
            tables: options.events.tables,
            missing: BTreeMap::new(),
            scope: options.scope_text.clone(),
        };
        let mut source = LiveSource {
            host: Arc::new(host),
            sched,
            tasks,
            machine,
            probes,
            demand: options.demand,
            table: TaskTable::default(),
            groups,
            group_limits: options.group_limits,
            mm_reader: MmReader::new(PathBuf::from(OWN_PROGRAM)),
            placements: Placements::new(options.placement_budget),
            about: AboutReader::default(),
            names,
            visible: VisibleNames::default(),
            forget: false,
            check,
            online,
            lacking: 0,
            failed_reads: BTreeMap::new(),
            notes,
            page_size,
            multiplexed: options.events.takes_turns,
            scope_text: options.scope_text,
            records: store,
            cgroup_subsys: subsys,
            sampling: options.sampling,
            hot: None,
            access: None,
            access_refused: None,
            sets: options.sets,
            fresh: Fresh::default(),
            read_cost,
            statistics: None,
        };
        source.say_missing();
        Ok(source)
    }

    /// Opens counters on CPUs that came online, closes those of CPUs that left.
    fn follow_hotplug(&mut self) -> Result<()> {
        let now = online_now()?;
        let silent = self.silent_cpus();
        if now == self.online && silent.is_empty() {
            return Ok(());
        }
        for cpu in self.online.iter().filter(|cpu| !now.contains(cpu)) {
            self.sched.offline(*cpu)?;
            self.notes.push(format!("CPU {cpu} went offline"));
        }
        // A CPU that was never online before has no place in the topology yet.
        let topology = Topology::read(Path::new(ROOT))?;
        for cpu in &now {
            let came = !self.online.contains(cpu);
            if !came && !silent.contains(cpu) {
                continue;
            }
            let failed = self.sched.online(&topology, *cpu)?;
            let what = if came { "came online" } else { "had lost its counters: they are opened anew" };
            self.notes.push(format!("CPU {cpu} {what}"));
            self.note_refused(failed);
        }
        Arc::make_mut(&mut self.host).topology = topology;
        self.say_missing();
        if let Some(hot) = &mut self.hot {
            hot.follow(&now)?;
        }
        if let Some(access) = &mut self.access {
            access.follow(&now)?;
        }
        self.online = now;
        Ok(())
    }

    /// CPUs on which counters could not be read since we asked before: they died with a CPU that was offline
    /// for so short a time that no sample saw it.
    fn silent_cpus(&mut self) -> Vec<CpuId> {
        let mut silent = Vec::new();
        for cpu in &self.online {
            let failed = self.sched.cpu(*cpu).map_or(0, |state| state.lost[Loss::Counter as usize]);
            if failed > self.failed_reads.insert(*cpu, failed).unwrap_or(0) {
                silent.push(*cpu);
            }
        }
        silent
    }

    fn cpus(&self, irq_ns: &BTreeMap<CpuId, u64>) -> Vec<CpuRaw> {
        let read = |cpu: &crate::model::topology::Cpu| {
            let state = self.sched.cpu(cpu.id)?;
            let mut slots = [Slot::default(); crate::model::wire::SLOTS];
            for (i, slot) in slots.iter_mut().enumerate() {
                *slot = Slot {
                    count: state.slot_total[i],
                    enabled_ns: state.slot_enabled_ns[i],
                    running_ns: state.slot_running_ns[i],
                };
            }
            Some(CpuRaw {
                id: cpu.id.0,
                node: cpu.node.map_or(0, |node| node.0),
                online: self.online.contains(&cpu.id),
                busy_ns: state.busy_ns,
                switches: state.switches,
                irq_ns: irq_ns.get(&cpu.id).copied().unwrap_or(0),
                hints: None,
                slots,
            })
        };
        self.host.topology.cpus.iter().filter_map(read).collect()
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        let mut lost = BTreeMap::new();
        for cause in Loss::ALL {
            let sum: u64 = self
                .host
                .topology
                .cpus
                .iter()
                .filter_map(|cpu| self.sched.cpu(cpu.id))
                .map(|state| state.lost[cause as usize])
                .sum();
            lost.insert(cause.id().to_string(), sum);
        }
        lost
    }

    /// Reads the cgroup tree again when it changed, and has the scope follow.
    fn follow_cgroups(&mut self, unknown: bool) -> Result<()> {
        let changes = self.tasks.cgroup_changes();
        if !self.groups.is_due(changes, unknown) {
            return Ok(());
        }
        let before = self.groups.scope().clone();
        self.groups.read(changes, &mut self.names);
        self.notes.extend(self.groups.take_troubles());
        self.sched.set_scoped(self.groups.scope().at_switches());
        self.tasks.set_scope(&before, self.groups.scope())
    }

    fn take(&mut self) -> Result<Sample> {
        let began = Instant::now();
        self.follow_hotplug()?;
        self.settle_events();
        self.follow_balancing();
        for cpu in &self.online {
            // It may have gone offline since: then there is nothing to bring up to date, and the next
            // sample says so.
            if let Err(error) = self.sched.flush(*cpu)
                && online_now()?.contains(cpu)
            {
                self.notes.push(format!("{error:#}"));
            }
        }
        let before = began.elapsed();
        if before > SLOW {
            let seconds = before.as_secs_f64();
            self.notes.push(format!(
                "an interval ends later than it was due: bringing the CPUs up to date took long; {seconds:.2} s"
            ));
        }
        let mono_ns = clock::mono_ns();
        let boot_ns = clock::boot_ns();
        let wall_ns = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as i64);
        let mut machine = self.machine.read()?;
        let mut cpus = self.cpus(&machine.irq_ns);

        self.follow_cgroups(false)?;
        let (mut walk, mut ends) = (Vec::new(), Vec::new());
        let page_size = self.page_size;
        self.tasks.exits(|row| ends.push(parse(&row, page_size)))?;
        self.tasks.walk(|row| walk.push(parse(&row, page_size)))?;
        // At once: what moves between this and the walk is in the matrix and not yet in a row.
        let flows = self.sched.moves().flows(&self.host.topology);
        let mut readings = Readings {
            topology: &self.host.topology,
            vm: &machine.vm,
            nodes: &mut machine.nodes,
            hints: Vec::new(),
            page_flows: Vec::new(),
        };
        self.probes.read(&mut readings);
        let Readings { hints, page_flows, .. } = readings;
        for cpu in &mut cpus {
            cpu.hints = hints.get(cpu.id as usize).copied();
        }
        let unknown = ends.iter().chain(&walk).any(|row| !self.groups.knows(row.task.cgroup_id));
        self.table.apply(ends, walk, std::mem::take(&mut self.forget));
        self.follow_cgroups(unknown)?;
        let (tasks, exited) = self.table.snapshot();
        let groups = match self.group_limits {
            true => self.groups.limits(&tasks, &self.names, mono_ns),
            false => BTreeMap::new(),
        };
        let (placement, about) = self.look_at_memory(&tasks, mono_ns);
        let memory_use = match &mut self.access {
            Some(access) => Some(access.turn(&self.host.topology, &tasks, mono_ns)?),
            None => None,
        };
        let occupied = tasks.iter().chain(&exited).map(|task| task.cgroup_id);
        let names = self.visible.of(self.groups.scope(), &self.names, occupied);
        self.watch_multiplexing(&cpus);
        self.note_missing();
        let mut own = own::read(self.page_size);
        let (reader_ns, reader_bytes) = self.mm_reader.uses(self.page_size);
        (own.cpu_ns, own.rss_bytes) = (own.cpu_ns + reader_ns, own.rss_bytes + reader_bytes);
        if let Some(access) = &mut self.access {
            let (reader_ns, reader_bytes) = access.reader_uses(self.page_size);
            (own.cpu_ns, own.rss_bytes) = (own.cpu_ns + reader_ns, own.rss_bytes + reader_bytes);
        }
        own.sample_ns = began.elapsed().as_nanos() as u64;
        Ok(Sample {
            wall_ns,
            mono_ns,
            boot_ns,
            tasks,
            exited,
            cpus,
            nodes: machine.nodes,
            vm: Some(machine.vm),
            flows,
            page_flows,
            lost: self.lost(),
            exit_lost_ns: self.tasks.exit_lost_ns()?,
            own,
            names,
            groups,
            placement,
            about,
            memory_use,
            hot: None,
            notes: std::mem::take(&mut self.notes),
        })
    }

    /// Once a counter had to share the PMU, counts are read with their times from then on.
    fn watch_multiplexing(&mut self, cpus: &[CpuRaw]) {
        let shared = |slot: &Slot| slot.running_ns < slot.enabled_ns;
        if !self.multiplexed && cpus.iter().any(|cpu| cpu.slots.iter().any(shared)) {
            self.multiplexed = true;
            self.sched.read_scaled(true);
            self.notes.push("counters share the PMU: counts are scaled from here on".into());
        }
    }
}

impl Source for LiveSource {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.host)
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        self.take().map(Some)
    }

    fn note(&mut self, word: String) {
        self.notes.push(word);
    }

    fn focus(&mut self, focus: Focus) {
        self.about.focus(focus.processes.clone(), focus.asked);
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
                let name = group.map_or_else(|| cgroup_path::show(path), |group| group.name.clone());
                self.groups.narrow(Some(path.clone()), &self.names);
                name
            }
        };
        let scoped = !self.groups.scope().is_everything();
        self.sched.set_scoped(self.groups.scope().at_switches());
        if let Some(hot) = &mut self.hot {
            hot.set_scoped(scoped);
        }
        if let Some(access) = &mut self.access {
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
        (self.access, self.access_refused) = (None, None);
        if on {
            let scoped = !self.groups.scope().is_everything();
            match Access::start(&self.records, scoped, &self.online, self.page_size, clock::mono_ns()) {
                Ok(access) => self.access = Some(access),
                Err(why) => self.access_refused = Some(why),
            }
        }
        self.say_missing();
        Ok(())
    }

    fn set_statistics(&mut self, on: bool) -> Result<()> {
        self.statistics = None;
        if on {
            self.statistics = Some(stats::Recording::start()?);
        }
        Ok(())
    }

    fn statistics(&mut self) -> Result<Option<Statistics>> {
        if self.statistics.is_none() {
            return Ok(None);
        }
        let sampler = self.hot.iter().flat_map(Hot::programs);
        let sampler = sampler.chain(self.access.iter().flat_map(Access::programs));
        let programs = self.sched.programs().chain(self.tasks.programs()).chain(sampler);
        let runs = |program: Program<'_>| {
            Ok((program.name().to_string_lossy().into_owned(), stats::runs(program.as_fd())?))
        };
        Ok(Some(Statistics {
            mono_ns: clock::mono_ns(),
            programs: programs.chain(self.probes.programs()).map(runs).collect::<Result<_>>()?,
            counters: self.sched.events().len(),
            read: self.read_cost,
            scaled: self.multiplexed,
        }))
    }

    fn hot_news(&mut self, patience: Duration) -> Result<Option<News>> {
        self.hot.as_mut().map(|hot| hot.news(patience)).transpose()
    }

    /// Empties the kernel's rings whenever one is half full, so that nothing is lost during a long interval.
    fn wait(&mut self, due: Instant, stop: BorrowedFd<'_>) -> Result<bool> {
        loop {
            let mut fds = vec![stop, self.tasks.exit_fd()];
            fds.extend(self.hot.as_ref().map(Hot::fd));
            let hot = fds.len();
            fds.extend(self.access.as_ref().map(Access::fd));
            match poll(&fds, due).context("waiting for the next sample")? {
                None => return Ok(false),
                Some(0) => return Ok(true),
                Some(1) => self.tasks.gather_exits()?,
                Some(at) if at < hot => self.hot.as_ref().map_or(Ok(()), Hot::gather)?,
                Some(_) => {
                    if let Some(access) = &mut self.access {
                        access.gather(&self.host.topology)?;
                    }
                }
            }
        }
    }
}

/// The CPUs that are online now.
fn online_now() -> Result<Vec<CpuId>> {
    let text = kernel::read_trimmed("/sys/devices/system/cpu/online");
    Ok(parse_cpulist(&text).context("reading cpu/online")?.into_iter().map(CpuId).collect())
}

/// Said when the mounted tree does not begin at its root.
const PARTIAL: &str = "only a part of the cgroup tree is visible here (a cgroup namespace): containers outside it have \
                       no names; run the container of numatop-ng with --cgroupns=host";

const HIDDEN: &str = "numatop-ng is in a pid namespace: live tasks outside it are not listed, only the CPU time that they \
                      take; run its container with --pid=host";

/// Names that nothing has: wrong usage, with what there is instead, and why names may be missing.
fn refuse(unmatched: &[Unmatched], troubles: &[String]) -> Refusal {
    let first = &unmatched[0];
    let closest = match first.closest.as_slice() {
        [] => format!("there is no {} here at all", first.want.noun()),
        names => format!("the closest there are: {}", names.join(", ")),
    };
    let reasons: Vec<String> = std::iter::once(closest).chain(troubles.iter().cloned()).collect();
    Refusal {
        exit: Exit::Usage,
        what: format!("there is no {}", first.want),
        why: Some(reasons.join("; ")),
        said: None,
        advice: vec![Advice::say("--wait starts without it and waits until it exists")],
    }
}

/// Time since `mono_ns`, a sample's time.
pub fn since(mono_ns: u64) -> Duration {
    Duration::from_nanos(clock::mono_ns().saturating_sub(mono_ns))
}

/// Every counter is a descriptor per CPU: raise the soft limit to what may be needed.
fn raise_open_files(cpus: u32) {
    let needed = u64::from(cpus) * crate::model::wire::SLOTS as u64 + 256;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let current = Some(maximum.map_or(needed, |maximum| needed.min(maximum)));
        // A refusal shows later as EMFILE with its own message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
}
