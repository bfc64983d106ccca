//! The metrics of memory in use: shares of time at memory accesses, from samples of a clock.

use super::over::{Better, Over};
use super::task::GHZ;
use super::{Group, Metric, Order, Several, Stands, Traits, Unit, Value, no};
use crate::model::access::ENOUGH;
use crate::model::access::answers::{Answers, MemoryAnswers};
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::share::{wilson, wilson_farther};
use crate::snapshot::{SampledUse, Snapshot, Task};

/// The samples of a row: of its process, so threads have none.
fn sampled(task: &Task) -> Reading<&SampledUse> {
    match task.memory_use() {
        Some(sampled) if task.leads() => Ok(sampled),
        Some(_) => Err(no("samples of memory use are summed per process only")),
        None if task.raw.kthread => Err(no("a kernel thread has no memory of its own")),
        None => {
            Err(no("no samples: start them with --access or with u in the details; the process must run"))
        }
    }
}

/// Remote samples, and those whose page and CPU have a known node.
fn remote(task: &Task, snapshot: &Snapshot) -> Reading<(f64, f64)> {
    let found = &sampled(task)?.found;
    if snapshot.host.topology.nodes.len() < 2 {
        return Err(no("the machine has one node"));
    }
    found.sound()?;
    match (found.remote(), &found.no_nodes) {
        ((_, known), Some(why)) if known <= 0.0 => Err(why.clone()),
        ((_, known), None) if known <= 0.0 => Err(no("the nodes of its pages are not known yet")),
        (counts, _) => Ok(counts),
    }
}

const NEEDS: Traits = Traits::NONE.needs(&[Facility::MemoryUse]);

