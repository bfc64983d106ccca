//! A container as the subject of spread-over-nodes: its processes share memory, or its cpuset is scattered over nodes.

use std::collections::BTreeSet;

use super::super::cores::{self, Core};
use super::super::fit::{best_set, memory_room};
use super::super::guards::{self, Placed};
use super::super::rule::{Seen, Unmet};
use super::super::text::{bytes, nodes};
use super::super::view::{SubjectRef, View, cpus_of_files, input, mems_of_files};
use super::super::{Advice, Command, Confidence, Evidence, Note, Severity, Subject, env};
use super::spread_over_nodes::{self, Facts};
use crate::metric::placement::CONTAINER_REMOTE_PCT;
use crate::model::sample::CgroupMode;
use crate::model::topology::parse_cpulist;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Task};

/// Maximum lines for processes; each moves its own part.
pub(super) const LINES: usize = 8;

/// Share of its memory that a process must share so that its container is the subject, in percent.
const SHARED_PCT: f64 = 20.0;

/// CPUs and nodes that the files of a container name.
struct Lists {
    cpus: Vec<u32>,
    mems: Vec<NodeId>,
    /// It has fewer CPUs than are online.
    is_cpuset: bool,
}

impl Lists {
    /// Of a container; `None` where they are not known.
    fn of(view: &View<'_>, row: &Container) -> Option<Lists> {
        let files = row.raw.as_deref()?;
        let (cpus, mems) = (cpus_of_files(files)?, mems_of_files(files)?);
        let is_cpuset = cpus.len() < view.topology().online_cpus().count();
        Some(Lists { cpus, mems, is_cpuset })
    }
}

/// Whether it is a container whose own list has fewer CPUs than are online.
pub(super) fn has_cpuset(view: &View<'_>, row: &Container) -> bool {
    cores::is_container(&SubjectRef::Container(row))
        && Lists::of(view, row).is_some_and(|lists| lists.is_cpuset)
}

/// Where the container ran and where its memory is. Processes count shared pages once for each of them, the container once.
fn placed(view: &View<'_>, of: &SubjectRef<'_>, row: &Container) -> Result<Option<Placed>, Unmet> {
    let mut placed = guards::placed(view, of)?;
    let Some(Ok(charged)) = row.raw.as_deref().map(|raw| &raw.mem_bytes) else { return Ok(None) };
    let factor = (*charged as f64 / placed.memory().max(1.0)).min(1.0);
    placed.bytes.iter_mut().for_each(|bytes| *bytes *= factor);
    Ok(Some(placed))
}

/// Cores that a container with a cpuset could have, and the number that it has.
struct Cores {
    /// Cores that no cpuset of another group names but one that holds this container's own list, in the order of their CPUs.
    free: Vec<Core>,
    own: usize,
}

impl Cores {
    fn of(view: &View<'_>, row: &Container, lists: &Lists) -> Cores {
        let others = view.snapshot.containers.iter().filter(|other| other.id != row.id);
        let texts: BTreeSet<&str> =
            others.filter_map(|other| other.raw.as_deref()?.cpus.as_deref().ok()).collect();
        let online = view.topology().online_cpus().count();
        let mut taken: BTreeSet<u32> = view.snapshot.host.isolated_cpus.iter().copied().collect();
        for list in texts.into_iter().filter_map(|text| parse_cpulist(text).ok()) {
            if list.len() < online && !lists.cpus.iter().all(|cpu| list.contains(cpu)) {
                taken.extend(list);
            }
        }
        let all = cores::cores(view);
        let is_own = |core: &&Core| core.cpus.iter().any(|cpu| lists.cpus.contains(cpu));
        let own = all.iter().filter(is_own).count();
        let is_free = |core: &Core| !core.cpus.iter().any(|cpu| taken.contains(cpu));
        Cores { free: all.into_iter().filter(is_free).collect(), own }
    }

    /// Nodes with as many free cores as it has; all of these where no node has.
    fn enough(&self, whole: &[NodeId]) -> Vec<NodeId> {
        let on = |node: &NodeId| self.free.iter().filter(|core| core.node == *node).count();
        let one: Vec<NodeId> = whole.iter().filter(|node| on(node) >= self.own).copied().collect();
        if one.is_empty() { whole.to_vec() } else { one }
    }

