//! Bytes of a disk with a controller on each node, which has no node itself.

use std::fs;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::Totals;
use crate::procfs;
use crate::report::Report;
use crate::rest::come_to_rest;
use crate::setting::Setting;
use crate::sysfs;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "disk_paths",
    about: "reads of an NVMe disk with a controller on each node are all near with the policy numa, and half of them far with \
            round-robin; the bytes are those that were read",
    run,
};

const SUBSYSTEMS: &str = "/sys/class/nvme-subsystem";
const REQUESTS: u64 = 200;
const KIB: u64 = 64;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let nodes = &plan.machine.disk_paths;
    if nodes.len() != 2 {
        return Err(Stop::skip("needs a disk with two controllers"));
    }
    let of = |at| sysfs::read(format!("/sys/class/nvme/nvme{at}/device/numa_node"));
    // They are numbered as they are found.
    let mut found = [of(0)?, of(1)?];
    found.sort();
    report.equal("nodes of the controllers", "0, 1".to_owned(), found.join(", "));
    let (subsystem, disk) = head()?;
    let head = format!("/sys/block/{disk}");
    let head = fs::canonicalize(&head).map_err(|error| format!("{head}: {error}"))?;
    let is_virtual = head.starts_with("/sys/devices/virtual");
    report.check(is_virtual, "the disk of both paths", "below devices/virtual", head.display());
    for (policy, far) in [("numa", 0.0), ("round-robin", 50.0)] {
        let policy_is = Setting::begin(format!("{SUBSYSTEMS}/{subsystem}/iopolicy"), policy)?;
        report.equal("iopolicy", policy.to_owned(), policy_is.get()?);
        for node in nodes {
            reads(report, &format!("/dev/{disk}"), *node, (policy, far))?;
        }
    }
    Ok(())
}

/// The subsystem of the controllers, and its disk: both are named for the controller that was found first.
fn head() -> Result<(String, String), Stop> {
    let failed = |error| format!("looking for the subsystem: {error}");
    let entries = fs::read_dir(SUBSYSTEMS).map_err(failed)?.flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    match &names[..] {
        [name] => Ok((name.clone(), format!("{}n1", name.replace("-subsys", "")))),
        _ => Err(Stop::fail(format!("the subsystems are {names:?}, not one"))),
    }
}

/// Reads from one node.
fn reads(report: &mut Report, disk: &str, node: u32, (policy, far): (&str, f64)) -> Result<(), Stop> {
    let cpu = sysfs::node_cpus(node)?[0].to_string();
    let mut work = Work::start("reads", &[&cpu, &KIB.to_string(), "1", &REQUESTS.to_string(), disk])?;
    let pid = work.pid();
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    work.go();
    work.said()?;
    come_to_rest(&mut batch, &mut totals, || procfs::read_bytes(pid))?;
    batch.stop()?;
    let of = |key: &str| {
        totals.sum_of_rates(|interval| row(interval, pid).and_then(|row| row[key].as_f64()).unwrap_or(0.0))
    };
    let far_bytes = totals.sum_of_rates(|interval| {
        let row = row(interval, pid).unwrap_or(&Value::Null);
        row["disk_bytes_per_s"].as_f64().unwrap_or(0.0) * row["disk_far_pct"].as_f64().unwrap_or(0.0) / 100.0
    });
    let on = format!("on node {node} with {policy}");
    let bytes = REQUESTS * KIB * 1024;
    report.equal(format_args!("bytes {on}"), bytes, of("disk_bytes_per_s"));
    report.equal(format_args!("requests {on}"), REQUESTS, of("disk_requests_per_s"));
    report.equal(format_args!("far bytes {on}"), (bytes as f64 * far / 100.0) as u64, far_bytes);
    no_losses(report, &totals);
    work.stop()?;
    Ok(())
}

fn row(interval: &Value, pid: i32) -> Option<&Value> {
    interval["tasks"].as_array()?.iter().find(|row| row["pid"] == pid)
}
