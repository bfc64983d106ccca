//! A process runs on one node, and its memory is on another.

use super::super::fit::memory_room;
use super::super::guards;
use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::{bytes, comm, nodes, pct_with_error, sentence};
use super::super::view::{Of, View, input, settle};
use super::super::{
    Command, Confidence, Evidence, Kind, Note, Scope, Severity, Subject, Told, When, command, env,
};
use super::remote_after_pin::{RISK_OF_MOVE, gain_of_memory};
use crate::metric::balancing::HINT_REMOTE_PCT;
use crate::metric::placement::{MEM_PCT_BY_NODE, REMOTE_BEST_PCT, REMOTE_PCT};
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "memory-on-other-node",
    title: "Its memory is on another node",
    about: "A process without limits of its own runs on one node and has memory on others. A warning where policies of its \
            mappings are known to leave its memory to the kernel; with NUMA balancing on, also where accesses or hinting \
            faults show that it is used.",
    not_when: &[
        ("balancing-repairs", "its placement changes: a repair is under way, by NUMA balancing or by hand"),
        ("cold", "nothing uses that memory"),
        ("no-room", "the memory does not fit on the node where it runs"),
        ("policy", "its policy interleaves memory or names nodes"),
        ("bound", "it may not run on all nodes, or take memory from all"),
        ("two-thirds", "a fifth of its time is on other nodes"),
        ("shared", "a fifth of its memory is shared with others"),
        (
            "own-policies",
            "a fifth of its memory or more is in mappings with a policy of their own, or that is not known: an info",
        ),
        (
            "unused",
            "NUMA balancing is on, and neither accesses nor hinting faults show that it is used: an info",
        ),
    ],
    of: &[Kind::Process],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id],
    // Where balancing is on it repairs what is used: the longer time is for both.
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("remote", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::sharp("home", 80.0, "[S3]: the same share for time"),
    ],
    idle_too: false,
    look: |view, of| settle(look(view, of)),
    tell,
};

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let Of::Process(task) = of else { return Ok(Look::Quiet) };
    let placed = guards::placed(view, of)?;
    let Some(home) = placed.home() else { return Ok(Look::Quiet) };
    let here = [home];
    let outside = 100.0 - placed.memory_pct(&here);
    if placed.run_pct(&here) < view.limit("home")
        || outside < view.limit("remote")
        || !guards::is_large(view, &placed)
    {
        return Ok(Look::Quiet);
    }
    let best = view.number(&REMOTE_BEST_PCT, of).unwrap_or(0.0);
    let remote = view.number(&REMOTE_PCT, of).unwrap_or(outside);
    if remote - best < view.limit("remote") {
        return Ok(Look::Quiet);
    }
    if !guards::is_default(task.raw.mempolicy) {
        return Ok(Look::Excused("policy"));
    }
    let cpus = input(task.cpu_nodes, "the nodes that it may run on are not known")?;
    let mems = input(task.mem_nodes, "the nodes that it may take memory from are not known")?;
    let whole = view.whole_nodes();
    if !whole.iter().all(|node| node.0 < 64 && cpus >> node.0 & mems >> node.0 & 1 == 1)
        || !whole.contains(&home)
    {
        return Ok(Look::Excused("bound"));
    }
    if guards::is_own_memory(view, of) != Some(true) {
        return Ok(Look::Excused("shared"));
    }
    if guards::is_moving(view, of, &placed) {
        return Ok(Look::Excused("balancing-repairs"));
    }
    if guards::is_cold(view, of, &placed) {
        return Ok(guards::cold());
    }
    let away = placed.outside(&here);
    let room = memory_room(view, &here);
    let from: Vec<NodeId> = placed.sources(&here).into_iter().filter(|node| whole.contains(node)).collect();
    if away > room || from.is_empty() {
        return Ok(Look::Excused("no-room"));
    }
    let witness = guards::witness(view, of, &placed);
    let sure = remote - placed.error - best >= view.limit("remote") && witness.is_some();
    let mut evidence = vec![
        view.evidence(MEM_PCT_BY_NODE.id, of.subject(), placed.memory_pct(&from))
            .error(placed.error)
            .limit(view.limit("remote"))
            .note(Note::Placement)
            .on(placed.most(&from).unwrap_or(from[0])),
        view.evidence("run_pct_by_node", of.subject(), placed.run_pct(&here))
            .limit(view.limit("home"))
            .on(home),
        view.evidence("mem_free_bytes", Subject::Node(home), room).limit(away).note(Note::Room),
    ];
    // Balancing repairs what is used: one place where all of it runs is then no witness.
    let balances =
        view.snapshot.machine.and_then(|machine| machine.numa_balancing).is_none_or(|mode| mode & 1 == 1);
    let is_used =
        |witness: &Evidence| matches!(witness.metric, id if id == REMOTE_PCT.id || id == HINT_REMOTE_PCT.id);
    let meant =
        guards::kernel_places(view, of).filter(|_| !balances || witness.as_ref().is_some_and(is_used));
    let severity = if meant.is_some() { Severity::Warning } else { Severity::Info };
    evidence.extend(witness);
    evidence.extend(meant);
    Ok(Look::seen(Seen {
        severity,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence,
        plan: Plan { to: vec![home], from, bytes: away, number: best, ..Plan::default() },
    }))
}

fn tell(view: &View<'_>, of: &Of<'_>, seen: &Seen) -> Told {
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Told::default() };
    let (to, from, share) = (&seen.plan.to, &seen.plan.from, &seen.evidence[0]);
    let words = format!(
        "{} move to {}, where {} may come",
        bytes(seen.plan.bytes),
        nodes(to),
        bytes(memory_room(view, to))
    );
    let mut commands: Vec<Command> = env::move_memory(task.raw.pid, from, to, words).into_iter().collect();
    let start = format!("numactl --cpunodebind={} {}", command::node_list(to), env::preferred(to));
    commands.push(Command::words(When::NextStart, Scope::Process, start));
    let remote = view.number(&REMOTE_PCT, of).unwrap_or(share.value);
    Told {
        sentence: sentence(format!(
            "{} runs on {}, and {} of its memory is on {}.",
            comm(task.raw.comm),
            nodes(to),
            pct_with_error(share.value, share.error),
            nodes(from)
        )),
        gain: gain_of_memory(view, of, &placed, to),
        commands,
        undo: vec![env::move_back(task.raw.pid, &placed, to, from)],
        check: super::remote_falls(
            of.subject(),
            Some(remote),
            (seen.plan.number + 2.0 * placed.error).max(5.0),
        ),
        stop: super::watermark_stop(view, &Subject::Node(to[0])),
        risk: RISK_OF_MOVE.into(),
        or_else: vec![
            "Nothing uses that memory, or the scheduler took it here because its node was full: then cpu_pct of that node is \
             85 or more."
                .to_owned(),
        ],
    }
}
