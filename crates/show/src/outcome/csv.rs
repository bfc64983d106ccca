//! The runs as CSV (RFC 4180): a line each.

use std::fmt::Write as _;

use super::measures::MEASURES;
use super::{End, Series};
use crate::metric::Value;
use crate::text::one_line;

/// A header, and a line for each run. A value that could not be measured is an empty field.
pub fn render(series: &[Series]) -> String {
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
