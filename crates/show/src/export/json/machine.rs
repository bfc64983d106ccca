//! The parts of an interval that are of the whole machine, as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::facts::Reasons;
use crate::metric::held_devices::{self, HeldDevice};
use crate::metric::host::HOST_METRICS;
use crate::metric::matrix::PAIR_METRICS;
use crate::metric::{Value, balancing, disks, on_cpus, pages, task};
use crate::model::event::Event;
use crate::model::sample::Missing;
use crate::model::units::NodeId;
use crate::overhead::Cost;
use crate::snapshot::{RowKind, Snapshot};
use crate::text::json::number;

/// The key `devices`: accelerators, and disks to which kernel threads wrote. Reasons for a missing value are beside it.
pub(super) fn devices(snapshot: &Snapshot) -> Vec<Json> {
    let words = |why: &Missing| crate::text::clean_str(&why.to_string());
    let device = |device: HeldDevice| {
        let mut object = json!({
            "name": crate::text::clean_str(&device.name),
            "pci": device.pci.as_deref().map(crate::text::clean_str),
            "node": device.node.as_ref().ok().map(|node| node.0),
            "held_by": device.held_by.as_ref().ok(),
        });
        if let Err(why) = &device.node {
            object["node_missing"] = json!(words(why));
        }
        if let Err(why) = &device.held_by {
            object["held_by_missing"] = json!(words(why));
        }
        object
    };
    held_devices::devices(snapshot).into_iter().map(device).chain(written_to(snapshot)).collect()
}

/// Disks to which kernel threads wrote in the interval.
fn written_to(snapshot: &Snapshot) -> impl Iterator<Item = Json> {
    let topology = &snapshot.host.topology;
    let written = disks::written_back(snapshot).unwrap_or_default();
    written.into_iter().map(|(address, bytes)| {
        let disk = topology.devices().find(|device| device.pci.as_deref() == Some(address));
        json!({
            "name": crate::text::clean_str(disk.map_or(address, |disk| &disk.name)),
            "pci": crate::text::clean_str(address),
            "node": disk.and_then(|disk| disk.node).map(|node| node.0),
            "writeback_bytes_per_s": snapshot.rate(bytes).ok().map(number),
        })
    })
}

/// The key `host`.
pub(super) fn host(
    snapshot: &Snapshot,
    ages: &[(&Event, Option<Duration>)],
    reasons: &mut Reasons<'_>,
) -> Map<String, Json> {
    let host = &snapshot.host;
    let pmu: Vec<&str> =
        host.events.iter().filter(|event| !event.is_software()).map(|event| event.name.as_str()).collect();
    if pmu.is_empty() {
        let not_asked = || Missing::NotCollected("hardware counters were not requested (--events)".into());
        reasons.note("pmu", &snapshot.host_missing(task::CYCLES_TOTAL.id).cloned().unwrap_or_else(not_asked));
    }
    let facts = json!({
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
    let Json::Object(mut object) = facts else { unreachable!("it is written as one") };
    if !ages.is_empty() {
        let name = |slot: &usize| host.events.get(*slot).map(|event| event.name.as_str());
        let group = |group: &Vec<usize>| json!(group.iter().filter_map(name).collect::<Vec<_>>());
        object.insert("event_turns".into(), host.event_turns.iter().map(group).collect());
        let age = |(event, age): &(&Event, Option<Duration>)| {
            (event.name.clone(), json!(age.map(|age| age.as_secs_f64())))
        };
        object.insert("event_ages_s".into(), Json::Object(ages.iter().map(age).collect()));
    }
    if let Some(words) = tested(&host.events) {
        object.insert("pmu_tested".into(), words);
    }
    // By themselves: `missing` of the interval has reasons of single rows, too.
    let missing = host.missing.iter().map(|(id, why)| (id.clone(), json!(why.to_string())));
    object.insert("missing".into(), Json::Object(missing.collect()));
    for metric in &HOST_METRICS {
        object.insert(metric.id.into(), reasons.value(metric.id, metric.read(snapshot)));
    }
    let metrics = on_cpus::of_host(snapshot).chain(balancing::of_host(snapshot));
    for (id, reading) in metrics.chain(pages::moves_of_host(snapshot)) {
        object.insert(id.into(), reasons.value(id, reading.map(Value::F64)));
    }
    object
}

/// Keys of [`host`] whose values are of the interval; others are as of its end.
pub(super) fn of_interval(snapshot: &Snapshot) -> BTreeSet<&'static str> {
    let own = HOST_METRICS.iter().filter(|metric| metric.is_of_interval()).map(|metric| metric.id);
    let counted = on_cpus::of_host(snapshot).chain(balancing::of_host(snapshot));
    own.chain(counted.chain(pages::moves_of_host(snapshot)).map(|(id, _)| id)).collect()
}

/// Keys of [`matrix`] whose values are of the interval; costs are facts.
pub(super) fn pairs_of_interval(snapshot: &Snapshot) -> BTreeSet<&'static str> {
    let pairs = PAIR_METRICS.iter().filter(|metric| metric.cost.is_none());
    pairs
        .filter(|metric| snapshot.host_missing(metric.missing_as).is_none())
        .map(|metric| metric.id)
        .collect()
}

/// The word of self-tests on each event, by its name; `None` where nothing was looked up.
fn tested(events: &[Event]) -> Option<Json> {
    let said = events.iter().filter(|event| !event.tested.is_unsaid());
    let words: Map<String, Json> =
        said.map(|event| (event.name.clone(), json!(crate::text::clean_str(event.tested.words())))).collect();
    (!words.is_empty()).then_some(Json::Object(words))
}

/// The key `matrix`: metric → node of the row → node of the column → value. A metric without values on the diagonal is not missing there.
pub(super) fn matrix(snapshot: &Snapshot, reasons: &mut Reasons<'_>) -> Map<String, Json> {
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
    matrices
}

/// The key `self`.
pub(super) fn own(snapshot: &Snapshot) -> Json {
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

/// The key `lost`.
pub(super) fn lost(snapshot: &Snapshot) -> Map<String, Json> {
    let mut lost: Map<String, Json> =
        snapshot.lost.iter().map(|(cause, count)| (cause.clone(), json!(count))).collect();
    lost.insert("exits_not_itemised_cpu_ns".into(), json!(snapshot.exit_lost_ns));
    lost
}
