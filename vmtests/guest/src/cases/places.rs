//! One command in several places: where it ran and where its memory was, against what it was told and what it found.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::number;
use crate::report::Report;
use crate::tool;

pub const CASE: Case = Case {
    name: "places",
    about: "run --bind: CPU time and memory by node are those of each place, counts are those of the command",
    run,
};

/// MiB that the command touches: 16,384 pages.
const MIB: &str = "64";

/// CPU time that it uses, ms: many intervals, as the first ones see the memory of its file only.
const MS: &str = "4000";

/// Places, with the node of the CPUs and that of the memory.
const PLACES: [(&str, &str, &str); 4] =
    [("node:0", "0", "0"), ("node:1", "1", "1"), ("node:0,mem:1", "0", "1"), ("node:1,mem:0", "1", "0")];

fn run(report: &mut Report, _: &Plan) -> Result<(), Stop> {
    let page = "/places.json";
    let mut words = vec!["run", "-d", "0.5", "--format", "json", "-o", page];
    PLACES.iter().for_each(|(place, ..)| words.extend(["--bind", place]));
    let own = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let own = own.to_string_lossy();
    words.extend(["--", &own, "workload", "touch", MIB, MS]);
    let output = tool::run(&words)?;
    if output.code != Some(0) {
        return Err(Stop::fail(output.brief()));
    }
    let text = std::fs::read_to_string(page).map_err(|error| format!("reading {page}: {error}"))?;
    let told: Value = serde_json::from_str(&text).map_err(|error| format!("{page}: {error}"))?;
    let truths: Vec<Value> = output
        .stdout
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the command printed no JSON: {error}"))?;
    report.equal("runs", PLACES.len(), truths.len());
    for (at, ((place, cpus, memory), truth)) in PLACES.iter().zip(&truths).enumerate() {
        let series = &told["series"][at];
        report.equal(
            "the place",
            (*place).to_owned(),
            series["binding"].as_str().unwrap_or_default().to_owned(),
        );
        let run = &series["runs"][0];
        let cpu = number(run, "cpu_s")?;
        let used = number(truth, "cpu_ns")? / 1e9;
        let own = used - number(truth, "cpu_ns_before")? / 1e9;
        report.cpu_seconds_between(format_args!("CPU seconds, {place}"), (own, used), cpu);
        let on_node = run["cpu_s_by_node"][*cpus].as_f64().unwrap_or(0.0);
        report.close(format_args!("share of its CPU time on node {cpus}, {place}"), 1.0, on_node / cpu, 0.01);
        let pages = number(truth, "pages")?;
        let there = truth["pages_by_node"][*memory].as_f64().unwrap_or(0.0);
        report.close(format_args!("pages on node {memory} by move_pages, {place}"), pages, there, 0.01);
        let bytes = |node: &str| run["peak_bytes_by_node"][node].as_f64().unwrap_or(0.0);
        let share = bytes(memory) / (bytes("0") + bytes("1"));
        report.check(
            share > 0.9,
            format_args!("share of its memory on node {memory}, {place}"),
            "above 90 %",
            share,
        );
        // Pages of the program itself may be anywhere.
        let crossed = number(run, "cross_node_allocs")?;
        let is_remote = cpus != memory;
        let (least, most) = if is_remote { (pages, pages * 1.1) } else { (0.0, pages * 0.1) };
        report.check(
            (least..=most).contains(&crossed),
            format_args!("allocations on another node, {place}"),
            format_args!("{least} to {most}"),
            crossed,
        );
        // An estimate from where its memory is, which at first is that of the program's file.
        let remote = number(run, "remote_pct")?;
        report.check(
            if is_remote { remote > 60.0 } else { remote < 40.0 },
            format_args!("remote share, {place}"),
            if is_remote { "above 60 %" } else { "below 40 %" },
            remote,
        );
        report.equal(format_args!("its exit code, {place}"), 0.0, number(run, "exit_code")?);
    }
    Ok(())
}
