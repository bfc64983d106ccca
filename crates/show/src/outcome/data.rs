//! The runs for programs: CSV (RFC 4180), a line each, and one JSON object.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::measures::{MEASURES, Unit};
use super::{End, Outcome, Series, spread};
use crate::finding::json as findings;
use crate::metric::Value;
use crate::text::{clean_str, one_line};

/// A header, and a line for each run. A value that could not be measured is an empty field.
pub fn csv(series: &[Series]) -> String {
    let ids: Vec<&str> = MEASURES.iter().map(|measure| measure.id).collect();
    let mut out = format!("binding,run,exit_code,signal,{}\r\n", ids.join(","));
    for one in series {
        for (at, run) in one.runs.iter().enumerate() {
            let binding = quoted(&one_line(one.binding.as_deref().unwrap_or_default()));
            let (code, signal) = match run.end {
                End::Exited(code) => (code.to_string(), String::new()),
                End::Killed(signal) => (String::new(), signal.to_string()),
            };
            let _ = write!(out, "{binding},{},{code},{signal}", at + 1);
            for measure in &MEASURES {
                let value = measure.read(run).map_or_else(|_| String::new(), |value| field(&value));
                let _ = write!(out, ",{value}");
            }
            out += "\r\n";
        }
    }
    out
}

fn field(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::ByNode(parts) => {
            let parts = parts.iter().map(|(node, part)| format!("{node}:{part}"));
            parts.collect::<Vec<_>>().join(" ")
        }
        value => value.to_json().to_string(),
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Version of the object's shape. Keys may be added, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// The object. `command` is its words.
pub fn object(command: &[String], series: &[Series]) -> Json {
    let host = series.iter().flat_map(|one| &one.runs).next().map(|run| &run.machine.host);
    json!({
        "schema": SCHEMA,
        "command": command.iter().map(|word| clean_str(word)).collect::<Vec<_>>(),
        "host": host.map(|host| json!({
            "hostname": clean_str(&host.hostname),
            "kernel": clean_str(&host.kernel),
            "cpus": host.topology.online_cpus().count(),
            "nodes": host.topology.nodes.len(),
        })),
        "series": series.iter().map(of_series).collect::<Vec<Json>>(),
    })
}

fn of_series(series: &Series) -> Json {
    let (mut mean, mut deviation) = (Map::new(), Map::new());
    for measure in MEASURES.iter().filter(|measure| measure.unit != Unit::Text) {
        let values: Option<Vec<f64>> = series
            .runs
            .iter()
            .map(|run| measure.read(run).ok().filter(|value| !matches!(value, Value::ByNode(_)))?.number())
            .collect();
        let Some(spread) = values.and_then(|values| spread(&values)) else { continue };
        mean.insert(measure.id.into(), json!(spread.mean));
        if let Some(sd) = spread.deviation {
            deviation.insert(measure.id.into(), json!(sd));
        }
    }
    json!({
        "binding": series.binding,
        "runs": series.runs.iter().map(of_run).collect::<Vec<Json>>(),
        "mean": mean,
        "standard_deviation": deviation,
    })
}

fn of_run(run: &Outcome) -> Json {
    let (mut values, mut missing) = (Map::new(), Map::new());
    for measure in &MEASURES {
        let (value, why) = match measure.read(run) {
            Ok(value) => (value.to_json(), None),
            Err(why) => (Json::Null, Some(why.to_string())),
        };
        values.insert(measure.id.into(), value);
        if let Some(why) = why {
            missing.insert(measure.id.into(), json!(why));
        }
    }
    let (code, signal) = match run.end {
        End::Exited(code) => (Some(code), None),
        End::Killed(signal) => (None, Some(signal)),
    };
    values.insert("exit_code".into(), json!(code));
    values.insert("signal".into(), json!(signal));
    values.insert("missing".into(), Json::Object(missing));
    values.insert("lost".into(), json!(run.lost));
    values.insert("findings".into(), run.findings.iter().map(findings::finding).collect());
    values.insert("verdict".into(), json!(run.verdict));
    Json::Object(values)
}
