//! A trial of the probes: they are started, as a live view would start them, and taken down again.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::slice::from_ref;

use anyhow::{Context, Error, Result};

use crate::collect::access::spe::SpeProbe;
use crate::collect::access::{self, AccessProbe};
use crate::collect::check::HostCheck;
use crate::collect::maps::{self, RecordLayout};
use crate::collect::placement::Walk;
use crate::collect::placement::draw::Random;
use crate::collect::probes::{PROBES, Probe, Shared};
use crate::collect::round::{Round, SHORT_FROM};
use crate::collect::sched::SchedProbe;
use crate::collect::tasks::{CgroupView, TaskProbe, can_find};
use crate::collect::turns::dram;
use crate::collect::{machine, object, proc_details};
use crate::container::scope::Scope;
use crate::host::isolation;
use crate::host::types::Types;
use crate::model::facility::Facility;
use crate::model::topology::Topology;
use crate::model::wire::Scoped;
use crate::pmu::open::Refused;
use crate::pmu::{memory_event, spe};
use crate::text::plural;

/// One step of starting a live view.
pub struct Trial {
    /// The name of the step.
    pub name: &'static str,
    /// The facilities that need it.
    pub parts: &'static [Facility],
    /// The result, or why it did not work.
    pub outcome: Result<String>,
    /// Messages of libbpf meanwhile, line by line.
    pub log: Vec<String>,
}

/// Tries each step; those after a failure are not tried, because they build on it.
pub(super) fn run(check: &HostCheck) -> Vec<Trial> {
    let Some(topology) = check.topology.known() else { return Vec::new() };
    object::keep();
    object::take();
    let mut trials = Vec::new();
    // The first failure is in `trials`; nothing else needs to be done about it.
    let _stopped = steps(check, topology, &mut trials);
    trials
}

/// Notes a step; hands out what it made, or `None` to stop.
fn note<T>(
    trials: &mut Vec<Trial>,
    name: &'static str,
    parts: &'static [Facility],
    outcome: Result<(T, String)>,
) -> Option<T> {
    let (made, outcome) = match outcome {
        Ok((made, seen)) => (Some(made), Ok(seen)),
        Err(error) => (None, Err(error)),
    };
    trials.push(Trial { name, parts, outcome, log: object::take() });
    made
}

fn steps(check: &HostCheck, topology: &Topology, trials: &mut Vec<Trial>) -> Option<()> {
    let store = note(trials, "task storage", &Facility::ESSENTIAL, task_storage(check, topology))?;
    let started = sched_switch(check, topology, &store);
    let (sched, refused) = note(trials, "sched_switch", &[Facility::CpuTime], started)?;
    if let Some(refused) = refused.into_iter().next() {
        // A live view starts all the same, without them.
        let parts = &[Facility::Counters, Facility::CYCLES, Facility::INSTRUCTIONS];
        note(
            trials,
            "counters on each CPU",
            parts,
            Err::<((), String), _>(Error::msg(refused.why.to_string())),
        );
    }
    let both = &[Facility::TaskWalk, Facility::Exits];
    let tasks = note(trials, "task probe", both, task_probe(check, topology, &store, &sched))?;
    note(trials, "task walk", both, task_walk(tasks))?;
    // The rest builds on none of these.
    let shared = Shared::new(Path::new("/"), &store, layout(check, topology)).with(&sched);
    // With one node there are no others.
    let useful = |probe: &&Probe| !probe.several_nodes || shared.layout.several_nodes();
    for probe in PROBES.into_iter().filter(useful) {
        let seen = probe.try_out(&shared).map(|seen| ((), seen));
        note(trials, probe.name, from_ref(&probe.facility), seen);
    }
    note(trials, "location of memory by node", &[Facility::Placement], placement());
    let controllers = dram::try_out(Path::new("/"), topology).map(|seen| ((), seen));
    note(trials, "memory controllers", &[Facility::MemoryControllers], controllers.map_err(Error::msg));
    note(trials, "memory in use", &[Facility::MemoryUse], memory_use(&store));
    note(trials, "accesses sampled by the PMU", &[Facility::MemoryEvents], memory_events(&store, topology))
}

/// Reads our own memory: an access that the kernel refuses there, it refuses for all processes.
fn placement() -> Result<((), String)> {
    let (root, pid) = (Path::new("/"), std::process::id());
    let start_ns = proc_details::start_ns(pid).context("reading the start time of numatop-ng")?;
    let (page_size, seed) = (machine::page_size(), start_ns);
    let rss_bytes = machine::self_usage(page_size).rss_bytes;
    let mut walk = Walk::open(root, (pid, start_ns), rss_bytes, page_size, true).map_err(Error::msg)?;
    walk.step(None).map_err(Error::msg)?;
    let found = walk.draw(&mut Random(seed), page_size, |_, _| {}).map_err(Error::msg)?;
    let nodes = found.by_node.iter().filter(|pages| **pages > 0).count();
    let how = if walk.scans() {
        "holes are skipped (PAGEMAP_SCAN)"
    } else {
        "holes are scanned, too: PAGEMAP_SCAN is missing (needs Linux 6.7 or newer)"
    };
    Ok((
        (),
        format!(
            "move_pages found {} on {}; {how}",
            plural(found.pages() as usize, "page"),
            plural(nodes, "node")
        ),
    ))
}

