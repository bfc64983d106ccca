//! A process whose node has too few huge pages, so that it has those of the other node: `hugetlb-on-other-node`. Its commands are for
//! its next start, which the case makes.

use std::time::{Duration, Instant};

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::{self, Watch};
use super::{ENDS, LIVES, Loop, SLACK, execute, two_nodes, undo};
use crate::report::Report;
use crate::rest::Balancing;
use crate::setting::Setting;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_hugetlb",
    about: "a process of node 0 has huge pages of node 1: the finding comes, and after its commands and a new start, as printed, all of \
            them are of node 0 and it does not come back; the way back restores both pools",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(30);
/// Pages of 2 MiB: of the process, and those of them that node 0 has.
const PAGES: u32 = 48;
const OWN: u32 = 8;

fn pool(node: u32) -> String {
    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _balancing = Balancing::off()?;
    let sizes = [OWN, PAGES - OWN].map(|pages| pages.to_string());
    let _pools = [Setting::begin(pool(0), &sizes[0])?, Setting::begin(pool(1), &sizes[1])?];
    for node in [0, 1] {
        report.equal(
            format_args!("the pool of node {node}"),
            sizes[node].clone(),
            sysfs::read(pool(node as u32))?,
        );
    }
    let mut watch = Watch::start()?;
    let (cpu, mib) = (sysfs::node_cpus(0)?[0].to_string(), (2 * PAGES).to_string());
    let start = || Work::start_now("numa_truth", &[&cpu, "100,0", &mib, "reserved", "uniform"]);
    let work = start()?;
    report.say(format_args!("pages by node: {}", work.facts["pages_by_node"]));
    let finding = Loop { held: HELD, ..Loop::of("hugetlb-on-other-node") }.comes(
        report,
        &mut watch,
        LIVES + HELD + SLACK + SLACK,
    )?;
    work.stop()?;
    // In the order that is printed, when it has ended and before it starts again.
    execute(report, &finding["commands"], &["next_start"]);
    let work = start()?;
    let by_node = &work.facts["pages_by_node"];
    let there = by_node[0].as_u64() > Some(0) && by_node[1].as_u64() == Some(0);
    report.check(there, "pages by node after the new start", "all of them of node 0", by_node);
    let began = Instant::now();
    let check = finding["check"][0].clone();
    let limit = Duration::from_secs_f64(check["within_s"].as_f64().unwrap_or(0.0));
    let (pid, to) = (work.pid(), check["to"].as_f64().unwrap_or(-1.0));
    let metric = check["metric"].as_str().unwrap_or_default().to_owned();
    let value = |interval: &serde_json::Value| watch::process(interval, pid)[&metric].as_f64();
    let cured = watch.until(limit + SLACK, |interval| value(interval).is_some_and(|value| value <= to))?;
    report.check(
        cured.is_some(),
        format_args!("the check, of the new process: {check}"),
        "true in its time",
        format_args!("{} s", began.elapsed().as_secs()),
    );
    let comes_back =
        |interval: &serde_json::Value| watch::finding(interval, "hugetlb-on-other-node").is_some();
    let left = (LIVES + HELD + ENDS + SLACK).saturating_sub(began.elapsed());
    watch.follow(left)?;
    report.check(
        !comes_back(watch.last()),
        "the finding of the new process",
        "none",
        watch.why_not("hugetlb-on-other-node"),
    );
    work.stop()?;
    undo(report, &finding)?;
    for node in [0, 1] {
        let what = format_args!("the pool of node {node} after the way back").to_string();
        report.equal(what, sizes[node].clone(), sysfs::read(pool(node as u32))?);
    }
    watch.stop()?;
    Ok(())
}
