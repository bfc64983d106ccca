//! Causes and symptoms: one cause is one finding, and what it explains goes below it. Several findings of one rule are one
//! of a container, or of the machine.

use std::collections::{BTreeMap, BTreeSet};

use super::view::Rows;
use super::{Confidence, Evidence, Finding, FindingKey, Note, Severity, Subject, SubjectKind, text};
use crate::model::group;
use crate::model::sample::Counts;
use crate::snapshot::{SetKind, Snapshot};

/// Levels of a tree of causes.
const LEVELS: usize = 3;

/// Rules and the rules whose findings they explain, where the subjects are related. The first row that matches wins.
pub static CAUSES: &[(&str, &[&str])] = &[
    ("zone-reclaim", &["node-short-of-memory", "swap-while-memory-free", "reclaim-threads-busy"]),
    ("bound-to-full-node", &["node-short-of-memory", "swap-while-memory-free", "reclaim-threads-busy"]),
    ("larger-than-node", &["remote-after-pin", "memory-on-other-node"]),
    ("page-cache-fills-node", &["remote-after-pin", "memory-on-other-node", "reclaim-threads-busy"]),
    ("node-short-of-memory", &["reclaim-threads-busy", "swap-while-memory-free"]),
    ("cpus-and-memory-apart", &["remote-after-pin", "memory-on-other-node", "slow-tier-memory"]),
    ("hugetlb-on-other-node", &["remote-after-pin", "memory-on-other-node"]),
    (
        "spread-over-nodes",
        &["moves-between-nodes", "balancing-cost", "balancing-ping-pong", "memory-on-other-node"],
    ),
    ("balancing-ping-pong", &["balancing-cost"]),
    ("shared-cores", &["sibling-contention", "cpus-too-few", "bound-to-busy-cpus"]),
    (
        "lopsided-nodes",
        &["noisy-neighbour", "sibling-contention", "cpus-too-few", "idle-elsewhere", "cores-exhausted"],
    ),
    ("cores-exhausted", &["sibling-contention", "idle-elsewhere"]),
    ("quota-throttled", &["cpus-too-few", "idle-elsewhere", "bound-to-busy-cpus"]),
    ("interrupts-on-busy-node", &["interrupts-off-node"]),
];

/// Rules whose finding lowers those of others to an info.
pub static LOWERS: &[(&str, &[&str])] = &[(
    "stolen-time",
    &["idle-elsewhere", "cpus-too-few", "bound-to-busy-cpus", "noisy-neighbour", "slow-clock"],
)];

/// Rules whose findings use counters, and are estimates while counters take turns.
pub static COUNTERS: &[&str] = &["sibling-contention", "cores-exhausted", "slow-clock", "noisy-neighbour"];

/// Findings with the cause of each, and severities as other findings make them.
pub fn explain(mut findings: Vec<Finding>, snapshot: &Snapshot, rows: &Rows) -> Vec<Finding> {
    let active = |findings: &[Finding], id: &str| findings.iter().any(|finding| finding.key.id == id);
    for (cause, lowered) in LOWERS {
        if active(&findings, cause) {
            let which = findings.iter_mut().filter(|finding| lowered.contains(&finding.key.id));
            which.for_each(|finding| finding.severity = Severity::Info);
        }
    }
    if active(&findings, "counters-taken-turns") {
        let which = findings.iter_mut().filter(|finding| COUNTERS.contains(&finding.key.id));
        which.for_each(|finding| finding.confidence = finding.confidence.min(Confidence::Estimated));
    }
    let causes: Vec<_> =
        findings.iter().map(|finding| cause_of(finding, findings.iter(), snapshot, rows)).collect();
    for (finding, cause) in findings.iter_mut().zip(causes) {
        finding.because_of = cause;
    }
    findings
}

/// Makes infos of findings without a cause that one of `ended` would have explained.
pub fn soften<'a>(
    findings: &mut [Finding],
    ended: impl Iterator<Item = &'a Finding> + Clone,
    snapshot: &Snapshot,
    rows: &Rows,
) {
    for finding in findings.iter_mut().filter(|finding| finding.because_of.is_none()) {
        if cause_of(finding, ended.clone(), snapshot, rows).is_some() {
            finding.severity = Severity::Info;
        }
    }
}

