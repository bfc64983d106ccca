//! CPUs of one node run slower than those of another one that is as busy.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{pct, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use crate::metric::node::CPU_PCT;
use crate::metric::on_cpus::GHZ;
use crate::model::event::Role;
use crate::model::units::NodeId;

/// Share of a node's time that one process must make to be the reason of its clock, in percent.
const ONE_PROCESS_PCT: f64 = 80.0;

pub(super) static RULE: Rule = Rule {
    id: "slow-clock",
    title: "A node's clock is slower",
    about: "CPUs of a node run at 85 % of another node's clock or less, although both are equally busy.",
    not_when: &[
        ("core-types", "the nodes have different kinds of cores"),
        (
            "one-process",
            "one process uses 80 % of the node's busy time: its instructions can lower the clock",
        ),
        (
            "unlike-load",
            "one of the nodes is less than half busy, or their loads differ by more than 15 percentage points",
        ),
    ],
    of: &[SubjectKind::Node],
    group: Group::Cpus,
    gravest: Severity::Info,
    needs: &[GHZ.id],
    hold: Hold::s(120.0),
    limits: &[
        Limit::until("clock", 85.0, 90.0, "estimate: turbo steps of a busy node are smaller than 15 %"),
        Limit::least("busy", 50.0, "estimate: an idle node can have any clock rate"),
        Limit::until("apart", 15.0, 20.0, "estimate: the busier node has the lower turbo clock"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The node with the fastest clock among the ones about as busy, with its clock and its busy share.
fn fastest(view: &View<'_>, except: NodeId, busy: f64) -> Option<(NodeId, f64, f64)> {
    let others = view.window.nodes.iter().filter(|row| row.raw.id != except.0 && row.cpus > 0);
    let clocks = others.filter_map(|row| {
        let (load, ghz) = (view.node_number(&CPU_PCT, row).ok()?, view.node_number(&GHZ, row).ok()?);
        let alike = load >= view.limit("busy") && (load - busy).abs() <= view.limit("apart");
        alike.then_some((NodeId(row.raw.id), ghz, load))
    });
    clocks.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
}

/// Whether one process makes most of a node's time in the last interval.
fn is_of_one(view: &View<'_>, node: NodeId) -> bool {
    let ran = |task: &crate::snapshot::Task| task.delta.run_ns.get(node.index()).copied().unwrap_or(0);
    let all =
        view.snapshot.nodes.iter().find(|row| row.raw.id == node.0).map_or(0, |row| row.on_cpus.busy_ns);
    let most = view.candidates().map(ran).max().unwrap_or(0);
    most as f64 * 100.0 >= all as f64 * ONE_PROCESS_PCT
}

/// The two nodes, their clocks in GHz, and the busy share of the slow one in percent.
struct Facts {
    /// The slower node.
    node: NodeId,
    /// The faster node.
    other: NodeId,
    /// Clock of the slower node, GHz.
    slow: f64,
    /// Clock of the faster node, GHz.
    fast: f64,
    /// Busy share of the slower node, percent.
    busy: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(row) = of else { return Err(Unmet::Quiet) };
    let node = NodeId(row.raw.id);
    if row.cpus == 0 || view.topology().nodes.len() < 2 {
        return Err(Unmet::Quiet);
    }
    let busy = need(view.node_number(&CPU_PCT, row))?;
    // Each kind of cores has a separate event for cycles.
    if busy < view.limit("busy") || view.snapshot.host.slots(Role::Cycles).count() > 1 {
        return Err(Unmet::Quiet);
    }
    let ghz = need(view.node_number(&GHZ, row))?;
    let Some((other, fast, load)) = fastest(view, node, busy) else { return Err(Unmet::Quiet) };
    if ghz * 100.0 > fast * view.limit("clock") || is_of_one(view, node) {
        return Err(Unmet::Quiet);
    }
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(GHZ.id, of.subject(), ghz)
                .limit(fast * view.limit("clock") / 100.0)
                .note(Note::AtMost),
            view.evidence(GHZ.id, Subject::Node(other), fast).note(Note::Compare),
            view.evidence(CPU_PCT.id, of.subject(), busy).limit(view.limit("busy")),
            view.evidence(CPU_PCT.id, Subject::Node(other), load).limit(view.limit("busy")),
        ],
        facts: Facts { node, other, slow: ghz, fast, busy },
    })
}

fn advise(_: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, other, slow, fast, busy } = seen.facts;
    Advice {
        sentence: sentence(format!(
            "CPUs of node {node} run at {slow:.2} GHz, those of node {other} at {fast:.2} GHz, although node \
             {node} is {} busy.",
            pct(busy)
        )),
        or_else: vec![
            "With a cooling problem or a power limit, core_throttle_count in thermal_throttle of the slow \
             CPUs rises. With a different governor, scaling_governor in cpufreq differs between the CPUs of \
             the two nodes. Vector instructions of several processes also lower the clock."
                .to_owned(),
        ],
        ..Advice::default()
    }
}
