//! All cores of the machine, or of a socket where nodes are hidden, have all of their hardware threads busy.

use std::collections::BTreeMap;

use super::super::cores::own_cpus;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{pct, sentence};
use super::super::view::{SubjectRef, View};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use super::{sibling_contention, waiting};
use crate::finding::cores::Region;
use crate::metric::cpu_set::CPU_PCT;
use crate::metric::host::BUSY;
use crate::model::sample::Counts;
use crate::snapshot::Task;

/// Nice value from which on a task is one that may wait, and policies that may: SCHED_BATCH and SCHED_IDLE of sched(7).
const NICE: i32 = 10;
const MAY_WAIT: [u32; 2] = [3, 5];

pub(super) static RULE: Rule = Rule {
    id: "cores-exhausted",
    title: "All hardware threads are busy",
    about: "Nine of ten cores have all hardware threads busy. The finding is a warning only if counters show \
            little gain from the second thread and quotas exceed core capacity by 10 %. Where nodes are \
            hidden, one such socket is enough.",
    not_when: &[
        ("no-smt", "cores have one thread each"),
        (
            "nice",
            "tasks of SCHED_BATCH, SCHED_IDLE or a nice value of 10 or more use at least half of the time",
        ),
        ("half-idle", "more than a tenth of the cores have a thread that is less than 80 % busy"),
    ],
    of: &[SubjectKind::Host, SubjectKind::Socket],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[],
    hold: Hold::s(60.0),
    limits: &[
        Limit::until("cores", 90.0, 80.0, "estimate: all cores, except for short gaps"),
        Limit::until(
            "thread",
            80.0,
            70.0,
            "estimate: a thread that is idle for 20 % of the time leaves the core to its sibling",
        ),
        Limit::until(
            "speed",
            65.0,
            70.0,
            "[S1]: a second thread adds 20 % throughput on one machine and 40 to 50 % on others",
        ),
        Limit::least("promised", 110.0, "estimate: the quotas add up to more than the cores can deliver"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The part of the machine that a subject is.
#[derive(Clone, Copy, PartialEq)]
enum Part<'a> {
    /// All of it.
    Whole,
    /// A socket of a machine that hides its nodes: its number and its CPUs.
    Socket(u32, &'a [u32]),
}

impl<'a> Part<'a> {
    fn of(of: &SubjectRef<'a>) -> Part<'a> {
        match of {
            SubjectRef::Socket(set) => Part::Socket(set.id, &set.cpus),
            _ => Part::Whole,
        }
    }

    fn has(self, cpu: u32) -> bool {
        match self {
            Part::Whole => true,
            Part::Socket(_, cpus) => cpus.binary_search(&cpu).is_ok(),
        }
    }

    /// Online CPUs.
    fn cpus(self, view: &View<'_>) -> usize {
        view.topology().online_cpus().filter(|cpu| self.has(cpu.id.0)).count()
    }

    /// Time of a task here, ns.
    fn ran(self, view: &View<'_>, task: &Task) -> u64 {
        match self {
            Part::Whole => task.run_ns(),
            Part::Socket(id, _) => view.ran_in(&task.delta, Region::Socket(id)).unwrap_or(0),
        }
    }
}

/// Cores, and those of them with two threads or more all of whose threads are busy.
fn cores(view: &View<'_>, part: Part<'_>, least_pct: f64) -> (usize, usize) {
    let length = view.over_ns().max(1) as f64;
    let busy: BTreeMap<u32, f64> =
        view.window.cpus.iter().map(|cpu| (cpu.id, cpu.busy_ns as f64 * 100.0 / length)).collect();
    let mut of_core: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    for cpu in view.topology().online_cpus().filter(|cpu| part.has(cpu.id.0)) {
        let core = of_core.entry(cpu.core).or_insert((0, true));
        core.0 += 1;
        core.1 &= busy.get(&cpu.id.0).is_some_and(|pct| *pct >= least_pct);
    }
    let shared = of_core.values().filter(|(threads, _)| *threads > 1);
    (of_core.len(), shared.filter(|(_, busy)| *busy).count())
}

/// Whether tasks that may wait make half of the time.
fn may_wait(view: &View<'_>, part: Part<'_>) -> bool {
    let (mut nice, mut all) = (0.0, 0.0);
    for task in &view.snapshot.tasks {
        let ran = part.ran(view, task) as f64;
        all += ran;
        if task.raw.nice >= NICE || MAY_WAIT.contains(&task.raw.policy) {
            nice += ran;
        }
    }
    nice * 2.0 >= all
}

/// The speed of a thread beside a busy one, as a share of that alone, of processes that were in both states; `None` where none
/// was.
fn speed(view: &View<'_>, part: Part<'_>) -> Option<f64> {
    let now = waiting::now(view);
    let (mut sum, mut weight) = (0.0, 0.0);
    // Counters by the state of the sibling are of all of its time.
    let here = |task: &&Task| part.ran(view, task).saturating_mul(2) > task.run_ns();
    for task in view.candidates().filter(here) {
        let Some((beside, alone)) = sibling_contention::counted(&now, &SubjectRef::Process(task)) else {
            continue;
        };
        let cycles = task.delta.by_sibling[1].cycles as f64;
        sum += beside / alone * cycles;
        weight += cycles;
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Quotas of the containers that run, in CPUs; of those below one with a quota that of the upper one. Of a socket: of
/// containers that may use no other.
fn promised(view: &View<'_>, part: Part<'_>) -> f64 {
    let quota = |row: &crate::snapshot::Container| match row.raw.as_deref().map(|raw| &raw.cpu_quota_milli) {
        Some(Ok(Some(milli))) => Some(*milli as f64 / 1000.0),
        _ => None,
    };
    let rows = &view.snapshot.containers;
    let is_below =
        |row: &crate::snapshot::Container| row.and_above(rows).skip(1).any(|above| quota(above).is_some());
    let here = |row: &crate::snapshot::Container| match part {
        Part::Whole => true,
        Part::Socket(..) => own_cpus(view, &SubjectRef::Container(row))
            .is_some_and(|cpus| cpus.into_iter().all(|cpu| part.has(cpu))),
    };
    rows.iter().filter(|row| row.sum.run_ns() > 0 && !is_below(row) && here(row)).filter_map(quota).sum()
}

/// Cores that are full.
struct Facts {
    /// Cores with all of their threads busy.
    busy: usize,
    /// The work of all CPUs in cores, where it is known.
    capacity: Option<f64>,
}

/// Whether the share of busy cores exceeds the limit.
fn is_full(view: &View<'_>, (all, busy): (usize, usize)) -> bool {
    busy > 0 && (busy as f64) * 100.0 >= all as f64 * view.limit("cores")
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    if !view.topology().smt() {
        return Err(Unmet::Quiet);
    }
    let part = Part::of(of);
    let (all, busy) = cores(view, part, view.limit("thread"));
    if !is_full(view, (all, busy)) {
        return Err(Unmet::Quiet);
    }
    if let Part::Socket(id, _) = part
        && view.ran_in(&Counts::default(), Region::Socket(id)).is_none()
    {
        return Err(waiting::unknown("CPU time is not recorded per socket (needs --places l3)"));
    }
    if may_wait(view, part) {
        return Err(Unmet::Quiet);
    }
    // The machine is full, not one of its sockets.
    if part != Part::Whole && is_full(view, cores(view, Part::Whole, view.limit("thread"))) {
        return Err(Unmet::Quiet);
    }
    let length = view.over_ns().max(1) as f64;
    let limit = view.limit("cores") * view.limit("thread") / 100.0;
    let evidence = match part {
        Part::Whole => {
            let used = view.window.on_cpus.busy_ns as f64 * 100.0 / length;
            view.evidence(BUSY.id, Subject::Host, used).limit(part.cpus(view) as f64 * limit)
        }
        Part::Socket(id, cpus) => {
            let used = view.busy_in(Region::Socket(id)) * 100.0 / cpus.len().max(1) as f64;
            view.evidence(CPU_PCT.id, of.subject(), used).limit(limit)
        }
    };
    let (speed, promised) = (speed(view, part), promised(view, part));
    // Two threads of a core do twice the work of one beside a busy one.
    let capacity = speed.map(|speed| all as f64 * 2.0 * speed);
    let too_much = speed.is_some_and(|speed| speed * 100.0 < view.limit("speed"))
        && capacity.is_some_and(|capacity| promised * 100.0 >= capacity * view.limit("promised"));
    Ok(Seen {
        severity: if too_much { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence: vec![evidence.note(Note::Measured)],
        facts: Facts { busy, capacity },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let part = Part::of(of);
    let cpus = part.cpus(view);
    let all = cores(view, part, view.limit("thread")).0;
    let calibration = view.topology().calibration.as_ref();
    let measured = calibration.and_then(|calibration| calibration.smt_work);
    // Cores without a second thread do the work of one.
    let cores = |work: u32| {
        let threads = cpus.saturating_sub(all).min(all) as f64;
        all as f64 + threads * (f64::from(work) / 1000.0 - 1.0)
    };
    let work = match (seen.facts.capacity, measured) {
        (Some(capacity), _) => format!("{cpus} CPUs do the work of {capacity:.0} cores"),
        (None, Some((least, most))) => format!(
            "{cpus} CPUs do the work of {:.0} to {:.0} cores, as calibrate measured",
            cores(least),
            cores(most)
        ),
        (None, None) => format!("{cpus} CPUs share the execution units of {all} cores"),
    };
    let promised = match seen.severity {
        Severity::Info => String::new(),
        _ => format!("; quotas add up to {:.0} CPUs", promised(view, part)),
    };
    let idlest = match part {
        Part::Whole => None,
        Part::Socket(id, _) => waiting::idlest(view, Region::Socket(id)),
    };
    let or_else = match idlest {
        Some((other, load, _)) => format!(
            "{} is {} busy: the scheduler moves unbound tasks there. run_pct_by_socket shows whether they \
             run there.",
            other.title(),
            pct(load)
        ),
        None => {
            "Placement does not help here: run fewer services, or add machines. runq_wait_pct shows how long \
                 tasks wait for CPUs."
                .to_owned()
        }
    };
    let whose = match part {
        Part::Whole => String::new(),
        Part::Socket(id, _) => format!(" of socket {id}"),
    };
    Advice {
        sentence: sentence(format!(
            "{} of {all} cores{whose} have all of their threads busy: {work}{promised}.",
            seen.facts.busy
        )),
        or_else: vec![or_else],
        ..Advice::default()
    }
}
