//! The share of accesses that leave the node, compared with a workload that counts its own accesses one by one,
//! each with the CPU time that it took.

use std::time::{Duration, Instant};

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::procfs;
use crate::report::Report;
use crate::rest::{Balancing, come_to_rest};
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "remote",
    about: "remote_pct is within 5 points of what threads counted that used all of their memory alike; memory stays",
    run: |report, plan| run(report, plan, false),
};

pub const BALANCED: Case = Case {
    name: "remote_balanced",
    about: "the same where NUMA balancing has moved memory and threads, and moves no more",
    run: |report, plan| run(report, plan, true),
};

const MIGRATED: &str = "numa_pages_migrated";
/// Percentage points.
const CLOSE: f64 = 5.0;
/// For so long NUMA balancing may move what it will, in the case that wants it to.
const BALANCE: Duration = Duration::from_secs(6);
/// Intervals in which the tool looks at memory that has moved. One does for it, if the host is not busy.
const LOOKS: usize = 6;
/// Intervals in which a process that has ended must be shown as such.
const PATIENCE: usize = 40;

/// CPUs, shares by node, layout, whether it is compared after balancing too. CPUs 0 and 1 are of node 0, CPUs 2 and 3 of
/// node 1.
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("0", "0,100", "small", false),
    ("0", "70,30", "mixed", false),
    ("0,2", "50,50", "small", false),
    ("0-3", "70,30", "huge", false),
    ("2,3", "70,30", "shared", true),
    ("free:1", "70,30", "touched", true),
    ("free:4", "100,0", "touched", true),
    ("0", "0,100", "touched", true),
];

fn run(report: &mut Report, plan: &Plan, balanced: bool) -> Result<(), Stop> {
    if plan.machine.nodes.len() != 2 || plan.machine.cpus() != 4 {
        return Err(Stop::skip("needs two nodes of two CPUs"));
    }
    let migrated = procfs::vmstat(MIGRATED)?;
    let balancing = Balancing::off()?;
    let mut batch = Batch::start(&["-d", "0.5", "--placement-budget", "200"])?;
    for (cpus, shares, layout, _) in KINDS.iter().filter(|(.., moves)| *moves || !balanced) {
        let access = if balanced { "settled" } else { "uniform" };
        one(report, &mut batch, &balancing, [cpus, shares, "96", layout, access])?;
    }
    batch.stop()?;
    drop(balancing);
    let migrated = procfs::vmstat(MIGRATED)? - migrated;
    // Pages that were marked before it was switched off may still move, so there is no other side to this.
    if balanced {
        report.check(migrated > 0, "pages that balancing moved", "more than 0", migrated);
    }
    Ok(())
}

/// Lets NUMA balancing work for a while and then stops it, because the truth is counted page by page after each access:
/// an access that makes its page move counts as local there, and the pages of this workload are used so seldom that
/// these are a large part of all. Pages that are marked already move afterwards, so both sides begin when nothing moves
/// any more and the tool has looked again.
fn settle(batch: &mut Batch, balancing: &Balancing, work: &mut Work) -> Result<(), Stop> {
    let began = Instant::now();
    balancing.set(true)?;
    while began.elapsed() < BALANCE {
        batch.next()?;
    }
    balancing.set(false)?;
    come_to_rest(batch, &mut Totals::default(), || procfs::vmstat(MIGRATED))?;
    batch.follow(&mut Totals::default(), LOOKS)?;
    work.go();
    Ok(())
}

/// What the tool showed of a process, weighed with the time that it ran.
#[derive(Default)]
struct Shown {
    remote: f64,
    ran: f64,
    source: String,
    ended: bool,
}

impl Shown {
    fn add(&mut self, interval: &Value, pid: i64) {
        let tasks = interval["tasks"].as_array().into_iter().flatten();
        for task in tasks.filter(|task| task["pid"].as_i64() == Some(pid)) {
            self.ended |= task["exited"] == true;
            if let (Some(pct), Some(cpu)) = (task["remote_pct"].as_f64(), task["cpu_pct"].as_f64()) {
                self.remote += pct * cpu;
                self.ran += cpu;
                self.source = task["remote_source"].as_str().unwrap_or_default().to_owned();
            }
        }
    }
}

fn one(
    report: &mut Report,
    batch: &mut Batch,
    balancing: &Balancing,
    arguments: [&str; 5],
) -> Result<(), Stop> {
    let [cpus, shares, _, layout, access] = arguments;
    let mut work = Work::start("numa_truth", &arguments)?;
    let pid = i64::from(work.pid());
    // Its memory is known before it runs.
    batch.follow(&mut Totals::default(), 4)?;
    work.go();
    if access == "settled" {
        settle(batch, balancing, &mut work)?;
    }
    let mut shown = Shown::default();
    for _ in 0..5 {
        shown.add(&batch.next()?, pid);
    }
    let done = work.stop()?;
    // All of it: a busy guest leaves intervals unread, and threads that move were elsewhere in those.
    for _ in 0..PATIENCE {
        if shown.ended {
            break;
        }
        shown.add(&batch.next()?, pid);
    }
    if !shown.ended {
        return Err(Stop::fail(format!("process {pid} is not shown as ended")));
    }
    let count = |key: &str| done.truth[key].as_f64().unwrap_or(0.0);
    let share = |local: &str, remote: &str| count(remote) * 100.0 / (count(local) + count(remote));
    let truth = share("local_ns", "remote_ns");
    let what = format!("remote_pct, CPUs {cpus}, memory {shares} {layout}");
    let got = shown.remote / shown.ran;
    report.say(format_args!(
        "{what}: {truth:.1} of its time, {:.1} of its accesses, shown {got:.1} ({})",
        share("local", "remote"),
        shown.source
    ));
    let near = (got - truth).abs() <= CLOSE;
    report.check(near, what, format_args!("{truth:.1} ± {CLOSE}"), format_args!("{got:.1}"));
    Ok(())
}
