//! The table of numbers that a command leaves.

use std::collections::BTreeMap;

use super::Outcome;
use crate::metric::{Value, interrupts, pages, placement, task};
use crate::model::counters::Counter;
use crate::model::sample::{Missing, Reading};
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::Snapshot;
use crate::text::quantity;

/// The form of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, with milliseconds.
    Seconds,
    Count,
    Ratio,
    Percent,
    Bytes,
    Text,
}

/// A number that a command leaves.
pub struct Measure {
    /// The key in JSON and CSV.
    pub id: &'static str,
    /// The words in text.
    pub title: &'static str,
    pub unit: Unit,
    /// The metric without which a host does not have it either.
    as_metric: Option<&'static str>,
    /// The parts of the machine that it is split by, if it is.
    part: &'static str,
    value: fn(&Outcome) -> Reading<Value>,
}

impl Measure {
    /// The value in a run.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn read(&self, run: &Outcome) -> Reading<Value> {
        match self.as_metric.and_then(|metric| run.machine.host_missing(metric)) {
            Some(missing) => Err(missing.clone()),
            None => (self.value)(run),
        }
    }

    /// A number in the unit of the measure, as people read it.
    pub fn show(&self, number: f64) -> String {
        match self.unit {
            Unit::Seconds => format!("{number:.3} s"),
            Unit::Count => grouped(number),
            Unit::Ratio => format!("{number:.2}"),
            Unit::Percent => format!("{} %", quantity::percent(number)),
            Unit::Bytes => quantity::bytes(number),
            Unit::Text => String::new(),
        }
    }

    /// A value as people read it.
    pub fn show_value(&self, value: &Value) -> String {
        match value {
            Value::Text(text) => text.clone(),
            Value::Share { pct, witness, .. } => format!("{}{} %", witness.mark(), quantity::percent(*pct)),
            Value::ByNode(parts) => {
                let parts =
                    parts.iter().map(|(node, part)| format!("{} {node}: {}", self.part, self.show(*part)));
                parts.collect::<Vec<_>>().join(", ")
            }
            value => value.number().map_or_else(String::new, |number| self.show(number)),
        }
    }
}

/// A whole number with its thousands apart.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

const fn measure(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    as_metric: Option<&'static str>,
    value: fn(&Outcome) -> Reading<Value>,
) -> Measure {
    Measure { id, title, unit, as_metric, part: "node", value }
}

fn seconds(ns: f64) -> Value {
    Value::F64(ns / 1e9)
}

fn count(run: &Outcome, counter: Counter) -> Reading<Value> {
    Ok(Value::U64(run.row.sum.delta[counter]))
}

fn did_not_run() -> Missing {
    Missing::NotCollected("the command did not run".into())
}

/// Elapsed time: what bindings are compared by first.
pub const ELAPSED: Measure =
    measure("elapsed_s", "elapsed", Unit::Seconds, None, |run| Ok(seconds(run.elapsed_ns as f64)));
pub const CPU: Measure =
    measure("cpu_s", "CPU time", Unit::Seconds, None, |run| Ok(seconds(run.row.sum.run_ns() as f64)));
pub const IPC: Measure = measure("ipc", "instructions per cycle", Unit::Ratio, Some(task::IPC.id), |run| {
    task::IPC.read(&run.row.sum, &run.machine)
});
pub const REMOTE: Measure = measure("remote_pct", "remote accesses", Unit::Percent, None, |run| {
    placement::CONTAINER_REMOTE_PCT.read(&run.row, &run.machine)
});
pub const WAIT: Measure = measure("wait_s", "waits for a CPU", Unit::Seconds, None, |run| {
    Ok(seconds(run.row.sum.delta[Counter::RunDelayNs] as f64))
});

