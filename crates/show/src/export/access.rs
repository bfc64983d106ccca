//! Memory in use as JSON: samples of a process and of its mappings, contended lines with the code of both sides, and memory
//! by the code that touched it first.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::access::follow::by_count::{ByTime, Evidence, by_count};
use crate::model::access::answers::{Answers, MemoryAnswers};
use crate::model::access::lines::{
    CONTENDED_LINES, ContendedLine, ContendedLines, LineSide, NO_TOUCH, OBJECTS, Object,
};
use crate::model::access::next_runs::GaveUp;
use crate::model::access::{ByNodes, MAPPINGS_LISTED, MappingUse, MemoryUse, SampledEvent, remote, sum};
use crate::model::sample::Missing;
use crate::model::share::wilson_farther;
use crate::snapshot::SampledUse;

/// Reasons why samples are missing on the machine.
#[derive(Clone, Copy, Default)]
pub struct Why<'a> {
    /// Why no PMU event is sampled, if so.
    pub no_event: Option<&'a Missing>,
    /// Why its samples show no contended line, or not of all CPUs.
    pub no_lines: Option<&'a Missing>,
    /// Why first touches are not sampled, though they were asked for.
    pub no_touches: Option<&'a Missing>,
}

/// The samples of a process, on a machine with `nodes` nodes.
pub fn object(sampled: &SampledUse, nodes: usize, why: Why<'_>) -> Json {
    let found = &sampled.found;
    let memory = found.at_memory() + found.nowhere + found.unknown;
    // An address that was overwritten is known where the next run of its instruction is.
    let known = found.with_address + found.next_runs.gone_resolved.min(found.gone);
    let of_mappings = Evidence::of_mappings(found);
    let evidence = if nodes > 1 { Evidence::of_remote(found) } else { of_mappings };
    let why_by_time = judged(found, &evidence).err();
    let ends: Json = GaveUp::ALL
        .into_iter()
        .map(|why| (why.id().to_owned(), json!(found.next_runs.ends.get(&why).copied().unwrap_or(0))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let mut object = json!({
        "source": sampled.source.id(),
        "window_s": (sampled.window_s * 1e3).round() / 1e3,
        "samples": found.samples,
        "with_address": found.with_address,
        "plain": found.plain,
        "gone": found.gone,
        "nowhere": found.nowhere,
        "unknown": found.unknown,
        "kernel": found.kernel,
        "not_mapped": found.unmapped,
        "lost": found.lost,
        "resolved_pct": percent(known as f64, memory as f64),
        "by": if why_by_time.is_none() { "count" } else { "time" },
        "followed": {
            "samples": found.next_runs.followed,
            "resolved": found.next_runs.resolved,
            "left_out": found.next_runs.left_out,
            "ends": ends,
            "pairs": evidence.pairs,
            "correlation": evidence.correlation.map(|found| (found * 1e3).round() / 1e3),
        },
    });
    if let Some(why) = &found.no_nodes {
        object["missing"] = json!({ "nodes": why.to_string() });
    }
    match &sampled.event {
        Some(event) => {
            object["pmu"] = of_event(event, found);
            if let Some(why) = why.no_lines {
                object["missing"][CONTENDED_LINES] = json!(why.to_string());
                // Without any of them 0 would be a count.
                if found.lines.loads == 0 {
                    (object["pmu"]["contended_loads"], object["pmu"][CONTENDED_LINES]) =
                        (Json::Null, Json::Null);
                }
            }
        }
        None => {
            let why = why.no_event.map_or("no PMU event samples accesses".into(), Missing::to_string);
            object["missing"][CONTENDED_LINES] = json!(why);
        }
    }
    if let Some(why) = why_by_time {
        object["missing"]["by_count"] = json!(why);
    }
    let by_count = judged(found, &of_mappings).is_ok();
    let by_time = found.sound();
    let of_event = sampled.event.is_some() && found.answers.accesses() > 0;
    if let Err(why) = &by_time {
        let key = if by_count || of_event { "use_pct" } else { "mappings" };
        object["missing"][key] = json!(why.to_string());
    }
    if found.objects.is_empty() {
        object["missing"][OBJECTS] = json!(why.no_touches.map_or(NO_TOUCH.into(), Missing::to_string));
    }
    let wholes = (by_time.is_ok().then(|| found.placed()), by_count.then(|| found.placed_by_count()));
    if by_time.is_ok() || by_count || of_event {
        let listed = |mapping: &&MappingUse| {
            by_count || mapping.samples() > 0.0 || (of_event && mapping.answers.accesses() > 0)
        };
        let rows = found.mappings.iter().filter(listed).take(MAPPINGS_LISTED);
        object["mappings"] = rows.map(|mapping| mapping_row(mapping, wholes)).collect();
    }
    if !found.objects.is_empty() {
        match &by_time {
            Err(why) if !by_count => object["missing"][OBJECTS] = json!(why.to_string()),
            _ => object[OBJECTS] = object_rows(&found.objects, wholes),
        }
    }
    object
}

/// Accesses that a PMU sampled, by the place that answered, and lines that another core held.
fn of_event(event: &SampledEvent, found: &MemoryUse) -> Json {
    let answers = &found.answers;
    let classes = answers.classes.iter().map(|(class, accesses)| (class.id().to_string(), json!(accesses)));
    json!({
        "source": event.source.id(),
        "threshold_cycles": event.threshold,
        "samples": answers.accesses(),
        "by_answer": classes.collect::<Map<String, Json>>(),
        "memory_samples": answers.memory().1,
        "latency_cycles": latencies(answers),
        "contended_loads": found.lines.loads,
        "contended_lines": line_rows(&found.lines),
    })
}

/// Percentiles of loads that memory answered, of the own node and of others.
fn latencies(answers: &Answers) -> Json {
    let of = |found: &MemoryAnswers| {
        let [p50, p95] = [50.0, 95.0].map(|pct| found.latencies.percentile(pct).map(rounded));
        json!({ "loads": found.latencies.loads(), "p50": p50, "p95": p95 })
    };
    json!({ "local": of(&answers.local), "remote": of(&answers.remote) })
}

/// Whether shares are by count, and why not.
fn judged(found: &MemoryUse, evidence: &Evidence) -> Result<(), String> {
    found.complete().map_err(|why| why.to_string())?;
    by_count(evidence).map_err(|why: ByTime| why.to_string())
}

pub(super) fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| rounded(100.0 * part / whole))
}

