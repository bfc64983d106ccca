//! A process needs far more cycles for an instruction than its twins on other nodes, beside others that are busy.

use super::super::fit::{fits, works_in};
use super::super::gain::{Arithmetic, Assumption, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, number, sentence};
use super::super::view::{SubjectRef, View, need, process};
use super::super::{
    Advice, Check, Command, Confidence, Evidence, Note, Severity, Subject, SubjectKind, When, cores, env,
    guards, rules,
};
use super::waiting;
use crate::finding::cores::Region;
use crate::metric::counters;
use crate::metric::placement::REMOTE_PCT;
use crate::metric::task::{CPI, GHZ, INSTRUCTIONS_TOTAL, LMA_PER_S, RMA_PER_S, SMT_BUSY_PCT};
use crate::model::event::Role;
use crate::model::sample::CgroupMode;
use crate::snapshot::Task;

/// The least use of a CPU at which cycles per instruction say something: CPI2's threshold (S6).
const USES_CPUS: f64 = 0.25;

/// Instructions in a second: a thousand million in a minute.
const INSTRUCTIONS_PER_S: f64 = 1e9 / 60.0;

/// The age in seconds from which on a process matters to rules: as for all of them.
const LIVES_S: f64 = 60.0;

/// Processes with its name that it is compared with, on its node and on others: a database may have hundreds.
const TWINS_MAX: usize = 16;

/// Twins from which on the spread of theirs counts, too (S6).
const MANY: usize = 5;

/// Distances that the two may have in other things that change cycles per instruction.
const REMOTE_POINTS: f64 = 20.0;
const SIBLING_POINTS: f64 = 30.0;
const CLOCK_SHARE: f64 = 0.15;

/// Distance of instructions per second of CPU time from that over all of the time that it was watched.
const STABLE_SHARE: f64 = 0.25;

/// CPUs that others must use beside it, and how many times those beside its twins.
const OTHERS_CPUS: f64 = 2.0;
const OTHERS_TIMES: f64 = 2.0;

/// Its memory relative to that of its twins, from which on it does other work.
const BIGGER: f64 = 4.0;

pub(super) static RULE: Rule = Rule {
    id: "noisy-neighbour",
    title: "A neighbour slows the process down",
    about: "A process needs twice the cycles per instruction of processes with the same name on other nodes, \
            and its node is far busier. The finding is a warning only if the node makes many counted memory \
            accesses. Where nodes are hidden, sockets are compared.",
    not_when: &[
        (
            "different-work",
            "another process with the same name on the same node needs only half the cycles \
                            per instruction",
        ),
        (
            "phases",
            "the process, or a process it is compared with, changes its instructions per second of \
                    CPU time by 25 %",
        ),
        ("start", "the process, or a process it is compared with, is younger than 60 s"),
        ("no-twin", "no process with the same name runs on another node"),
        ("bigger", "the process has four times the memory of the processes it is compared with"),
        ("explained", "remote shares, busy siblings or clock rates also differ"),
        (
            "alone",
            "other programs use less than two CPUs on its node, or less than twice as many as on the nodes \
             of the compared processes",
        ),
    ],
    of: &[SubjectKind::Process],
    group: Group::Neighbours,
    gravest: Severity::Warning,
    needs: &[CPI.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least(
            "times",
            2.0,
            "[S6]: CPI2 flags outliers beyond two standard deviations; twice the CPI is far beyond noise",
        )
        .counted_in("times"),
        Limit::sharp("accesses", 50e6, "[S3]: Carrefour acts only above 50 accesses per us and node")
            .counted_in("/s"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// A twin with its home, cycles per instruction, and CPUs that others use beside it.
struct Twin<'a> {
    task: &'a Task,
    home: Region,
    cpi: f64,
    beside: f64,
}

/// CPUs that others use in a region, without a process.
fn beside(view: &View<'_>, region: Region, task: &Task) -> f64 {
    let own = view.ran_in(&task.delta, region).unwrap_or(0) as f64 / view.over_ns().max(1) as f64;
    (view.busy_in(region) - own).max(0.0)
}

/// Instructions per nanosecond of CPU time, in the window and since numatop-ng saw it first.
fn is_stable(view: &View<'_>, task: &Task) -> Option<bool> {
    let of = |slots: &[_], ran: u64| {
        let count = counters::count(slots, view.window, Role::Instructions).ok()?;
        (ran > 0).then(|| count / ran as f64)
    };
    let now = of(&task.delta.slots, task.delta.cpu_ns())?;
    let ever = of(&task.total.slots, task.total.run_ns.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns)))?;
    Some((now - ever).abs() <= ever * STABLE_SHARE)
}

