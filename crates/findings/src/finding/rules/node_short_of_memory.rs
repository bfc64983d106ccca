//! A node has no memory left, and tasks free pages themselves before they get any.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, number, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Command, Confidence, Note, Severity, Subject, SubjectKind, env};
use crate::metric::node::{DIRECT_RECLAIM_PAGES_PER_S, KSWAPD_PAGES_PER_S, WATERMARK_DISTANCE_PCT};
use crate::model::units::NodeId;
use crate::snapshot::Node;

/// Share of the time in which all tasks wait for memory, from which on work may stop, in percent: oomd acts at 60 (S11).
pub(super) const FULL_PCT: f64 = 10.0;

/// Page cache of a node from which on reclaim finds something to drop, in percent of the node.
pub(super) const CACHE_PCT: f64 = 5.0;

/// Pages that are written to swap in a second: 1 MiB, which no healthy machine does all the time.
const SWAPPED_PER_S: f64 = 256.0;

/// Distance to the low watermark up to which a node that its kswapd cleans up has no memory left. kswapd
/// works from the low watermark to the high one, a thousandth of the node or a quarter of `min` above it;
/// pages being written then are freed later. It works in bursts. A guest that swapped 1,500 pages a second
/// freed none in a fourth of the seconds, and its node of 512 MiB was at -0.2 to 3.1 in nine of ten of them.
/// 0.4 of that belongs to its first zone, which programs do not get. On a large node it is a tenth of a
/// percent, unless `vm.watermark_scale_factor` is larger.
pub(super) const WATERMARK: Limit = Limit::until(
    "watermark",
    3.0,
    5.0,
    "[S8]: at the low watermark, memory comes from another node; measured: kswapd keeps a swapping node 0 to 3 % \
     above the watermark",
);

/// Pages that kswapd frees in a second, from which on it works for more than a moment.
pub(super) const KSWAPD: Limit =
    Limit::least("kswapd", 256.0, "[S8]: kswapd wakes below the low watermark; estimate: 1 MiB/s of pages")
        .counted_in("pages/s");

