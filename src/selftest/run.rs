//! Deeds of a process, seen by the live source of the tool and by the process itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};

use super::expected::{BURN_MS, CHECKS, MOVES, NEAR_PERCENT, OTHER_PAGES, PAGES, PLACED, TRIPS, metric_of};
use super::report::Comparison;
use crate::calibrate::job::{Answer, Job};
use crate::calibrate::machine::Facts;
use crate::calibrate::worker::{Ended, Worker};
use crate::collect::placement::Budget;
use crate::collect::probes::page_allocs::PageBudget;
use crate::container::scope::Scope;
use crate::error::Refusal;
use crate::known::step::{Step, Truth};
use crate::metric::placement::{MEM_ERROR_POINTS, MEM_PCT_BY_NODE, REMOTE_PCT};
use crate::metric::{Value, counters};
use crate::model::counters::Counter;
use crate::model::sample::{Sample, TaskRaw};
use crate::model::units::NodeId;
use crate::pmu::catalog::{Catalog, Core};
use crate::record::columns::Row;
use crate::snapshot::{RowKind, Snapshot, Task, derive};
use crate::source::Source;
use crate::source::live::{LiveOptions, LiveSource};
use crate::sys;

/// Time in which a process that waits for its next job uses no CPU time, on a busy machine too.
const AT_REST: Duration = Duration::from_millis(50);

/// Times that this is waited for: 1 s.
const RESTS: u32 = 20;

/// Samples that placement is waited for.
const PLACEMENT_SAMPLES: u32 = 10;

/// Options of the live source that watches a process.
pub fn options(pid: u32) -> LiveOptions {
    LiveOptions {
        scope: Scope { pids: [pid].into(), ..Scope::default() },
        scope_text: format!("pid {pid}"),
        count_pages: true,
        page_budget: PageBudget::ALL,
        placement_budget: Budget::Fixed(Duration::from_millis(200)),
        ..LiveOptions::default()
    }
}

/// Places for deeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Two CPUs, of one node where there are such.
    pub cpus: Vec<u32>,
    /// Two nodes with memory that may be used, and a CPU of each.
    pub nodes: Option<[(u32, u32); 2]>,
    /// The node of the first CPU.
    pub own_node: u32,
}

impl Places {
    /// Places of this machine, with the requested first and other node. By default these are the first node,
    /// and the farthest from it according to the firmware.
    ///
    /// # Errors
    /// A node that was asked for is not there, or has no CPU or no memory that may be used.
    pub fn of(facts: &Facts, from: Option<u32>, to: Option<u32>) -> Result<Places, NoNode> {
        let nodes = facts.topology.nodes.iter().filter_map(|node| {
            let cpu = node.cpus.iter().find(|cpu| facts.cpus.contains(&cpu.0))?;
            let may = facts.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.id.0));
            (may && node.mem_total_bytes > 0).then_some((node.id.0, cpu.0))
        });
        let nodes: Vec<(u32, u32)> = nodes.collect();
        let named = |flag, node: u32| {
            let found = nodes.iter().find(|(id, _)| *id == node).copied();
            found.ok_or(NoNode { flag, node })
        };
        let own = match from {
            Some(node) => Some(named("--from", node)?),
            None => nodes.iter().find(|(id, _)| Some(*id) != to).copied(),
        };
        let others = || nodes.iter().filter(|(id, _)| own.is_some_and(|own| own.0 != *id));
        let far =
            |id: u32| own.and_then(|own| facts.topology.distance(NodeId(own.0), NodeId(id))).unwrap_or(0);
        let other = match to {
            Some(node) if Some(node) == from => return Err(NoNode { flag: "--to", node }),
            Some(node) => Some(named("--to", node)?),
            None => others().max_by_key(|(id, _)| (far(*id), std::cmp::Reverse(*id))).copied(),
        };
        let node_of = |cpu: u32| facts.topology.cpu(crate::model::units::CpuId(cpu)).and_then(|cpu| cpu.node);
        let all: Vec<u32> = facts.cpus.iter().copied().collect();
        let first = from.and(own).map(|(_, cpu)| cpu).or(all.first().copied());
        let rest = || all.iter().filter(|cpu| Some(**cpu) != first);
        let near = rest().find(|cpu| first.is_some_and(|first| node_of(**cpu) == node_of(first)));
        let second = near.or(rest().next()).copied();
        Ok(Places {
            own_node: first.and_then(node_of).map_or(0, |node| node.0),
            cpus: first.into_iter().chain(second).collect(),
            nodes: own.zip(other).map(|(own, other)| [own, other]),
        })
    }
}

