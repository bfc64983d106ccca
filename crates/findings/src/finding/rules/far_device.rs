//! The disks that a container or a process uses are on another node than the one where it runs.

use std::collections::BTreeMap;

use super::super::command::{Command, Scope, When};
use super::super::cores::Region;
use super::super::fit::{fits, memory_room, works_in};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, name, nodes, pct, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, SubjectKind, cores, env, guards};
use super::remote_after_pin::RISK_OF_MOVE;
use super::spread_containers::LINES;
use crate::metric::Metric;
use crate::metric::disks::{
    DISK_BYTES_PER_S, DISK_FAR_PCT, DISK_REQUESTS_PER_S, PROCESS_BYTES_PER_S, PROCESS_FAR_PCT,
    PROCESS_REQUESTS_PER_S, WRITEBACK_BYTES_PER_S, by_node, process_by_node,
};
use crate::metric::task::RUNQ_WAIT_PCT;
use crate::model::disks::DiskUse;
use crate::model::sample::CgroupMode;
use crate::model::topology::DeviceClass;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Task};

pub(super) static RULE: Rule = Rule {
    id: "far-device",
    title: "Its disks are on another node",
    about: "A container, unit or process runs on one node, and 80 % of its disk traffic goes to disks of another \
            node. The cost is not measured.",
    not_when: &[
        ("nodeless", "the firmware does not give the node of its disks, or they are network disks"),
        (
            "cached",
            "less than 50 MB/s and fewer than 5,000 requests/s reach disks: the page cache answers the rest",
        ),
        ("several-nodes", "20 % or more of its time is on other nodes"),
        ("near", "20 % or more of its disk traffic goes to its own node or a third node"),
        (
            "group",
            "the group is not a container, pod, machine or unit, or all its tasks are in groups below it",
        ),
        (
            "writes-back",
            "half or more of its disk traffic is write-back by kernel threads, which run anywhere",
        ),
        ("in-container", "the disk traffic of its container is known: the container is judged instead"),
    ],
    of: &[SubjectKind::Container, SubjectKind::Process],
    group: Group::Devices,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("share", 80.0, "estimate: less is no reason to move a program"),
        Limit::least("bytes", 50e6, "estimate: 1 % of the throughput of a current disk")
            .counted_in("bytes/s"),
        Limit::least(
            "requests",
            5000.0,
            "estimate: with 10 us more for each request, the process waits 5 % of its time",
        )
        .counted_in("/s"),
        Limit::sharp("home", 80.0, "[S3]: as with memory, most of the time is spent on one node"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Disk traffic of a subject.
struct Traffic {
    bytes_per_s: f64,
    requests_per_s: f64,
    by_node: BTreeMap<Option<NodeId>, DiskUse>,
}

impl Traffic {
    /// Counted of the files of a container, or of a process in none whose files are known.
    fn of(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Traffic, Unmet> {
        match of {
            SubjectRef::Container(row) if cores::is_container(of) => {
                let number = |metric: &Metric<Container>| {
                    need((metric.value)(row, view.window))?.number().ok_or(Unmet::Quiet)
                };
                // These say why the files are not known.
                let (bytes_per_s, requests_per_s) =
                    (number(&DISK_BYTES_PER_S)?, number(&DISK_REQUESTS_PER_S)?);
                let delta = row.raw_delta().ok_or(Unmet::Quiet)?;
                Ok(Traffic { bytes_per_s, requests_per_s, by_node: need(by_node(delta, view.topology()))? })
            }
            SubjectRef::Process(task) => {
                let container = view.container_of(of);
                let counts = |row: &Container| row.raw_delta().is_some_and(|delta| delta.disks.is_ok());
                if container
                    .is_some_and(|row| cores::is_container(&SubjectRef::Container(row)) && counts(row))
                {
                    return Err(Unmet::Excused("in-container"));
                }
                Ok(Traffic {
                    bytes_per_s: need(view.number(&PROCESS_BYTES_PER_S, of))?,
                    requests_per_s: need(view.number(&PROCESS_REQUESTS_PER_S, of))?,
                    by_node: need(process_by_node(task, view.window))?,
                })
            }
            _ => Err(Unmet::Quiet),
        }
    }

    /// The other node whose disks have most of its bytes, with their share in percent.
    fn farthest(&self, home: NodeId) -> Option<(NodeId, f64)> {
        let all = self.by_node.values().fold(0u64, |sum, used| sum.saturating_add(used.bytes));
        let others = self.by_node.iter().filter_map(|(node, used)| Some(((*node)?, used.bytes)));
        let others = others.filter(|(node, _)| *node != home);
        let (node, most) = others.max_by_key(|(node, bytes)| (*bytes, std::cmp::Reverse(*node)))?;
        (all > 0).then(|| (node, most as f64 * 100.0 / all as f64))
    }
}

/// The disks' node, the node that it runs on, and its traffic.
struct Facts {
    /// The node of the disks.
    node: NodeId,
    /// The node that it runs on.
    home: NodeId,
    /// Share of its bytes on disks of that node, percent.
    share: f64,
    /// Bytes read and written per second.
    bytes_per_s: f64,
    /// Share of its bytes on disks of other nodes, percent.
    far: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let Some(task) = of.task().filter(|_| view.whole_nodes().len() >= 2) else { return Err(Unmet::Quiet) };
    let traffic = Traffic::of(view, of)?;
    let (moved, requests) = (traffic.bytes_per_s, traffic.requests_per_s);
    let rates = [(DISK_BYTES_PER_S.id, moved, "bytes"), (DISK_REQUESTS_PER_S.id, requests, "requests")];
    let (metric, value, limit) = reached(view, rates)?;
    let (home, home_pct) = home_of(view, task)?;
    if let SubjectRef::Container(row) = of {
        let written = WRITEBACK_BYTES_PER_S.read(row, view.snapshot).ok().and_then(|value| value.number());
        if written.is_some_and(|written| written * 2.0 >= moved) {
            return Err(Unmet::Excused("writes-back"));
        }
    }
    let far = match of {
        SubjectRef::Container(row) => {
            need((DISK_FAR_PCT.value)(row, view.window))?.number().ok_or(Unmet::Quiet)?
        }
        _ => need(view.number(&PROCESS_FAR_PCT, of))?,
    };
    let Some((node, share)) = traffic.farthest(home).filter(|(_, share)| *share >= view.limit("share"))
    else {
        return Err(Unmet::Quiet);
    };
    let subject = of.subject();
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(DISK_FAR_PCT.id, subject.clone(), far)
                .limit(view.limit("share"))
                .note(Note::Measured),
            view.evidence(metric, subject.clone(), value).limit(limit).note(Note::Measured),
            view.evidence("run_pct_by_node", subject, home_pct).on(home).limit(view.limit("home")),
        ],
        facts: Facts { node, home, share, bytes_per_s: moved, far },
    })
}

