//! Start of the live source: facts about the host, the scope, the programs, in the order in which each needs the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::events::{Fresh, Rotation};
use super::memory::Accesses;
use super::missing::with_balancing;
use super::{LiveOptions, LiveSource, ROOT};
use crate::calibrate::store;
use crate::collect::check::HostCheck;
use crate::collect::isolated::IsolatedCpus;
use crate::collect::machine::{self, MachineReader};
use crate::collect::maps::{self, RecordLayout};
use crate::collect::mm_reader::MmReader;
use crate::collect::placement::Placements;
use crate::collect::plan::Advice;
use crate::collect::probes::{Probes, Shared};
use crate::collect::proc_fields::AboutReader;
use crate::collect::sched::SchedProbe;
use crate::collect::table::TaskTable;
use crate::collect::tasks::{CgroupView, TaskProbe, can_find};
use crate::collect::turns::Turns;
use crate::container::asked::AskedNames;
use crate::container::groups::CgroupTracker;
use crate::container::visible::VisibleNames;
use crate::error::{self, Exit, Refusal};
use crate::host::cgroups::{self, Hierarchy};
use crate::host::roots::Roots;
use crate::host::types::Types;
use crate::host::users::{self, Getent};
use crate::host::{clock, isolation, kernel, privileges, processes};
use crate::metric::needs;
use crate::model::event::Event;
use crate::model::facility::Facility;
use crate::model::sample::{GroupReclaim, HostFacts, Names};
use crate::model::topology::Topology;
use crate::model::units::CpuId;
use crate::model::wire::SLOTS;
use crate::pmu::budget;
use crate::program::helper::OWN_PROGRAM;
use crate::program::slack::Slack;

/// Events that are open on each CPU while stacks and accesses are sampled.
const SAMPLERS: u64 = 2;