fn cause_of<'a>(
    symptom: &Finding,
    all: impl Iterator<Item = &'a Finding> + Clone,
    snapshot: &Snapshot,
    rows: &Rows,
) -> Option<super::FindingKey> {
    CAUSES.iter().filter(|(_, explained)| explained.contains(&symptom.key.id)).find_map(|(id, _)| {
        let mut related = all.clone().filter(|cause| cause.key.id == *id).filter(|cause| match *id {
            "larger-than-node" => is_at_home(cause, &symptom.key.subject, snapshot, rows),
            _ => is_related(&cause.key.subject, &symptom.key.subject, snapshot, rows),
        });
        related.next().map(|cause| cause.key.clone())
    })
}

/// Whether another process runs most on the node that the first value of the cause is about.
fn is_at_home(cause: &Finding, other: &Subject, snapshot: &Snapshot, rows: &Rows) -> bool {
    let node = cause.evidence.first().and_then(|evidence| evidence.node);
    let home = rows.processes.get(other).and_then(|at| snapshot.tasks[*at].home_node());
    cause.key.subject != *other && node.is_some() && home == node
}

/// Whether two subjects are related: equal ones; a process and its container, or a container above that; a
/// node and a process that runs or has memory on it; the machine and all.
pub fn is_related(a: &Subject, b: &Subject, snapshot: &Snapshot, rows: &Rows) -> bool {
    let task = |subject: &Subject| rows.processes.get(subject).map(|at| &snapshot.tasks[*at]);
    let holds = |id: &u64, process: &Subject| {
        let place = rows.processes.get(process);
        place.is_some_and(|at| rows.members.get(id).is_some_and(|members| members.contains(at)))
    };
    match (a, b) {
        _ if a == b => true,
        (Subject::Host, _) | (_, Subject::Host) => true,
        (Subject::Container(id), process @ Subject::Process(..))
        | (process @ Subject::Process(..), Subject::Container(id)) => holds(id, process),
        (group @ Subject::Group(..), process @ Subject::Process(..))
        | (process @ Subject::Process(..), group @ Subject::Group(..)) => {
            let place = rows.processes.get(process);
            let members = rows.groups.get(group).map(|group| &group.members);
            place.is_some_and(|at| members.is_some_and(|members| members.contains(at)))
        }
        (Subject::Container(id), group @ Subject::Group(..))
        | (group @ Subject::Group(..), Subject::Container(id)) => {
            rows.groups.get(group).is_some_and(|group| group.container == Some(*id))
        }
        (Subject::Node(node), group @ Subject::Group(..))
        | (group @ Subject::Group(..), Subject::Node(node)) => rows.groups.get(group).is_some_and(|group| {
            let delta = &group.row.delta;
            delta.run_ns.get(node.index()).is_some_and(|ns| ns.saturating_mul(20) >= delta.cpu_ns())
        }),
        (Subject::Node(node), process @ Subject::Process(..))
        | (process @ Subject::Process(..), Subject::Node(node)) => task(process).is_some_and(|task| {
            let ran =
                task.delta.run_ns.get(node.index()).is_some_and(|ns| ns.saturating_mul(20) >= task.run_ns());
            let memory = task.memory().and_then(|(_, memory)| memory.as_ref().ok());
            let held = memory.is_some_and(|memory| {
                memory.bytes_by_node.get(node.index()).is_some_and(|bytes| *bytes * 20.0 >= memory.bytes())
            });
            ran || held
        }),
        (Subject::Node(node), Subject::Container(id)) | (Subject::Container(id), Subject::Node(node)) => {
            rows.containers.get(id).is_some_and(|at| {
                let delta = &snapshot.containers[*at].sum.delta;
                delta.run_ns.get(node.index()).is_some_and(|ns| ns.saturating_mul(20) >= delta.cpu_ns())
            })
        }
        (Subject::Socket(socket), process @ Subject::Process(..))
        | (process @ Subject::Process(..), Subject::Socket(socket)) => {
            task(process).is_some_and(|task| runs_on_socket(&task.delta, *socket, snapshot))
        }
        (Subject::Socket(socket), Subject::Container(id))
        | (Subject::Container(id), Subject::Socket(socket)) => rows
            .containers
            .get(id)
            .is_some_and(|at| runs_on_socket(&snapshot.containers[*at].sum.delta, *socket, snapshot)),
        (Subject::Container(a), Subject::Container(b)) => {
            is_above(*a, *b, snapshot, rows) || is_above(*b, *a, snapshot, rows)
        }
        (Subject::Node(node), Subject::Device(name)) | (Subject::Device(name), Subject::Node(node)) => {
            let place = snapshot.host.topology.node(*node);
            let on = place.is_some_and(|place| place.devices.iter().any(|device| device.name == *name));
            let mut of_name = snapshot.host.topology.placed_devices().filter(|device| device.name == *name);
            on || of_name.any(|device| snapshot.handles(*node, device))
        }
        _ => false,
    }
}