/// The first of these rates that reaches its limit: its metric, its value and the limit.
///
/// # Errors
/// None of them does.
pub(super) fn reached(
    view: &View<'_>,
    rates: [(&'static str, f64, &'static str); 2],
) -> Result<(&'static str, f64, f64), Unmet> {
    let mut with_limits = rates.into_iter().map(|(metric, value, limit)| (metric, value, view.limit(limit)));
    with_limits.find(|(_, value, limit)| value >= limit).ok_or(Unmet::Quiet)
}

/// The node that a task runs on, and the share of its time there in percent.
///
/// # Errors
/// It runs on several nodes: that share is below the limit `home`.
pub(super) fn home_of(view: &View<'_>, task: &Task) -> Result<(NodeId, f64), Unmet> {
    let node = task.home_node().ok_or(Unmet::Quiet)?;
    let there = task.delta.run_ns.get(node.index()).copied().unwrap_or(0) as f64 * 100.0;
    let ran = task.run_ns() as f64;
    if there >= ran * view.limit("home") { Ok((node, there / ran.max(1.0))) } else { Err(Unmet::Quiet) }
}

/// Disks of a node by name.
fn disks(view: &View<'_>, node: NodeId) -> Vec<String> {
    let devices = view.topology().node(node).map_or(&[][..], |node| &node.devices);
    let is_disk = |class| matches!(class, DeviceClass::Nvme | DeviceClass::Storage);
    devices
        .iter()
        .filter(|device| is_disk(device.class))
        .map(|device| name(&crate::text::clean_str(&device.name)))
        .collect()
}

