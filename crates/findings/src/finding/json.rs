//! Findings as JSON: the keys `findings` and `findings_blind` of batch output. Keys may be added, never renamed or removed.

use serde_json::{Value as Json, json};

use super::verdict::{Undecided, Verdict};
use super::{Arithmetic, Blind, Check, Command, Engine, Evidence, Finding, Gain, Subject, Summary};
use crate::model::sample::pages;
use crate::snapshot::GroupObject;
use crate::text::json::number;
use crate::text::rfc3339;

/// One finding.
pub fn finding(finding: &Finding) -> Json {
    let advice = &finding.advice;
    let list = |commands: &[Command]| commands.iter().map(command).collect::<Vec<Json>>();
    let checks = |checks: &[Check]| checks.iter().map(check).collect::<Vec<Json>>();
    json!({
        "key": finding.key.to_string(),
        "id": finding.key.id,
        "title": finding.title,
        "subject": subject(finding),
        "severity": finding.severity.name(),
        "confidence": finding.confidence.name(),
        "state": finding.state.name(),
        "since": rfc3339(finding.since_wall_ns),
        "until": finding.until_wall_ns.map(rfc3339),
        "held_s": number(finding.held_ns as f64 / 1e9),
        "times": finding.times,
        "sentence": advice.sentence,
        "because_of": finding.because_of.as_ref().map(ToString::to_string),
        "rank": finding.rank,
        "peak": finding.peak.map(number),
        "ended": finding.end.map(|(end, _)| end.words()),
        "gain": gain(&advice.gain),
        "evidence": finding.evidence.iter().map(evidence).collect::<Vec<Json>>(),
        "commands": list(&advice.commands),
        "undo": list(&advice.undo),
        "check": checks(&advice.check),
        "stop": checks(&advice.stop),
        "risk": advice.risk,
        "else": advice.or_else,
    })
}

fn subject(finding: &Finding) -> Json {
    let identity = &finding.identity;
    let mut object = json!({ "kind": finding.key.subject.kind().name() });
    let groups = || json!([identity.container, identity.container_id, identity.cgroup]);
    match &finding.key.subject {
        Subject::Host => {}
        Subject::Node(node) => object["node"] = json!(node.0),
        Subject::Socket(socket) => object["socket"] = json!(socket),
        Subject::Process(pid, start_ns) => {
            object["pid"] = json!(pid);
            object["start_ns"] = json!(start_ns);
            object["comm"] = json!(identity.comm.as_deref().unwrap_or_default());
        }
        Subject::Group(pid, start_ns) => {
            object["pid"] = json!(pid);
            object["start_ns"] = json!(start_ns);
            object["comm"] = json!(identity.comm.as_deref().unwrap_or_default());
            let members = identity.members.iter().take(MEMBERS_MAX);
            object["processes"] = json!(identity.members.len());
            object["members"] =
                members.map(|(pid, start_ns)| json!({ "pid": pid, "start_ns": start_ns })).collect();
            object["objects"] = identity.objects.iter().map(shared_object).collect();
        }
        Subject::Container(id) => object["cgroup_id"] = json!(id),
        Subject::Device(name) => object["device"] = json!(crate::text::clean_str(name)),
    }
    if matches!(finding.key.subject, Subject::Process(..) | Subject::Group(..) | Subject::Container(_)) {
        let [container, container_id, cgroup] = ["container", "container_id", "cgroup"];
        let mut groups = groups();
        object["cpus"] = json!(identity.cpus);
        object[container] = groups[0].take();
        object[container_id] = groups[1].take();
        object[cgroup] = groups[2].take();
    }
    object
}

/// Members of a group that are listed.
const MEMBERS_MAX: usize = 64;

fn shared_object(GroupObject { facts: object, error_hundredths, is_drawn }: &GroupObject) -> Json {
    let all = pages(&object.by_node).max(1.0);
    let pct = |pages: &u32| number(f64::from(*pages) * 100.0 / all);
    json!({
        "device": object.device,
        "inode": object.inode,
        "bytes": object.bytes,
        "resident_bytes": object.resident_bytes,
        "mappings": object.mappings,
        "node_pct": object.by_node.iter().map(pct).collect::<Json>(),
        "node_error_points": number(f64::from(*error_hundredths) / 100.0),
        "nodes_from": if *is_drawn { "page_cache" } else { "page_tables" },
    })
}