/// All of them, in the order in which they are shown.
pub static MEASURES: [Measure; 36] = [
    ELAPSED,
    measure("user_s", "user", Unit::Seconds, None, |run| Ok(seconds(run.user_ns as f64))),
    measure("system_s", "system", Unit::Seconds, None, |run| Ok(seconds(run.system_ns as f64))),
    CPU,
    measure("cpus_used", "CPUs used", Unit::Ratio, None, |run| {
        Ok(Value::F64(run.row.sum.run_ns() as f64 / run.elapsed_ns.max(1) as f64))
    }),
    measure("threads_born", "threads created", Unit::Count, None, |run| Ok(Value::U64(run.born))),
    measure("threads_left", "threads still running at the end", Unit::Count, None, |run| {
        Ok(Value::U64(run.living))
    }),
    measure("cycles", "cycles", Unit::Count, Some(task::CYCLES_TOTAL.id), |run| {
        task::CYCLES_TOTAL.read(&run.row.sum, &run.machine)
    }),
    measure("instructions", "instructions", Unit::Count, Some(task::INSTRUCTIONS_TOTAL.id), |run| {
        task::INSTRUCTIONS_TOTAL.read(&run.row.sum, &run.machine)
    }),
    IPC,
    REMOTE,
    measure("remote_source", "  from", Unit::Text, None, |run| {
        placement::CONTAINER_REMOTE_SOURCE.read(&run.row, &run.machine)
    }),
    measure("remote_error_points", "  error, points", Unit::Ratio, None, |run| {
        placement::CONTAINER_REMOTE_ERROR_POINTS.read(&run.row, &run.machine)
    }),
    measure("cpu_s_by_node", "CPU time by node", Unit::Seconds, None, |run| {
        let by_node = run.row.sum.delta.run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0);
        let parts: Vec<_> = by_node.map(|(node, ns)| (NodeId(node as u32), *ns as f64 / 1e9)).collect();
        if parts.is_empty() { Err(did_not_run()) } else { Ok(Value::ByNode(parts)) }
    }),
    Measure {
        part: "L3",
        ..measure("cpu_s_by_llc", "CPU time by L3", Unit::Seconds, None, |run| cpu_by_llc(&run.machine))
    },
    measure("peak_bytes", "peak resident memory", Unit::Bytes, None, |run| {
        run.peak.clone().map(|peak| Value::U64(peak.bytes))
    }),
    measure("peak_bytes_by_node", "  by node", Unit::Bytes, None, |run| {
        let peak = run.peak.clone()?;
        match peak.by_node.is_empty() {
            true => Err(Missing::NotCollected("its memory was not located before the peak".into())),
            false => Ok(Value::ByNode(peak.by_node)),
        }
    }),
    measure("minor_faults", "minor faults", Unit::Count, None, |run| count(run, Counter::MinFlt)),
    measure("major_faults", "major faults", Unit::Count, None, |run| count(run, Counter::MajFlt)),
    measure("page_allocs", "page allocations", Unit::Count, Some(pages::CROSS_NODE_FAULTS.id), |run| {
        count(run, Counter::UserAllocs)
    }),
    measure(
        "cross_node_allocs",
        "  from another node",
        Unit::Count,
        Some(pages::CROSS_NODE_FAULTS.id),
        |run| count(run, Counter::CrossAllocs),
    ),
    measure("pages_migrated", "pages migrated", Unit::Count, Some(pages::PAGES_MIGRATED.id), |run| {
        count(run, Counter::MigratedPages)
    }),
    measure(
        "pages_migrate_failed",
        "  not migrated",
        Unit::Count,
        Some(pages::PAGES_MIGRATE_FAILED.id),
        |run| count(run, Counter::MigrateFailedPages),
    ),
    measure("cpu_moves", "moves between CPUs", Unit::Count, None, |run| count(run, Counter::CpuMigrations)),
    measure("llc_moves", "  between last-level caches", Unit::Count, None, |run| {
        count(run, Counter::LlcMoves)
    }),
    measure("node_moves", "  between nodes", Unit::Count, None, |run| count(run, Counter::NodeMoves)),
    measure("voluntary_switches", "context switches, voluntary", Unit::Count, None, |run| {
        count(run, Counter::Nvcsw)
    }),
    measure("involuntary_switches", "  involuntary", Unit::Count, None, |run| count(run, Counter::Nivcsw)),
    WAIT,
    measure(
        "wait_quota_s",
        "  waits due to a CPU quota",
        Unit::Seconds,
        Some(interrupts::RUNQ_WAIT_THROTTLED_PCT.id),
        |run| long_enough(run).map(|()| seconds(run.waits.quota_ns)),
    ),
    measure(
        "wait_bound_s",
        "  waits due to an affinity or cpuset",
        Unit::Seconds,
        Some(interrupts::RUNQ_WAIT_BOUND_PCT.id),
        |run| long_enough(run).map(|()| seconds(run.waits.bound_ns)),
    ),
    measure(
        "wait_idle_elsewhere_s",
        "  waits while another node had an idle CPU",
        Unit::Seconds,
        Some(interrupts::RUNQ_WAIT_IDLE_ELSEWHERE_PCT.id),
        |run| match run.machine.host.topology.nodes.len() {
            0 | 1 => Err(Missing::Unsupported("the machine has one node".into())),
            _ => long_enough(run).map(|()| seconds(run.waits.idle_elsewhere_ns)),
        },
    ),
    measure("wait_us", "  mean wait, us", Unit::Ratio, None, |run| {
        task::RUNQ_WAIT_US.read(&run.row.sum, &run.machine)
    }),
    measure(
        "smt_shared_s",
        "time on cores shared with busy threads (SMT)",
        Unit::Seconds,
        Some(task::SMT_BUSY_PCT.id),
        |run| Ok(seconds(run.row.sum.delta[Counter::SmtBusyNs] as f64)),
    ),
    measure("smt_shared_pct", "  share of CPU time", Unit::Percent, Some(task::SMT_BUSY_PCT.id), |run| {
        task::SMT_BUSY_PCT.read(&run.row.sum, &run.machine)
    }),
    measure("lost_cpu_s", "CPU time of unlisted exits", Unit::Seconds, None, |run| {
        Ok(seconds(run.lost_ns as f64))
    }),
];