/// Advice to move a subject to a node: commands, how to undo them, when to roll back, and the risk. It is in words only
/// where the subject does not fit, or may not fit.
pub(super) fn move_to(view: &View<'_>, of: &SubjectRef<'_>, node: NodeId) -> Advice {
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let (environment, pid) = (view.env(of), cores::pid(view, of));
    let (mut commands, mut undo) = (Vec::new(), Vec::new());
    let mut risk = String::new();
    match guards::placed(view, of) {
        Ok(placed) if fits(view, of, &placed, &[node]) => {
            commands.extend(env::bind(&environment, &view.cpus_of_nodes(&[node]), &[node], pid, unified));
            let before = cores::own_cpus(view, of).unwrap_or_else(|| view.cpus_of_nodes(&view.whole_nodes()));
            undo.extend(env::at_once(env::bind(
                &environment,
                &before,
                &cores::own_mems(view, of),
                pid,
                unified,
            )));
            if !env::memory_follows(&environment, unified) {
                let from = placed.sources(&[node]);
                let words =
                    format!("moves {} to {} in total", bytes(placed.outside(&[node])), nodes(&[node]));
                let each = view.processes_of(of).into_iter().take(LINES);
                commands.extend(
                    each.filter_map(|task| env::move_memory(task.raw.pid, &from, &[node], words.clone())),
                );
            }
            risk = format!(
                "Its threads start with cold caches, and memory that stays behind becomes remote. \
                 {RISK_OF_MOVE}"
            );
        }
        Ok(placed) => {
            let lacks = if !works_in(view, of, Region::Node(node)) {
                "few idle CPUs".to_owned()
            } else {
                let (needed, room) = (placed.outside(&[node]), memory_room(view, &[node]));
                format!("little room for its memory ({} for {})", bytes(room), bytes(needed))
            };
            let words = format!("not moved: node {node} has too {lacks}");
            commands.push(Command::words(When::NextStart, scope_of(of), words));
        }
        Err(_) => {
            let words =
                format!("it is not known whether the program fits on node {node}: its memory is not located");
            commands.push(Command::words(When::NextStart, scope_of(of), words));
        }
    }
    let wait = view.number(&RUNQ_WAIT_PCT, of).unwrap_or(0.0);
    let stop =
        (!undo.is_empty()).then(|| check(of, RUNQ_WAIT_PCT.id, (wait, wait + view.cpus(of) * 10.0), false));
    Advice { commands, undo, risk, stop: stop.into_iter().collect(), ..Advice::default() }
}

/// A metric of a subject that goes from one value to another within a minute.
pub(super) fn check(of: &SubjectRef<'_>, metric: &'static str, (from, to): (f64, f64), below: bool) -> Check {
    Check { metric, of: of.subject(), from, to, below, within_s: 60.0 }
}

fn scope_of(of: &SubjectRef<'_>) -> Scope {
    match of {
        SubjectRef::Process(_) => Scope::Process,
        _ => Scope::Container,
    }
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, home, share, bytes_per_s, far } = seen.facts;
    let mut moved = move_to(view, of, node);
    let own = disks(view, home);
    if !own.is_empty() {
        let words = format!("or put its files on a disk of node {home}: {}", own.join(", "));
        moved.commands.push(Command::words(When::ForGood, scope_of(of), words));
    }
    let used = disks(view, node).join(", ");
    let used = if used.is_empty() { String::new() } else { format!(" ({used})") };
    Advice {
        sentence: sentence(format!(
            "{} runs on node {home}, but {} of its {}/s of disk traffic goes to disks of node {node}{used}.",
            cores::name(view, of),
            pct(share),
            bytes(bytes_per_s)
        )),
        check: vec![check(of, DISK_FAR_PCT.id, (far, 100.0 - view.rule.limit("share", false)), true)],
        or_else: vec![format!(
            "If the disk is slow from every node, the program would wait just as long on node {node}. The \
             cost of the distance is not measured."
        )],
        ..moved
    }
}