    /// CPUs of as many free cores of these nodes as it has; `None` where these are too few.
    fn on(&self, to: &[NodeId]) -> Option<Vec<u32>> {
        let free: Vec<&Core> =
            self.free.iter().filter(|core| to.contains(&core.node)).take(self.own).collect();
        let mut cpus: Vec<u32> = free.iter().flat_map(|core| core.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        (free.len() == self.own && self.own > 0).then_some(cpus)
    }
}

pub(super) fn look(view: &View<'_>, of: &SubjectRef<'_>, row: &Container) -> Result<Seen<Facts>, Unmet> {
    if !cores::is_container(of) || view.cpus(of) <= 0.0 {
        return Err(Unmet::Quiet);
    }
    let whole = view.whole_nodes();
    let share = 5.0f64.min(50.0 / whole.len().max(1) as f64);
    // Most are small, or on one node: lists are read of the others.
    let ran = |node: &NodeId| {
        let ns = row.sum.delta.run_ns.get(node.index()).copied().unwrap_or(0) as f64;
        ns * 100.0 >= share * row.sum.run_ns() as f64
    };
    if whole.iter().filter(|node| ran(node)).count() < 2 {
        return Err(Unmet::Quiet);
    }
    let members = view.members(row.id);
    let shares = |task: &&&Task| guards::shared_pct(task).is_some_and(|pct| pct >= SHARED_PCT);
    let Some(lists) = Lists::of(view, row) else { return Err(Unmet::Quiet) };
    // Processes with memory of their own that may run everywhere are subjects themselves.
    if !lists.is_cpuset && members.iter().filter(shares).count() < 2 {
        return Err(Unmet::Quiet);
    }
    if !whole.iter().all(|node| lists.mems.contains(node))
        || members.iter().any(|task| !task.raw.mempolicy.is_default())
    {
        return Err(Unmet::Quiet);
    }
    let Some(placed) = placed(view, of, row)? else { return Err(Unmet::Quiet) };
    let Ok(remote) = view.remote_pct(of) else { return Err(Unmet::Quiet) };
    if remote < view.limit("remote")
        || !guards::is_large(view, &placed)
        || guards::is_moving(view, of, &placed)
    {
        return Err(Unmet::Quiet);
    }
    let Some(witness) = guards::witness(view, of, &placed) else { return Err(Unmet::Quiet) };
    let used = placed.used(share);
    let cores = lists.is_cpuset.then(|| Cores::of(view, row, &lists));
    let may = cores.as_ref().map_or_else(|| whole.clone(), |cores| cores.enough(&whole));
    let Some(set) = best_set(view, of, &placed, used.len(), &may) else {
        return Err(Unmet::Quiet);
    };
    let rest = 100.0 * (1.0 - 1.0 / set.len() as f64);
    if remote - rest < view.limit("remote")
        || guards::accesses_per_s(view, of) >= view.limit("accesses") * set.len() as f64
    {
        return Err(Unmet::Quiet);
    }
    let cpus = match &cores {
        Some(cores) => cores.on(&set),
        None => Some(view.cpus_of_nodes(&set)),
    };
    let Some(cpus) = cpus else { return Err(Unmet::Quiet) };
    input(members.first(), "no rule covers its processes")?;
    let policies = kernel_places(view, &members);
    let from: Vec<NodeId> = placed.sources(&set).into_iter().filter(|node| whole.contains(node)).collect();
    let away = placed.outside(&set);
    let subject = of.subject();
    let mut evidence = vec![
        view.evidence(CONTAINER_REMOTE_PCT.id, subject, remote)
            .error(placed.error)
            .limit(rest + view.limit("remote"))
            .note(Note::Placement),
        witness,
        view.evidence("mem_free_bytes", Subject::Node(set[0]), memory_room(view, &set))
            .limit(away)
            .note(Note::Room)
            .over_nodes(&set),
    ];
    let severity = if policies.is_some() { Severity::Warning } else { Severity::Info };
    evidence.extend(policies);
    let sure = remote - placed.error - rest >= view.limit("remote");
    Ok(Seen {
        severity,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence,
        facts: Facts { to: set, from, bytes: away, over: used.len(), remote, cpus },
    })
}

/// The largest share of memory with a separate policy among processes that all have little of that; `None` if
/// one has more, or is unknown.
fn kernel_places(view: &View<'_>, members: &[&Task]) -> Option<Evidence> {
    let own = members.iter().map(|task| guards::kernel_places(view, &SubjectRef::Process(task)));
    own.collect::<Option<Vec<Evidence>>>()?.into_iter().max_by(|a, b| a.value.total_cmp(&b.value))
}

pub(super) fn advise(view: &View<'_>, of: &SubjectRef<'_>, row: &Container, seen: &Seen<Facts>) -> Advice {
    let (Ok(Some(placed)), Some(lists)) = (placed(view, of, row), Lists::of(view, row)) else {
        return Advice::default();
    };
    let Facts { to, from, .. } = &seen.facts;
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let (environment, pid) = (view.env(of), cores::pid(view, of));
    let mut commands: Vec<Command> = env::bind(&environment, &seen.facts.cpus, to, pid, unified);
    let undo = env::bind(&environment, &lists.cpus, &lists.mems, pid, unified);
    if !env::memory_follows(&environment, unified) {
        let words = format!("moves {} to {} in total", bytes(seen.facts.bytes), nodes(to));
        let each = view.members(row.id).into_iter().take(LINES);
        commands.extend(each.filter_map(|task| env::move_memory(task.raw.pid, from, to, words.clone())));
    }
    let subject = spread_over_nodes::Subject {
        runs: format!("{} runs", view.identity(of).label),
        placed: &placed,
        remote: CONTAINER_REMOTE_PCT.id,
        or_else: "If its processes use only memory of their own node, then node_migrations_per_s is low and hint_remote_pct of each process is near 0.",
    };
    spread_over_nodes::advise_fewer(view, of, seen, &subject, commands, undo)
}
