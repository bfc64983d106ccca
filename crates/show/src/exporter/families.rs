//! The families of the page, from the totals and the last interval. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::{Ledger, Now, OTHERS, Sums, container_labels};
use super::page::{Family, Labels};
use super::places;
use super::top::Top;
use crate::finding::Engine;
use crate::finding::rules::RULES;
use crate::metric::amounts::{self, FamilyOver, NODE_AMOUNTS, NS, NodeFamily, NodeNow, RowFamily};
use crate::model::sample::Missing;
use crate::snapshot::{Container, Node, Snapshot};
use crate::text::{clean_str, one_line};

/// Parts of the page in the order in which they are left out.
const LEFT_OUT_FIRST: [usize; 6] = [8, 7, 6, 5, 4, 3];

/// The families, and the number of series left out to stay within `most`. Left out first are sockets and L3 domains, then
/// accelerators, then memory of containers by node, then their CPU time by node, which becomes one series each. Then come programs, then
/// pairs of nodes. `left_out` is the number of these parts that are left out, and never goes down: returning
/// series would be added to their replacements.
pub(super) fn bounded(
    ledger: &Ledger,
    engine: &Engine,
    snapshot: &Snapshot,
    most: usize,
    left_out: &mut usize,
) -> (Vec<Family>, usize) {
    let mut parts = [
        host(ledger, engine, snapshot),
        nodes(ledger, snapshot),
        containers(ledger, snapshot),
        pairs(ledger, snapshot),
        programs(ledger, snapshot),
        vec![cpu_by_node(ledger)],
        vec![container_memory(ledger, snapshot)],
        places::devices(snapshot),
        ledger.places.families(),
    ];
    let mut dropped = 0;
    let series = |families: &[Family]| families.iter().map(|family| family.series.len()).sum::<usize>();
    for (at, part) in LEFT_OUT_FIRST.into_iter().enumerate() {
        if at >= *left_out && parts.iter().map(|families| series(families)).sum::<usize>() <= most {
            break;
        }
        *left_out = (*left_out).max(at + 1);
        dropped += series(&std::mem::take(&mut parts[part]));
        if part == 5 {
            parts[5] = vec![cpu(ledger)];
        }
    }
    (parts.into_iter().flatten().collect(), dropped)
}