const fn metric(
    id: &'static str,
    (title, width): (&'static str, u16),
    (unit, order): (Unit, Order),
    help: &'static str,
    value: fn(&Task, &Snapshot) -> Reading<Value>,
) -> Metric<Task> {
    Metric {
        id,
        title,
        width,
        group: Group::Memory,
        unit,
        order,
        help,
        value,
        over: Over::Level,
        traits: NEEDS,
    }
}

pub const MEM_TIME_PCT: Metric<Task> = metric(
    "mem_time_pct",
    ("MEMTIME%", 8),
    (Unit::Percent, Order::Descending),
    "Share of its user-mode CPU time at instructions that access memory, in the last ten seconds. An upper bound \
     for waiting, because cache hits count, too. A clock triggers the samples (--access).",
    |task, _| {
        let found = &sampled(task)?.found;
        let share = wilson(found.at_memory() as f64, found.samples as f64);
        Ok(Value::F64(share.ok_or_else(|| no("none of its samples is in user mode"))?.0))
    },
);

pub const MEM_TIME_REMOTE_PCT: Metric<Task> = metric(
    "mem_time_remote_pct",
    ("MEMTIMEREM", 10),
    (Unit::Percent, Order::Descending),
    "Share of its memory-access time at pages on a node other than the CPU's. Weighted by time, not by \
     count: remote accesses take longer, and stores stall less.",
    |task, snapshot| {
        let (remote, known) = remote(task, snapshot)?;
        Ok(Value::F64(100.0 * remote / known))
    },
)
.with(NEEDS.several(Several::Nodes).stands(Stands::Remote(|pct| pct > 0.0)).better(Better::Low));

pub const MEM_TIME_ERROR_POINTS: Metric<Task> = metric(
    "mem_time_error_points",
    ("MEMTIMEERR", 10),
    (Unit::Percent, Order::Descending),
    "Error of mem_time_remote_pct (95 % confidence), in percentage points.",
    |task, snapshot| {
        let (remote, known) = remote(task, snapshot)?;
        Ok(Value::F64(wilson_farther(remote, known).map_or(100.0, |(_, error)| error)))
    },
)
.with(NEEDS.several(Several::Nodes));

pub const MEM_TIME_PCT_BY_NODE: Metric<Task> = metric(
    "mem_time_pct_by_node",
    ("USED ON", 11),
    (Unit::Percent, Order::Descending),
    "Shares of its memory-access time by node of the page.",
    |task, _| {
        let found = &sampled(task)?.found;
        found.sound()?;
        let by_node = found.by_page_node();
        match (&found.no_nodes, by_node.is_empty()) {
            (Some(why), true) => Err(why.clone()),
            (None, true) => Err(no("the nodes of its pages are not known yet")),
            (_, false) => {
                let all: f64 = by_node.values().sum();
                Ok(Value::ByNode(
                    by_node.into_iter().map(|(node, samples)| (node, 100.0 * samples / all)).collect(),
                ))
            }
        }
    },
)
.over(Over::Newest)
.with(NEEDS.several(Several::Nodes).least_width(11));

pub const ACCESS_SOURCE: Metric<Task> = metric(
    "access_source",
    ("ACCSRC", 6),
    (Unit::Text, Order::Ascending),
    "Samplers of memory use: clock samples time; pebs (Intel), ibs (AMD) or spe (Arm) sample accesses.",
    |task, snapshot| {
        let sampled = sampled(task)?;
        let event = sampled.event.map(|event| event.source.id());
        // The clock sampler does not work on some CPUs where the event may.
        let clock = snapshot.host_missing(MEM_TIME_PCT.id).is_none().then_some(sampled.source.id());
        Ok(Value::Text(clock.into_iter().chain(event).collect::<Vec<_>>().join("+")))
    },
)
.over(Over::Newest);

/// Accesses that a PMU sampled: enough of them that memory answered.
fn answers(task: &Task) -> Reading<&Answers> {
    let sampled = sampled(task)?;
    if sampled.event.is_none() {
        return Err(no("no PMU sampled memory accesses"));
    }
    sampled.found.events_complete()?;
    Ok(&sampled.found.answers)
}

fn latency(task: &Task, snapshot: &Snapshot, of: fn(&Answers) -> &MemoryAnswers) -> Reading<Value> {
    let latencies = &of(answers(task)?).latencies;
    let loads = latencies.loads();
    if (loads as f64) < ENOUGH {
        return Err(no(&format!("only {loads} sampled loads: a latency needs at least {ENOUGH}")));
    }
    let cycles = latencies.percentile(50.0).ok_or_else(|| no("none of its sampled loads has a latency"))?;
    match GHZ.read(task, snapshot)? {
        Value::F64(ghz) if ghz > 0.0 => Ok(Value::F64(cycles / ghz)),
        _ => Err(no("its clock frequency is not known")),
    }
}

const EVENTS: Traits = Traits::NONE.needs(&[Facility::MemoryEvents]);

pub const DRAM_REMOTE_PCT: Metric<Task> = metric(
    "dram_remote_pct",
    ("DRAMREM%", 8),
    (Unit::Percent, Order::Descending),
    "Remote share of the sampled accesses served by memory, in the last ten seconds. The PMU samples by \
     access, not by time (--access; Intel PEBS or AMD IBS). On Intel and Zen 5 only accesses slower than 128 \
     cycles are sampled. Not verified on hardware.",
    |task, snapshot| {
        let (remote, all) = answers(task)?.memory();
        if snapshot.host.topology.nodes.len() < 2 {
            return Err(no("the machine has one node"));
        }
        if (all as f64) < ENOUGH {
            return Err(no(&format!(
                "memory served only {all} sampled accesses: shares need at least {ENOUGH}"
            )));
        }
        Ok(Value::F64(100.0 * remote as f64 / all as f64))
    },
)
.with(EVENTS.several(Several::Nodes).stands(Stands::Remote(|pct| pct > 0.0)).better(Better::Low));

pub const LOAD_LATENCY_NS_LOCAL: Metric<Task> = metric(
    "load_latency_ns_local",
    ("LATLOC", 7),
    (Unit::Nanoseconds, Order::Descending),
    "Median latency of sampled loads served by local memory, in ns at its clock frequency. On Intel and Zen \
     5 only loads slower than 128 cycles are sampled. JSON has more in access.pmu. Not verified on hardware.",
    |task, snapshot| latency(task, snapshot, |answers| &answers.local),
)
.with(EVENTS.better(Better::Low));

pub const LOAD_LATENCY_NS_REMOTE: Metric<Task> = metric(
    "load_latency_ns_remote",
    ("LATREM", 7),
    (Unit::Nanoseconds, Order::Descending),
    "Median latency of sampled loads served by remote memory, in ns; see load_latency_ns_local.",
    |task, snapshot| latency(task, snapshot, |answers| &answers.remote),
)
.with(EVENTS.several(Several::Nodes).better(Better::Low));

pub const ACCESS_SAMPLES: Metric<Task> = metric(
    "access_samples",
    ("ACCSAMPLES", 10),
    (Unit::Count, Order::Descending),
    "Number of its samples in user mode in the last ten seconds.",
    |task, _| Ok(Value::U64(sampled(task)?.found.samples)),
);
