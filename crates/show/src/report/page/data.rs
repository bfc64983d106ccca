//! Numbers for the script: values for the cursor, and sums of parts of the time.

use serde_json::{Value as Json, json};

use super::View;
use super::timeline::{rows, shown};
use crate::metric::Unit;
use crate::report::Report;
use crate::report::lanes::{Id, Lane};
use crate::report::programs::{Part, Sums};
use crate::report::track::Track;

/// The text of a data block: JSON in which no character ends the block.
pub(super) fn text(view: &View<'_>) -> String {
    object(view).to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn object(view: &View<'_>) -> Json {
    let report = view.report;
    let grid = &report.grid;
    let begin = jiff::Timestamp::from_nanosecond(grid.begin_ns.into()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let table = |rows: Vec<&Sums>| -> Vec<Json> {
        rows.into_iter().map(|sums| of_row(sums, report.parts.count)).collect()
    };
    let programs = report.programs.rows.iter().map(|row| &row.sums).chain(&report.programs.rest);
    json!({
        "begin": grid.begin_ns / 1_000_000,
        "width": grid.width_ns / 1_000_000,
        "count": grid.count,
        "offset": view.clock.zone.to_offset(begin).seconds(),
        "days": view.clock.days,
        "seconds": view.clock.seconds,
        "command": view.command,
        "time": weights(&report.time_ns),
        "lanes": shown(report).map(of_lane).collect::<Vec<Json>>(),
        // Buckets in a part, and measured time by part.
        "each": report.parts.width_ns / grid.width_ns,
        "measured": measured(report),
        "programs": table(programs.collect()),
        "containers": table(report.containers.rows.iter().map(|row| &row.sums).collect()),
        "matrix": report.matrices.accesses.by_part.iter().map(|part| part.iter().map(|ns| milli(*ns)).collect::<Json>()).collect::<Vec<Json>>(),
    })
}

/// Three digits are more than a pixel has.
fn rounded(value: f64) -> Json {
    if !value.is_finite() {
        return Json::Null;
    }
    if value == 0.0 {
        return json!(0);
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        let unit = 10f64.powi(-digits);
        return json!(((value / unit).round() * unit) as i64);
    }
    let unit = 10f64.powi(digits.min(9));
    json!((value * unit).round() / unit)
}

/// Nanoseconds as whole milliseconds, and cycles as millions of them.
fn milli(value: f32) -> Json {
    json!((f64::from(value) / 1e6).round() as i64)
}

/// The weight of each bucket among others: a share of the largest.
fn weights(amounts: &[f64]) -> Json {
    let most = amounts.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    amounts.iter().map(|amount| json!((amount / most * 999.0).round() as i64)).collect()
}

fn of_lane(lane: &Lane) -> Json {
    let unit = match lane.id.unit() {
        Unit::Percent => "%",
        Unit::Bytes => "B",
        Unit::PerSecond => "/s",
        Unit::Ratio => "r",
        _ => "",
    };
    let mut tracks: Vec<&Track> = rows(lane).into_iter().map(|(_, track)| track).collect();
    if tracks.len() > 8 {
        tracks = vec![&lane.machine];
    }
    let values = |track: &Track| -> Json {
        track.cells.iter().map(|cell| cell.value().map_or(Json::Null, rounded)).collect()
    };
    // Buckets of quotients have weights of their own; those of all others are time.
    let is_quotient = matches!(lane.id, Id::Remote | Id::Ipc);
    let weights = |track: &Track| {
        let amounts: Vec<f64> = track.cells.iter().map(|cell| cell.den).collect();
        if is_quotient { weights(&amounts) } else { Json::Null }
    };
    json!({
        "id": lane.id.id(),
        "unit": unit,
        "rows": tracks.iter().map(|track| json!({ "v": values(track), "w": weights(track) })).collect::<Vec<Json>>(),
    })
}

/// Time of intervals by part, ms: what CPU time of rows is a share of.
fn measured(report: &Report) -> Vec<Json> {
    let each = (report.parts.width_ns / report.grid.width_ns).max(1) as usize;
    report.time_ns.chunks(each).map(|part| json!((part.iter().sum::<f64>() / 1e6).round() as i64)).collect()
}

/// Six lists of a row, each as long as it has to be: what follows is 0.
fn of_row(sums: &Sums, count: usize) -> Json {
    let list = |of: fn(&Part) -> f32| -> Json {
        let mut list = vec![0i64; count];
        for (at, part) in &sums.parts {
            if let Some(place) = list.get_mut(*at as usize) {
                *place = (f64::from(of(part)) / 1e6).round() as i64;
            }
        }
        let end = list.iter().rposition(|value| *value != 0).map_or(0, |last| last + 1);
        json!(list[..end])
    };
    json!([
        list(|part| part.run_ns),
        list(|part| part.remote_ns),
        list(|part| part.placed_ns),
        list(|part| part.instructions),
        list(|part| part.cycles),
        list(|part| part.wait_ns),
    ])
}
