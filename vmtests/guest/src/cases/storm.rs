//! Nothing is forgotten when thousands of short processes come and go.

use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus, each_ended_once, no_losses};
use crate::cpuacct::Cpuacct;
use crate::intervals::{Totals, number};
use crate::procfs;
use crate::report::Report;
use crate::sysfs::show_list;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "storm",
    about: "under a fork storm the rows add up to the machine's CPU time, and no child is missing",
    run,
};

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    let watchers = [batch.pid(), std::process::id() as i32];
    // Marks are set while nothing runs, so that it does not matter when exactly.
    let cpuacct = Cpuacct::mount(&mut batch)?;
    let begin = cpuacct.around(&mut batch, &mut totals, &watchers)?;
    let stat = procfs::stat()?;
    let work = Work::start_now("storm", &[&show_list(&all_cpus(plan))])?;
    let pid = work.pid();
    batch.follow(&mut totals, 5)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    let end = cpuacct.around(&mut batch, &mut totals, &watchers)?;
    let stat_after = procfs::stat()?;
    let rows = totals.cpu_ns() / 1e9;
    let children = number(&done.truth, "children")?;
    report.say(format_args!("{children} children in {:.1} s", totals.seconds));
    let others = totals.cpu_ns_without(&watchers) / 1e9;
    report.cpu_seconds_between("rows add up to what all tasks ran (cpuacct)", begin.until(end), others);
    report.close("rows add up to the tool's own busy seconds of the CPUs", totals.busy_ns / 1e9, rows, 0.005);
    // Not compared: ticks are late when the emulator runs one CPU after the other.
    report.say(format_args!(
        "by the ticks of /proc/stat {:.2} s",
        (stat_after.busy - stat.busy) as f64 / 100.0
    ));
    let forks = (stat_after.forks - stat.forks) as f64;
    report.check(forks >= children, "forks counted by the kernel, at least one a child", children, forks);
    each_ended_once(report, &totals, pid, &done)?;
    let storm = totals.process(pid)?;
    report.check(storm.exited, "the storm itself is shown as ended", true, storm.exited);
    batch.stop()?;
    no_losses(report, &totals);
    Ok(())
}
