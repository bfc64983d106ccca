//! A kernel thread that frees or compacts memory of a node is busy.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, pct, sentence};
use super::super::view::{SubjectRef, View, process};
use super::super::{Advice, Confidence, Evidence, Note, Severity, Subject, SubjectKind};
use super::waiting;
use crate::metric::node::{KSWAPD_PAGES_PER_S, MEM_FILE_BYTES};
use crate::metric::task::CPU_PCT;
use crate::model::units::NodeId;
use crate::snapshot::Task;

/// Share of a node's memory that is page cache, from which on files are the likely reason, in percent.
const FILES_PCT: f64 = 50.0;

pub(super) static RULE: Rule = Rule {
    id: "reclaim-threads-busy",
    title: "Kernel threads free or compact memory",
    about: "kswapd or kcompactd of a node takes at least a quarter of a CPU.",
    not_when: &[("explained", "another finding explains the work: this finding is listed under that one")],
    of: &[SubjectKind::Node],
    group: Group::NodeMemory,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::s(60.0),
    limits: &[Limit::least("busy", 25.0, "estimate: a quarter of a CPU, the least time worth a finding")],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The busiest of the node's two threads in the last interval, with its CPU time in percent.
fn busiest<'a>(view: &View<'a>, node: NodeId) -> Option<(f64, &'a Task)> {
    let now = waiting::now(view);
    let busy = view
        .reclaimers(node)
        .filter_map(|task| Some((now.number(&CPU_PCT, &SubjectRef::Process(task)).ok()?, task)));
    busy.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.raw.pid.cmp(&a.1.raw.pid)))
}

/// The thread, and what the node holds.
struct Facts {
    /// The node.
    node: NodeId,
    /// CPU time of the thread, percent of a CPU.
    busy: f64,
    /// Share of the node's memory in page cache, percent.
    share: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(row) = of else { return Err(Unmet::Quiet) };
    if row.raw.mem_total_bytes == 0 {
        return Err(Unmet::Quiet);
    }
    if !view.rows.kernel_threads(view.snapshot).in_scope {
        return Err(waiting::unknown("kernel threads are not in scope"));
    }
    let node = NodeId(row.raw.id);
    let Some((pct, task)) = busiest(view, node) else { return Err(Unmet::Quiet) };
    if pct < view.limit("busy") {
        return Err(Unmet::Quiet);
    }
    let over_ns = waiting::now(view).over_ns();
    let mut evidence = vec![Evidence {
        over_ns,
        ..view.evidence(CPU_PCT.id, process(&task.raw), pct).limit(view.limit("busy")).note(Note::Measured)
    }];
    if let Ok(rate) = view.node_number(&KSWAPD_PAGES_PER_S, row) {
        evidence.push(view.evidence(KSWAPD_PAGES_PER_S.id, of.subject(), rate));
    }
    let files = row.raw.mem_file_bytes as f64;
    evidence.push(view.evidence(MEM_FILE_BYTES.id, Subject::Node(node), files));
    let share = files * 100.0 / row.raw.mem_total_bytes as f64;
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence,
        facts: Facts { node, busy: pct, share },
    })
}

fn advise(view: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, busy, share } = seen.facts;
    let Some((_, task)) = busiest(view, node) else { return Advice::default() };
    let name = comm(task.raw.comm);
    let why = if name.starts_with("kcompactd") {
        format!("pages of node {node} are moved to make room for large pages.")
    } else if share >= FILES_PCT {
        format!(
            "it reclaims pages of node {node}, most likely because files are read ({} of the node's memory is page cache).",
            pct(share)
        )
    } else {
        format!("it reclaims pages of node {node}.")
    };
    Advice {
        sentence: sentence(format!("{name} takes {} of a CPU: {why}", pct(busy))),
        or_else: vec![
            "If a program streams files, this is normal: major_faults_per_s and memory pressure are near 0. If a \
             program grows, mem_anon_bytes of the node grows."
                .to_owned(),
        ],
        ..Advice::default()
    }
}
