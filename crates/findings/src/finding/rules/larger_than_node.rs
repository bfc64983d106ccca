//! A process is nearly as large as the node where it runs, and the node has no room left for it.

use super::super::fit::memory_room;
use super::super::gain::Gain;
use super::super::guards::{self, OWN_POLICY_MAX};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, comm, sentence};
use super::super::view::{SubjectRef, View, above_watermark, input, need, process};
use super::super::{
    Advice, Check, Command, Confidence, Evidence, Note, Scope, Severity, Subject, SubjectKind, When,
};
use super::remote_after_pin::gain_of_memory;
use super::waiting;
use crate::metric::placement::{MEM_PCT_BY_NODE, OWN_POLICY_PCT};
use crate::metric::task::RSS_BYTES;
use crate::model::units::NodeId;
use crate::snapshot::Task;

pub(super) static RULE: Rule = Rule {
    id: "larger-than-node",
    title: "Nearly as large as its node",
    about: "A process takes 80 % or more of the memory of its node, the node is full, and other nodes have \
            room. The finding is a warning if this process displaced memory of other processes to other \
            nodes.",
    not_when: &[
        ("interleave", "its policy, or that of 20 % of its memory, interleaves memory or names nodes"),
        ("limit", "the process is at the memory limit of its container, so it does not grow"),
        ("bound", "memory of some nodes is not allowed for the process"),
        ("spread", "its memory is spread evenly over the nodes, within 10 percentage points"),
        ("cache", "half or more of its memory is file pages"),
        ("shared", "20 % or more of its memory is shared with other processes"),
        ("full-everywhere", "the other nodes have less than 30 % of their memory free"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::until("size", 80.0, 75.0, "estimate: a process a quarter larger would not fit on the node"),
        Limit::until("room", 10.0, 15.0, "estimate: other programs on the node need 10 % of it"),
        Limit::sharp("elsewhere", 30.0, "estimate: a node used for something else has less free memory"),
        Limit::sharp("victim", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::sharp("home", 95.0, "estimate: all of its time, except short moves by the scheduler"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Points around an even share within which memory counts as spread on purpose.
const EVEN_POINTS: f64 = 10.0;

/// A container this near its memory limit, as a share of the limit, does not grow.
const AT_LIMIT: f64 = 1.05;

/// The node, its memory, and that of the process, in bytes.
struct Facts {
    /// The node that it fills.
    home: NodeId,
    /// Memory that the node manages, bytes.
    managed: f64,
    /// Free memory of the node, bytes.
    free: f64,
    /// Resident memory of the process, bytes.
    size: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let size = task.rss_bytes as f64;
    if size * 100.0 < view.levels().managed_bytes * view.limit("size") {
        return Err(Unmet::Quiet);
    }
    let whole = view.whole_nodes();
    let managed = |node: NodeId| view.node(node).map_or(0.0, |row| row.raw.managed_bytes as f64);
    if whole.len() < 2 {
        return Err(Unmet::Quiet);
    }
    let Some(home) = task.home_node().filter(|home| whole.contains(home)) else { return Err(Unmet::Quiet) };
    input((managed(home) > 0.0).then_some(()), "the watermarks of its node are not known")?;
    if size * 100.0 < managed(home) * view.limit("size") || !task.raw.mempolicy.is_default() {
        return Err(Unmet::Quiet);
    }
    let room = memory_room(view, &[home]);
    let (free, of_all) = elsewhere(view, &whole, home);
    if room * 100.0 > managed(home) * view.limit("room") || free * 100.0 < of_all * view.limit("elsewhere") {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if !whole.iter().all(|node| node.0 < 64 && mems >> node.0 & 1 == 1) || is_at_limit(view, of) {
        return Err(Unmet::Quiet);
    }
    let resident = input(task.resident, "its anonymous and file memory are not known")?;
    if resident.file_bytes as f64 * 2.0 >= size || guards::is_own_memory(of) != Some(true) {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    let even = 100.0 / whole.len() as f64;
    if whole.iter().all(|node| (placed.memory_pct(&[*node]) - even).abs() <= EVEN_POINTS) {
        return Err(Unmet::Quiet);
    }
    let own = need(view.number(&OWN_POLICY_PCT, of))?;
    if own >= OWN_POLICY_MAX {
        return Err(Unmet::Quiet);
    }
    let mut victims = victims(view, task, home);
    // Losses that are not worth it leave it an info.
    if gain_of(view, &victims, home).is_too_small(view.over) {
        victims.clear();
    }
    let subject = of.subject();
    let node = Subject::Node(home);
    let mut evidence = vec![
        view.evidence(RSS_BYTES.id, subject.clone(), size)
            .limit(managed(home) * view.limit("size") / 100.0)
            .on(home),
        view.evidence("mem_free_bytes", node, room)
            .limit(managed(home) * view.limit("room") / 100.0)
            .note(Note::AtMost),
        view.evidence(OWN_POLICY_PCT.id, subject, own).limit(OWN_POLICY_MAX).note(Note::AtMost),
    ];
    evidence.extend(victims.iter().map(|victim| victim.evidence(view)));
    Ok(Seen {
        severity: if victims.is_empty() { Severity::Info } else { Severity::Warning },
        confidence: if victims.is_empty() { Confidence::Measured } else { Confidence::Estimated },
        evidence,
        facts: Facts { home, managed: managed(home), free: room, size },
    })
}

/// Memory of other nodes that is free, and all of theirs, bytes.
fn elsewhere(view: &View<'_>, whole: &[NodeId], home: NodeId) -> (f64, f64) {
    let others = whole.iter().filter(|node| **node != home).filter_map(|node| view.node(*node));
    others.fold((0.0, 0.0), |(free, all), row| {
        (free + above_watermark(&row.raw).max(0.0), all + row.raw.managed_bytes as f64)
    })
}

/// Whether a group that it is in may not have more memory than it has.
fn is_at_limit(view: &View<'_>, of: &SubjectRef<'_>) -> bool {
    let mut all = view.container_of(of).into_iter().flat_map(|row| row.and_above(&view.snapshot.containers));
    all.any(|group| match group.raw.as_ref().map(|raw| (&raw.mem_limit_bytes, &raw.mem_bytes)) {
        Some((Ok(Some(limit)), Ok(used))) => *limit as f64 <= *used as f64 * AT_LIMIT,
        _ => false,
    })
}

/// Another process of the same node, whose memory was pushed elsewhere.
struct Victim<'a> {
    task: &'a Task,
    placed: guards::Placed,
    home: NodeId,
}

impl Victim<'_> {
    /// Share of its memory on other nodes, in percent.
    fn outside(&self) -> f64 {
        100.0 - self.placed.memory_pct(&[self.home])
    }

    fn evidence(&self, view: &View<'_>) -> Evidence {
        view.evidence(MEM_PCT_BY_NODE.id, process(&self.task.raw), self.placed.memory_pct(&[self.home]))
            .error(self.placed.error)
            .limit(100.0 - view.limit("victim"))
            .note(Note::AtMost)
            .on(self.home)
    }
}

/// Processes that run only on the node and have a fifth of their memory or more on others, without having
/// asked for that. Processes with most memory there come first.
fn victims<'a>(view: &View<'a>, large: &Task, home: NodeId) -> Vec<Victim<'a>> {
    let now = waiting::now(view);
    let is_other = |task: &&&Task| task.raw.process() != large.raw.process();
    let mut victims: Vec<Victim<'a>> = now
        .candidates()
        .collect::<Vec<&'a Task>>()
        .iter()
        .filter(is_other)
        .filter(|task| task.raw.mempolicy.is_default())
        .filter(|task| task.mem_nodes.is_some_and(|mems| home.0 < 64 && mems >> home.0 & 1 == 1))
        .filter_map(|task| {
            let of = SubjectRef::Process(task);
            let placed = guards::placed(&now, &of).ok()?;
            let victim = Victim { task, placed, home };
            let is_hurt = victim.placed.run_pct(&[home]) >= view.limit("home")
                && victim.outside() - victim.placed.error >= view.limit("victim")
                && guards::is_large(&now, &victim.placed)
                && guards::is_own_memory(&of) == Some(true)
                && !guards::is_cold(&now, &of, &victim.placed);
            is_hurt.then_some(victim)
        })
        .collect();
    victims.sort_by(|a, b| {
        b.placed
            .outside(&[home])
            .total_cmp(&a.placed.outside(&[home]))
            .then(a.task.raw.pid.cmp(&b.task.raw.pid))
    });
    victims
}

/// CPU time that could be won with the memory of all victims on their node.
fn gain_of(view: &View<'_>, victims: &[Victim<'_>], home: NodeId) -> Gain {
    let now = waiting::now(view);
    let mut sum = Gain::default();
    for victim in victims {
        let one = gain_of_memory(&now, &SubjectRef::Process(victim.task), &victim.placed, &[home]);
        let add = |sum: Option<f64>, more: Option<f64>| more.map(|more| sum.unwrap_or(0.0) + more).or(sum);
        sum.at_most = add(sum.at_most, one.at_most);
        sum.of = add(sum.of, one.of);
        // The formula is that of the first, which has most memory elsewhere.
        if sum.how.is_none() {
            (sum.how, sum.assumes) = (one.how, one.assumes);
        }
    }
    sum
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Some(task) = of.task() else { return Advice::default() };
    let Facts { home, managed, free, size } = seen.facts;
    let victims = if seen.severity == Severity::Info { Vec::new() } else { victims(view, task, home) };
    let gain = gain_of(view, &victims, home);
    let name = comm(task.raw.comm);
    let mut sentence_of = format!(
        "{name} has {} of the {} of node {home}, which has no room left",
        bytes(size),
        bytes(managed)
    );
    if let Some(first) = victims.first() {
        let others = match victims.len() - 1 {
            0 => String::new(),
            1 => " and of another process".to_owned(),
            more => format!(" and of {more} other processes"),
        };
        sentence_of += &format!(
            "; memory of {} {}{others} is on other nodes",
            first.task.raw.pid,
            comm(first.task.raw.comm)
        );
    }
    let start = "start the program with numactl --interleave=all, because it does not fit on one node; or \
                 divide it into one part per node";
    let mut commands = vec![Command::words(When::NextStart, Scope::Process, start.to_owned())];
    if let Some(option) = option_of(&name) {
        commands.push(Command::words(When::NextStart, Scope::Process, option.to_owned()));
    }
    if let Some(first) = victims.first() {
        let words = format!(
            "afterwards move the memory of other processes back, first that of {}",
            first.task.raw.pid
        );
        commands.push(Command::words(When::NextStart, Scope::Process, words));
    }
    Advice {
        sentence: sentence(format!("{sentence_of}.")),
        gain,
        commands,
        undo: Vec::new(),
        check: vec![Check {
            metric: "mem_free_bytes",
            of: Subject::Node(home),
            from: free,
            to: managed * view.rule.limit("room", false) / 100.0,
            below: false,
            within_s: 60.0,
        }],
        stop: Vec::new(),
        risk: "Interleaving makes most of its accesses remote. This suits only a program that does not fit \
               on one node. Nothing is moved now: new pages would fill the node again."
            .to_owned(),
        or_else: vec![
            "If the process has stopped growing, and little of its memory is on other nodes, remote_pct is \
             near 0."
                .to_owned(),
        ],
    }
}

/// The option by which a program that people know spreads its memory itself, if it has one (S13).
fn option_of(comm: &str) -> Option<&'static str> {
    match comm {
        "mysqld" | "mariadbd" => Some("or set innodb_numa_interleave=ON in the server's configuration"),
        "java" => Some("or start the program with -XX:+UseNUMA"),
        _ if comm.starts_with("qemu-") => Some("or give the guest its own nodes (<numa> in libvirt)"),
        _ => None,
    }
}
