//! Pages of hugetlbfs of a process are on another node, because the pool of the node where it runs is too small.

use super::super::command::{Command, Scope, When, line};
use super::super::fit::memory_room;
use super::super::guards::{self, OWN_POLICY_MAX};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, comm, nodes, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use super::remote_after_pin::gain_of_memory;
use super::waiting;
use crate::metric::placement::{HUGETLB_BYTES, MEM_PCT_BY_NODE, REMOTE_PCT};
use crate::model::sample::{HugeNode, HugePages};
use crate::model::units::NodeId;
use crate::snapshot::Task;

pub(super) static RULE: Rule = Rule {
    id: "hugetlb-on-other-node",
    title: "Huge pages of another node's pool",
    about: "The hugetlb pool of the node where a process runs is used up, and 20 % of its memory comes from \
            pools of other nodes. The finding is a warning if the gain is large enough.",
    not_when: &[
        ("thp", "the process has no huge pages, or only transparent ones"),
        ("policy", "its policy, or that of 20 % of its memory, interleaves memory or names nodes"),
        ("pool-even", "the pools are equal on all nodes, and the process runs on all of them"),
        ("pool-has-room", "the pool of its node has free pages, or holds as many pages as the process uses"),
        ("mems-elsewhere", "the process cannot use memory of the node where it runs"),
        ("small-pages", "its memory on other nodes is in small pages"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id, HUGETLB_BYTES.id],
    hold: Hold::s(30.0),
    limits: &[
        Limit::least("outside", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::sharp("home", 50.0, "by definition: mostly means half of its time"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Points around an even share within which pools count as even on purpose.
const EVEN_POINTS: f64 = 10.0;

/// The least share of its time on a node that counts as running there, in percent.
const RUNS_PCT: f64 = 5.0;

/// Where its memory is and should be.
struct Facts {
    /// The node that it runs on.
    home: NodeId,
    /// Other nodes with its huge pages.
    from: Vec<NodeId>,
    /// Bytes that move.
    bytes: f64,
    /// Size of these pages, bytes.
    page_bytes: u64,
    /// Share of its memory on other nodes, percent.
    outside: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let placed = guards::placed(view, of)?;
    let whole = view.whole_nodes();
    let Some(home) = placed.home().filter(|home| whole.contains(home)) else { return Err(Unmet::Quiet) };
    let outside = 100.0 - placed.memory_pct(&[home]);
    if outside < view.limit("outside")
        || placed.run_pct(&[home]) < view.limit("home")
        || !guards::is_large(view, &placed)
        || !task.raw.mempolicy.is_default()
    {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if home.0 >= 64 || mems >> home.0 & 1 == 0 {
        return Err(Unmet::Quiet);
    }
    let known = match task.policies() {
        Some((_, Ok(known))) => known,
        Some((_, Err(missing))) => return Err(Unmet::Blind(missing.clone().into())),
        None => return Err(waiting::unknown("the huge pages of its mappings have not been read yet")),
    };
    let own = known.own_bytes as f64 * 100.0 / known.all_bytes.max(1) as f64;
    let short = known.huge.iter().filter(|pages| is_short(pages, home)).max_by_key(|pages| away(pages, home));
    let Some(pages) = short.filter(|_| own < OWN_POLICY_MAX) else { return Err(Unmet::Quiet) };
    let runs_on = |node: &NodeId| placed.run_pct(&[*node]) >= RUNS_PCT;
    if is_even(pages, &whole) && whole.iter().all(runs_on) {
        return Err(Unmet::Quiet);
    }
    let moves = away(pages, home) as f64;
    if moves * 100.0 < placed.memory() * view.limit("outside") {
        return Err(Unmet::Quiet);
    }
    let witness = guards::witness(view, of, &placed);
    let sure = outside - placed.error >= view.limit("outside") && witness.is_some();
    let from: Vec<NodeId> = pages
        .by_node
        .iter()
        .filter(|(id, node)| **id != home.0 && node.used > 0)
        .map(|(id, _)| NodeId(*id))
        .collect();
    let pool = pool_of(pages, home);
    let is_worth = !gain_of_memory(view, of, &placed, &[home]).is_too_small(view.over);
    let subject = of.subject();
    Ok(Seen {
        severity: if is_worth { Severity::Warning } else { Severity::Info },
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence: [
            view.evidence(MEM_PCT_BY_NODE.id, subject.clone(), outside)
                .error(placed.error)
                .limit(view.limit("outside"))
                .note(Note::Placement)
                .on(placed.most(&from).unwrap_or(from[0]))
                .over_nodes(&from),
            view.evidence(HUGETLB_BYTES.id, subject, pages.bytes() as f64)
                .limit(pool.total.saturating_mul(pages.page_bytes) as f64)
                .on(home),
        ]
        .into_iter()
        .chain(witness)
        .collect(),
        facts: Facts { home, from, bytes: moves, page_bytes: pages.page_bytes, outside },
    })
}

/// The pool of a node.
fn pool_of(pages: &HugePages, node: NodeId) -> HugeNode {
    pages.by_node.get(&node.0).copied().unwrap_or_default()
}

/// Pages of the process on other nodes than this one, bytes.
fn away(pages: &HugePages, home: NodeId) -> u64 {
    let used = pages.by_node.iter().filter(|(id, _)| **id != home.0).map(|(_, node)| node.used);
    used.fold(0u64, u64::saturating_add).saturating_mul(pages.page_bytes)
}

/// Whether the pool of the node is used up and has fewer pages than the process, so that other pools supplied
/// some.
fn is_short(pages: &HugePages, home: NodeId) -> bool {
    let pool = pool_of(pages, home);
    let used = pages.by_node.values().fold(0u64, |sum, node| sum.saturating_add(node.used));
    pool.free == 0 && pool.total < used && away(pages, home) > 0
}

/// Whether each of these nodes has about the same number of pages in its pool.
fn is_even(pages: &HugePages, whole: &[NodeId]) -> bool {
    let sizes: Vec<f64> = whole.iter().map(|node| pool_of(pages, *node).total as f64).collect();
    let all: f64 = sizes.iter().sum();
    let even = 100.0 / whole.len().max(1) as f64;
    all > 0.0 && sizes.iter().all(|size| (size * 100.0 / all - even).abs() <= EVEN_POINTS)
}

/// The pages of this size.
fn pages_of(task: &Task, page_bytes: u64) -> Option<&HugePages> {
    let (_, known) = task.policies()?;
    known.as_ref().ok()?.huge.iter().find(|pages| pages.page_bytes == page_bytes)
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { home, from, page_bytes, outside, .. } = &seen.facts;
    let (home, outside) = (*home, *outside);
    let Some(pages) = pages_of(task, *page_bytes) else { return Advice::default() };
    let remote = view.number(&REMOTE_PCT, of).ok();
    let kib = pages.page_bytes / 1024;
    let set = |node: NodeId, count: u64| line("echo").number(count).into_pool(node, kib);
    let there = |node: &NodeId| pool_of(pages, *node);
    let more = from.iter().fold(0u64, |sum, node| sum.saturating_add(there(node).used));
    let wanted = there(&home).total.saturating_add(more);
    let left = |node: &NodeId| there(node).total.saturating_sub(there(node).used);
    let room = memory_room(view, &[home]);
    let (mut commands, mut undo) = (Vec::new(), Vec::new());
    if seen.facts.bytes <= room {
        let words = format!(
            "between stop and restart of the program: {} more on node {home}, where {} are free",
            bytes(seen.facts.bytes),
            bytes(room)
        );
        commands.push(Command::new(When::NextStart, Scope::Host, set(home, wanted), words));
        let back = |node: &NodeId| {
            let words = format!("frees the huge pages of node {node}");
            Command::new(When::NextStart, Scope::Host, set(*node, left(node)), words)
        };
        commands.extend(from.iter().map(back));
        let again = |node: &NodeId| {
            Command::new(
                When::Now,
                Scope::Host,
                set(*node, there(node).total),
                "restores the present pool size",
            )
        };
        undo.extend([home].iter().chain(from).map(again));
    } else {
        let words = format!(
            "node {home} has {} free and needs {}: first stop a program there or drop its page cache",
            bytes(room),
            bytes(seen.facts.bytes)
        );
        commands.push(Command::words(When::NextStart, Scope::Host, words));
    }
    let mut sizes = vec![format!("{home}:{wanted}")];
    sizes.extend(from.iter().map(|node| format!("{node}:{}", left(node))));
    let sizes = sizes.join(",");
    commands.push(Command::words(
        When::ForGood,
        Scope::Host,
        format!(
            "hugepagesz={} hugepages={sizes} on the kernel's command line (Linux 5.16 or later)",
            short_size(kib)
        ),
    ));
    Advice {
        sentence: sentence(format!(
            "{} runs on node {home}, whose pool of huge pages is used up; {} of the process memory is in \
             huge pages of {}.",
            comm(task.raw.comm),
            pct_with_error(outside, placed.error),
            nodes(from)
        )),
        gain: gain_of_memory(view, of, &placed, &[home]),
        commands,
        undo,
        // With all of its memory there, as much is remote as it runs elsewhere.
        check: super::remote_falls(
            of.subject(),
            remote,
            100.0 - placed.run_pct(&[home]) + (2.0 * placed.error).max(5.0),
        ),
        stop: super::watermark_stop(view, &Subject::Node(home)),
        risk: format!(
            "This affects the whole machine: node {home} moves pages away to form huge ones. The kernel can \
             allocate fewer than requested: read the number back."
        ),
        or_else: vec![format!(
            "If the program starts before the pools are filled, free_hugepages of node {home} is above 0 soon \
             after its start (now 0): start the program later."
        )],
    }
}

/// A size in the form of the kernel's command line: `2M`, `1G`.
fn short_size(kib: u64) -> String {
    match kib {
        _ if kib >= 1 << 20 && kib.is_multiple_of(1 << 20) => format!("{}G", kib >> 20),
        _ if kib >= 1 << 10 && kib.is_multiple_of(1 << 10) => format!("{}M", kib >> 10),
        _ => format!("{kib}K"),
    }
}