/// Whether samples of a clock say which instruction a thread was held up by.
fn memory_use(store: &OwnedFd) -> Result<((), String)> {
    let probe = AccessProbe::load(store, access::rate(1), 1)?;
    let verdict = access::self_check::run(&probe).map_err(Error::msg)?;
    if !verdict.is_checked {
        return Err(Error::msg(access::self_check::OVERRULED));
    }
    let words = format!("access sampling works ({:.0} % of {} clock samples)", verdict.pct, verdict.samples);
    Ok(((), words))
}

/// Whether an event of a PMU can be sampled that has the addresses of accesses.
fn memory_events(store: &OwnedFd, topology: &Topology) -> Result<((), String)> {
    let root = Path::new("/");
    let online: Vec<_> = topology.online_cpus().map(|cpu| cpu.id).collect();
    let of_arm = spe::event::find(root);
    if !of_arm.is_empty() {
        SpeProbe::start(root, &online, &of_arm).map_err(Error::msg)?;
        let names: Vec<&str> = of_arm.iter().map(|spe| spe.event.name.as_str()).collect();
        return Ok(((), format!("{} opened on {}", names.join(", "), plural(online.len(), "CPU"))));
    }
    let events = memory_event::find(root).map_err(Error::msg)?;
    let mut probe = AccessProbe::load(store, access::rate(online.len() as u32), 1)?;
    probe.follow_events(&online, &events).map_err(Error::msg)?;
    let names: Vec<&str> = events.iter().map(|event| event.event.name.as_str()).collect();
    Ok(((), format!("{} opened on {}", names.join(", "), plural(online.len(), "CPU"))))
}

fn task_storage(check: &HostCheck, topology: &Topology) -> Result<(OwnedFd, String)> {
    let store = maps::create(layout(check, topology))?;
    Ok((store, format!("room for {} per task", plural(topology.possible_nodes as usize, "node"))))
}

/// The probe, and the counters that did not open on some CPU.
type Started = (SchedProbe, Vec<Refused>);

fn sched_switch(check: &HostCheck, topology: &Topology, store: &OwnedFd) -> Result<(Started, String)> {
    let mut probe = SchedProbe::start(
        topology,
        (store, layout(check, topology)),
        check.pmu.working(),
        Scoped::Not,
        cgroup_subsys(check)?,
    )?;
    let online: Vec<_> = topology.online_cpus().map(|cpu| cpu.id).collect();
    let quiet = isolation::quiet_cpus(Path::new("/"));
    let (mut refused, mut run_on) = (Vec::new(), 0);
    for cpu in &online {
        refused.extend(probe.online(topology, *cpu)?);
        if !quiet.contains(cpu) {
            probe.flush(*cpu)?;
            run_on += 1;
        }
    }
    Ok(((probe, refused), format!("loaded, attached, run on {}", plural(run_on, "CPU"))))
}

fn task_probe(
    check: &HostCheck,
    topology: &Topology,
    store: &OwnedFd,
    sched: &SchedProbe,
) -> Result<(TaskProbe, String)> {
    let cgroups = CgroupView { subsys: cgroup_subsys(check)?, exist: check.cgroups.mount.is_some() };
    let types = Types::read(Path::new("/"));
    let findable = can_find(types.as_ref().map_err(|error| format!("{error:#}")), &check.privileges);
    let probe = TaskProbe::start(sched, store, topology, &Scope::default(), cgroups, findable)?;
    Ok((probe, "loaded, attached to task creation and exit".into()))
}

fn layout(check: &HostCheck, topology: &Topology) -> RecordLayout {
    RecordLayout::of(topology, &check.pmu.working())
}

fn cgroup_subsys(check: &HostCheck) -> Result<Option<u32>> {
    let Some(controller) = &check.cgroups.controller else { return Ok(None) };
    Types::read(Path::new("/"))?.cgroup_subsys(controller).map(Some)
}

fn task_walk(mut probe: TaskProbe) -> Result<((), String)> {
    let mut threads = 0;
    probe.walk(&Round::unknown(false), |_| threads += 1)?;
    probe.exits(|_| {}).context("reading the exit ring")?;
    let after = match probe.no_short_walk() {
        None => format!("above {SHORT_FROM} threads, each sample visits only tasks that ran"),
        Some(why) => format!("each sample visits all tasks: {why}"),
    };
    Ok(((), format!("{} listed; {after}", plural(threads, "thread"))))
}
