//! Several findings of one rule as one: of a container, or of the machine.

use std::collections::BTreeMap;

use super::view::Rows;
use super::{Evidence, Finding, Key, Kind, Note, Subject, text};
use crate::model::group;
use crate::snapshot::Snapshot;

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
    (top.kind != group::Kind::Group && rows.containers.contains_key(&of.top)).then_some(of.top)
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
        Kind::Process => "processes",
        Kind::Group => "groups of processes",
        Kind::Container => "containers",
        Kind::Node => "nodes",
        Kind::Socket => "sockets",
        Kind::Device => "devices",
        Kind::Host => "hosts",
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
    one.key = Key { id: one.key.id, subject };
    one.identity.label = label;
    if one.key.subject == Subject::Host {
        one.identity = super::Identity { label: one.identity.label, ..super::Identity::default() };
    }
    one.identity.comm = None;
    one
}