pub(super) fn rounded(pct: f64) -> f64 {
    (pct * 10.0).round() / 10.0
}

/// All samples of a process by time and by count, where shares of them say something.
pub(super) type Wholes = (Option<f64>, Option<f64>);

/// A mapping, with all samples of its process.
fn mapping_row(mapping: &MappingUse, wholes: Wholes) -> Json {
    let mut row = uses(&mapping.by_node, &mapping.next_by_node, wholes);
    row.insert("start".into(), json!(format!("{:x}", mapping.start)));
    row.insert("name".into(), json!(mapping.name));
    row.insert("bytes".into(), json!(mapping.bytes));
    if mapping.answers.accesses() > 0 {
        row.insert("pmu_samples".into(), json!(mapping.answers.accesses()));
        row.insert("latency_cycles".into(), latencies(&mapping.answers));
    }
    Json::Object(row)
}

/// Use of a part of memory with these samples, and followed samples.
pub(super) fn uses(
    by_node: &ByNodes,
    next_by_node: &ByNodes,
    (placed, by_count): Wholes,
) -> Map<String, Json> {
    let time = placed.map(|placed| wilson_farther(sum(by_node.values()), placed).unwrap_or_default());
    let mut on_nodes: BTreeMap<String, f64> = BTreeMap::new();
    for ((page, _), samples) in by_node {
        if let Some(page) = page {
            *on_nodes.entry(page.to_string()).or_default() += samples;
        }
    }
    let on_nodes: Map<String, Json> = on_nodes
        .into_iter()
        .filter_map(|(node, samples)| Some((node, json!(percent(samples, placed?)))))
        .collect();
    let (remote, known) = remote(by_node);
    let mut uses = Map::new();
    uses.insert("use_pct".into(), json!(time.map(|(pct, _)| rounded(pct))));
    uses.insert("error_points".into(), json!(time.map(|(_, error)| rounded(error))));
    uses.insert("use_by_node".into(), Json::Object(on_nodes));
    uses.insert("remote_pct".into(), json!(percent(remote, known).filter(|_| time.is_some())));
    if let Some((pct, error)) = by_count.and_then(|all| wilson_farther(sum(next_by_node.values()), all)) {
        uses.insert("accesses_pct".into(), json!(rounded(pct)));
        uses.insert("accesses_error_points".into(), json!(rounded(error)));
    }
    uses
}

