//! Page cache fills the node of a process, so that its memory goes to others.

use super::super::cache_owner::{self, Owners};
use super::super::command::line;
use super::super::guards;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, nodes, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, input, need};
use super::super::{
    Advice, Check, Command, Confidence, Note, Scope, Severity, Subject, SubjectKind, When, env,
};
use super::remote_after_pin::{gain_of_memory, goes_out};
use crate::metric::container::CACHE_BYTES_BY_NODE;
use crate::metric::node::WATERMARK_DISTANCE_PCT;
use crate::metric::placement::MEM_PCT_BY_NODE;
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "page-cache-fills-node",
    title: "Page cache fills its node",
    about: "Page cache fills the node where a process runs. As a result, 20 % of its memory is on other \
            nodes, or new memory is allocated there.",
    not_when: &[
        ("shm", "the file pages are shared memory or tmpfs, which cannot be dropped"),
        ("dirty", "half or more of the file pages are dirty and must be written back first"),
        ("full", "the node has too few file pages to make room for the memory of the process"),
        ("interleave", "its policy interleaves memory or names another node"),
        ("cold", "nothing uses its memory on other nodes"),
        ("mems-elsewhere", "the process cannot use memory of the node where it runs"),
    ],
    of: &[SubjectKind::Process],
    group: Group::NodeMemory,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id, WATERMARK_DISTANCE_PCT.id],
    hold: Hold::s(30.0),
    limits: &[
        Limit::least("outside", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::sharp("home", 95.0, "estimate: all of its time, except short moves by the scheduler"),
        Limit::until("watermark", 2.0, 3.0, "[S8]; estimate: one burst of allocations takes that much"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The part of the node that is freed beyond the memory that then comes, and the part of this that is
/// observed to stay free. Reclaim of a group takes more than their share from other nodes, and others read
/// files meanwhile.
const BEYOND: f64 = 0.075;
const CHECKED: f64 = 0.4;

/// The part of the page cache that is asked for at most.
const CACHE_MOST: f64 = 0.9;

/// Where its memory is and should be, and the cache there.
struct Facts {
    /// The node that it runs on.
    home: NodeId,
    /// Nodes where its memory is now.
    from: Vec<NodeId>,
    /// Bytes that move.
    bytes: f64,
    /// Page cache of its node, bytes.
    cache: f64,
    /// Share of its memory on other nodes, percent.
    outside: f64,
    /// Distance of its node to the low watermark, percent.
    distance: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    if view.topology().nodes.len() < 2 {
        return Err(Unmet::Quiet);
    }
    // Cheap checks first: most nodes have room, and the node of an idle process is that of all of its threads
    // since the start.
    let levels = view.levels();
    if levels.all_known && levels.watermark_pct > view.limit("watermark") {
        return Err(Unmet::Quiet);
    }
    let Some(home) = task.home_node() else { return Err(Unmet::Quiet) };
    let Some(node) = view.node(home) else { return Err(Unmet::Quiet) };
    let distance = need(view.node_number(&WATERMARK_DISTANCE_PCT, node))?;
    if distance > view.limit("watermark") {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    let outside = 100.0 - placed.memory_pct(&[home]);
    let new = goes_out(view, of) == Some(true);
    if placed.run_pct(&[home]) < view.limit("home")
        || outside < view.limit("outside") && !new
        || !guards::is_large(view, &placed)
    {
        return Err(Unmet::Quiet);
    }
    let policy = task.raw.mempolicy;
    if guards::is_interleaved(policy) || guards::names_others(policy, &[home]) {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if home.0 >= 64 || mems >> home.0 & 1 == 0 {
        return Err(Unmet::Quiet);
    }
    if guards::is_moving(view, of, &placed) {
        return Err(Unmet::Quiet);
    }
    if guards::is_cold(view, of, &placed) {
        return Err(guards::cold());
    }
    let away = placed.outside(&[home]);
    let (cache, known) = match node.raw.file_pages {
        Some(pages)
            if pages.dirty_bytes as f64 * 2.0 >= pages.active_bytes as f64 + pages.inactive_bytes as f64 =>
        {
            return Err(Unmet::Quiet);
        }
        Some(pages) => (pages.inactive_bytes as f64, true),
        // Shared memory is among them: one level lower.
        None => (node.raw.mem_file_bytes as f64, false),
    };
    if cache < away {
        return Err(Unmet::Quiet);
    }
    let own = guards::is_own_memory(of) == Some(true);
    let sure = outside - placed.error >= view.limit("outside") || new;
    let whole = view.whole_nodes();
    let from: Vec<NodeId> = placed.sources(&[home]).into_iter().filter(|node| whole.contains(node)).collect();
    if from.is_empty() {
        return Err(Unmet::Quiet);
    }
    let mut evidence = vec![
        view.evidence(MEM_PCT_BY_NODE.id, of.subject(), outside)
            .error(placed.error)
            .limit(view.limit("outside"))
            .note(Note::Placement)
            .on(placed.most(&from).unwrap_or(from[0]))
            .over_nodes(&from),
        view.evidence(WATERMARK_DISTANCE_PCT.id, Subject::Node(home), distance)
            .limit(view.limit("watermark"))
            .note(Note::AtMost),
        view.evidence("mem_file_bytes", Subject::Node(home), cache).limit(away).note(Note::Room),
    ];
    let owners = Owners::of(view, &node.raw);
    let main = owners.and_then(|owners| owners.main());
    evidence.extend(main.map(|owner| {
        view.evidence(CACHE_BYTES_BY_NODE.id, Subject::Container(owner.row.id), owner.bytes).on(home)
    }));
    Ok(Seen {
        severity: if known && own { Severity::Warning } else { Severity::Info },
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence,
        facts: Facts { home, from, bytes: away, cache, outside, distance },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { home, from, cache, outside, distance, .. } = &seen.facts;
    let (home, outside, distance) = (*home, *outside, *distance);
    let managed = view.node(home).map_or(0.0, |node| node.raw.managed_bytes as f64);
    // Incoming memory takes as much of the freed memory.
    let beyond = (managed * BEYOND).min(cache * CACHE_MOST - seen.facts.bytes).max(0.0);
    let mib = ((seen.facts.bytes + beyond) / (1u64 << 20) as f64).ceil() as u64;
    // Where memory without CPUs exists, reclaim of a node would demote there.
    let tiered = view.topology().nodes.iter().any(|node| view.topology().is_tier(node));
    let by_node =
        view.snapshot.host.node_reclaim_file == Some(true) && !tiered && view.topology().nodes.len() <= 64;
    let owners = view.node(home).and_then(|node| Owners::of(view, &node.raw));
    let main = owners.as_ref().and_then(Owners::main);
    let of_owner = main.filter(|_| !tiered).and_then(|owner| cache_owner::reclaim(view, owner, home, mib));
    let (empty, risk) = match of_owner {
        Some(command) => {
            (command, "Files that this cgroup has cached must be read from disk again.".to_owned())
        }
        None if by_node => (
            reclaim_node(home, mib),
            format!(
                "Files that are cached on node {home} must be read from disk \
                                               again."
            ),
        ),
        None => {
            let words = line("echo 1 > /proc/sys/vm/drop_caches");
            let risk = "This affects the whole machine: every file must be read from disk again, and disks \
                        are busy for minutes. Do not run it at peak time.";
            let drop = Command::new(When::Now, Scope::Host, words, "drops the page cache of all nodes");
            (drop, risk.to_owned())
        }
    };
    let mut commands = vec![empty];
    let words = format!("run right after the command above: moves its memory to node {home}");
    commands.extend(env::move_memory(task.raw.pid, from, &[home], words));
    let back = "moves all of its memory to the other nodes; the page cache fills again by itself";
    let undo = env::move_memory(task.raw.pid, &[home], from, back);
    let start = format!("start the program with numactl --preferred={home} after the page cache was dropped");
    let start = match main {
        Some(owner) => {
            commands.push(cache_owner::limit(view, owner, seen.facts.bytes));
            format!("or {start}")
        }
        None => format!("set a soft limit (memory.high) for the cgroup that fills the cache; or {start}"),
    };
    commands.push(Command::words(When::ForGood, Scope::Host, start));
    let whose = owners.map_or_else(String::new, |owners| owners.words());
    Advice {
        sentence: sentence(format!(
            "Node {home} is full of page cache{whose}, so {} of {}'s memory is on {}.",
            pct_with_error(outside, placed.error),
            comm(task.raw.comm),
            nodes(from)
        )),
        gain: gain_of_memory(view, of, &placed, &[home]),
        commands,
        undo: undo.into_iter().collect(),
        check: vec![Check {
            metric: WATERMARK_DISTANCE_PCT.id,
            of: Subject::Node(home),
            from: distance,
            to: distance.max(0.0) + CHECKED * 100.0 * beyond / managed.max(1.0),
            below: false,
            within_s: 60.0,
        }],
        stop: Vec::new(),
        risk,
        or_else: vec![format!(
            "If the page cache is the working set of the process, major_faults_per_s ({} now) rises after \
             the drop, and the process needs a larger node.",
            view.number(&crate::metric::task::MAJOR_FAULTS_PER_S, of)
                .map_or_else(|_| "unknown".to_owned(), super::super::text::number)
        )],
    }
}

/// Drops page cache of one node: Linux 6.17 has a file for that (S8).
fn reclaim_node(node: NodeId, mib: u64) -> Command {
    let words = line("echo").amount_of_cache(mib).into_node_file(node, "reclaim");
    Command::new(When::Now, Scope::Host, words, format!("drops page cache of node {node} only"))
}
