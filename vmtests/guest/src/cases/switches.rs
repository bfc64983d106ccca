//! Context switches: the tool's count, the kernel's count, and the turns that two processes took.

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "switches",
    about: "two processes that take turns switch once a turn; the tool counts what getrusage counts",
    run,
};

fn run(report: &mut Report, _plan: &Plan) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let mut work = Work::start("alternate", &["0", "100000", "100000"])?;
    work.go();
    let (pid, child) = (work.pid(), work.facts["child"].as_i64().unwrap_or(0) as i32);
    batch.follow(&mut totals, 3)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    batch.stop()?;
    let turns = number(&done.truth, "turns")?;
    let child_truth = number(&done.truth, "child_switches")?;
    // wait4 counts a child that was waited for with its parent.
    let own = done.switches as f64 - child_truth;
    report.say(format_args!("{turns} turns"));
    for (who, pid, truth) in [("parent", pid, own), ("child", child, child_truth)] {
        let row = totals.process(pid)?;
        // The last switch of all, away for ever, comes after getrusage has been filled in.
        let found = row.switches.round();
        let slack = 2.0 + truth * 0.001;
        let fits = (found - truth).abs() <= slack;
        report.check(
            fits,
            format_args!("switches of the {who}"),
            format_args!("{truth} ± {slack:.0}"),
            found,
        );
        report.check(
            found >= turns,
            format_args!("switches of the {who}, at least one a turn"),
            turns,
            found,
        );
        // Starting it may take four: fork and exec look for an idle CPU, it may be balanced while it waits, then it pins itself.
        let moves = row.node_moves.round();
        report.check(moves <= 4.0, format_args!("moves of the {who}, which is pinned"), "at most 4", moves);
    }
    no_losses(report, &totals);
    Ok(())
}
