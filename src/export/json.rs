//! JSON Lines: one object per interval, schema 1.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::access::Why;
use super::{Export, Format, Part, Rows, Selection};
use crate::finding::{self, Engine};
use crate::metric::access::DRAM_REMOTE_PCT;
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::counters;
use crate::metric::cpu_set::{self, CPU_SET_METRICS};
use crate::metric::event_ages::EventAges;
use crate::metric::host::HOST_METRICS;
use crate::metric::matrix::{PAIR_METRICS, sampled_pct};
use crate::metric::node::NODE_METRICS;
use crate::metric::page_migrations;
use crate::metric::{Metric, Value};
use crate::metric::{balancing, on_cpus};
use crate::metric::{identity, task};
use crate::model::access::lines::CONTENDED_LINES;
use crate::model::access::objects::OBJECTS;
use crate::model::event::Event;
use crate::model::process::Asked;
use crate::model::process::ProcessId;
use crate::model::sample::{Missing, Reading};
use crate::model::units::NodeId;
use crate::program::overhead::Cost;
use crate::program::say::Form;
use crate::snapshot::{CpuSet, RowKind, SetKind, Snapshot, Task};
use crate::text::rfc3339;

/// `--format json`.
pub static FORMAT: Format = Format {
    name: "json",
    parts: &[Part::HotSpots, Part::Overhead],
    machine_readable: true,
    form: Form::Json,
    tasks: |selection| Box::new(JsonLines::new(selection)),
    containers: None,
    places: None,
};

/// Version of the object's shape. Keys may be added to a schema, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Writes one object per interval, each on a separate line.
pub struct JsonLines {
    selection: Selection,
    shown: Option<Vec<ProcessId>>,
    engine: Engine,
    ages: EventAges,
}

impl JsonLines {
    pub fn new(selection: Selection) -> JsonLines {
        JsonLines { selection, shown: None, engine: Engine::default(), ages: EventAges::default() }
    }
}

/// Why values are null, by metric; the host's own reason goes before one of a single row.
#[derive(Default)]
struct Reasons(BTreeMap<String, String>);

impl Reasons {
    fn value(&mut self, id: &str, reading: Reading<Value>) -> Json {
        match reading {
            Ok(value) => value.to_json(),
            Err(why) => {
                self.note(id, &why);
                Json::Null
            }
        }
    }

    fn note(&mut self, id: &str, why: &Missing) {
        self.0.entry(id.to_string()).or_insert_with(|| why.to_string());
    }
}

impl Export for JsonLines {
    fn wants_hot(&self) -> bool {
        FORMAT.carries(Part::HotSpots)
    }

    fn wants_containers(&self) -> bool {
        FORMAT.has_both()
    }

    fn engine(&mut self) -> Option<&mut Engine> {
        Some(&mut self.engine)
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        let mut reasons = Reasons::default();
        for (id, why) in &snapshot.host.missing {
            reasons.note(id, why);
        }
        write!(out, "{{\"schema\":{SCHEMA},\"time\":\"{}\"", rfc3339(snapshot.wall_ns))?;
        write!(out, ",\"interval_ns\":{}", snapshot.interval_ns.unwrap_or(0))?;
        let ages = self.ages.take(snapshot);
        write!(out, ",\"host\":{}", host(snapshot, &ages, &mut reasons))?;
        // Rows go out one by one: ten thousand of them are never in memory at once.
        write!(out, ",\"tasks\":[")?;
        let rows = self.selection.rows(snapshot);
        self.shown = self.selection.shown(&rows);
        for (i, task) in rows.into_iter().enumerate() {
            let row = task_object(&self.selection.columns, task, snapshot, &mut reasons);
            write!(out, "{}{}", if i > 0 { "," } else { "" }, Json::Object(row))?;
        }
        let nodes: Vec<Json> = snapshot
            .nodes
            .iter()
            .map(|node| {
                let pairs = NODE_METRICS.iter().map(|metric| {
                    let reading = metric.read(node, snapshot);
                    (metric.id.to_string(), reasons.value(metric.id, reading))
                });
                Json::Object(pairs.collect())
            })
            .collect();
        write!(out, "],\"nodes\":{}", Json::Array(nodes))?;
        for (name, kind) in [("sockets", SetKind::Socket), ("llcs", SetKind::Llc)] {
            let sets: Vec<Json> = snapshot
                .cpu_sets
                .iter()
                .filter(|set| set.kind == kind)
                .map(|set| Json::Object(cpu_set_object(set, snapshot, &mut reasons)))
                .collect();
            if !sets.is_empty() {
                write!(out, ",\"{name}\":{}", Json::Array(sets))?;
            }
        }
        write!(out, ",\"containers\":[")?;
        for (i, row) in snapshot.containers.iter().enumerate() {
            let pairs = CONTAINER_METRICS
                .iter()
                .map(|metric| (metric.id.to_string(), reasons.value(metric.id, metric.read(row, snapshot))));
            let mut row_object: Map<String, Json> = pairs.collect();
            row_object.insert("own_tasks".into(), json!(row.own_tasks));
            write!(out, "{}{}", if i > 0 { "," } else { "" }, Json::Object(row_object))?;
        }
        write!(out, "]")?;
        write!(out, ",\"matrix\":{}", matrix(snapshot, &mut reasons))?;
        if let Some(pct) = sampled_pct(snapshot) {
            write!(out, ",\"accesses_sampled_pct\":{}", json!(pct))?;
        }
        if let Some(profile) = &snapshot.hot {
            write!(out, ",\"hot\":{}", super::hot::object(profile, &self.selection.filter, &snapshot.tasks))?;
        }
        write!(out, ",\"findings\":{}", finding::json::findings(&self.engine))?;
        write!(out, ",\"findings_blind\":{}", finding::json::blinds(&self.engine))?;
        write!(out, ",\"self\":{}", own(snapshot))?;
        write!(out, ",\"lost\":{}", lost(snapshot))?;
        write!(out, ",\"notes\":{}", json!(snapshot.notes))?;
        writeln!(out, ",\"missing\":{}}}", json!(reasons.0))?;
        out.flush()
    }

