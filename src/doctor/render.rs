//! How a report looks: text for people, with marks that are words; JSON for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Mark, MetricLine, Report};
use crate::collect::plan::Advice;
use crate::text::{hanging, words};

/// Every mark is as wide as this, so that the texts line up.
const INDENT: &str = "      ";

/// Lines of libbpf shown for a probe that fails for a reason no rule knows.
const LOG_LINES: usize = 8;

/// The report as text of at most `width` columns. Commands and single long words may be longer.
pub fn render_text(report: &Report, width: usize) -> String {
    let mut out = String::new();
    for section in &report.sections {
        title(&mut out, section.title);
        for finding in &section.findings {
            out += &marked(finding.mark, &finding.text, width);
        }
    }
    if !report.caveats.is_empty() {
        title(&mut out, "worth knowing");
        for caveat in &report.caveats {
            out += &marked(Mark::Warn, &format!("{}: {}", caveat.about, caveat.say), width);
            out += &advice(&caveat.advice, width);
        }
    }
    out += &probes(report, width);
    out += &metrics("task metrics", &report.task_metrics, width);
    out += &metrics("node metrics", &report.node_metrics, width);
    out += &verdict(report, width);
    out
}

fn title(out: &mut String, title: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(title);
    out.push('\n');
}

fn marked(mark: Mark, text: &str, width: usize) -> String {
    let prefix = match mark {
        Mark::Ok => "ok    ",
        Mark::Warn => "warn  ",
        Mark::No => "no    ",
    };
    hanging(prefix, words(text), width)
}

fn advice(advice: &[Advice], width: usize) -> String {
    advice.iter().map(|one| one.render(INDENT, width)).collect()
}

fn probes(report: &Report, width: usize) -> String {
    let mut out = String::new();
    title(&mut out, "\nprobes");
    if report.probes.is_empty() {
        out += &marked(Mark::Warn, "not tried", width);
    }
    let unexplained = report.live.refusal.as_ref().is_some_and(|refusal| refusal.said.is_none());
    for probe in &report.probes {
        let mark = if probe.works { Mark::Ok } else { Mark::No };
        out += &marked(mark, &format!("{}: {}", probe.probe, probe.detail), width);
        if unexplained {
            let skip = probe.log.len().saturating_sub(LOG_LINES);
            out.extend(probe.log.iter().skip(skip).map(|line| hanging(INDENT, words(line), width)));
        }
    }
    out
}

/// The metrics that work in one list; the others by reason, each reason once.
fn metrics(heading: &str, lines: &[MetricLine], width: usize) -> String {
    let mut out = format!("\n{heading}\n");
    let works: Vec<&str> = lines.iter().filter(|line| line.available).map(|line| line.id).collect();
    if !works.is_empty() {
        out += &marked(Mark::Ok, &works.join(" "), width);
    }
    let mut reasons: Vec<(String, Vec<&MetricLine>)> = Vec::new();
    let mut index = BTreeMap::new();
    for line in lines {
        let Some(missing) = &line.missing else { continue };
        let why = missing.to_string();
        let at = *index.entry(why.clone()).or_insert_with(|| {
            reasons.push((why, Vec::new()));
            reasons.len() - 1
        });
        reasons[at].1.push(line);
    }
    for (why, lines) in reasons {
        let ids: Vec<&str> = lines.iter().map(|line| line.id).collect();
        out += &marked(Mark::No, &ids.join(" "), width);
        out += &hanging(INDENT, words(&why), width);
        out += &advice(&lines[0].advice, width);
    }
    out
}

fn verdict(report: &Report, width: usize) -> String {
    match &report.live.refusal {
        None => "\nThe live view works here.\n".into(),
        Some(refusal) => {
            let code = refusal.exit as u8;
            let heading = format!("The live view does not work here and would exit with code {code}:");
            format!("\n{}{refusal}\n", hanging("", words(&heading), width))
        }
    }
}

/// The report as JSON. A fact that could not be learned is `{"unknown": "why"}`.
pub fn render_json(report: &Report) -> Value {
    let by_id = |lines: &[MetricLine]| -> Value {
        let entry = |line: &MetricLine| {
            let rest = json!({
                "available": line.available,
                "why": line.missing.as_ref().map(ToString::to_string),
                "advice": line.advice,
            });
            (line.id.to_string(), rest)
        };
        Value::Object(lines.iter().map(entry).collect())
    };
    // Nothing in a report fails to serialize: no maps with keys that are not text.
    let mut value = serde_json::to_value(report).unwrap_or_default();
    value["task_metrics"] = by_id(&report.task_metrics);
    value["node_metrics"] = by_id(&report.node_metrics);
    value
}
