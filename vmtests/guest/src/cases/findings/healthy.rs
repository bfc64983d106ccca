//! Healthy machines, which must give no warning: an idle one; a process bound to its node with its memory,
//! beside one with a shard on each node.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::{Watch, label};
use crate::report::Report;
use crate::rest::Balancing;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_healthy",
    about: "no finding on an idle machine, of a process that is bound with its memory, and of one with a shard on each node",
    run,
};

/// The longest time that a condition must hold, and half a minute.
const IDLE: Duration = Duration::from_secs(90);
/// The same after the age from which on a process is judged.
const BUSY: Duration = Duration::from_secs(150);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.nodes.len() != 2 || plan.machine.cpus() != 4 {
        return Err(Stop::skip("needs two nodes of two CPUs"));
    }
    let _balancing = Balancing::on()?;
    let mut watch = Watch::start()?;
    judge(report, &mut watch, "an idle machine", IDLE)?;
    // Both nodes have 512 MiB: 60 % of one is bound memory.
    let bound = Work::start_now("numa_truth", &["1", "100,0", "300", "small", "uniform"])?;
    let sharded = Work::start_now("numa_truth", &["0,2", "50,50", "96", "touched", "sharded"])?;
    let pids = [bound.pid(), sharded.pid()];
    judge(report, &mut watch, "bound to its node, and a shard on each node", BUSY)?;
    for (pid, name) in pids.into_iter().zip(["bound", "sharded"]) {
        let row = watch.process(pid);
        // Rules look from half a CPU on.
        let cpu = row["cpu_pct"].as_f64().unwrap_or(0.0);
        report.check(cpu >= 50.0, format_args!("CPU of the process that is {name}"), "50 % or more", cpu);
        report.say(format_args!("{name}: remote {} by {}", row["remote_pct"], row["remote_source"]));
    }
    // A rule that is blind proves nothing by its silence.
    let blind = watch.blind().find(|blind| blind["id"] == "remote-after-pin").map(ToString::to_string);
    report.equal("blindness of remote-after-pin", String::new(), blind.unwrap_or_default());
    watch.stop()?;
    for (work, name) in [(bound, "bound"), (sharded, "sharded")] {
        let truth = work.stop()?.truth;
        let [local, remote] = ["local", "remote"].map(|key| truth[key].as_f64().unwrap_or(0.0));
        report.check(
            remote < local / 50.0,
            format_args!("remote accesses of the process that is {name}"),
            "less than a fiftieth of the local ones",
            format_args!("{remote} beside {local}"),
        );
    }
    Ok(())
}

fn judge(report: &mut Report, watch: &mut Watch, world: &str, time: Duration) -> Result<(), Stop> {
    watch.follow(time)?;
    let found: Vec<String> = watch.seen().iter().map(label).collect();
    report.equal(format_args!("findings in {} s: {world}", time.as_secs()), String::new(), found.join("; "));
    for blind in watch.blind() {
        let text = |key: &str| blind[key].as_str().unwrap_or_default().to_owned();
        report.say(format_args!("blind: {}: {} ({})", text("id"), text("words"), blind["subjects"]));
    }
    Ok(())
}