    fn asked(&self) -> Asked {
        self.selection.asked()
    }

    fn shown(&self) -> Option<&[ProcessId]> {
        self.shown.as_deref()
    }
}

/// Numbers stand in place of the words of the screen: `socket`, `llc`, and `node`, a list where there are several.
fn cpu_set_object(set: &CpuSet, snapshot: &Snapshot, reasons: &mut Reasons) -> Map<String, Json> {
    let value = |metric: &Metric<CpuSet>| {
        (metric.id.to_owned(), reasons.value(metric.id, metric.read(set, snapshot)))
    };
    let mut row: Map<String, Json> = CPU_SET_METRICS.iter().map(value).collect();
    let one_or_all = |ids: &[u32]| match ids {
        [] => Json::Null,
        [one] => json!(one),
        all => json!(all),
    };
    row.remove(cpu_set::PLACE.id);
    row.insert(cpu_set::NODES.id.into(), one_or_all(&set.nodes));
    row.insert(cpu_set::SOCKETS.id.into(), one_or_all(&set.sockets));
    if set.kind == SetKind::Llc {
        row.insert("llc".into(), json!(set.id));
    }
    row
}

fn task_object(
    columns: &[&Metric<Task>],
    task: &Task,
    snapshot: &Snapshot,
    reasons: &mut Reasons,
) -> Map<String, Json> {
    let mut row = Map::new();
    for metric in columns {
        // A process has no thread id: that is what the row is, not something missing.
        if metric.id == identity::TID.id && task.tid.is_none() {
            continue;
        }
        row.insert(metric.id.to_string(), reasons.value(metric.id, metric.read(task, snapshot)));
    }
    if !snapshot.host.events.is_empty() {
        let count = |(at, event): (usize, &Event)| {
            let reading = counters::slot(&task.total.slots, snapshot, at);
            let count = reading.map_or_else(
                |why| {
                    reasons.note(&event.name, &why);
                    Json::Null
                },
                |count| json!(count as u64),
            );
            (event.name.clone(), count)
        };
        let counts: Map<String, Json> = snapshot.host.events.iter().enumerate().map(count).collect();
        row.insert("counters".into(), Json::Object(counts));
    }
    let of_process = task.leads();
    if let Some(sampled) = task.memory_use().filter(|_| of_process) {
        let nodes = snapshot.host.topology.nodes.len();
        let why = Why {
            no_event: snapshot.host_missing(DRAM_REMOTE_PCT.id),
            no_lines: snapshot.host_missing(CONTENDED_LINES),
            no_touches: snapshot.host_missing(OBJECTS),
        };
        row.insert("access".into(), super::access::object(sampled, nodes, why));
    }
    row.insert("exited".into(), json!(task.ended()));
    if task.left() {
        row.insert("left_scope".into(), json!(true));
    }
    row
}