fn gain(gain: &Gain) -> Json {
    let mut how = Json::Null;
    if let Some(arithmetic) = gain.how {
        how = match arithmetic {
            Arithmetic::Placement { now, then, phi } => {
                json!({ "distance_now": number(now * 10.0), "distance_then": number(then * 10.0), "phi": number(phi) })
            }
            Arithmetic::Waiting { wait, idle } => {
                json!({ "wait_cpus": number(wait), "idle_cpus": number(idle) })
            }
            Arithmetic::Siblings { busy, k } => json!({ "busy": number(busy), "k": number(k) }),
            Arithmetic::Moves { per_s } => json!({ "moves_per_s": number(per_s) }),
            Arithmetic::Twins { cpi, twins } => json!({ "cpi": number(cpi), "twins_cpi": number(twins) }),
            Arithmetic::Scans | Arithmetic::Interrupts => json!({}),
        };
        how["formula"] = json!(arithmetic.id());
    }
    json!({
        "at_least_cpus": gain.at_least.map(number),
        "at_most_cpus": gain.at_most.map(number),
        "of_cpus": gain.of.map(number),
        "how": how,
        "assumes": gain.assumes.iter().map(|assumption| assumption.id()).collect::<Vec<&str>>(),
    })
}

fn evidence(evidence: &Evidence) -> Json {
    let mut object = json!({
        "metric": evidence.metric,
        "of": evidence.of.to_string(),
        "value": number(evidence.value),
        "error": number(evidence.error),
        "over_s": number(evidence.over_ns as f64 / 1e9),
        "limit": evidence.limit.map(number),
        "note": evidence.note.map(|note| note.id()),
    });
    if let Some(node) = evidence.node {
        object["node"] = json!(node.0);
    }
    if !evidence.nodes.is_empty() {
        object["nodes"] = json!(evidence.nodes.iter().map(|node| node.0).collect::<Vec<u32>>());
    }
    object
}

fn command(command: &Command) -> Json {
    json!({
        "when": command.when.id(),
        "line": command.line.as_ref().map(ToString::to_string),
        "words": command.words,
        "scope": command.scope.id(),
    })
}

fn check(check: &Check) -> Json {
    json!({
        "metric": check.metric,
        "of": check.of.to_string(),
        "from": number(check.from),
        "to": number(check.to),
        "below": check.below,
        "within_s": check.within_s,
    })
}

/// One rule that could not look.
pub fn blind(blind: &Blind) -> Json {
    json!({
        "id": blind.id,
        "reason": blind.reason.id(),
        "words": blind.words,
        "subjects": blind.subjects,
    })
}

/// The list of findings of an engine.
pub fn findings(engine: &Engine) -> Json {
    engine.findings().iter().map(finding).collect()
}

/// The list of rules that could not look.
pub fn blinds(engine: &Engine) -> Json {
    engine.blind().iter().map(blind).collect()
}

/// All that was not decided: rules that needed longer, conditions that have not held for long enough, and subjects in doubt.
pub fn undecided(verdict: &Verdict) -> Json {
    let one = |rule: &Undecided| {
        json!({
            "id": rule.id,
            "why": rule.why.id(),
            "severity": rule.gravest.name(),
            "needs_s": number(rule.needs_ns as f64 / 1e9),
            "had_s": number(rule.had_ns as f64 / 1e9),
            "subjects": rule.subjects,
        })
    };
    verdict.undecided.iter().map(one).collect()
}

/// Numbers of findings and rules.
pub fn summary(summary: &Summary) -> Json {
    json!({
        "critical": summary.critical,
        "warning": summary.warning,
        "info": summary.info,
        "explained": summary.explained,
        "rules": summary.rules,
        "could_look": summary.could_look,
    })
}
