//! The report of doctor as text for people, with marks that are words, and as JSON for programs.

use serde_json::{Value, json};

use super::{Mark, MetricLine, Report};
use crate::collect::check::HostCheck;
use crate::collect::plan::Advice;
use crate::host::fact::Fact;
use crate::model::sample::Missing;
use crate::text::{clean_str, hanging, words};

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
            out.extend(caveat.advice.iter().map(|one| one.render(INDENT, width)));
        }
    }
    out += &probes(report, width);
    let mut given = Vec::new();
    out += &metrics("task metrics", &report.task_metrics, report, &mut given, width);
    out += &metrics("node metrics", &report.node_metrics, report, &mut given, width);
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
    hanging(prefix, words(&clean_str(text)), width)
}

fn probes(report: &Report, width: usize) -> String {
    let mut out = String::new();
    out.push_str("\nprobes\n");
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

/// The metrics that work in one list; the others by reason, each reason once. The remedy of the reason
/// that stops the whole view stands at the end of the report, not here; advice in `given` is not repeated.
fn metrics<'a>(
    heading: &str,
    lines: &'a [MetricLine],
    report: &Report,
    given: &mut Vec<&'a Advice>,
    width: usize,
) -> String {
    let mut out = format!("\n{heading}\n");
    let works: Vec<&str> = lines.iter().filter(|line| line.available).map(|line| line.id).collect();
    if !works.is_empty() {
        out += &marked(Mark::Ok, &works.join(" "), width);
    }
    let mut reasons: Vec<(&Missing, Vec<&MetricLine>)> = Vec::new();
    for line in lines {
        let Some(missing) = &line.missing else { continue };
        match reasons.iter_mut().find(|(reason, _)| *reason == missing) {
            Some((_, lines)) => lines.push(line),
            None => reasons.push((missing, vec![line])),
        }
    }
    let stops = report.live.refusal.as_ref().and_then(|refusal| refusal.why.clone());
    for (missing, lines) in reasons {
        let ids: Vec<&str> = lines.iter().map(|line| line.id).collect();
        let why = missing.to_string();
        out += &marked(Mark::No, &ids.join(" "), width);
        out += &hanging(INDENT, words(&clean_str(&why)), width);
        if stops.as_ref() != Some(&why) {
            for one in lines.iter().flat_map(|line| &line.advice) {
                if !given.contains(&one) {
                    out += &one.render(INDENT, width);
                    given.push(one);
                }
            }
        }
    }
    out
}

fn verdict(report: &Report, width: usize) -> String {
    match &report.live.refusal {
        None => "\nThe live view works here.\n".into(),
        Some(refusal) => {
            let code = refusal.exit as u8;
            let heading = format!("The live view does not work here and would exit with code {code}:");
            format!("\n{}{}", hanging("", words(&heading), width), refusal.render(width))
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
    json!({
        "schema": report.schema,
        "version": report.version,
        "live": report.live,
        "sections": report.sections,
        "probes": report.probes,
        "task_metrics": by_id(&report.task_metrics),
        "node_metrics": by_id(&report.node_metrics),
        "caveats": report.caveats,
        "facts": facts(&report.facts),
    })
}

/// Of the machine the numbers only: `numatop-ng topology --format json` has every CPU.
fn facts(check: &HostCheck) -> Value {
    let topology = match &check.topology {
        Fact::Known(topology) => json!({
            "nodes": topology.nodes.len(),
            "sockets": (topology.sockets > 0).then_some(topology.sockets),
            "cores": topology.cores,
            "online_cpus": topology.online_cpus().count(),
            "warnings": topology.warnings(),
        }),
        Fact::Unknown { unknown } => json!({ "unknown": unknown }),
    };
    json!({
        "kernel": check.kernel,
        "privileges": check.privileges,
        "pmu": check.pmu,
        "cgroups": check.cgroups,
        "topology": topology,
    })
}