/// A process that may be compared, in this window.
fn twin<'a>(view: &View<'_>, task: &'a Task) -> Option<Twin<'a>> {
    let of = SubjectRef::Process(task);
    let age_s = view.snapshot.boot_ns.saturating_sub(task.raw.leader_start_ns) as f64 / 1e9;
    let count = counters::count(&task.delta.slots, view.window, Role::Instructions).ok()?;
    let enough = count >= INSTRUCTIONS_PER_S * view.over_ns() as f64 / 1e9;
    if age_s < LIVES_S || view.cpus(&of) < USES_CPUS || !enough || is_stable(view, task) != Some(true) {
        return None;
    }
    let (home, cpi) = (view.home(task).ok()?, view.number(&CPI, &of).ok()?);
    Some(Twin { task, home, cpi, beside: beside(view, home, task) })
}

/// Whether something else than neighbours differs between the two; `None` where one of its values is not known.
fn differs(view: &View<'_>, of: &SubjectRef<'_>, now: &View<'_>, twin: &Task) -> Option<bool> {
    let other = SubjectRef::Process(twin);
    let apart = |metric| Some((view.number(metric, of).ok()? - now.number(metric, &other).ok()?).abs());
    let clocks = view.number(&GHZ, of).ok().zip(now.number(&GHZ, &other).ok());
    let smt = if view.topology().smt() { apart(&SMT_BUSY_PCT) } else { Some(0.0) };
    // Memory of another socket looks local where nodes are hidden, except to the CPU.
    let remote = match rules::hides_nodes(view.snapshot) {
        true => {
            counted_remote(view, of).zip(counted_remote(now, &other)).map(|(mine, its)| (mine - its).abs())
        }
        false => apart(&REMOTE_PCT),
    };
    if smt.is_some_and(|points| points > SIBLING_POINTS)
        || clocks.is_some_and(|(mine, its)| (mine - its).abs() > its * CLOCK_SHARE)
        || remote.is_some_and(|points| points > REMOTE_POINTS)
    {
        return Some(true);
    }
    (smt.is_some() && clocks.is_some() && remote.is_some()).then_some(false)
}

/// The share of accesses that the CPU counted as remote, in percent.
fn counted_remote(view: &View<'_>, of: &SubjectRef<'_>) -> Option<f64> {
    let (local, remote) = (view.number(&LMA_PER_S, of).ok()?, view.number(&RMA_PER_S, of).ok()?);
    (local + remote > 0.0).then(|| remote * 100.0 / (local + remote))
}