/// Whether a twentieth of some time or more was on a socket.
fn runs_on_socket(counts: &Counts, socket: u32, snapshot: &Snapshot) -> bool {
    let times = snapshot.place_sets.times(counts, SetKind::Socket).unwrap_or_default();
    times.iter().any(|(id, ns)| *id == socket && ns.saturating_mul(20) >= counts.cpu_ns())
}

fn is_above(above: u64, below: u64, snapshot: &Snapshot, rows: &Rows) -> bool {
    let below = rows.containers.get(&below).map(|at| &snapshot.containers[*at]);
    below.is_some_and(|row| row.and_above(&snapshot.containers).skip(1).any(|row| row.id == above))
}

/// Findings in the order of lists: causes by the highest severity and the largest weight of themselves and of
/// their symptoms, each followed by those. `place` is the place of a rule in the table. A cause takes over
/// the highest severity of its symptoms.
pub fn order(findings: Vec<Finding>, place: impl Fn(&str) -> usize) -> Vec<Finding> {
    let mut below: BTreeMap<Option<super::FindingKey>, Vec<Finding>> = BTreeMap::new();
    let keys: BTreeSet<super::FindingKey> = findings.iter().map(|finding| finding.key.clone()).collect();
    for mut finding in findings {
        finding.because_of = finding.because_of.filter(|cause| keys.contains(cause) && *cause != finding.key);
        below.entry(finding.because_of.clone()).or_default().push(finding);
    }
    let mut roots: Vec<(f64, Vec<Finding>)> = Vec::new();
    for root in below.remove(&None).unwrap_or_default() {
        let mut tree = vec![root];
        hang(&mut tree, &mut below, 1);
        let gravest = tree.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Info);
        let weight = tree.iter().map(|finding| finding.advice.gain.weight()).fold(0.0, f64::max);
        tree[0].severity = gravest;
        roots.push((weight, tree));
    }
    // Circles cannot come from the table; were they in it, nothing would be lost.
    let rest = std::mem::take(&mut below).into_values().flatten();
    roots.extend(
        rest.map(|finding| (finding.advice.gain.weight(), vec![Finding { because_of: None, ..finding }])),
    );
    roots.sort_by(|(a_weight, a), (b_weight, b)| {
        let order = b[0].severity.cmp(&a[0].severity).then(b_weight.total_cmp(a_weight));
        order.then(place(a[0].key.id).cmp(&place(b[0].key.id))).then(a[0].key.cmp(&b[0].key))
    });
    let mut ordered = Vec::new();
    for (rank, (_, mut tree)) in (1..).zip(roots) {
        tree[0].rank = Some(rank);
        ordered.extend(tree);
    }
    ordered
}

/// Adds what the last of `tree` explains, and what that explains.
fn hang(
    tree: &mut Vec<Finding>,
    below: &mut BTreeMap<Option<super::FindingKey>, Vec<Finding>>,
    level: usize,
) {
    let Some(cause) = tree.last().map(|finding| finding.key.clone()) else { return };
    for symptom in below.remove(&Some(cause)).unwrap_or_default() {
        tree.push(symptom);
        if level < LEVELS {
            hang(tree, below, level + 1);
        }
    }
}

/// Processes of one container with the same finding that make it the container's.
const OF_CONTAINER: usize = 3;

/// Findings of one rule above which they are the machine's.
const OF_HOST: usize = 5;

/// Subjects that are evidence of a sum.
const EVIDENCE: usize = 5;

/// Commands of a sum.
const COMMANDS: usize = 8;