impl LiveSource {
    /// Loads and attaches everything.
    ///
    /// # Errors
    /// The essential probes could not be loaded; [`crate::error::explain`] turns that into advice.
    pub fn start(options: LiveOptions) -> Result<LiveSource> {
        // Once for all uses. If it fails, the check reports why.
        let types = Types::read(Path::new(ROOT)).ok();
        let mut check = HostCheck::read(options.roots(), &options.events, types.as_ref());
        let mut topology = check
            .topology
            .clone()
            .into_known()
            .map_err(anyhow::Error::msg)
            .context("reading the topology")?;
        if let Some(root) = &options.host_root
            && let Some(why) = crate::host::topology::differs_from_kernel(&topology)
        {
            bail!(foreign(root, why));
        }
        let demand = options.demand.clone().with_nodes(topology.nodes.len());
        let undivided = topology.divide(options.division).map_err(|error| Refusal {
            exit: Exit::Usage,
            what: format!("--places: {error}"),
            why: None,
            said: None,
            advice: Vec::new(),
        })?;
        let hierarchy = options.hierarchy.clone().unwrap_or_else(|| check.cgroups.clone());
        let limit = privileges::raise_open_files(budget::needed(
            SLOTS as u64 + SAMPLERS,
            topology.possible_cpus.into(),
        ));
        let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
        let crowded_out = leave_room(&mut check, &online, limit);
        let events = check.pmu.working();

        let mut names = Arc::new(Names { users: users::read(options.roots().host), ..Names::default() });
        let (groups, mut notes) = watch_groups(&options, &hierarchy, &mut names)?;
        notes.extend(limits_of_sight(options.roots(), &check, &hierarchy));
        notes.extend(crowded_out);
        notes.extend(undivided.map(|places| {
            format!(
                "CPU time is recorded per node, not per L3 domain ({places} domains): --places l3 \
                     changes this"
            )
        }));
        let mut layout = RecordLayout::of(&topology, &events);
        let planned = with_balancing(&check);
        let measurable = |needs: &[Facility]| planned.obstacle(needs).is_none();
        let wanted = |facility| {
            let counted = facility == Facility::NewPages && options.count_pages;
            let measurable = counted || needs::of_those_with(facility).any(measurable);
            measurable && demand.includes(facility)
        };
        layout.pages = (layout.pages || options.count_pages) && wanted(Facility::NewPages);
        let store = maps::create(layout)?;
        let mut shared = Shared::new(Path::new(ROOT), &store, layout).knowing(types);
        shared.page_budget = options.page_budget;
        let mut probes = Probes::default();
        // First, because the programs below take its place where it does not start.
        probes.start(&shared, |facility| facility == Facility::HintFaults && wanted(facility));
        layout.hints_from_task = wanted(Facility::HintFaults) && !probes.runs(Facility::HintFaults);
        let subsys = match &hierarchy.controller {
            Some(controller) => Some(shared.types()?.cgroup_subsys(controller)?),
            None => None,
        };
        let scoped = groups.scope().at_switches();
        let mut sched = SchedProbe::start(&topology, (&store, layout), events, scoped, subsys)?;
        let rotation = options
            .event_turn
            .and_then(|every| Rotation::new(&options.events.turns, sched.events(), every, Instant::now()));
        let event_turns = rotation.as_ref().map_or(&[][..], Rotation::groups).to_vec();
        if let Some(first) = event_turns.first() {
            sched.take_turn(first);
        }
        notes.extend(open_counters(&mut sched, &mut check, &topology, &online)?);
        let multiplexed = options.events.takes_turns || rotation.is_some();
        sched.read_scaled(multiplexed);
        let read_cost = online.first().map(|cpu| sched.measure_reads(*cpu)).transpose()?.flatten();
        let cgroups = CgroupView { subsys, exist: hierarchy.mount.is_some() };
        let types = shared.types().map_err(|error| format!("{error:#}"));
        let group_reclaim = types.as_ref().ok().map(|types| kernel::group_reclaim(types));
        let findable = can_find(types, &check.privileges);
        let tasks = TaskProbe::start(&sched, &store, &topology, groups.scope(), cgroups, findable)?;
        let page_size = machine::page_size();
        let getent = (options.roots().host == options.roots().own).then(Getent::default);
        let files = options.roots().machine.to_path_buf();
        let machine = MachineReader::open(&files, &topology, page_size)?;
        probes.start(&shared.with(&sched), wanted);
        let events = sched.events().to_vec();
        let facts = host_facts(&options, &check, group_reclaim, topology, events);
        let host = HostFacts { event_turns, ..facts };
        let isolated = if options.flush_isolated {
            IsolatedCpus::default()
        } else {
            IsolatedCpus::new(host.quiet_cpus())
        };
        notes.extend(isolated.note());
        let mut source = LiveSource {
            host: Arc::new(host),
            sched,
            tasks,
            machine,
            probes,
            table: TaskTable::default(),
            groups,
            group_limits: options.group_limits,
            mm_reader: MmReader::new(PathBuf::from(OWN_PROGRAM)),
            placements: Placements::new(options.placement_budget, page_size, clock::mono_ns()),
            about: AboutReader::default(),
            names,
            getent,
            visible: VisibleNames::default(),
            forget: false,
            check,
            online,
            isolated,
            turns: Turns::new(&demand),
            demand,
            lacking: 0,
            failed_reads: BTreeMap::new(),
            notes,
            prepared: None,
            page_size,
            files,
            multiplexed,
            rotation,
            scope_text: options.scope_text,
            records: store,
            cgroup_subsys: subsys,
            sampling: options.sampling,
            hot: None,
            accesses: Accesses::default(),
            sets: options.sets,
            profile: options.profile,
            fresh: Fresh::default(),
            read_cost,
            statistics: None,
            slack: Slack::default(),
        };
        source.say_missing();
        Ok(source)
    }
}

/// Files of another machine say nothing about tasks of this kernel.
fn foreign(root: &Path, why: String) -> Refusal {
    let root = crate::text::clean_str(&root.to_string_lossy());
    Refusal {
        exit: Exit::Usage,
        what: format!("--host-root: {root} is another machine"),
        why: Some(why),
        said: None,
        advice: vec![Advice::command(
            "to see the nodes, CPUs and caches of that machine",
            "numatop-ng topology --host-root DIR",
        )],
    }
}

