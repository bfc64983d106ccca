//! Where memory is, compared with /proc/PID/numa_maps, which walks every page.

use std::collections::BTreeMap;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::procfs;
use crate::report::Report;
use crate::setting::Setting;
use crate::sysfs;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "placement",
    about: "mem_pct_by_node is within its own error of numa_maps as often as that promises, and never off by far more",
    run: |report, plan| run(report, plan, &KINDS[..6]),
};

pub const OTHERS: Case = Case {
    name: "placement_kinds",
    about: "the same with huge pages, shared memory, more memory, and as many mappings as pages",
    run: |report, plan| run(report, plan, &KINDS[6..12]),
};

pub const RESERVED: Case = Case {
    name: "placement_reserved",
    about: "the same with pages of hugetlbfs that are reserved on every node, and with locked memory",
    run: |report, plan| {
        let _pages = (0..plan.machine.nodes.len())
            .map(|node| {
                let path =
                    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
                let reserved = Setting::begin(path, &RESERVED_PAGES.to_string())?;
                report.equal(
                    format_args!("huge pages of node {node}"),
                    RESERVED_PAGES.to_string(),
                    reserved.get()?,
                );
                Ok(reserved)
            })
            .collect::<Result<Vec<_>, Stop>>()?;
        run(report, plan, &KINDS[12..])
    },
};

/// Pages of 2 MiB that are reserved on each node: those of three processes whose pages are all there, and some.
const RESERVED_PAGES: usize = 26;