pub(super) static RULE: Rule = Rule {
    id: "node-short-of-memory",
    title: "A node is short of memory",
    about: "A node is at its low watermark and tasks reclaim its pages directly, while other nodes have room.",
    not_when: &[
        ("limit", "a container at its memory limit explains the reclaim"),
        ("full-everywhere", "no node has free memory (only a note, because placement cannot help)"),
        ("burst", "the shortage lasts only seconds"),
        ("memory-only", "the node has no CPUs: rarely used pages go there until it is full"),
        (
            "streaming",
            "only page cache is reclaimed on the node: 5 % of the node or more is page cache, nothing is swapped, \
             and no task waits",
        ),
    ],
    of: &[SubjectKind::Node],
    group: Group::NodeMemory,
    gravest: Severity::Critical,
    needs: &[WATERMARK_DISTANCE_PCT.id, DIRECT_RECLAIM_PAGES_PER_S.id, KSWAPD_PAGES_PER_S.id],
    hold: Hold::in_bursts(20.0),
    limits: &[
        Limit::least(
            "reclaim",
            256.0,
            "estimate: 1 MiB/s of pages; no healthy machine reclaims that much all the time",
        )
        .counted_in("pages/s"),
        WATERMARK,
        KSWAPD,
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The distance of a node to its low watermark in percent, if it has no memory left: it is below, or it is
/// near and kswapd frees pages. kswapd is usually quick enough, so that few looks find less than the
/// watermark. A node that has room for others is excluded: fragmentation makes kswapd work there, too.
///
/// # Errors
/// One of both is not known.
pub(super) fn distance_if_short(view: &View<'_>, node: &Node) -> Result<Option<f64>, Unmet> {
    let distance = need(view.node_number(&WATERMARK_DISTANCE_PCT, node))?;
    if distance <= 0.0 {
        return Ok(Some(distance));
    }
    if distance > view.limit("watermark") || view.has_room(&node.raw) {
        return Ok(None);
    }
    let freed = need(view.node_number(&KSWAPD_PAGES_PER_S, node))?;
    Ok((freed >= view.limit("kswapd")).then_some(distance))
}

/// Whether a node at this distance certainly has nothing left. Above its low watermark kswapd may only turn
/// over page cache, and the machine may swap for another reason.
pub(super) fn is_certain(distance: f64, node: &Node) -> bool {
    distance <= 0.0 || cache_share(node).is_some_and(|share| share < CACHE_PCT)
}

/// Page cache of a node without tmpfs, in percent of the node; `None` where the kinds of its pages of files are not known.
pub(super) fn cache_share(node: &Node) -> Option<f64> {
    let pages = node.raw.file_pages?;
    let cache = pages.active_bytes as f64 + pages.inactive_bytes as f64;
    Some(cache * 100.0 / node.raw.mem_total_bytes.max(1) as f64)
}

/// The severity of a node without memory that makes the machine swap or wait: critical. It is lower if
/// something else may be the reason: limits of containers are unknown, or the node may have memory left.
pub(super) fn severity(is_certain: bool, limit: Option<bool>) -> Severity {
    match limit {
        _ if !is_certain => Severity::Info,
        None => Severity::Warning,
        Some(_) => Severity::Critical,
    }
}

/// Whether a container at its memory limit explains the reclaim or the swapping of the machine. It is at 95 %
/// of its limit, and has just met it or has half of the major faults. Or it has just met memory.high, and has
/// half of the major faults. `None`: files of containers, or of one with half of the major faults, were not
/// read.
pub(super) fn explained_by_limit(view: &View<'_>) -> Option<bool> {
    use crate::model::counters::Counter;
    let faults = view.snapshot.tasks.iter().map(|task| task.delta[Counter::MajFlt]);
    let all = faults.fold(0u64, u64::saturating_add);
    let mut known = view.snapshot.containers.is_empty();
    let mut suspect = false;
    for row in &view.snapshot.containers {
        let most = all > 0 && row.sum.delta[Counter::MajFlt].saturating_mul(2) >= all;
        let limits = row.raw.as_deref().map(|raw| (&raw.mem_limit_bytes, &raw.mem_bytes));
        let Some((Ok(limit), Ok(used))) = limits else {
            // The root has no limit, and no files of one.
            suspect |= most && row.group.as_ref().is_none_or(|group| group.parent.is_some());
            continue;
        };
        known = true;
        let full = limit.is_some_and(|limit| *used as f64 >= limit as f64 * 0.95);
        let hits = row.raw_delta().and_then(|delta| delta.memory_max_events.as_ref().ok()).copied();
        let hit = hits.is_some_and(|hits| hits > 0);
        // At memory.high it is not full.
        if full && (hit || most) || hit && most {
            return Some(true);
        }
    }
    (known && !suspect).then_some(false)
}

/// Whether files that are read one after the other explain the reclaim: the node has page cache to give,
/// nothing is swapped, and no time is lost by waiting for memory. `None`: the kinds of its pages of files, or
/// swapped pages, are unknown.
fn turns_over_cache(view: &View<'_>, node: &Node) -> Option<bool> {
    let holds = cache_share(node)? >= CACHE_PCT;
    let swapped = view.window.rate(view.window.counts.swapped?.pages_out).ok()?;
    Some(holds && swapped < SWAPPED_PER_S && pressure_full_pct(view).is_none_or(|pct| pct < FULL_PCT))
}

/// Share of the window in which all tasks waited for memory, in percent.
pub(super) fn pressure_full_pct(view: &View<'_>) -> Option<f64> {
    let pressure = view.window.counts.pressure?;
    let length_us = view.over_ns() as f64 / 1e3;
    (length_us > 0.0).then(|| pressure.memory_full_us as f64 * 100.0 / length_us)
}

/// The node, and room elsewhere.
struct Facts {
    /// The node without free memory.
    node: NodeId,
    /// Pages that tasks reclaim themselves per second.
    rate: f64,
    /// The node with most free memory, and its bytes.
    elsewhere: Option<(NodeId, f64)>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(node) = of else { return Err(Unmet::Quiet) };
    if node.raw.mem_total_bytes == 0 {
        return Err(Unmet::Quiet);
    }
    let rate = need(view.node_number(&DIRECT_RECLAIM_PAGES_PER_S, node))?;
    if rate < view.limit("reclaim") {
        return Err(Unmet::Quiet);
    }
    let id = NodeId(node.raw.id);
    if !view.whole_nodes().contains(&id) {
        return Err(Unmet::Quiet);
    }
    let Some(distance) = distance_if_short(view, node)? else { return Err(Unmet::Quiet) };
    let limit = explained_by_limit(view);
    if limit == Some(true) {
        return Err(Unmet::Quiet);
    }
    let elsewhere = view.roomiest(|other| other != id);
    let streaming = turns_over_cache(view, node);
    if streaming == Some(true) && elsewhere.is_some() {
        return Err(Unmet::Quiet);
    }
    let full = pressure_full_pct(view).filter(|pct| *pct >= FULL_PCT);
    let severity = match (elsewhere.is_some(), full) {
        // Nothing can be done about it by placement.
        (false, _) => Severity::Info,
        (true, Some(_)) => Severity::Critical,
        (true, None) => Severity::Warning,
    };
    let unknown = limit.is_none() || streaming.is_none() || !is_certain(distance, node);
    let severity = if unknown { Severity::Info } else { severity };
    let mut evidence = vec![
        view.evidence(DIRECT_RECLAIM_PAGES_PER_S.id, of.subject(), rate).limit(view.limit("reclaim")),
        view.evidence(WATERMARK_DISTANCE_PCT.id, of.subject(), distance)
            .limit(view.limit("watermark"))
            .note(Note::AtMost),
    ];
    if let Some((roomy, free)) = elsewhere {
        let free = view.evidence("mem_free_bytes", Subject::Node(roomy), free).limit(view.enough_free());
        evidence.push(free.note(Note::FreeElsewhere));
    }
    Ok(Seen {
        severity,
        confidence: Confidence::Measured,
        evidence,
        facts: Facts { node: id, rate, elsewhere },
    })
}

/// Moves the memory of the process with the most memory on a node that it runs on least, if it fits on `to`;
/// and the way back.
pub(super) fn move_largest(view: &View<'_>, node: NodeId, to: NodeId) -> Option<[Command; 2]> {
    let room = super::super::fit::memory_room(view, &[to]);
    let mut best: Option<(f64, u32)> = None;
    for task in view.candidates() {
        let of = SubjectRef::Process(task);
        let Ok(placed) = super::super::guards::placed(view, &of) else { continue };
        let policy = task.raw.mempolicy;
        let bound =
            task.mem_nodes.is_none_or(|mask| to.0 >= 64 || mask >> to.0 & 1 == 0) || !policy.is_default();
        let held = placed.memory() * placed.memory_pct(&[node]) / 100.0;
        // One that runs there most of its time would be slower.
        if bound || held > room || placed.run_pct(&[node]) >= 50.0 || held < (64u64 << 20) as f64 {
            continue;
        }
        if best.is_none_or(|(most, _)| held > most) {
            best = Some((held, task.raw.pid));
        }
    }
    let (held, pid) = best?;
    let words = format!("moves {}; node {to} has room for {}", bytes(held), bytes(room));
    let back = env::move_memory(
        pid,
        &[to],
        &[node],
        "moves back all of its memory on that node, including any that was there before",
    )?;
    Some([env::move_memory(pid, &[node], &[to], words)?, back])
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, rate, elsewhere } = seen.facts;
    let begin =
        format!("Node {node} is short of memory: tasks reclaim {} pages a second directly.", number(rate));
    let text = match elsewhere {
        Some((to, free)) => format!("{begin} {} are available on node {to}.", bytes(free)),
        None => format!("{begin} No other node has room."),
    };
    let moved = elsewhere.and_then(|(to, _)| move_largest(view, node, to));
    let (commands, undo): (Vec<Command>, Vec<Command>) =
        moved.into_iter().map(|[go, back]| (go, back)).unzip();
    Advice {
        sentence: sentence(text),
        risk: if commands.is_empty() {
            String::new()
        } else {
            "The moved memory becomes remote for tasks that stay \
                                                               on the node."
                .into()
        },
        commands,
        undo,
        check: vec![Check {
            metric: DIRECT_RECLAIM_PAGES_PER_S.id,
            of: of.subject(),
            from: rate,
            to: 0.0,
            below: true,
            within_s: 30.0,
        }],
        or_else: vec![
            "The cause can be a memory limit (mem_limit_bytes of containers), or huge pages. The kernel \
             allocates those on the local node first, which keeps kcompactd busy."
                .to_owned(),
        ],
        ..Advice::default()
    }
}
