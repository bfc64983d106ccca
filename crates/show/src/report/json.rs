//! A report as one JSON object, with all data of the page.

use serde_json::{Map, Value as Json, json};

use super::clock::Clock;
use super::gaps::Gap;
use super::lanes::{Id, Lane};
use super::matrix::Matrix;
use super::programs::{ProgramRow, Sums, Table};
use super::track::{Cell, Track};
use super::{Report, words};
use crate::finding::json as findings;
use crate::metric::over::Quotient;
use crate::metric::{placement, task};
use crate::text::json::number;
use crate::text::rfc3339;

/// The version of the object. Keys may be added, never renamed or removed.
pub const SCHEMA: &str = "numatop-report/1";

/// The object.
pub fn object(report: &Report, clock: &Clock) -> Json {
    let about = &report.about;
    json!({
        "schema": SCHEMA,
        "title": words::title(report, clock),
        "host": {
            "hostname": about.hostname,
            "kernel": about.kernel,
            "cpu_model": about.cpu_model,
            "scope": about.scope,
            "cpus": about.host.topology.online_cpus().count(),
            "nodes": report.nodes,
            "boots": about.boots,
            "topology_changes": about.changes,
        },
        "from": rfc3339(report.span.0),
        "to": rfc3339(report.span.1),
        "intervals": report.intervals,
        "measured_ns": number(report.total_ns),
        "lede": words::lede(report),
        "caveat": words::caveat(report, clock),
        "buckets": {
            "begin": rfc3339(report.grid.begin_ns),
            "width_ns": report.grid.width_ns,
            "count": report.grid.count,
            "gaps": runs(&report.gaps),
        },
        "lanes": report.lanes.iter().map(lane).collect::<Vec<Json>>(),
        "matrix": matrices(report),
        "findings": report.findings.iter().map(findings::finding).collect::<Vec<Json>>(),
        "findings_blind": report.blind.iter().map(findings::blind).collect::<Vec<Json>>(),
        "findings_summary": findings::summary(&report.verdict.summary),
        "programs": table(report, &report.programs),
        "containers": table(report, &report.containers),
        "hot": hot(report),
        "missing": missing(report),
        "self": { "cpu_ns": number(report.own_ns), "rss_bytes": report.own_rss },
    })
}

/// First and last bucket of each run of gaps.
fn runs(gaps: &[bool]) -> Vec<[usize; 2]> {
    let mut runs: Vec<[usize; 2]> = Vec::new();
    for at in (0..gaps.len()).filter(|at| gaps[*at]) {
        match runs.last_mut() {
            Some(last) if last[1] + 1 == at => last[1] = at,
            _ => runs.push([at, at]),
        }
    }
    runs
}

/// The value, and the sums that it is a quotient of.
fn quotient(sums: Quotient) -> Json {
    let value = if sums.den > 0.0 { number(sums.num * sums.scale / sums.den) } else { Json::Null };
    json!({ "value": value, "num": number(sums.num * sums.scale), "den": number(sums.den) })
}

fn track(track: &Track) -> Json {
    let each = |of: fn(&Cell) -> Option<f64>| -> Vec<Json> {
        track.cells.iter().map(|cell| of(cell).map_or(Json::Null, number)).collect()
    };
    let mut object = quotient(track.sums(0..track.cells.len()));
    object["mean"] = json!(each(Cell::value));
    object["low"] = json!(each(|cell| Some(f64::from(cell.low))));
    object["high"] = json!(each(|cell| Some(f64::from(cell.high))));
    object
}

fn lane(lane: &Lane) -> Json {
    let id: Id = lane.id;
    let nodes: Map<String, Json> =
        lane.nodes.iter().map(|(node, of)| (node.to_string(), track(of))).collect();
    json!({
        "id": id.id(),
        "metric": id.metric(),
        "name": words::lane(id),
        "missing": lane.missing,
        "source": (id == Id::Remote).then(|| words::source(lane.sources.most())),
        "error_points": lane.sources.error_points().map(number),
        "machine": track(&lane.machine),
        "nodes": nodes,
    })
}

