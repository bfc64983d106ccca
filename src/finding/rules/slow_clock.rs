//! CPUs of one node run slower than those of another one that is as busy.

use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::{pct, sentence};
use super::super::view::{Of, View, need, settle};
use super::super::{Confidence, Kind, Note, Severity, Subject, Told};
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
            "one process uses four fifths of its busy time: its instructions may lower the clock",
        ),
        ("unlike-load", "the nodes are not both half busy, or more than 15 points apart"),
    ],
    of: &[Kind::Node],
    group: Group::Cpus,
    gravest: Severity::Info,
    needs: &[GHZ.id],
    hold: Hold::s(120.0),
    limits: &[
        Limit::until("clock", 85.0, 90.0, "reasoned: turbo steps of a busy node are smaller than a seventh"),
        Limit::least("busy", 50.0, "reasoned: an idle node may sleep at any clock"),
        Limit::until("apart", 15.0, 20.0, "reasoned: the busier node has the lower turbo clock"),
    ],
    idle_too: true,
    look: |view, of| settle(look(view, of)),
    tell,
};

/// The node with the fastest clock of those that are about as busy, with its clock and its busy share.
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
    let all = view.snapshot.nodes.iter().find(|row| row.raw.id == node.0).map_or(0, |row| row.busy_ns);
    let most = view.candidates().map(ran).max().unwrap_or(0);
    most as f64 * 100.0 >= all as f64 * ONE_PROCESS_PCT
}

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let Of::Node(row) = of else { return Ok(Look::Quiet) };
    let node = NodeId(row.raw.id);
    if row.cpus == 0 || view.topology().nodes.len() < 2 {
        return Ok(Look::Quiet);
    }
    let busy = need(view.node_number(&CPU_PCT, row))?;
    // Each kind of cores has an event of its own for cycles.
    if busy < view.limit("busy") || view.snapshot.host.slots(Role::Cycles).count() > 1 {
        return Ok(Look::Quiet);
    }
    let ghz = need(view.node_number(&GHZ, row))?;
    let Some((other, fast, load)) = fastest(view, node, busy) else { return Ok(Look::Quiet) };
    if ghz * 100.0 > fast * view.limit("clock") || is_of_one(view, node) {
        return Ok(Look::Quiet);
    }
    Ok(Look::seen(Seen {
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
        plan: Plan { from: vec![node], to: vec![other], ..Plan::default() },
    }))
}

fn tell(_: &View<'_>, _: &Of<'_>, seen: &Seen) -> Told {
    let (node, other) = (seen.plan.from[0], seen.plan.to[0]);
    let (slow, fast, busy) = (seen.evidence[0].value, seen.evidence[1].value, seen.evidence[2].value);
    Told {
        sentence: sentence(format!(
            "CPUs of node {node} run at {slow:.2} GHz, those of node {other} at {fast:.2}, although node {node} is {} busy.",
            pct(busy)
        )),
        or_else: vec![
            "Cooling or a power limit: core_throttle_count in thermal_throttle of its CPUs rises then. A governor: scaling_governor in \
             cpufreq of its CPUs is not that of the other node. Vector instructions of several processes lower the clock, too."
                .to_owned(),
        ],
        ..Told::default()
    }
}
