//! One command in several places. The page is compared with the options of the command and its own output:
//! where it ran and where its memory was.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::number;
use crate::report::Report;
use crate::{sysfs, tool};

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

pub const CORES: Case = Case {
    name: "places_cores",
    about: "run --bind: two threads on one core, on two cores, on two nodes, and far from their memory, in one command",
    run: cores,
};

/// Runs the command, with this many threads, once in each of these places. Returns the page, and the output
/// of each run.
fn bound(places: &[&str], threads: &str) -> Result<(Value, Vec<Value>), Stop> {
    let page = "/places.json";
    let mut words = vec!["run", "-d", "0.5", "--format", "json", "-o", page];
    places.iter().for_each(|place| words.extend(["--bind", place]));
    let own = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let own = own.to_string_lossy();
    words.extend(["--", &own, "workload", "touch", MIB, MS, threads]);
    let _ = std::fs::remove_file(page);
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
    Ok((told, truths))
}

/// Checks that a run was in its place, did the work that its output states, and ended well. Returns its page,
/// and its CPU seconds.
fn in_place<'a>(
    report: &mut Report,
    series: &'a Value,
    truth: &Value,
    place: &str,
) -> Result<(&'a Value, f64), Stop> {
    report.equal("the place", place, series["binding"].as_str().unwrap_or_default());
    let run = &series["runs"][0];
    let cpu = number(run, "cpu_s")?;
    let used = number(truth, "cpu_ns")? / 1e9;
    let own = used - number(truth, "cpu_ns_before")? / 1e9;
    report.cpu_seconds_between(format_args!("CPU seconds, {place}"), (own, used), cpu);
    report.equal(format_args!("its exit code, {place}"), 0.0, number(run, "exit_code")?);
    Ok((run, cpu))
}

/// The remote share is an estimate from where its memory is, which at first is that of the program's file.
fn remote_share(report: &mut Report, run: &Value, is_remote: bool, place: &str) -> Result<(), Stop> {
    let remote = number(run, "remote_pct")?;
    report.check(
        if is_remote { remote > 60.0 } else { remote < 40.0 },
        format_args!("remote share, {place}"),
        if is_remote { "above 60 %" } else { "below 40 %" },
        remote,
    );
    Ok(())
}

/// A place of two threads: the nodes of its CPUs, the node of its memory if given, and whether they share a
/// core.
struct Pair {
    place: String,
    nodes: &'static [&'static str],
    memory: Option<&'static str>,
    is_one_core: Option<bool>,
}

fn cores(report: &mut Report, _: &Plan) -> Result<(), Stop> {
    let core = sysfs::list("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")?;
    let [first, sibling] = core[..] else {
        return Err(Stop::skip("the cores of this machine do not have two threads"));
    };
    let cpus_of = |node: u32| sysfs::list(format!("/sys/devices/system/node/node{node}/cpulist"));
    let same_node = cpus_of(0)?.into_iter().find(|cpu| !core.contains(cpu));
    let (Some(beside), Some(far)) = (same_node, cpus_of(1)?.first().copied()) else {
        return Err(Stop::skip("this machine has no second core or no second node"));
    };
    let pair = |place: String, nodes, memory, is_one_core| Pair { place, nodes, memory, is_one_core };
    let pairs = [
        pair(format!("cpu:{first},{sibling}"), &["0"][..], Some("0"), Some(true)),
        pair(format!("cpu:{first},{beside}"), &["0"], Some("0"), Some(false)),
        pair(format!("cpu:{first},{far}"), &["0", "1"], None, Some(false)),
        pair(format!("cpu:{first},{beside},mem:1"), &["0"], Some("1"), Some(false)),
        pair("node:0".into(), &["0"], Some("0"), None),
        pair("node:1,mem:0".into(), &["1"], Some("0"), None),
    ];
    let places: Vec<&str> = pairs.iter().map(|pair| pair.place.as_str()).collect();
    let (told, truths) = bound(&places, "2")?;
    report.equal("runs", pairs.len(), truths.len());
    for (at, (pair, truth)) in pairs.iter().zip(&truths).enumerate() {
        let place = &pair.place;
        let (run, cpu) = in_place(report, &told["series"][at], truth, place)?;
        let on = |by: &str, part: &str| run[by][part].as_f64().unwrap_or(0.0) / cpu;
        for node in ["0", "1"] {
            let (least, most) = match (pair.nodes.contains(&node), pair.nodes.len()) {
                (true, 1) => (0.99, 1.01),
                (true, _) => (0.2, 0.8),
                (false, _) => (0.0, 0.01),
            };
            let share = on("cpu_s_by_node", node);
            report.check(
                (least..=most).contains(&share),
                format_args!("share of its CPU time on node {node}, {place}"),
                format_args!("{least} to {most}"),
                share,
            );
            // Each socket is a node here, and has one last-level cache.
            let what = format_args!("share of its CPU time on L3 {node}, {place}");
            report.close(what, share.max(0.001), on("cpu_s_by_llc", node).max(0.001), 0.01);
        }
        if let Some(memory) = pair.memory {
            let there = truth["pages_by_node"][memory].as_f64().unwrap_or(0.0);
            let what = format_args!("pages on node {memory} by move_pages, {place}");
            report.close(what, number(truth, "pages")?, there, 0.01);
            remote_share(report, run, !pair.nodes.contains(&memory), place)?;
        }
        if let Some(is_one_core) = pair.is_one_core {
            let share = number(run, "smt_shared_s")? / cpu;
            // Page by page the first thread is alone; the tool and the kernel run beside some of the rest.
            report.check(
                if is_one_core { share > 0.5 } else { share < 0.4 },
                format_args!("share of its CPU time beside a busy sibling, {place}"),
                if is_one_core { "above 50 %" } else { "below 40 %" },
                share,
            );
        }
    }
    Ok(())
}

fn run(report: &mut Report, _: &Plan) -> Result<(), Stop> {
    let (told, truths) = bound(&PLACES.map(|(place, ..)| place), "1")?;
    report.equal("runs", PLACES.len(), truths.len());
    for (at, ((place, cpus, memory), truth)) in PLACES.iter().zip(&truths).enumerate() {
        let (run, cpu) = in_place(report, &told["series"][at], truth, place)?;
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
        remote_share(report, run, is_remote, place)?;
    }
    Ok(())
}