fn matrices(report: &Report) -> Json {
    let nodes = &report.matrices.nodes;
    let of = |matrix: &Matrix| -> Json {
        let row =
            |from: usize| -> Vec<Json> { (0..nodes.len()).map(|to| number(matrix.sum(from, to))).collect() };
        (0..nodes.len()).map(row).collect()
    };
    if nodes.len() < 2 {
        return Json::Null;
    }
    json!({
        "nodes": nodes,
        "accesses_ns": of(&report.matrices.accesses),
        "accesses_sampled_pct": number(report.matrices.sampled_pct()),
        "tasks_moved": of(&report.matrices.tasks),
        "pages_moved": of(&report.matrices.pages),
    })
}

fn sums(report: &Report, sums: &Sums) -> Json {
    let by_node = |list: &[f64]| list.iter().map(|one| number(*one)).collect::<Vec<Json>>();
    let per_time = |amount: f64, scale: f64| Quotient { num: amount, den: report.total_ns, scale };
    json!({
        (task::CPU_PCT.id): quotient(per_time(sums.run_ns, 100.0)),
        (placement::REMOTE_PCT.id): quotient(sums.remote),
        (placement::REMOTE_SOURCE.id): words::source(sums.sources.most()),
        (placement::REMOTE_ERROR_POINTS.id): sums.sources.error_points().map(number),
        (task::IPC.id): quotient(sums.ipc),
        (task::RUNQ_WAIT_PCT.id): quotient(per_time(sums.wait_ns, 100.0)),
        (task::NODE_MIGRATIONS_PER_S.id): quotient(per_time(sums.moves, 1e9)),
        (task::RSS_BYTES.id): quotient(sums.rss),
        "rss_bytes_most": number(sums.rss_most),
        "run_ns_by_node": by_node(&sums.run_by_node),
        "memory_byte_ns_by_node": by_node(&sums.memory_by_node),
        "processes": sums.processes,
        "pid": sums.main_pid(),
    })
}

fn table(report: &Report, table: &Table) -> Json {
    let row = |row: &ProgramRow| {
        let mut object = sums(report, &row.sums);
        object["name"] = json!(row.name);
        object["container"] = json!(row.container);
        object
    };
    json!({
        "rows": table.rows.iter().map(row).collect::<Vec<Json>>(),
        "others": table.others,
        "rest": table.rest.as_ref().map(|rest| sums(report, rest)),
        "merged": table.merged,
    })
}

fn hot(report: &Report) -> Json {
    let Some(hot) = &report.hot else { return Json::Null };
    let spots = hot.spots.iter().map(|spot| {
        json!({
            "function": spot.function,
            "module": spot.module,
            "kernel": spot.kernel,
            "own_pct": number(spot.own_pct),
            "own_error_pct": number(spot.error_pct),
            "total_pct": number(spot.total_pct),
        })
    });
    json!({
        "event": hot.event,
        "rate_hz": hot.hz,
        "samples": hot.samples,
        "lost": hot.lost,
        "functions": spots.collect::<Vec<Json>>(),
        "functions_left_out": hot.spots_left_out,
    })
}

fn missing(report: &Report) -> Json {
    let missing = &report.missing;
    let gap = |gap: &Gap| {
        json!({
            "from": rfc3339(gap.from_ns),
            "to": rfc3339(gap.to_ns),
            "why": gap.why,
            "gaps": gap.count,
            "missing_ns": number(gap.ns),
            "more_why": gap.more_why,
            "new_run": gap.new_runs > 0,
            "restarted": gap.is_restart,
        })
    };
    let note = |(wall_ns, words): &(i64, String)| json!({ "time": rfc3339(*wall_ns), "note": words });
    json!({
        "gaps": missing.gaps.iter().map(gap).collect::<Vec<Json>>(),
        "more_gaps": missing.more_gaps(),
        "notes": missing.notes.iter().map(note).collect::<Vec<Json>>(),
        "more_notes": missing.more_notes,
        "lost": missing.lost,
        "exits_not_itemised_cpu_ns": missing.exit_lost_ns,
        "not_measured": missing.not_measured,
        "torn_bytes": missing.torn_bytes,
    })
}
