//! Nothing is forgotten when thousands of short processes come and go.

use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus, no_losses};
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
    let mut batch = Batch::start(&["-d", "0.5", "-n", "10"])?;
    let mut totals = Totals::default();
    let work = Work::start("storm", &[&show_list(&all_cpus(plan))])?;
    let pid = work.pid();
    // The storm rages before the mark is set, so that the sums are compared in the middle of it.
    batch.interval()?;
    totals.add(&batch.interval()?)?;
    let (stat, ran) = (procfs::stat()?, procfs::ran_ns()?);
    for _ in 0..5 {
        totals.add(&batch.interval()?)?;
    }
    let (stat_after, ran_after) = (procfs::stat()?, procfs::ran_ns()?);
    let rows = totals.cpu_ns() / 1e9;
    report.close(
        "rows add up to what the CPUs ran (/proc/schedstat), s",
        (ran_after - ran) as f64 / 1e9,
        rows,
        0.02,
    );
    let ticks = (stat_after.busy - stat.busy) as f64 / 100.0;
    // Ticks are a sample of what runs, and children live for less than one.
    report.close("rows add up to the busy time of /proc/stat, s", ticks, rows, 0.10);
    report.close("rows add up to the tool's own busy time of the CPUs, s", totals.busy_ns / 1e9, rows, 0.005);
    let forks = (stat_after.forks - stat.forks) as f64;
    report.say(format_args!("{:.0} forks a second", forks / totals.seconds));

    let done = work.stop()?;
    totals.add_all(&batch.rest()?)?;
    no_losses(report, &totals);
    let storm = totals.process(pid)?;
    report.check(storm.exited, "the storm itself is shown as ended", true, storm.exited);
    report.say(format_args!(
        "{} children, {} s",
        done.truth["children"],
        number(&done.truth, "children_cpu_ns")? / 1e9
    ));
    Ok(())
}