/// The lines that are listed, the most contended one first.
pub(super) fn line_rows(lines: &ContendedLines) -> Json {
    lines.listed.iter().map(|line| line_row(line, lines.loads)).collect()
}

/// A line, with all loads that another core answered.
fn line_row(line: &ContendedLine, loads: u64) -> Json {
    let share = wilson_farther(line.loads as f64, loads as f64);
    json!({
        "mapping": line.mapping,
        "page_node": line.page_node.map(|node| node.0),
        "loads": line.loads,
        "loads_pct": share.map(|(pct, _)| rounded(pct)),
        "error_points": share.map(|(_, error)| rounded(error)),
        "loads_from_other_node": line.far,
        "stores": line.stores,
        "offsets": line.offsets(),
        "sides": line.sides.iter().map(side).collect::<Json>(),
    })
}

fn side(side: &LineSide) -> Json {
    let function = side.function.as_ref();
    json!({
        "access": if side.store { "store" } else { "load" },
        "offset": side.offset,
        "cpu_node": side.cpu_node.map(|node| node.0),
        "samples": side.samples,
        "from_other_node": side.far,
        "function": function.and_then(|function| function.name.as_deref()),
        "module": function.map(|function| function.module.as_str()),
    })
}

/// The objects of a process with all its samples, the most used one first.
pub(super) fn object_rows(objects: &[Object], wholes: Wholes) -> Json {
    objects.iter().map(|object| object_row(object, wholes)).collect()
}