/// Watches the tree of cgroups, and reports any difference from the request.
fn watch_groups(
    options: &LiveOptions,
    hierarchy: &Hierarchy,
    names: &mut Arc<Names>,
) -> Result<(CgroupTracker, Vec<String>)> {
    let book =
        AskedNames::new(PathBuf::from(OWN_PROGRAM), options.roots().host).asking(&options.runtime_sockets);
    let (wants, scope) = (options.wants.clone(), options.scope.clone());
    let mut groups = CgroupTracker::new(options.roots(), hierarchy.clone(), book, wants, scope);
    let unmatched = groups.read(0, names);
    let mut notes = groups.take_troubles();
    if !unmatched.is_empty() {
        ensure!(groups.wants.wait, error::unmatched(&unmatched[0], "this machine", &notes, true));
        notes.extend(unmatched.iter().map(|missing| format!("waiting for {}", missing.want)));
    }
    Ok((groups, notes))
}

/// Notes on parts of the machine that namespaces hide.
fn limits_of_sight(roots: Roots<'_>, check: &HostCheck, hierarchy: &Hierarchy) -> Vec<String> {
    let without = !cgroups::has_mounts_of_host(roots) && hierarchy.mount.is_some();
    let elsewhere = without.then(|| {
        let root = crate::text::clean_str(&roots.host.to_string_lossy());
        format!("no cgroup file system below {root} (--host-root): cgroups mounted here are used")
    });
    let partial = hierarchy.is_partial().then(|| PARTIAL.into());
    let hidden = check.privileges.host_pid_namespace.is(&false).then(|| HIDDEN.into());
    elsewhere.into_iter().chain(roots.undescribed()).chain(partial).chain(hidden).collect()
}

/// Leaves events out for which there are not enough files. Returns a note for each.
fn leave_room(check: &mut HostCheck, online: &[CpuId], limit: Option<u64>) -> Vec<String> {
    let mut notes = Vec::new();
    for (event, why) in budget::without_room(&check.pmu.working(), online, limit) {
        if check.pmu.refuse(&event, &why) {
            notes.push(why.to_string());
        }
    }
    notes
}

/// Opens the counters of these CPUs. Counters that the kernel refuses are left out, with a note.
fn open_counters(
    sched: &mut SchedProbe,
    check: &mut HostCheck,
    topology: &Topology,
    online: &[CpuId],
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for cpu in online {
        for refused in sched.online(topology, *cpu)? {
            if check.pmu.refuse(&sched.events()[refused.slot].name, &refused.why) {
                notes.push(refused.why.to_string());
            }
        }
    }
    Ok(notes)
}

fn host_facts(
    options: &LiveOptions,
    check: &HostCheck,
    group_reclaim: Option<GroupReclaim>,
    topology: Topology,
    events: Vec<Event>,
) -> HostFacts {
    let root = options.roots().machine;
    // Another pid namespace has another process 1.
    let sees_host = !check.privileges.host_pid_namespace.is(&false) || processes::root() != Path::new(ROOT);
    let topology = store::with_costs(&options.profile, topology);
    HostFacts {
        hostname: options
            .host_name
            .clone()
            .unwrap_or_else(|| kernel::read_trimmed("/proc/sys/kernel/hostname")),
        kernel: kernel::read_trimmed("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.to_string(),
        cpu_model: kernel::cpu_model(root),
        boot_id: kernel::read_trimmed("/proc/sys/kernel/random/boot_id"),
        node_reclaim_file: topology.nodes.first().and_then(|node| kernel::node_reclaim_file(root, node.id)),
        topology,
        events,
        asked: options.events.asked.clone(),
        event_turns: Vec::new(),
        tables: options.events.tables.clone(),
        missing: BTreeMap::new(),
        scope: options.scope_text.clone(),
        isolated_cpus: isolation::isolated_cpus(options.roots()),
        nohz_full_cpus: isolation::nohz_full_cpus(root),
        cgroups: cgroups::facts(options.roots()),
        group_reclaim,
        swap_on_zram: kernel::swap_on_zram(root),
        managers: sees_host.then(|| cgroups::managers(processes::root())),
    }
}

/// The note for a mounted tree that does not begin at its root.
const PARTIAL: &str = "only a part of the cgroup tree is visible here (a cgroup namespace): containers outside \
                       this part have no names; run the container of numatop-ng with --cgroupns=host";

const HIDDEN: &str = "numatop-ng is in a pid namespace: live tasks outside it are not listed, only their CPU time \
                      is counted; run the container of numatop-ng with --pid=host";