/// The middle of some numbers.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The process and its twins elsewhere.
struct Facts {
    /// Where it runs.
    home: Region,
    /// Where the nearest twin runs.
    there: Region,
    /// The nearest twin.
    twin: Subject,
    /// Cycles per instruction.
    cpi: f64,
    /// The median of its twins.
    middle: f64,
    /// The busiest process beside it.
    suspect: Option<Subject>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    if view.regions().len() < 2 {
        return Err(Unmet::Quiet);
    }
    let cpi = need(view.number(&CPI, of))?;
    need(view.home(task))?;
    let Some(mine) = twin(view, task) else { return Err(Unmet::Quiet) };
    let now = waiting::now(view);
    let same_name = |beside_it: bool| -> Vec<Twin<'_>> {
        let others = view.candidates().filter(|other| {
            other.raw.comm == task.raw.comm
                && other.raw.uid == task.raw.uid
                && other.raw.process() != task.raw.process()
                && (now.home(other).ok() == Some(mine.home)) == beside_it
        });
        others.take(TWINS_MAX).filter_map(|other| twin(&now, other)).collect()
    };
    let there = same_name(false);
    let Some(nearest) = there.first() else { return Err(Unmet::Quiet) };
    let middle = median(there.iter().map(|twin| twin.cpi).collect());
    let mean = there.iter().map(|twin| twin.cpi).sum::<f64>() / there.len() as f64;
    let spread = there.iter().map(|twin| (twin.cpi - mean).powi(2)).sum::<f64>() / there.len() as f64;
    let outlier = there.len() < MANY || cpi > mean + 2.0 * spread.sqrt();
    if cpi < middle * view.limit("times") || !outlier {
        return Err(Unmet::Quiet);
    }
    if same_name(true).iter().any(|twin| twin.cpi * view.limit("times") <= cpi) {
        return Err(Unmet::Quiet);
    }
    let memory = median(there.iter().map(|twin| twin.task.rss_bytes as f64).collect());
    let others = median(there.iter().map(|twin| twin.beside).collect());
    if task.rss_bytes as f64 >= memory * BIGGER || mine.beside < (others * OTHERS_TIMES).max(OTHERS_CPUS) {
        return Err(Unmet::Quiet);
    }
    let differs: Vec<Option<bool>> = there.iter().map(|twin| differs(view, of, &now, twin.task)).collect();
    if differs.contains(&Some(true)) {
        return Err(Unmet::Quiet);
    }
    let many = view
        .accesses_in(mine.home)
        .zip(view.accesses_in(nearest.home))
        .is_some_and(|(mine, theirs)| mine >= view.limit("accesses") && mine >= 2.0 * theirs);
    let suspect = suspect(view, task, mine.home);
    let subject = of.subject();
    let compare = |metric, value| Evidence {
        over_ns: now.over_ns(),
        ..view.evidence(metric, process(&nearest.task.raw), value).note(Note::Compare)
    };
    let count = counters::count(&task.delta.slots, view.window, Role::Instructions).unwrap_or(0.0);
    Ok(Seen {
        severity: if many { Severity::Warning } else { Severity::Info },
        confidence: if differs.iter().all(|known| *known == Some(false)) {
            Confidence::Estimated
        } else {
            Confidence::Suspected
        },
        evidence: vec![
            view.evidence(CPI.id, subject.clone(), cpi).limit(middle * view.limit("times")),
            compare(CPI.id, middle),
            view.evidence("cpu_pct", mine.home.subject(), mine.beside * 100.0)
                .limit((others * OTHERS_TIMES).max(OTHERS_CPUS) * 100.0)
                .note(Note::Estimated),
            view.evidence(INSTRUCTIONS_TOTAL.id, subject, count),
        ],
        facts: Facts {
            home: mine.home,
            there: nearest.home,
            twin: process(&nearest.task.raw),
            cpi,
            middle,
            suspect: suspect.map(|suspect| process(&suspect.raw)),
        },
    })
}

/// The process that uses most CPU time of the region beside it.
fn suspect<'a>(view: &View<'a>, task: &Task, region: Region) -> Option<&'a Task> {
    let others = view.candidates().filter(|other| other.raw.process() != task.raw.process());
    let ran = others.map(|other| (view.ran_in(&other.delta, region).unwrap_or(0), other));
    let busiest = ran
        .filter(|(ns, _)| *ns > 0)
        .max_by(|(a_ns, a), (b_ns, b)| a_ns.cmp(b_ns).then(b.raw.pid.cmp(&a.raw.pid)));
    busiest.map(|(_, other)| other)
}

/// Commands that part the two, the way back, and where the smaller one goes.
type Parting = (Vec<Command>, Vec<Command>, Region);

/// The smaller one of the two, where it may go and fits elsewhere.
fn parting(view: &View<'_>, of: &SubjectRef<'_>, other: &Task, from: Region) -> Option<Parting> {
    let first = waiting::row_now(view, of)?;
    let mover = if other.run_ns() < first.run_ns() { other } else { first };
    let (target, ..) = waiting::idlest(view, from)?;
    match target {
        Region::Node(_) => parting_nodes(view, mover, target),
        Region::Socket(_) => parting_sockets(view, mover, target),
    }
}

/// CPUs of another socket: its memory cannot be placed.
fn parting_sockets(view: &View<'_>, mover: &Task, target: Region) -> Option<Parting> {
    let (now, moves) = (waiting::now(view), SubjectRef::Process(mover));
    if cores::is_restricted(view, &moves) != Some(false) || !works_in(&now, &moves, target) {
        return None;
    }
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let (environment, pid) = (view.env(&moves), Some(mover.raw.pid));
    let all: Vec<u32> = view.regions().into_iter().flat_map(|region| view.cpus_of(region)).collect();
    let back = env::bind_cpus(&environment, &all, pid, unified);
    let commands = env::bind_cpus(&environment, &view.cpus_of(target), pid, unified);
    Some((commands, env::at_once(back), target))
}