/// Percent on node 0, MiB, layout, processes of that kind. The rest is on the other nodes.
type Kind = (u32, u64, &'static str, usize);

const KINDS: &[Kind] = &[
    (100, 24, "small", 8),
    (70, 24, "small", 12),
    (50, 24, "small", 12),
    (0, 24, "small", 8),
    (70, 24, "mixed", 14),
    (50, 24, "mixed", 14),
    (50, 32, "huge", 6),
    (70, 40, "huge", 6),
    (50, 24, "shared", 12),
    (70, 200, "mixed", 1),
    (70, 40, "many", 3),
    (50, 40, "many", 3),
    (100, 16, "hugetlb", 3),
    (50, 16, "hugetlb", 3),
    (0, 16, "hugetlb", 3),
    (70, 24, "locked", 6),
];

/// Intervals in which each process must be looked at once; one look may take longer than an interval in a slow guest.
const PATIENCE: usize = 160;

/// Five standard deviations, in errors: one process in a million.
const FAR: f64 = 2.5;

/// A process by the tool's account, in points: the worst share's distance from the truth, and its error bar.
struct Seen {
    off: f64,
    error: f64,
    bytes: f64,
    said: String,
}

fn run(report: &mut Report, plan: &Plan, kinds: &[Kind]) -> Result<(), Stop> {
    if plan.machine.nodes.len() < 2 {
        return Err(Stop::skip("one node: everything is on it"));
    }
    let (mut good, mut far, mut all) = (0, 0, 0);
    for (shares, mib, layout, count) in kinds {
        let shares = spread(*shares, plan.machine.nodes.len());
        let count = (*count).min(fitting(&shares, *mib)?);
        let shares = shares.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let arguments = ["0", &shares, &mib.to_string(), layout, "uniform"];
        let works: Vec<Work> =
            (0..count).map(|_| Work::start("numa_truth", &arguments)).collect::<Result<_, _>>()?;
        let truths: Vec<BTreeMap<u32, f64>> =
            works.iter().map(|work| procfs::bytes_by_node(work.pid())).collect::<Result<_, _>>()?;
        let mut found: Vec<Option<Seen>> = works.iter().map(|_| None).collect();
        // Started when the memory is in place: an earlier look would have seen less.
        let mut batch = Batch::start(&["-d", "0.5", "--placement-budget", "500"])?;
        for _ in 0..PATIENCE {
            let interval = batch.next()?;
            for (at, work) in works.iter().enumerate() {
                if let Some(task) = row(&interval, work.pid()) {
                    found[at] = found[at].take().or(seen(task, &truths[at]));
                }
            }
            if found.iter().all(Option::is_some) {
                break;
            }
        }
        batch.stop()?;
        let (mut kind_good, mut worst, mut errors) = (0, 0.0f64, 0.0);
        for (seen, truth) in found.iter().zip(&truths) {
            let seen = seen
                .as_ref()
                .ok_or_else(|| Stop::fail(format!("{layout} {shares}: a process was never looked at")))?;
            if seen.off > seen.error + 0.01 {
                report.say(format_args!(
                    "{layout} {shares}: off by {:.2}, error {:.2}: {}",
                    seen.off, seen.error, seen.said
                ));
            }
            // Rounding of the output.
            kind_good += usize::from(seen.off <= seen.error + 0.01);
            far += usize::from(seen.off > seen.error * FAR + 0.01);
            worst = worst.max(seen.off);
            errors += seen.error / count as f64;
            let resident: f64 = truth.values().sum();
            report.close(format_args!("bytes of all nodes, {layout} {shares}"), resident, seen.bytes, 0.12);
        }
        report.say(format_args!(
            "{layout} {shares} {mib} MiB: {kind_good} of {count} within their error ({errors:.2} points on average); worst {worst:.2}"
        ));
        good += kind_good;
        all += count;
    }
    let least = all - may_miss(all);
    report.check(
        good >= least,
        "processes whose every share is within the error",
        format_args!("at least {least} of {all}"),
        good,
    );
    report.equal("processes that are off by far more", 0, far);
    Ok(())
}

/// Percent by node: `first` on node 0, and as much on one of the others as on the next.
fn spread(first: u32, nodes: usize) -> Vec<u32> {
    let (rest, others) = (100 - first, nodes as u32 - 1);
    let mut shares = vec![first];
    shares.extend((0..others).map(|at| rest / others + u32::from(at < rest % others)));
    shares
}

/// The number of processes, at least one, that fit into three fifths of the free memory of each node, when
/// each has these percent of its memory there. The tool needs some of the rest, and a process that is bound
/// to a node is killed when it is full.
fn fitting(shares: &[u32], mib: u64) -> Result<usize, Stop> {
    let mut fit = u64::MAX;
    for (node, &share) in (0..).zip(shares).filter(|(_, share)| **share > 0) {
        let free = sysfs::node_memory_kib(node, "MemFree")?;
        fit = fit.min(free * 3 / 5 * 100 / (u64::from(share) * mib * 1024));
    }
    Ok(fit.max(1) as usize)
}

/// Of `all` samples, each within its error in 95 of 100 cases, the number that may be outside: more would
/// happen in fewer than one of ten thousand runs.
fn may_miss(all: usize) -> usize {
    const MISS: f64 = 0.05;
    let mut exactly = (1.0 - MISS).powi(all as i32);
    let mut more = 1.0 - exactly;
    let mut missed = 0;
    while more > 1e-4 && missed < all {
        exactly *= (all - missed) as f64 / (missed + 1) as f64 * MISS / (1.0 - MISS);
        missed += 1;
        more -= exactly;
    }
    missed
}

fn row(interval: &Value, pid: i32) -> Option<&Value> {
    interval["tasks"].as_array()?.iter().find(|task| task["pid"].as_i64() == Some(pid.into()))
}

/// `None` where the tool has no placement yet.
fn seen(task: &Value, truth: &BTreeMap<u32, f64>) -> Option<Seen> {
    let shares = task["mem_pct_by_node"].as_object()?;
    let all: f64 = truth.values().sum();
    let nodes = truth.keys().map(u32::to_string).chain(shares.keys().cloned());
    let off = nodes.map(|node| {
        let want =
            node.parse().ok().and_then(|node: u32| truth.get(&node)).copied().unwrap_or(0.0) * 100.0 / all;
        (shares.get(&node).and_then(Value::as_f64).unwrap_or(0.0) - want).abs()
    });
    let bytes = task["mem_bytes_by_node"].as_object()?.values().filter_map(Value::as_f64).sum();
    Some(Seen {
        off: off.fold(0.0, f64::max),
        error: task["mem_error_points"].as_f64()?,
        bytes,
        said: format!("{shares:?} of {truth:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{may_miss, spread};

    #[test]
    fn shares_are_spread_over_all_other_nodes() {
        assert_eq!(spread(70, 2), [70, 30]);
        assert_eq!(spread(0, 4), [0, 34, 33, 33]);
        assert_eq!(spread(100, 3), [100, 0, 0]);
    }

    #[test]
    fn more_may_miss_of_more() {
        // Of the binomial distribution with p = 0.05, from its quantiles.
        assert_eq!([may_miss(1), may_miss(31), may_miss(68), may_miss(1000)], [1, 8, 12, 77]);
    }
}
