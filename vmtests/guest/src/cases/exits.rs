//! Every process that ends is reported once, with its usage.

use vmtests_protocol::Plan;

use super::{Case, Stop, each_ended_once, no_losses};
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "exits",
    about: "each of hundreds of short children is shown once as ended, and their CPU time is what wait4 says",
    run,
};

fn run(report: &mut Report, _plan: &Plan) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let work = Work::start_now("storm", &["0"])?;
    let pid = work.pid();
    batch.follow(&mut totals, 2)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    // Not a second time.
    batch.follow(&mut totals, 1)?;
    batch.stop()?;
    each_ended_once(report, &totals, pid, &done)?;
    let (ended, _) = totals.ended_children(pid);
    let shown: f64 = ended.iter().filter_map(|task| task["cpu_ns"].as_f64()).sum();
    let children = number(&done.truth, "children_cpu_ns")? / 1e9;
    report.cpu_seconds("CPU seconds of all children", children, shown / 1e9);
    // wait4 counts children that were waited for with their parent.
    report.cpu_seconds(
        "CPU seconds of their parent",
        done.cpu.as_secs_f64() - children,
        totals.process(pid)?.cpu_ns / 1e9,
    );
    no_losses(report, &totals);
    Ok(())
}