fn of<const N: usize>(pairs: [(&'static str, &str); N], value: f64) -> (Labels, f64) {
    (Labels::of(pairs), value)
}

fn host(ledger: &Ledger, engine: &Engine, snapshot: &Snapshot) -> Vec<Family> {
    let facts = &snapshot.host;
    let lost = snapshot.lost.iter().map(|(cause, count)| of([("cause", cause)], *count as f64));
    // A counter that is off by choice is not missing.
    let reasons = facts.missing.iter().filter(|(_, why)| !matches!(why, Missing::NotCollected(_)));
    let missing =
        reasons.map(|(metric, why)| of([("metric", metric), ("reason", &one_line(&why.to_string()))], 1.0));
    vec![
        Family::gauge("numatop_build_info", "Build information.")
            .with([of([("version", env!("CARGO_PKG_VERSION"))], 1.0)]),
        Family::gauge("numatop_host_info", "Machine information.").with([of(
            [("kernel", &facts.kernel), ("cpu_model", &facts.cpu_model), ("arch", &facts.arch)],
            1.0,
        )]),
        Family::counter("numatop_intervals", "Number of measured intervals.").of(ledger.intervals as f64),
        Family::gauge("numatop_sample_duration_seconds", "Time that the last sample took.").of(snapshot
            .own
            .raw
            .sample_ns
            as f64
            * NS),
        Family::gauge("numatop_last_sample_timestamp_seconds", "Unix time of the last sample.")
            .of(snapshot.wall_ns as f64 * NS),
        Family::counter("numatop_lost", "Events that were lost, by cause; see docs/numbers.md.").with(lost),
        Family::gauge(
            "numatop_missing_info",
            "1 for each metric that cannot be measured here, with the reason.",
        )
        .with(missing),
        findings(engine),
        Family::counter("process_cpu_seconds", "CPU time of numatop-ng itself.")
            .of(snapshot.own.raw.cpu_ns as f64 * NS),
        Family::gauge("process_resident_memory_bytes", "Resident memory of numatop-ng itself.").of(snapshot
            .own
            .raw
            .rss_bytes
            as f64),
    ]
}

/// By rule, not by subject: active findings, 0 of a rule that could look, no series of one that could not.
fn findings(engine: &Engine) -> Family {
    let blind: BTreeSet<&str> = engine.wholly_blind().map(|blind| blind.id).collect();
    let mut active: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for finding in engine.findings() {
        *active.entry((finding.key.id, finding.severity.name())).or_default() += 1.0;
    }
    for rule in RULES {
        if !blind.contains(rule.id) && !active.keys().any(|(id, _)| *id == rule.id) {
            active.insert((rule.id, rule.gravest.name()), 0.0);
        }
    }
    Family::gauge("numatop_findings", "Active findings by rule; a rule without data has no series.").with(
        active.into_iter().map(|((id, severity), count)| of([("id", id), ("severity", severity)], count)),
    )
}

/// Families of the amounts of nodes. A family with several lines has all of them for one node after the other.
fn nodes(ledger: &Ledger, snapshot: &Snapshot) -> Vec<Family> {
    let all: Vec<(usize, NodeFamily)> =
        NODE_AMOUNTS.iter().enumerate().filter_map(|(at, amount)| Some((at, amount.family?))).collect();
    let family = |lines: &[(usize, NodeFamily)]| {
        let (_, NodeFamily { name, help, over, .. }) = lines[0];
        let family = if matches!(over, FamilyOver::Level) { Family::gauge } else { Family::counter };
        let of_node = |node| lines.iter().filter_map(move |line| node_series(ledger, snapshot, node, line));
        family(name, help).with(snapshot.nodes.iter().flat_map(of_node))
    };
    all.chunk_by(|(_, one), (_, other)| one.name == other.name).map(family).collect()
}

/// The series of one line and node, where it is known.
fn node_series(
    ledger: &Ledger,
    snapshot: &Snapshot,
    node: &Node,
    (at, family): &(usize, NodeFamily),
) -> Option<(Labels, f64)> {
    let value = match family.over {
        FamilyOver::Level => {
            let now = NodeNow { node, snapshot, located: None, cpu_s: None };
            (NODE_AMOUNTS[*at].value)(now)?.as_f64()
        }
        FamilyOver::Sum(_) => ledger.nodes.get(&node.raw.id)?.0[*at]?,
        FamilyOver::Kernel(total) => total(&node.raw) as f64,
    };
    let labels = Labels::of([("node", node.raw.id.to_string().as_str())]);
    let labels = match family.label {
        Some((name, word)) => labels.and(name, word),
        None => labels,
    };
    Some((labels, value))
}

/// Series by pairs of nodes that were ever above 0.
fn pairs(ledger: &Ledger, snapshot: &Snapshot) -> Vec<Family> {
    let series = |sums: &BTreeMap<(u32, u32), f64>, names: [&'static str; 2]| -> Vec<(Labels, f64)> {
        let labels = |(from, to): &(u32, u32)| {
            Labels::of([(names[0], from.to_string().as_str()), (names[1], to.to_string().as_str())])
        };
        sums.iter().map(|(pair, sum)| (labels(pair), *sum)).collect()
    };
    let topology = &snapshot.host.topology;
    let distances = topology.nodes.iter().flat_map(|node| {
        node.distances.iter().map(|(to, distance)| {
            of([("from", &node.id.to_string()), ("to", &to.to_string())], f64::from(*distance))
        })
    });
    vec![
        Family::gauge("numatop_node_distance", "Distance according to the firmware (SLIT).").with(distances),
        Family::counter("numatop_access_cpu_seconds", "CPU time, by node of the CPU and node of the memory.")
            .with(series(&ledger.accesses_s, ["cpu_node", "memory_node"])),
        Family::counter("numatop_task_migrations", "Moves of tasks between nodes.")
            .with(series(&ledger.task_moves, ["from", "to"])),
        Family::counter("numatop_pages_migrated", "Pages moved between nodes.")
            .with(series(&ledger.page_moves, ["from", "to"])),
    ]
}

fn others(name: &'static str) -> Labels {
    Labels::of([(name, OTHERS)])
}

/// A family for each amount that has a name, with a series for each row of `top`.
fn amounts(
    top: &Top<Labels, Sums>,
    rest: &Labels,
    name: impl Fn(&RowFamily) -> Option<&'static str>,
) -> Vec<Family> {
    let family = |(at, (_, family)): (usize, (_, RowFamily))| {
        let series = top
            .series()
            .filter_map(|(labels, sums)| Some((labels.unwrap_or(rest).clone(), sums.amounts[at]?)));
        Some(Family::counter(name(&family)?, family.help).with(series))
    };
    amounts::families().enumerate().filter_map(family).collect()
}

/// The family of CPU time, which is by node where there is room.
fn cpu_time() -> RowFamily {
    let (_, family) = amounts::families().next().expect("CPU time is the first amount");
    family
}

/// The events that were asked for by name, each with its name as a label.
fn asked_events(
    family: Family,
    (top, rest): (&Top<Labels, Sums>, &Labels),
    snapshot: &Snapshot,
) -> Option<Family> {
    let series = snapshot.host.asked.iter().enumerate().flat_map(|(at, name)| {
        top.series().filter_map(move |(labels, sums)| {
            Some((labels.unwrap_or(rest).and("event", &clean_str(name)), (*sums.events.get(at)?)?))
        })
    });
    (!snapshot.host.asked.is_empty()).then(|| family.with(series))
}

/// A gauge of rows as of now; those without a series of their own are one.
fn gauge(
    family: Family,
    (top, rest): (&Top<Labels, Sums>, &Labels),
    now: &BTreeMap<Labels, Now>,
    value: impl Fn(&Now) -> u64,
) -> Family {
    let (mut series, mut sum, mut any) = (Vec::new(), 0, false);
    for (labels, now) in now {
        if top.is_first(labels) {
            series.push((labels.clone(), value(now) as f64));
        } else {
            (sum, any) = (sum + value(now), true);
        }
    }
    series.extend(any.then(|| (rest.clone(), sum as f64)));
    family.with(series)
}

fn containers(ledger: &Ledger, snapshot: &Snapshot) -> Vec<Family> {
    let rest = others("container");
    // CPU time is by node: see `cpu_by_node`.
    let by_node = cpu_time().container;
    let other = |family: &RowFamily| Some(family.container).filter(|name| *name != by_node);
    let mut families = amounts(&ledger.containers, &rest, other);
    families.push(gauge(
        Family::gauge("numatop_container_processes", "Processes."),
        (&ledger.containers, &rest),
        &ledger.containers_now,
        |now| now.processes,
    ));
    let throttled =
        limits(ledger, snapshot, |row| Some(*row.raw.as_ref()?.throttled_ns.as_ref().ok()? as f64 * NS));
    families.push(
        Family::counter(
            "numatop_container_throttled_seconds",
            "Time the container was stopped by its CPU quota, since creation.",
        )
        .with(throttled),
    );
    families.extend(asked_events(
        Family::counter(
            "numatop_container_events",
            "Events of the container's tasks, as selected by --events.",
        ),
        (&ledger.containers, &rest),
        snapshot,
    ));
    let limit =
        limits(ledger, snapshot, |row| Some((*row.raw.as_ref()?.mem_limit_bytes.as_ref().ok()?)? as f64));
    families.push(Family::gauge("numatop_container_memory_limit_bytes", "Memory limit.").with(limit));
    families
}

/// Containers with separate series and none below them: values of their files belong to them alone.
fn leaves<'a>(ledger: &'a Ledger, snapshot: &'a Snapshot) -> impl Iterator<Item = (Labels, &'a Container)> {
    let parents: BTreeSet<usize> = snapshot.containers.iter().filter_map(|row| row.parent).collect();
    let rows = snapshot.containers.iter().enumerate().filter(move |(at, _)| !parents.contains(at));
    rows.filter_map(|(_, row)| Some((container_labels(row.group.as_deref()?), row)))
        .filter(|(labels, _)| ledger.containers.is_first(labels))
}

/// One series a container. Containers of one name add up.
fn limits(
    ledger: &Ledger,
    snapshot: &Snapshot,
    value: impl Fn(&Container) -> Option<f64>,
) -> BTreeMap<Labels, f64> {
    let mut series = BTreeMap::new();
    for (labels, row) in leaves(ledger, snapshot) {
        if let Some(value) = value(row) {
            *series.entry(labels).or_default() += value;
        }
    }
    series
}

fn cpu_by_node(ledger: &Ledger) -> Family {
    let rest = others("container");
    let series = ledger.containers.series().flat_map(|(labels, sums)| {
        let labels = labels.unwrap_or(&rest).clone();
        let ran = sums.cpu_s_by_node.iter().enumerate().filter(|(_, seconds)| **seconds > 0.0);
        ran.map(move |(node, seconds)| (labels.and("node", &node.to_string()), *seconds)).collect::<Vec<_>>()
    });
    Family::counter(cpu_time().container, cpu_time().help).with(series)
}

fn cpu(ledger: &Ledger) -> Family {
    let mut families = amounts(&ledger.containers, &others("container"), |family| Some(family.container));
    families.remove(0)
}

fn container_memory(ledger: &Ledger, snapshot: &Snapshot) -> Family {
    let mut series: BTreeMap<Labels, f64> = BTreeMap::new();
    for (labels, row) in leaves(ledger, snapshot) {
        let Some(Ok(by_node)) = row.raw.as_ref().map(|raw| &raw.mem_bytes_by_node) else { continue };
        for (node, bytes) in by_node {
            *series.entry(labels.and("node", &node.to_string())).or_default() += *bytes as f64;
        }
    }
    Family::gauge("numatop_container_memory_bytes", "Charged memory, by node.").with(series)
}

fn programs(ledger: &Ledger, snapshot: &Snapshot) -> Vec<Family> {
    let rest = others("comm");
    let mut families = amounts(&ledger.programs, &rest, |family| family.program);
    let rows = || (&ledger.programs, &rest);
    let (processes, rss) = (
        Family::gauge("numatop_program_processes", "Processes."),
        Family::gauge(
            "numatop_program_resident_memory_bytes",
            "Resident memory; shared pages count for each process.",
        ),
    );
    families.extend(asked_events(
        Family::counter("numatop_program_events", "Events of the program's tasks, as selected by --events."),
        rows(),
        snapshot,
    ));
    families.push(gauge(processes, rows(), &ledger.programs_now, |now| now.processes));
    families.push(gauge(rss, rows(), &ledger.programs_now, |now| now.rss_bytes));
    families
}