fn host(snapshot: &Snapshot, ages: &[(&Event, Option<Duration>)], reasons: &mut Reasons) -> Json {
    let host = &snapshot.host;
    let pmu: Vec<&str> =
        host.events.iter().filter(|event| !event.is_software()).map(|event| event.name.as_str()).collect();
    if pmu.is_empty() {
        let not_asked = || Missing::NotCollected("no hardware counter was asked for (--events)".into());
        reasons.note("pmu", &snapshot.host_missing(task::CYCLES_TOTAL.id).cloned().unwrap_or_else(not_asked));
    }
    let mut object = json!({
        "hostname": crate::text::clean_str(&host.hostname),
        "kernel": host.kernel,
        "arch": host.arch,
        "cpu_model": crate::text::clean_str(&host.cpu_model),
        "boot_id": host.boot_id,
        "cpus": snapshot.online_cpus,
        "nodes": host.topology.nodes.len(),
        "pmu": if pmu.is_empty() { Json::Null } else { json!(pmu) },
        "event_tables": host.tables.iter().map(|table| table.id.as_str()).collect::<Vec<_>>(),
        "rows": match snapshot.grain { RowKind::Processes => "processes", _ => "threads" },
        "scope": host.scope,
    });
    if !ages.is_empty() {
        let name = |slot: &usize| host.events.get(*slot).map(|event| event.name.as_str());
        let group = |group: &Vec<usize>| json!(group.iter().filter_map(name).collect::<Vec<_>>());
        object["event_turns"] = host.event_turns.iter().map(group).collect();
        let age = |(event, age): &(&Event, Option<Duration>)| {
            (event.name.clone(), json!(age.map(|age| age.as_secs_f64())))
        };
        object["event_ages_s"] = Json::Object(ages.iter().map(age).collect());
    }
    if let Some(words) = tested(&host.events) {
        object["pmu_tested"] = words;
    }
    // By themselves: `missing` of the interval has reasons of single rows, too.
    let missing = host.missing.iter().map(|(id, why)| (id.clone(), json!(why.to_string())));
    object["missing"] = Json::Object(missing.collect());
    for metric in &HOST_METRICS {
        object[metric.id] = reasons.value(metric.id, metric.read(snapshot));
    }
    let metrics = on_cpus::of_host(snapshot).chain(balancing::of_host(snapshot));
    for (id, reading) in metrics.chain(page_migrations::of_host(snapshot)) {
        object[id] = reasons.value(id, reading.map(Value::F64));
    }
    object
}

/// The word of self-tests on each event, by its name; `None` where nothing was looked up.
fn tested(events: &[Event]) -> Option<Json> {
    let said = events.iter().filter(|event| !event.tested.is_unsaid());
    let words: Map<String, Json> =
        said.map(|event| (event.name.clone(), json!(crate::text::clean_str(event.tested.words())))).collect();
    (!words.is_empty()).then_some(Json::Object(words))
}

/// Metric → node of the row → node of the column → value. A metric without values on the diagonal is not missing there.
fn matrix(snapshot: &Snapshot, reasons: &mut Reasons) -> Json {
    let nodes = || snapshot.nodes.iter().map(|node| NodeId(node.raw.id));
    let mut matrices = Map::new();
    for metric in PAIR_METRICS {
        let mut rows = Map::new();
        for from in nodes() {
            let mut row = Map::new();
            for to in nodes() {
                let value = match metric.read(snapshot, from, to).map(Value::F64) {
                    Err(_) if from == to => Json::Null,
                    reading => reasons.value(metric.missing_as, reading),
                };
                row.insert(to.to_string(), value);
            }
            rows.insert(from.to_string(), Json::Object(row));
        }
        matrices.insert(metric.id.to_string(), Json::Object(rows));
    }
    Json::Object(matrices)
}

fn own(snapshot: &Snapshot) -> Json {
    let mut own = json!({
        "self_cpu_pct": snapshot.share(snapshot.own.cpu_ns).ok(),
        "self_rss_bytes": snapshot.own.raw.rss_bytes,
        "sample_ms": snapshot.own.raw.sample_ns as f64 / 1e6,
    });
    if let Some(costs) = &snapshot.overhead {
        let program = |cost: &Cost| {
            let values = json!({
                "probe_ns": cost.probe_ns,
                "probe_runs_per_s": cost.probe_runs_per_s,
                "probe_cpu_pct": cost.cpu_pct,
            });
            (cost.program.clone(), values)
        };
        own["programs"] = Json::Object(costs.iter().map(program).collect());
    }
    own
}

fn lost(snapshot: &Snapshot) -> Json {
    let mut lost: Map<String, Json> =
        snapshot.lost.iter().map(|(cause, count)| (cause.clone(), json!(count))).collect();
    lost.insert("exits_not_itemised_cpu_ns".into(), json!(snapshot.exit_lost_ns));
    Json::Object(lost)
}