/// Seconds on the CPUs of each last-level cache, by its number in the topology.
fn cpu_by_llc(machine: &Snapshot) -> Reading<Value> {
    let topology = &machine.host.topology;
    if let Some(why) = topology.no_llcs() {
        return Err(Missing::Unsupported(why.into()));
    }
    let mut by_llc = BTreeMap::new();
    for cpu in machine.cpus.iter().filter(|cpu| cpu.scope_ns > 0) {
        let Some(place) = topology.cpu(CpuId(cpu.id)) else { continue };
        *by_llc.entry(place.llc).or_insert(0.0) += cpu.scope_ns as f64 / 1e9;
    }
    let parts: Vec<_> = by_llc.into_iter().map(|(llc, seconds)| (NodeId(llc), seconds)).collect();
    if parts.is_empty() { Err(did_not_run()) } else { Ok(Value::ByNode(parts)) }
}

/// Whether the causes of waits could be estimated: they follow from intervals.
fn long_enough(run: &Outcome) -> Reading<()> {
    run.peak.as_ref().map(drop).map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use crate::model::demo;
    use crate::model::sample::{CpuRaw, Sample};
    use crate::model::topology::{Cpu, Llc, Topology};
    use crate::snapshot::{RowKind, derive_tasks};

    /// The demo machine, on whose CPU `n` the command ran `n` seconds.
    fn machine(change: impl FnOnce(&mut Topology)) -> Snapshot {
        let mut host = demo::facts();
        let cpu = |cpu: &Cpu| CpuRaw { id: cpu.id.0, online: true, ..CpuRaw::default() };
        let before = Sample { cpus: host.topology.cpus.iter().map(cpu).collect(), ..Sample::default() };
        let mut after = Sample { mono_ns: 1_000_000_000, ..before.clone() };
        change(&mut host.topology);
        let ran = |cpu: &CpuRaw| (cpu.id, Arc::new(u64::from(cpu.id) * 1_000_000_000));
        after.inputs.scope_ns = Arc::new(after.cpus.iter().map(ran).collect());
        derive_tasks(&Arc::new(host), Some(&before), &after, RowKind::Processes)
    }

    fn by_llc(llcs: &[Option<u32>]) -> Reading<Value> {
        let halves = llcs.len() as u32;
        cpu_by_llc(&machine(|topology| {
            let llc = topology.llcs[0].clone();
            topology.llcs = llcs.iter().map(|level| Llc { level: *level, ..llc.clone() }).collect();
            topology.cpus.iter_mut().for_each(|cpu| cpu.llc = cpu.id.0 % halves.max(1));
        }))
    }

    #[test]
    fn time_by_l3_is_the_sum_of_its_cpus() {
        let sum = |first: u32| f64::from((0..32).filter(|cpu| cpu % 2 == first).sum::<u32>());
        let expected = vec![(NodeId(0), sum(0)), (NodeId(1), sum(1))];
        assert_eq!(by_llc(&[Some(3), Some(3)]), Ok(Value::ByNode(expected)));
    }

    #[test]
    fn where_time_by_l3_says_nothing_there_is_the_reason() {
        let why = |llcs: &[Option<u32>]| by_llc(llcs).unwrap_err().to_string();
        assert!(why(&[Some(3)]).contains("one last-level cache"));
        assert!(why(&[]).contains("shows no caches") && why(&[None, None]).contains("shows no caches"));
    }

    #[test]
    fn each_measure_has_a_name_of_its_own() {
        let ids: BTreeSet<_> = MEASURES.iter().map(|measure| measure.id).collect();
        assert_eq!(ids.len(), MEASURES.len());
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0.0, "0"), (999.0, "999"), (1_000.0, "1,000"), (12_345_678.0, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
    }
}