fn parting_nodes(view: &View<'_>, mover: &Task, to: Region) -> Option<Parting> {
    let (now, moves) = (waiting::now(view), SubjectRef::Process(mover));
    let Region::Node(target) = to else { return None };
    let (cpus, mems) = (mover.cpu_nodes?, mover.mem_nodes?);
    let free =
        view.whole_nodes().iter().all(|node| node.0 < u64::BITS && cpus >> node.0 & mems >> node.0 & 1 == 1);
    if !free || !mover.raw.mempolicy.is_default() {
        return None;
    }
    let placed = guards::placed(&now, &moves).ok()?;
    if !fits(&now, &moves, &placed, &[target]) {
        return None;
    }
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let (environment, all, pid) = (view.env(&moves), view.whole_nodes(), Some(mover.raw.pid));
    let mut commands = env::bind(&environment, &waiting::free_cpus(view, target), &[target], pid, unified);
    if !env::memory_follows(&environment, unified) {
        let words =
            format!("moves {} to node {target}", super::super::text::bytes(placed.outside(&[target])));
        commands.extend(env::move_memory(mover.raw.pid, &placed.sources(&[target]), &[target], words));
    }
    let back = env::bind(&environment, &view.cpus_of_nodes(&all), &all, pid, unified);
    let mut undo = env::at_once(back);
    let words = format!("moves its memory on node {target} back");
    undo.extend(env::move_memory(mover.raw.pid, &[target], &placed.sources(&[target]), words));
    Some((commands, undo, to))
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Some(task) = of.task() else { return Advice::default() };
    let Facts { home, there, cpi, middle, .. } = seen.facts;
    let Subject::Process(twin, _) = seen.facts.twin else { return Advice::default() };
    let other = seen.facts.suspect.as_ref().and_then(|subject| view.rows.processes.get(subject));
    let other = other.map(|at| &view.snapshot.tasks[*at]);
    let parted = other.and_then(|other| parting(view, of, other, home));
    let with = match other {
        Some(other) => format!(" {} {} runs on {home}, too.", comm(other.raw.comm), other.raw.pid),
        None => String::new(),
    };
    let (commands, undo, target) = match parted {
        Some((commands, undo, target)) => (commands, undo, Some(target)),
        None => {
            let words = match home {
                Region::Node(_) => {
                    "the processes cannot be separated here: they are bound, or no other node has room"
                }
                Region::Socket(_) => {
                    "the processes cannot be separated here: they are bound, or no other socket has room"
                }
            };
            (vec![Command::words(When::Now, super::super::Scope::Process, words)], Vec::new(), None)
        }
    };
    let used = view.cpus(of);
    let mut or_else = vec![format!(
        "The processes of this name may do different work: compare their requests per second. Those elsewhere \
         need {} cycles per instruction (median), and this one {}.",
        number(middle),
        number(cpi)
    )];
    if matches!(home, Region::Socket(_)) && seen.confidence == Confidence::Suspected {
        or_else.push(format!("Its memory can be outside {home}: the machine hides its nodes."));
    }
    Advice {
        sentence: sentence(format!(
            "{} needs {} times the cycles per instruction of process {twin}, which has the same name and \
             runs on {there}.{with}",
            comm(task.raw.comm),
            number(cpi / middle.max(f64::MIN_POSITIVE))
        )),
        gain: Gain {
            at_most: Some(used * (1.0 - middle / cpi.max(f64::MIN_POSITIVE)).max(0.0)),
            of: Some(used),
            how: Some(Arithmetic::Twins { cpi, twins: middle }),
            assumes: vec![Assumption::SameWork],
            ..Gain::default()
        },
        check: vec![Check {
            metric: CPI.id,
            of: of.subject(),
            from: cpi,
            to: middle * 1.3,
            below: true,
            within_s: 60.0,
        }],
        stop: target
            .map(|_| Check {
                metric: CPI.id,
                of: seen.facts.twin.clone(),
                from: middle,
                to: middle * 2.0,
                below: false,
                within_s: 60.0,
            })
            .into_iter()
            .collect(),
        risk: target
            .map_or(String::new(), |target| format!("The process then disturbs other programs on {target}.")),
        commands,
        undo,
        or_else,
    }
}