/// Places for loads on cores of each kind in the catalogue: CPUs of a hybrid machine have separate events.
/// The reason is given if none may be used.
pub fn by_core(
    catalog: &Catalog,
    facts: &Facts,
    from: Option<u32>,
    to: Option<u32>,
) -> Vec<Result<Places, String>> {
    let of = |core: &Core| {
        let of_kind = core.device.as_ref().and_then(|device| device.cpus.as_ref());
        let is_of = |cpu: &u32| of_kind.is_none_or(|cpus| cpus.iter().any(|of| of.0 == *cpu));
        let mut facts = facts.clone();
        facts.cpus.retain(is_of);
        if facts.cpus.is_empty() {
            return Err(format!("no CPU of {} can be used", core.in_use.pmu));
        }
        Places::of(&facts, from, to).map_err(|no| format!("{}: {no}", core.in_use.pmu))
    };
    catalog.cores.iter().map(of).collect()
}

/// A node that loads cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} does not exist, is named twice, or has no usable CPU or memory")]
pub struct NoNode {
    /// The flag that named it.
    pub flag: &'static str,
    /// Its id.
    pub node: u32,
}

/// Why the tool watches nothing, in a line without advice.
pub fn reason(error: &Error) -> String {
    let text = match error.downcast_ref::<Refusal>() {
        Some(Refusal { what, why: Some(why), .. }) => format!("{what}: {why}"),
        Some(refusal) => refusal.what.clone(),
        None => format!("{error:#}"),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The reason why comparisons ended.
pub enum Stopped {
    /// A signal came.
    Signal,
    /// Anything else.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Stopped {
    fn from(error: anyhow::Error) -> Stopped {
        Stopped::Failed(error)
    }
}

/// Makes all checks of software numbers.
///
/// # Errors
/// A signal came, the process ended, or the source cannot go on.
pub fn software(
    worker: &mut Worker,
    source: LiveSource,
    places: &Places,
) -> Result<Vec<Comparison>, Stopped> {
    let mut watch = Watch::new(worker, source);
    let mut comparisons = Vec::new();
    // The first of everything: memory of the process that later deeds need.
    if let Err(why) = watch.seen(Step::Rest)? {
        return Err(anyhow::Error::msg(why).into());
    }
    for check in CHECKS {
        let comparison = match (check.two_nodes, places.nodes) {
            (true, None) => Ok(Comparison::untested(
                check.id,
                "the machine has one node, or only one node with usable memory",
            )),
            _ => watch.compare(check.id, places),
        };
        comparisons.push(comparison?.judged());
    }
    Ok(comparisons)
}

/// The answer of the process, or why the test ends.
pub(super) fn going_on(answer: Result<Answer, Ended>) -> Result<Answer, Stopped> {
    answer.map_err(|ended| match ended {
        Ended::Signal => Stopped::Signal,
        Ended::TimeUp => Stopped::Failed(anyhow::anyhow!("the self-test took too long")),
        Ended::Died(why) | Ended::Busy(why) => Stopped::Failed(anyhow::Error::msg(why)),
    })
}

/// The process, and the tool's view of it.
pub(super) struct Watch<'a> {
    worker: &'a mut Worker,
    source: LiveSource,
    last: Option<AtRest>,
    /// CPU time of the process between the last two samples, by its own clock, ns.
    ran_ns: u64,
}

/// A sample of the process at rest, and its CPU time then by its own clock, ns.
struct AtRest {
    sample: Sample,
    cpu_ns: u64,
}

/// Pages of a deed that are on a node.
fn pages_on(truth: &Truth, node: u32) -> u64 {
    truth.pages.iter().filter(|(on, _)| *on == node).map(|(_, pages)| pages).sum()
}

/// The truth and the number of the tool, from both observations; with the node, if they are about one.
type Counts = fn(&Truth, &Task, u32) -> (u64, u64);

/// A deed, as both saw it; or why it was not done.
type Seen = Result<(Truth, Snapshot), String>;

impl<'a> Watch<'a> {
    pub(super) fn new(worker: &'a mut Worker, source: LiveSource) -> Watch<'a> {
        Watch { worker, source, last: None, ran_ns: 0 }
    }

    /// The count of an event in the row of the process, in an interval; a process without a row counted
    /// nothing. `None` if the source left the event out, or it took turns.
    pub(super) fn count_of(&self, snapshot: &Snapshot, event: &str) -> Option<u64> {
        let at = snapshot.host.events.iter().position(|known| known.name == event)?;
        let Some(task) = self.row(snapshot) else { return Some(0) };
        counters::slot(&task.delta.slots, snapshot, at).ok().map(|count| count.round() as u64)
    }

    fn compare(&mut self, check: &str, places: &Places) -> Result<Comparison, Stopped> {
        // A number that the tool does not claim cannot be wrong.
        if let Some(missing) = metric_of(check).and_then(|id| self.source.host().missing.get(id).cloned()) {
            return Ok(Comparison::untested(check, missing.to_string()));
        }
        let (deed, of): (Step, Counts) = match check {
            "minor_faults" => (Step::Pages { count: PAGES }, |truth, task, _| {
                (truth.minor_faults, task.delta[Counter::MinFlt])
            }),
            "switches" => (Step::Trips { cpu: places.cpus[0], count: TRIPS }, |truth, task, _| {
                (truth.switches, task.delta[Counter::Nvcsw] + task.delta[Counter::Nivcsw])
            }),
            "cpu_moves" if places.cpus.len() < 2 => {
                return Ok(Comparison::untested(check, "only one CPU can be used"));
            }
            "cpu_moves" => (Step::Moves { cpus: places.cpus.clone(), count: MOVES }, |truth, task, _| {
                (truth.moves, task.delta[Counter::CpuMigrations])
            }),
            "cpu_time" => return self.cpu_time(check, places.cpus[0]),
            other => return self.on_nodes(other, places),
        };
        let seen = self.seen(deed)?;
        Ok(self.beside(check, seen, 0, of))
    }

    /// Its clock is read at the same time as samples are taken: on an emulator a process takes tens of ms of
    /// CPU time to read a job and to answer.
    fn cpu_time(&mut self, check: &str, cpu: u32) -> Result<Comparison, Stopped> {
        let seen = self.seen(Step::Burn { cpu, ms: BURN_MS })?;
        let ran_ns = self.ran_ns;
        Ok(match seen {
            Ok((_, snapshot)) => {
                let shown_ns = self.row(&snapshot).map_or(0, |task| task.delta.cpu_ns());
                Comparison::new(check, ran_ns as f64, shown_ns as f64)
            }
            Err(why) => Comparison::untested(check, why),
        })
    }

    fn on_nodes(&mut self, check: &str, places: &Places) -> Result<Comparison, Stopped> {
        let Some([(first, first_cpu), (second, second_cpu)]) = places.nodes else {
            return Ok(Comparison::untested(check, "one node"));
        };
        match check {
            "node_moves" => {
                // From there on every move between CPUs is one between nodes.
                if let Err(why) = self.seen(Step::Burn { cpu: first_cpu, ms: 1 })? {
                    return Ok(Comparison::untested(check, why));
                }
                let seen = self.seen(Step::Moves { cpus: vec![first_cpu, second_cpu], count: MOVES })?;
                Ok(self.beside(check, seen, second, |truth, task, _| {
                    (truth.moves, task.delta[Counter::NodeMoves])
                }))
            }
            "other_node_pages" => {
                let seen = self.seen(Step::Allocate { cpu: first_cpu, node: second, count: OTHER_PAGES })?;
                Ok(self.beside(check, seen, second, |truth, task, node| {
                    // Pages that came from the CPU's own node for want of room are no pages of another one.
                    (pages_on(truth, node), task.delta[Counter::CrossAllocs])
                }))
            }
            "moved_pages" => {
                let seen = self.seen(Step::MovePages { from: first, to: second, count: OTHER_PAGES })?;
                Ok(self.beside(check, seen, second, |truth, task, _| {
                    (truth.moved_pages, task.delta[Counter::AskedPages])
                }))
            }
            "placement" | "remote" => {
                let near = PLACED * NEAR_PERCENT / 100;
                let pages = vec![(first, near), (second, PLACED - near)];
                if let Err(why) = self.seen(Step::Place { pages })? {
                    return Ok(Comparison::untested(check, why));
                }
                self.shares(check, first, first_cpu)
            }
            other => Ok(Comparison::untested(other, "this version cannot run this check")),
        }
    }

    /// Compares counts of the row of the process, if it has one.
    fn beside(&self, check: &str, seen: Seen, node: u32, of: Counts) -> Comparison {
        let (truth, snapshot) = match seen {
            Ok(seen) => seen,
            Err(why) => return Comparison::untested(check, why),
        };
        // Work was done: a tool without a row of the process shows none of that work.
        let nothing = Task::new(Arc::new(TaskRaw::zero()));
        let (truth, tool) = of(&truth, self.row(&snapshot).unwrap_or(&nothing), node);
        Comparison::new(check, truth as f64, tool as f64)
    }

    fn row<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Task> {
        snapshot.tasks.iter().find(|task| task.raw.pid == self.worker.pid())
    }

    /// The shares of placed memory that is used, once the tool has looked at it.
    fn shares(&mut self, check: &str, first: u32, cpu: u32) -> Result<Comparison, Stopped> {
        const USE_MS: u32 = 200;
        let mut why = "its memory was not located".to_string();
        for _ in 0..PLACEMENT_SAMPLES {
            let (truth, snapshot) = match self.seen(Step::Use { cpu, ms: USE_MS })? {
                Ok(seen) => seen,
                Err(why) => return Ok(Comparison::untested(check, why)),
            };
            let Some(task) = self.row(&snapshot) else { continue };
            let all: u64 = truth.pages.iter().map(|(_, pages)| pages).sum();
            let on_first: u64 =
                truth.pages.iter().filter(|(node, _)| *node == first).map(|(_, pages)| pages).sum();
            let near = 100.0 * on_first as f64 / all.max(1) as f64;
            let number = |metric: &crate::metric::Metric<Task>| match (metric.value)(task, &snapshot) {
                Ok(Value::F64(value) | Value::Share { pct: value, .. }) => Ok(value),
                Ok(Value::ByNode(shares)) => {
                    let of_first = shares.iter().find(|(node, _)| *node == NodeId(first));
                    Ok(of_first.map_or(0.0, |(_, share)| *share))
                }
                Ok(_) => Err("the metric has a different type of value".to_string()),
                Err(missing) => Err(missing.to_string()),
            };
            let (truth, metric) = match check {
                "placement" => (near, &MEM_PCT_BY_NODE),
                _ => (100.0 - near, &REMOTE_PCT),
            };
            match (number(metric), number(&MEM_ERROR_POINTS)) {
                (Ok(tool), error) => {
                    let error = error.ok().filter(|_| check == "placement");
                    return Ok(Comparison { error, ..Comparison::new(check, truth, tool) });
                }
                (Err(missing), _) => why = missing,
            }
        }
        Ok(Comparison::untested(check, why))
    }

    /// Does a deed between two samples in which the process is at rest.
    fn seen(&mut self, deed: Step) -> Result<Seen, Stopped> {
        Ok(match self.between(&Job::Do(deed))? {
            Ok((Answer::Did(truth), snapshot)) => Ok((truth, snapshot)),
            Ok((other, _)) => Err(format!("unexpected answer: {other:?}")),
            Err(why) => Err(why),
        })
    }

    /// Does a job between two samples in which the process is at rest.
    pub(super) fn between(&mut self, job: &Job) -> Result<Result<(Answer, Snapshot), String>, Stopped> {
        let before = match self.last.take() {
            Some(before) => before,
            None => self.at_rest()?,
        };
        let answer = going_on(self.worker.ask(job))?;
        let after = self.at_rest()?;
        let snapshot = derive(&self.source.host(), Some(&before.sample), &after.sample, RowKind::Processes);
        self.ran_ns = after.cpu_ns.saturating_sub(before.cpu_ns);
        self.last = Some(after);
        Ok(match answer {
            Answer::Failed { why } => Err(why),
            answer => Ok((answer, snapshot)),
        })
    }

    /// A sample once the process waits for its next job; of one that never does, while it still runs.
    fn at_rest(&mut self) -> Result<AtRest> {
        let pid = self.worker.pid();
        let clock = || sys::process_cpu_ns(pid).context("reading the clock of the self-test process");
        let mut cpu_ns = clock()?;
        for _ in 0..RESTS {
            std::thread::sleep(AT_REST);
            let before = std::mem::replace(&mut cpu_ns, clock()?);
            if cpu_ns == before {
                break;
            }
        }
        match self.source.next().context("taking a sample")? {
            Some(sample) => Ok(AtRest { sample, cpu_ns }),
            None => bail!("the live measurement has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_node_is_the_farthest_unless_one_is_named() {
        let root = crate::fixture::tree("hosts/ft-2500");
        let facts = Facts::read(&root).unwrap();
        let nodes =
            |from, to| Places::of(&facts, from, to).map(|places| places.nodes.unwrap().map(|(node, _)| node));
        assert_eq!(nodes(None, None), Ok([0, 8]), "10 20 40 30 20 30 50 40 100 and so on");
        assert_eq!(nodes(Some(9), None), Ok([9, 0]));
        assert_eq!(nodes(Some(9), Some(1)), Ok([9, 1]));
        assert_eq!(nodes(None, Some(0)), Ok([1, 0]), "the one that was asked for is not the first, too");
        assert_eq!(nodes(Some(16), None), Err(NoNode { flag: "--from", node: 16 }));
        assert_eq!(nodes(Some(3), Some(3)), Err(NoNode { flag: "--to", node: 3 }));
        let places = Places::of(&facts, Some(9), None).unwrap();
        assert_eq!(places.own_node, 9);
        let node_of = |cpu: &u32| facts.topology.cpu(crate::model::units::CpuId(*cpu)).unwrap().node;
        assert!(places.cpus.iter().all(|cpu| node_of(cpu) == Some(NodeId(9))), "{places:?}");
    }

    #[test]
    fn a_refusal_is_a_line_without_advice() {
        let refusal = Refusal {
            exit: crate::error::Exit::Privilege,
            what: "not allowed".into(),
            why: Some("no\nCAP_BPF".into()),
            said: Some("EPERM".into()),
            advice: Vec::new(),
        };
        assert_eq!(reason(&refusal.into()), "not allowed: no CAP_BPF");
        assert_eq!(reason(&anyhow::anyhow!("a line").context("reading")), "reading: a line");
    }

    #[test]
    fn pages_of_other_nodes_are_not_counted() {
        let truth = Truth { pages: vec![(0, 30), (1, 3970)], ..Truth::default() };
        assert_eq!((pages_on(&truth, 1), pages_on(&truth, 2)), (3970, 0));
    }
}
