//! Pages go to a slower memory tier and come back.

use super::super::command::{Command, Scope, When, line};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, SubjectKind};
use super::waiting;
use crate::metric::balancing::BALANCING_PCT;
use crate::metric::task::CPU_PCT;
use crate::metric::tiers::{DEMOTED, PROMOTED};
use crate::model::turns::PROMOTE_LIMIT;
use crate::model::units::NodeId;
use crate::snapshot::{Node, Task};

/// Working sets of programs that have just started move by design.
const STARTING_NS: u64 = 300_000_000_000;

pub(super) static RULE: Rule = Rule {
    id: "tier-ping-pong",
    title: "Pages go to slower memory and come back",
    about: "A node sends at least 1,000 pages a second to a slower memory tier and gets about as many back. The \
            transfers take at least 5 % of a CPU.",
    not_when: &[
        ("start", "the machine has been up for less than 5 min"),
        ("limit", "half of the pages come from a container at its memory limit"),
        ("proactive", "half of the pages move because a program requests it (memory.reclaim)"),
    ],
    of: &[SubjectKind::Node],
    group: Group::NodeMemory,
    gravest: Severity::Warning,
    needs: &[PROMOTED.id, DEMOTED.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("pages", 1000.0, "estimate: 4 MB/s each way; fewer pages cost less than a rare burst")
            .counted_in("pages/s"),
        Limit::sharp("factor", 4.0, "estimate: more pages in one direction mean a change of the working set")
            .counted_in("times"),
        Limit::least("busy", 5.0, "[S5]"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The node, and the rates of demotion and promotion.
struct Facts {
    /// The node.
    node: NodeId,
    /// Pages promoted per second.
    promoted: f64,
    /// Pages demoted per second.
    demoted: f64,
    /// CPU time that this takes, percent of a CPU.
    busy: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(row) = of else { return Err(Unmet::Quiet) };
    let inputs = &view.snapshot.inputs;
    // All memory is of one tier: nothing moves.
    if inputs.tier_pages.is_empty() && !inputs.tiers.is_empty() {
        return Err(Unmet::Quiet);
    }
    let row = view.node(NodeId(row.raw.id)).unwrap_or(row);
    let (promoted, demoted) =
        (need(view.node_number(&PROMOTED, row))?, need(view.node_number(&DEMOTED, row))?);
    let (less, more) = (promoted.min(demoted), promoted.max(demoted));
    if less < view.limit("pages") || more > less * view.limit("factor") {
        return Err(Unmet::Quiet);
    }
    if view.snapshot.boot_ns < STARTING_NS || is_asked(row) || is_of_full_container(view, demoted) {
        return Err(Unmet::Quiet);
    }
    let kernel_threads = view.rows.kernel_threads(view.snapshot).in_scope;
    let busy = cost(view, NodeId(row.raw.id));
    if busy < view.limit("busy") {
        return if kernel_threads {
            Err(Unmet::Quiet)
        } else {
            Err(waiting::unknown("kernel threads are not in scope"))
        };
    }
    let node = || of.subject();
    Ok(Seen {
        severity: Severity::Warning,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(PROMOTED.id, node(), promoted).limit(view.limit("pages")).note(Note::Measured),
            view.evidence(DEMOTED.id, node(), demoted).limit(view.limit("pages")).note(Note::Measured),
        ],
        facts: Facts { node: NodeId(row.raw.id), promoted, demoted, busy },
    })
}

/// Whether half of the pages leave because a program asks for it.
fn is_asked(node: &Node) -> bool {
    let asked = node.counts.tier_pages.and_then(|pages| Some((pages.demoted_asked?, pages.demoted?)));
    asked.is_some_and(|(asked, all)| asked > 0 && asked.saturating_mul(2) >= all)
}

/// Whether half of the pages are of a container that has just met its memory limit.
fn is_of_full_container(view: &View<'_>, demoted: f64) -> bool {
    view.snapshot.containers.iter().filter_map(|row| row.raw_delta()).any(|delta| {
        let pages = delta.tier_pages.as_ref().ok().and_then(|pages| pages.demoted).unwrap_or(0);
        let rate = pages as f64 * 1e9 / delta.interval_ns as f64;
        delta.memory_max_events.as_ref().is_ok_and(|hits| *hits > 0) && rate * 2.0 >= demoted
    })
}

/// Time of the node's reclaim and of NUMA balancing of all processes, in percent of a CPU.
fn cost(view: &View<'_>, node: NodeId) -> f64 {
    let now = waiting::now(view);
    let time = |task: &Task| now.number(&CPU_PCT, &SubjectRef::Process(task)).unwrap_or(0.0);
    let reclaim: f64 = view.reclaimers(node).map(time).sum();
    let scans = view.snapshot.tasks.iter().filter(|task| task.run_ns() > 0).map(|task| {
        now.number(&BALANCING_PCT, &SubjectRef::Process(task)).unwrap_or(0.0) * time(task) / 100.0
    });
    reclaim + scans.sum::<f64>()
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, promoted, demoted, busy } = seen.facts;
    let page_bytes = view.snapshot.inputs.free_blocks.get(&node).map_or(4096, |free| free.page_bytes);
    // Half of the rule's limit, which ends the finding; the kernel takes no less than 1.
    let less = (RULE.limit("pages", false) / 2.0 * page_bytes as f64 / 1e6).floor().max(1.0);
    let limit = view.snapshot.inputs.tier_switches.get(PROMOTE_LIMIT).map(|limit| **limit);
    let limit = limit.filter(|limit| *limit as f64 > less);
    let set = |limit: f64| {
        let setting = "kernel.numa_balancing_promote_rate_limit_MBps=";
        Command::new(When::Now, Scope::Host, line("sysctl -w").joined(setting, &format!("{limit:.0}")), "")
    };
    let falls = |metric, from: f64| Check {
        metric,
        of: of.subject(),
        from,
        to: from / 2.0,
        below: true,
        within_s: 60.0,
    };
    Advice {
        sentence: sentence(format!(
            "Each second {} pages of node {node} go to slower memory and {} come back; the transfers take {} \
             % of a CPU.",
            number(demoted),
            number(promoted),
            number(busy)
        )),
        commands: limit.map(|_| set(less)).into_iter().collect(),
        undo: limit.map(|limit| set(limit as f64)).into_iter().collect(),
        check: vec![falls(PROMOTED.id, promoted), falls(DEMOTED.id, demoted)],
        risk: "This setting affects the whole machine: pages in use stay longer on the slow tier.".into(),
        or_else: vec![
            "If more memory is in use than the fast nodes have, lower the memory limits of containers or run \
             fewer programs."
                .to_owned(),
        ],
        ..Advice::default()
    }
}