fn object_row(object: &Object, wholes: Wholes) -> Json {
    let functions: Json = object
        .functions
        .iter()
        .map(|function| json!({ "function": function.name, "module": function.module }))
        .collect();
    let touches: u64 = object.touched_on.values().sum();
    let touched_on: Map<String, Json> = object
        .touched_on
        .iter()
        .map(|(node, count)| (node.to_string(), json!(percent(*count as f64, touches as f64))))
        .collect();
    let mut row = uses(&object.by_node, &object.next_by_node, wholes);
    row.insert("functions".into(), functions);
    row.insert("mapping".into(), json!(object.mapping));
    row.insert("first_touches".into(), json!(touches));
    row.insert("first_touched_on".into(), Json::Object(touched_on));
    Json::Object(row)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::access::AccessSource;
    use crate::model::access::answers::AccessClass;
    use crate::model::access::lines::ContendedLines;
    use crate::model::access::lines::Object;
    use crate::model::stacks::Function;
    use crate::model::units::NodeId;

    #[test]
    fn mappings_that_only_a_pmu_sampled_have_no_share_of_time() {
        let mut answers = Answers::default();
        (0..200).for_each(|_| answers.add(AccessClass::Dram { remote: true }, None, Some(400)));
        let mapping = MappingUse {
            start: 0x1000,
            bytes: 4096,
            name: "[heap]".into(),
            by_node: ByNodes::new(),
            next_by_node: ByNodes::new(),
            answers: answers.clone(),
        };
        let found = Arc::new(MemoryUse { mappings: vec![mapping], answers, ..MemoryUse::default() });
        let event = Some(SampledEvent { source: AccessSource::Ibs, threshold: None });
        let sampled = SampledUse { source: AccessSource::Clock, event, window_s: 10.0, found };
        let object = object(&sampled, 2, Why::default());
        let mapping = &object["mappings"][0];
        assert_eq!((&mapping["name"], &mapping["pmu_samples"]), (&json!("[heap]"), &json!(200)), "{object}");
        assert!(mapping["use_pct"].is_null() && object["missing"]["use_pct"].is_string(), "{object}");
        assert_eq!(object["pmu"]["by_answer"], json!({ "remote_dram": 200 }));
        assert!(object["missing"]["objects"].as_str().unwrap().starts_with("no first touch"), "{object}");
        let refused = Missing::Unsupported("page faults: EACCES".into());
        let why_not = Why { no_touches: Some(&refused), ..Why::default() };
        assert_eq!(super::object(&sampled, 2, why_not)["missing"]["objects"], "page faults: EACCES");
        // Objects without a share of time or of accesses have that reason.
        let touched = MemoryUse { objects: vec![Object::default()], ..MemoryUse::clone(&sampled.found) };
        let touched = SampledUse { found: Arc::new(touched), ..sampled.clone() };
        let touched = super::object(&touched, 2, why_not);
        assert!(
            touched.get("objects").is_none()
                && touched["missing"]["objects"] == touched["missing"]["use_pct"]
        );
        // Without the event, mappings have no such fields.
        let none = SampledUse { event: None, ..sampled.clone() };
        let without = super::object(&none, 2, Why::default());
        assert!(without["missing"]["mappings"].is_string() && without.get("pmu").is_none(), "{without}");
        assert!(without["missing"]["contended_lines"].is_string(), "{without}");
        assert_eq!(object["pmu"]["contended_lines"], json!([]), "nothing was contended");
        // If the source is unknown, nothing is counted.
        let cannot = Missing::Unsupported("no code says it".into());
        let why = Why { no_lines: Some(&cannot), ..Why::default() };
        let cannot = super::object(&sampled, 2, why);
        assert_eq!(cannot["missing"]["contended_lines"], "no code says it", "{cannot}");
        assert!(cannot["pmu"]["contended_lines"].is_null() && cannot["pmu"]["contended_loads"].is_null());
        let lines = ContendedLines { loads: 2, listed: Vec::new() };
        let some = MemoryUse { lines, ..MemoryUse::clone(&sampled.found) };
        let some = super::object(&SampledUse { found: Arc::new(some), ..sampled }, 2, why);
        assert_eq!(
            (&some["pmu"]["contended_loads"], &some["pmu"]["contended_lines"]),
            (&json!(2), &json!([]))
        );
    }

    #[test]
    fn a_line_has_its_share_and_both_sides() {
        let name = Some("push".into());
        let function = Some(Arc::new(Function { name, module: "queue".into(), kernel: false }));
        let cpu_node = Some(NodeId(1));
        let stored = LineSide { store: true, function, offset: 8, cpu_node, samples: 7, far: 0 };
        let loaded = LineSide { offset: 0, samples: 50, far: 40, ..LineSide::default() };
        let sides = vec![loaded, stored];
        let line = ContendedLine {
            mapping: "[heap]".into(),
            page_node: Some(NodeId(0)),
            loads: 50,
            far: 40,
            stores: 7,
            sides,
        };
        let found = line_rows(&ContendedLines { loads: 100, listed: vec![line] });
        assert_eq!((&found[0]["loads_pct"], &found[0]["offsets"]), (&json!(50.0), &json!([0, 8])), "{found}");
        // Wilson at 50 of 100: 40.4 to 59.6.
        assert_eq!(found[0]["error_points"], 9.6, "{found}");
        let sides = &found[0]["sides"];
        assert_eq!((&sides[0]["access"], &sides[0]["function"]), (&json!("load"), &Json::Null));
        assert_eq!(
            sides[1],
            json!({
                "access": "store", "offset": 8, "cpu_node": 1, "samples": 7, "from_other_node": 0,
                "function": "push", "module": "queue",
            })
        );
    }

    #[test]
    fn an_object_has_its_functions_and_its_share() {
        let function = |name: Option<&str>| {
            let name = name.map(str::to_string);
            Arc::new(Function { name, module: "app".into(), kernel: false })
        };
        let node = |id| Some(NodeId(id));
        let object = Object {
            functions: vec![function(Some("fill")), function(None)],
            touched_on: [(NodeId(0), 3), (NodeId(1), 1)].into(),
            mapping: "[heap]".into(),
            by_node: [((node(0), node(0)), 10.0), ((node(0), node(1)), 40.0)].into(),
            next_by_node: [((node(0), node(0)), 25.0)].into(),
        };
        let both = object_rows(std::slice::from_ref(&object), (Some(100.0), Some(100.0)));
        let expected = json!([{
            "functions": [{ "function": "fill", "module": "app" }, { "function": null, "module": "app" }],
            "mapping": "[heap]", "first_touches": 4, "first_touched_on": { "0": 75.0, "1": 25.0 },
            "use_pct": 50.0, "error_points": 9.6, "use_by_node": { "0": 50.0 }, "remote_pct": 80.0,
            // Wilson at 25 of 100: 17.5 to 34.3.
            "accesses_pct": 25.0, "accesses_error_points": 9.3,
        }]);
        assert_eq!(both, expected);
        let counted = object_rows(&[object], (None, Some(100.0)));
        assert!(counted[0]["use_pct"].is_null() && counted[0]["remote_pct"].is_null(), "{counted}");
        assert_eq!((&counted[0]["accesses_pct"], &counted[0]["use_by_node"]), (&json!(25.0), &json!({})));
    }
}
