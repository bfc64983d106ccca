//! A process or a container may take memory from full nodes only.

use super::super::guards::{self, POLICY_BIND};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, nodes, sentence};
use super::super::view::{SubjectRef, View, input, mems_of_files, need};
use super::super::{
    Advice, Check, Command, Confidence, Evidence, Note, Scope, Severity, Subject, SubjectKind, When, env,
};
use super::node_short_of_memory::{
    CACHE_PCT, FULL_PCT, KSWAPD, WATERMARK, cache_share, distance_if_short, explained_by_limit, is_certain,
    severity,
};
use crate::metric::host::SWAP_OUT;
use crate::metric::node::{DIRECT_RECLAIM_PAGES_PER_S, WATERMARK_DISTANCE_PCT};
use crate::metric::pressure::MEMORY_FULL;
use crate::metric::task::MAJOR_FAULTS_PER_S;
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Task};

pub(super) static RULE: Rule = Rule {
    id: "bound-to-full-node",
    title: "Bound to a full node",
    about: "A process is limited to memory of full nodes and waits for memory, while other nodes have room.",
    not_when: &[
        (
            "streaming",
            "only page cache is reclaimed on the nodes: nothing is swapped, and there is no memory pressure",
        ),
        ("limit", "its container is at its memory limit"),
        ("full-everywhere", "no other node has free memory"),
        (
            "cached",
            "the nodes are above the low watermark, and 5 % or more of their memory is page cache (only a \
             note)",
        ),
        (
            "swapped",
            "none of its pages is in swap, its group does not wait for memory, and no pages of its nodes are \
             reclaimed",
        ),
        (
            "other",
            "the process has no major faults and its group no memory pressure: the reclaimed pages belong to \
             others",
        ),
    ],
    of: &[SubjectKind::Process, SubjectKind::Container],
    group: Group::NodeMemory,
    gravest: Severity::Critical,
    needs: &[WATERMARK_DISTANCE_PCT.id, SWAP_OUT.id],
    hold: Hold::in_bursts(20.0),
    limits: &[
        WATERMARK,
        KSWAPD,
        Limit::least("swap-out", 256.0, "estimate: 1 MiB/s; no healthy machine swaps that much all the time")
            .counted_in("pages/s"),
        Limit::least(
            "pressure",
            FULL_PCT,
            "[S11]: oomd acts after 30 s of 60 % pressure; a warning must come much earlier",
        ),
        Limit::least("reclaim", 256.0, "estimate: 1 MiB/s of pages").counted_in("pages/s"),
        Limit::least(
            "major-faults",
            10.0,
            "estimate: steady reads from the disk show that pages of the process are evicted",
        )
        .counted_in("/s"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The allowed memory nodes of a subject, if these are not all, and whether its own policy restricts them.
fn bound(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Option<(Vec<NodeId>, bool)>, Unmet> {
    let memory: Vec<NodeId> =
        view.topology().nodes.iter().filter(|node| node.mem_total_bytes > 0).map(|node| node.id).collect();
    let (allowed, by_policy) = match of {
        // A mask without a bit for each node does not say all.
        SubjectRef::Process(_) if !view.masks_hold_all() => return Ok(None),
        SubjectRef::Process(task) => of_task(task)?,
        SubjectRef::Container(row) => (of_container(row), false),
        _ => return Ok(None),
    };
    let Some(allowed) = allowed else { return Ok(None) };
    let allowed: Vec<NodeId> = memory.iter().copied().filter(|node| allowed.contains(node)).collect();
    Ok((!allowed.is_empty() && allowed.len() < memory.len()).then_some((allowed, by_policy)))
}

fn of_task(task: &Task) -> Result<(Option<Vec<NodeId>>, bool), Unmet> {
    let policy = task.raw.mempolicy;
    if policy.mode == POLICY_BIND && policy.nodes != 0 {
        return Ok((Some(guards::nodes_of(policy.nodes)), true));
    }
    let mask = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    Ok((Some(guards::nodes_of(mask)), false))
}

fn of_container(row: &Container) -> Option<Vec<NodeId>> {
    mems_of_files(row.raw.as_deref()?)
}

/// Share of the time between two readings in which all tasks of its group waited for memory, in percent, and that group.
fn group_pressure_pct(view: &View<'_>, of: &SubjectRef<'_>) -> Option<(f64, Subject)> {
    let row = view.container_of(of)?;
    let delta = row.raw_delta()?;
    let pressure = delta.pressure.as_ref().ok()?;
    let pct = pressure.memory_full_us as f64 * 1e5 / delta.interval_ns as f64;
    Some((pct, Subject::Container(row.id)))
}

/// Nodes that it may use, and what hurts.
struct Facts {
    /// Nodes that it may take memory from.
    from: Vec<NodeId>,
    /// The node with most free memory.
    roomy: NodeId,
    /// Free memory there, bytes.
    free: f64,
    /// Its memory policy binds it, not its cpuset.
    by_policy: bool,
    /// The value that shows the damage.
    hurts: Option<Evidence>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    // Cheap first: most nodes are not full.
    if view.levels().watermark_pct > view.limit("watermark") {
        return Err(Unmet::Quiet);
    }
    let Some((allowed, by_policy)) = bound(view, of)? else { return Err(Unmet::Quiet) };
    let mut distances = Vec::with_capacity(allowed.len());
    let (mut certain, mut little_cache) = (true, true);
    for node in &allowed {
        let Some(row) = view.node(*node) else { return Err(Unmet::Quiet) };
        let Some(distance) = distance_if_short(view, row)? else { return Err(Unmet::Quiet) };
        distances.push(distance);
        certain &= is_certain(distance, row);
        little_cache &= cache_share(row).is_some_and(|share| share <= CACHE_PCT);
    }
    // A process of a group that is bound is the group's finding.
    if let SubjectRef::Process(_) = of
        && !by_policy
        && let Some(row) = view.container_of(of)
        && of_container(row).is_some_and(|mems| mems.iter().all(|node| allowed.contains(node)))
    {
        return Err(Unmet::Quiet);
    }
    let swap = need(SWAP_OUT.read(view.window))?.number().unwrap_or(0.0);
    let pressure = group_pressure_pct(view, of);
    let of_node = |node: &NodeId| view.node_number(&DIRECT_RECLAIM_PAGES_PER_S, view.node(*node)?).ok();
    let rates = allowed.iter().filter_map(|node| Some((of_node(node)?, *node)));
    let (reclaim, reclaimed) = rates.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap_or((0.0, allowed[0]));
    let swaps = swap >= view.limit("swap-out") && has_swapped(view, of);
    let pressure = pressure.filter(|(pct, _)| *pct >= view.limit("pressure"));
    let reclaims = reclaim >= view.limit("reclaim") && little_cache;
    if !swaps && pressure.is_none() && !reclaims {
        return Err(Unmet::Quiet);
    }
    let faults = need(view.number(&MAJOR_FAULTS_PER_S, of))?;
    if faults < view.limit("major-faults") && pressure.is_none() {
        return Err(Unmet::Quiet);
    }
    let limit = explained_by_limit(view);
    if limit == Some(true) {
        return Err(Unmet::Quiet);
    }
    // A bind policy may be narrower than the cpuset, which memory cannot leave.
    let mask = of.task().and_then(|task| task.mem_nodes).filter(|_| by_policy).unwrap_or(u64::MAX);
    let may = |node: NodeId| !allowed.contains(&node) && (node.0 >= 64 || mask >> node.0 & 1 == 1);
    let Some((roomy, free)) = view.roomiest(may) else { return Err(Unmet::Quiet) };
    let mut evidence = vec![
        view.evidence(WATERMARK_DISTANCE_PCT.id, Subject::Node(allowed[0]), distances[0])
            .limit(view.limit("watermark"))
            .note(Note::AtMost),
        view.evidence("mem_free_bytes", Subject::Node(roomy), free)
            .limit(view.enough_free())
            .note(Note::FreeElsewhere),
        view.evidence(MAJOR_FAULTS_PER_S.id, of.subject(), faults).limit(view.limit("major-faults")),
    ];
    let hurts = if swaps {
        Some(view.evidence(SWAP_OUT.id, Subject::Host, swap).limit(view.limit("swap-out")))
    } else if reclaims {
        let value = view.evidence(DIRECT_RECLAIM_PAGES_PER_S.id, Subject::Node(reclaimed), reclaim);
        Some(value.limit(view.limit("reclaim")))
    } else {
        let value = |(pct, group)| view.evidence(MEMORY_FULL.id, group, pct).limit(view.limit("pressure"));
        pressure.map(value)
    };
    evidence.extend(hurts.clone());
    Ok(Seen {
        severity: severity(certain, limit),
        confidence: Confidence::Measured,
        evidence,
        facts: Facts { from: allowed, roomy, free, by_policy, hurts },
    })
}

/// Whether some of its pages are in swap, if known.
fn has_swapped(view: &View<'_>, of: &SubjectRef<'_>) -> bool {
    let swapped = |task: &Task| task.resident.is_none_or(|resident| resident.swap_bytes > 0);
    match of {
        SubjectRef::Process(task) => swapped(task),
        _ => view.processes_of(of).into_iter().any(swapped),
    }
}

/// The end of the harm. The distance of the node does not show it: kswapd works above the watermark, too.
fn check(hurts: &Evidence) -> Check {
    // Pressure is never quite gone: half of its limit will do.
    let to = if hurts.metric == MEMORY_FULL.id { FULL_PCT / 2.0 } else { 0.0 };
    Check { metric: hurts.metric, of: hurts.of.clone(), from: hurts.value, to, below: true, within_s: 30.0 }
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { from, roomy, free, by_policy, hurts } = &seen.facts;
    let (to, free, by_policy) = (&[*roomy][..], *free, *by_policy);
    let label = view.identity(of).label;
    let environment = view.env(of);
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let mut wider = from.clone();
    wider.extend(to);
    wider.sort_unstable();
    let pid = match of {
        SubjectRef::Process(task) => Some(task.raw.pid),
        _ => view.processes_of(of).first().map(|task| task.raw.pid),
    };
    let mut commands: Vec<Command> = Vec::new();
    let mut undo = Vec::new();
    if !by_policy && !matches!(environment, env::Env::Session) {
        let files = view.files_of(of);
        let cpus = files.and_then(super::super::view::cpus_of_files);
        let cpus = cpus.unwrap_or_else(|| view.cpus_of_nodes(&wider));
        commands.extend(env::bind(&environment, &cpus, &wider, pid, unified));
        undo.extend(env::at_once(env::bind(&environment, &cpus, from, pid, unified)));
    } else if let Some(pid) = pid {
        let words = format!("moves all of its memory to {}, where {} are available", nodes(to), bytes(free));
        // Of a group only some processes would move, and memory cannot leave a cpuset.
        let fits = of.task().is_some_and(|task| (task.rss_bytes as f64) <= free * 0.85);
        if fits && by_policy {
            commands.extend(env::move_memory(pid, from, to, words));
            undo.extend(env::move_memory(
                pid,
                to,
                from,
                "moves all of its memory to the old nodes, if it \
                                                         fits",
            ));
        }
        commands.push(Command::words(
            When::NextStart,
            Scope::Process,
            format!("use numactl {} in place of --membind", env::preferred(from)),
        ));
    }
    Advice {
        sentence: sentence(format!(
            "{label} is limited to memory of {}, which is below its low watermark; {} are available on {}.",
            nodes(from),
            bytes(free),
            nodes(to)
        )),
        commands,
        undo,
        check: hurts.iter().map(check).collect(),
        risk: "Some of the memory becomes remote: slower than local memory, faster than a disk.".into(),
        or_else: vec![format!(
            "If its resident memory keeps growing (now {}), the cause is a leak.",
            bytes(of.task().map_or(0.0, |task| task.rss_bytes as f64))
        )],
        ..Advice::default()
    }
}
