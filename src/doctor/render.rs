//! The report of doctor as text for people, with marks that are words, and as JSON for programs.

use serde_json::{Value, json};

use super::findings::COUNTERS;
use super::{Mark, MetricLine, Report, Section};
use crate::collect::check::HostCheck;
use crate::collect::plan::Advice;
use crate::host::fact::Fact;
use crate::model::sample::Missing;
use crate::text::{clean_str, hanging, plural, without_codes, words};

/// Every mark is as wide as this, so that the texts line up.
const INDENT: &str = "      ";

/// Lines of libbpf shown for a probe that fails for a reason no rule knows.
const LOG_LINES: usize = 8;

/// Lines of the short report at most.
const LINES_MAX: usize = 40;

/// Metrics that are named for each reason in the short report.
const NAMED: usize = 5;

/// The report as text of at most `width` columns, the verdict first: everything, or what does not work. Commands and single
/// long words may be longer.
pub fn render_text(report: &Report, width: usize, all: bool) -> String {
    let mut out = verdict(report, width);
    match all {
        true => everything(&mut out, report, width),
        false => problems(&mut out, report, width),
    }
    out
}

fn everything(out: &mut String, report: &Report, width: usize) {
    for section in &report.sections {
        title(out, section.title);
        for finding in &section.findings {
            *out += &marked(finding.mark, &finding.text, width);
        }
    }
    caveats(out, report, width);
    *out += &probes(report, width);
    let mut given = Vec::new();
    *out += &metrics("task metrics", &report.task_metrics, report, &mut given, width);
    *out += &metrics("node metrics", &report.node_metrics, report, &mut given, width);
}

fn caveats(out: &mut String, report: &Report, width: usize) {
    if !report.caveats.is_empty() {
        title(out, "worth knowing");
        for caveat in &report.caveats {
            *out += &marked(Mark::Warn, &format!("{}: {}", caveat.about, caveat.say), width);
            out.extend(caveat.advice.iter().map(|one| one.render(INDENT, width)));
        }
    }
}

/// The facts and probes that do not work, and what is not measured for each reason, with advice; then what was left out.
fn problems(out: &mut String, report: &Report, width: usize) {
    let lines: Vec<&MetricLine> = report.task_metrics.iter().chain(&report.node_metrics).collect();
    let available = lines.iter().filter(|line| line.available).count();
    title(out, &format!("{available} of {} metrics are available", lines.len()));
    let stops = report.live.refusal.as_ref().and_then(|refusal| refusal.why.clone());
    let mut reasons: Vec<(String, Vec<&MetricLine>)> = Vec::new();
    for line in lines {
        let Some(why) = line.missing.as_ref().map(|why| of_any_counter(&why.to_string())) else { continue };
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, lines)) => lines.push(line),
            None => reasons.push((why, vec![line])),
        }
    }
    let mut given: Vec<&Advice> = Vec::new();
    for (why, lines) in reasons.iter().filter(|(why, _)| stops.as_ref() != Some(why)) {
        let mut ids: Vec<&str> = Vec::new();
        lines.iter().for_each(|line| {
            if !ids.contains(&line.id) {
                ids.push(line.id);
            }
        });
        let more = ids.len().saturating_sub(NAMED);
        ids.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        *out += &marked(Mark::No, &format!("{}{more}: {why}", ids.join(" ")), width);
        for one in lines.iter().flat_map(|line| &line.advice) {
            if !given.contains(&one) {
                *out += &one.render(INDENT, width);
                given.push(one);
            }
        }
    }
    // Metrics have the reasons of counters above.
    let is_named = |section: &&Section| section.title == COUNTERS;
    let of_counters = report.sections.iter().filter(is_named).flat_map(|section| &section.findings);
    let others =
        report.sections.iter().filter(|section| !is_named(section)).flat_map(|section| &section.findings);
    let findings = others.chain(of_counters.filter(|finding| finding.mark != Mark::No));
    let (fine, wrong): (Vec<_>, Vec<_>) = findings.partition(|finding| finding.mark == Mark::Ok);
    let failed: Vec<_> = report.probes.iter().filter(|probe| !probe.works).collect();
    if !wrong.is_empty() || !failed.is_empty() {
        title(out, "other facts and probes");
        for finding in wrong {
            *out += &marked(finding.mark, &finding.text, width);
        }
        for probe in &failed {
            *out += &marked(Mark::No, &format!("{}: {}", probe.probe, probe.detail), width);
        }
    }
    caveats(out, report, width);
    let lines: Vec<&str> = out.lines().collect();
    let hidden = lines.len().saturating_sub(LINES_MAX - 2);
    if hidden > 0 {
        let kept = lines[..LINES_MAX - 2].join("\n");
        *out = kept + "\n";
    }
    let works = report.probes.len() - failed.len();
    let more = if hidden > 0 { format!("{}, ", plural(hidden, "more line")) } else { String::new() };
    *out += &format!(
        "\n--all also shows {more}{} and {} that work\n",
        plural(fine.len(), "fact"),
        plural(works, "probe")
    );
}

/// A reason without the name of the event, so that a machine without a PMU has one reason for all of them.
fn of_any_counter(why: &str) -> String {
    const OPENING: &str = "opening ";
    let Some(at) = why.find(OPENING).map(|at| at + OPENING.len()) else { return why.to_owned() };
    match why[at..].find(':') {
        Some(end) if !why[at..at + end].contains(' ') => {
            format!("{}counters{}", &why[..at], &why[at + end..])
        }
        _ => why.to_owned(),
    }
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
    hanging(prefix, words(&without_codes(&clean_str(text))), width)
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

/// The metrics that work in one list; the others by reason, each reason once. The remedy of the reason that
/// stops the whole view is at the end of the report, not here; advice in `given` is not repeated.
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
        None => "The live view works here.\n".into(),
        Some(refusal) => {
            let code = refusal.exit as u8;
            let heading = format!("The live view does not work here and would exit with code {code}:");
            format!("{}{}", hanging("", words(&heading), width), refusal.render(width))
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
