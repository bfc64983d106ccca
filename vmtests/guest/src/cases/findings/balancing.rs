//! NUMA balancing in three states: off although it could repair something (`balancing-off`), costly without
//! benefit (`balancing-cost`), and moving memory to and fro (`balancing-ping-pong`).

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::other_node::Stays;
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, two_nodes, unbalanced, undo};
use crate::report::Report;
use crate::rest::Balancing;
use crate::setting::Setting;
use crate::sysfs;
use crate::work::Work;

pub const OFF: Case = Case {
    name: "findings_balancing_off",
    about: "NUMA balancing is off and a process has its memory on the other node: the finding comes, its command turns balancing on, \
            which brings the memory, the finding ends, and the way back turns it off",
    run: run_off,
};

pub const COST: Case = Case {
    name: "findings_balancing_cost",
    about: "NUMA balancing scans memory that threads of both nodes use alike: the finding comes, its command turns balancing off, the \
            finding ends, and the way back turns it on",
    run: run_cost,
};

pub const PING_PONG: Case = Case {
    name: "findings_ping_pong",
    about: "a process runs on one node and then on the other, and NUMA balancing brings its memory behind it each time: the finding \
            comes, its command turns balancing off, the finding ends, and the way back turns it on",
    run: run_ping_pong,
};

/// Subjects of balancing are judged from this age on; times that conditions must hold.
const SETTLES: Duration = Duration::from_secs(120);
const HELD: Duration = Duration::from_secs(60);
const MIB: &str = "96";
/// Time on each node, and for which memory must have gone to and fro.
const TURN: Duration = Duration::from_secs(10);
const TO_AND_FRO: Duration = Duration::from_secs(90);
const DEBUG: &str = "/sys/kernel/debug/sched/numa_balancing";

fn run_off(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (balancing, mut watch) = unbalanced(plan)?;
    let work = Work::start_now("numa_truth", &["free:1", "0,100", MIB, "touched", "uniform"])?;
    let stays = Stays::on_node(0, work.pid(), all_cpus(plan))?;
    // The process that is away from its memory has a separate finding.
    let beside = &["memory-on-other-node"];
    let expected = Loop { held: HELD, severity: "info", beside, ..Loop::of("balancing-off") };
    let finding = expected.close(report, &mut watch, LIVES + HELD + SLACK + SLACK)?;
    switches_back(report, &balancing, &finding, ["1", "0"])?;
    stays.stop()?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}

fn run_cost(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _periods = fast_scans()?;
    let balancing = Balancing::on()?;
    let mut watch = Watch::start()?;
    let cpus = format!("{},{}", sysfs::node_cpus(0)?[0], sysfs::node_cpus(1)?[0]);
    let work = Work::start_now("numa_truth", &[&cpus, "50,50", MIB, "touched", "uniform"])?;
    let expected = Loop { held: HELD, ..Loop::of("balancing-cost") };
    let closed = expected.close(report, &mut watch, SETTLES + HELD + SLACK);
    report.say(format_args!("at the end balancing takes {} %", watch.process(work.pid())["balancing_pct"]));
    switches_back(report, &balancing, &closed?, ["0", "1"])?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}

fn run_ping_pong(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _periods = fast_scans()?;
    let balancing = Balancing::on()?;
    let mut watch = Watch::start()?;
    let work = Work::start_now("numa_truth", &["free:1", "0,100", MIB, "touched", "uniform"])?;
    let stays = Stays::by_turns(&[0, 1], TURN, work.pid())?;
    // The scans cost enough for a finding before the moves are seen to come back; without balancing memory stays behind.
    let beside = &["balancing-cost", "memory-on-other-node", "remote-after-pin"];
    let expected = Loop { held: TO_AND_FRO, beside, ..Loop::of("balancing-ping-pong") };
    let closed = expected.close(report, &mut watch, SETTLES + TO_AND_FRO + SLACK);
    let row = watch.process(work.pid());
    report.say(format_args!(
        "at the end balancing moves {} pages/s of it",
        row["pages_migrated_balancing_per_s"]
    ));
    switches_back(report, &balancing, &closed?, ["0", "1"])?;
    stays.stop()?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}

/// Scans that go round all memory in a second, as those of a process with much memory do in a minute.
fn fast_scans() -> Result<[Setting; 2], Stop> {
    // The lower one first: the kernel does not compare them, but scans in between would.
    let least = Setting::begin(format!("{DEBUG}/scan_period_min_ms"), "200")?;
    let most = Setting::begin(format!("{DEBUG}/scan_period_max_ms"), "1000")?;
    Ok([least, most])
}

/// Checks the switch after the command, executes the way back, and checks it again.
fn switches_back(
    report: &mut Report,
    balancing: &Balancing,
    finding: &serde_json::Value,
    [after, back]: [&str; 2],
) -> Result<(), Stop> {
    report.equal("the switch after the command", after.to_owned(), balancing.get()?);
    undo(report, finding)?;
    report.equal("the switch after the way back", back.to_owned(), balancing.get()?);
    Ok(())
}