/// Share of a container's CPU time that fewer processes must make.
const SHARE_PCT: u64 = 80;

/// Whether a finding is the sum of several.
pub fn is_sum(finding: &Finding) -> bool {
    finding.evidence.iter().any(|evidence| evidence.note == Some(Note::OneOfSeveral))
}

/// Findings, those of several processes of one container as one of the container, and more than five of one rule as one of
/// the machine.
pub fn roll_up(findings: Vec<Finding>, snapshot: &Snapshot, rows: &Rows) -> Vec<Finding> {
    let mut by_rule: BTreeMap<&'static str, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        by_rule.entry(finding.key.id).or_default().push(finding);
    }
    let each = by_rule.into_values().map(|of_rule| sideways(upwards(of_rule, snapshot, rows)));
    each.flatten().collect()
}

/// The innermost container, pod, machine or unit of a process.
fn container_of(subject: &Subject, snapshot: &Snapshot, rows: &Rows) -> Option<u64> {
    let task = &snapshot.tasks[*rows.processes.get(subject)?];
    let groups = &snapshot.names.groups;
    let of = groups.get(&task.raw.cgroup_id)?;
    let top = groups.get(&of.top)?;
    (top.kind != group::GroupKind::Group && rows.containers.contains_key(&of.top)).then_some(of.top)
}

fn upwards(findings: Vec<Finding>, snapshot: &Snapshot, rows: &Rows) -> Vec<Finding> {
    let mut of_containers: BTreeMap<u64, Vec<Finding>> = BTreeMap::new();
    let mut others = Vec::new();
    for finding in findings {
        match container_of(&finding.key.subject, snapshot, rows) {
            Some(id) => of_containers.entry(id).or_default().push(finding),
            None => others.push(finding),
        }
    }
    for (id, of_container) in of_containers {
        let subject = Subject::Container(id);
        // The rule covers the whole container with one finding.
        if others.iter().any(|finding| finding.key.subject == subject) {
            continue;
        }
        let row = rows.containers.get(&id).map(|at| &snapshot.containers[*at]);
        let ran = |finding: &Finding| {
            rows.processes.get(&finding.key.subject).map_or(0, |at| snapshot.tasks[*at].run_ns())
        };
        let theirs = of_container.iter().map(ran).fold(0u64, u64::saturating_add);
        let all = row.map_or(u64::MAX, |row| row.sum.run_ns());
        let most = of_container.len() > 1 && theirs.saturating_mul(100) >= all.saturating_mul(SHARE_PCT);
        if of_container.len() >= OF_CONTAINER || most {
            let name = row
                .and_then(|row| row.group.as_ref())
                .map_or_else(|| id.to_string(), |group| text::name(&group.name));
            others.push(sum(of_container, subject, name));
        } else {
            others.extend(of_container);
        }
    }
    others
}

fn sideways(findings: Vec<Finding>) -> Vec<Finding> {
    if findings.len() > OF_HOST { vec![sum(findings, Subject::Host, "host".to_owned())] } else { findings }
}

/// The largest first: one finding of `subject` from several of one rule.
fn sum(mut findings: Vec<Finding>, subject: Subject, label: String) -> Finding {
    findings.sort_by(|a, b| {
        let order =
            b.severity.cmp(&a.severity).then(b.advice.gain.weight().total_cmp(&a.advice.gain.weight()));
        order.then(a.key.cmp(&b.key))
    });
    let count = findings.len();
    let kinds = match findings[0].key.subject.kind() {
        SubjectKind::Process => "processes",
        SubjectKind::Group => "groups of processes",
        SubjectKind::Container => "containers",
        SubjectKind::Node => "nodes",
        SubjectKind::Socket => "sockets",
        SubjectKind::Device => "devices",
        SubjectKind::Host => "hosts",
    };
    let whole = match subject {
        Subject::Host => String::new(),
        _ => format!(" of {label}"),
    };
    let mut one = findings[0].clone();
    one.advice.sentence =
        text::sentence(format!("{count} {kinds}{whole}, the largest: {}", one.advice.sentence));
    let first = |finding: &Finding| {
        let evidence = finding.evidence.first().cloned()?;
        Some(Evidence { note: Some(Note::OneOfSeveral), ..evidence })
    };
    one.evidence = findings.iter().take(EVIDENCE).filter_map(first).collect();
    one.advice.commands =
        findings.iter().flat_map(|finding| finding.advice.commands.iter().cloned()).collect();
    one.advice.undo = findings.iter().flat_map(|finding| finding.advice.undo.iter().cloned()).collect();
    for commands in [&mut one.advice.commands, &mut one.advice.undo] {
        let mut unique = Vec::new();
        commands.drain(..).for_each(|command| {
            if !unique.contains(&command) {
                unique.push(command);
            }
        });
        let more = unique.len().saturating_sub(COMMANDS);
        unique.truncate(COMMANDS);
        if let Some(last) = unique.last_mut().filter(|_| more > 0) {
            last.words =
                format!("{}{}and {more} more", last.words, if last.words.is_empty() { "" } else { "; " });
        }
        *commands = unique;
    }
    one.advice.check =
        findings.iter().take(1).flat_map(|finding| finding.advice.check.iter().cloned()).collect();
    let gains = |of: fn(&Finding) -> Option<f64>| findings.iter().map(of).sum::<Option<f64>>();
    one.advice.gain.at_least = gains(|finding| finding.advice.gain.at_least);
    one.advice.gain.at_most = gains(|finding| finding.advice.gain.at_most);
    one.advice.gain.of = gains(|finding| finding.advice.gain.of);
    one.confidence = findings.iter().map(|finding| finding.confidence).min().unwrap_or(one.confidence);
    one.since_mono_ns =
        findings.iter().map(|finding| finding.since_mono_ns).min().unwrap_or(one.since_mono_ns);
    one.since_wall_ns =
        findings.iter().map(|finding| finding.since_wall_ns).min().unwrap_or(one.since_wall_ns);
    one.held_ns = findings.iter().map(|finding| finding.held_ns).max().unwrap_or(one.held_ns);
    one.key = FindingKey { id: one.key.id, subject };
    one.identity.label = label;
    if one.key.subject == Subject::Host {
        one.identity = super::Identity { label: one.identity.label, ..super::Identity::default() };
    }
    one.identity.comm = None;
    one
}

#[cfg(test)]
mod tests {
    use super::super::{FindingKey, Gain};
    use super::*;

    #[test]
    fn the_table_has_no_circles() {
        for (start, _) in CAUSES {
            let (mut reached, mut next) = (BTreeSet::new(), vec![*start]);
            while let Some(id) = next.pop() {
                for (_, explained) in CAUSES.iter().filter(|(cause, _)| *cause == id) {
                    next.extend(explained.iter().filter(|id| reached.insert(**id)));
                }
            }
            assert!(!reached.contains(start), "{start} explains itself");
        }
    }

    #[test]
    fn symptoms_go_below_their_cause_and_lend_it_their_weight() {
        let of = |id: &'static str, subject, severity, at_most| {
            let mut finding = Finding::example(FindingKey { id, subject }, severity);
            finding.advice.gain = Gain { at_most, ..Gain::default() };
            finding
        };
        let mut swap = of("swap-while-memory-free", Subject::Host, Severity::Critical, None);
        let zone = of("zone-reclaim", Subject::Host, Severity::Warning, None);
        swap.because_of = Some(zone.key.clone());
        let quota = of("quota-throttled", Subject::Container(7), Severity::Warning, Some(2.0));
        let ordered = order(vec![quota, swap, zone], |_| 0);
        let ids: Vec<&str> = ordered.iter().map(|finding| finding.key.id).collect();
        assert_eq!(ids, ["zone-reclaim", "swap-while-memory-free", "quota-throttled"]);
        assert_eq!(ordered[0].severity, Severity::Critical);
        assert_eq!((ordered[0].rank, ordered[1].rank, ordered[2].rank), (Some(1), None, Some(2)));
    }

    #[test]
    fn a_symptom_whose_cause_ended_stands_for_itself() {
        let mut swap = Finding::example(
            FindingKey { id: "swap-while-memory-free", subject: Subject::Host },
            Severity::Critical,
        );
        swap.because_of = Some(FindingKey { id: "zone-reclaim", subject: Subject::Host });
        let ordered = order(vec![swap], |_| 0);
        assert_eq!((ordered[0].because_of.as_ref(), ordered[0].rank), (None, Some(1)));
    }
}
