//! Samples of the memory that a process uses: an emulated CPU is no CPU that they say something about.

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "memory_use",
    about: "the emulator interrupts between any two instructions: the self-check refuses the samples with that reason, no \
            number is made of them, and remote_pct goes on from placement",
    run,
};

/// The words of the self-check for a CPU whose samples do not fall behind the instruction that it waited for, and for one
/// that is too slow for enough samples in its time.
const REFUSALS: [&str; 2] =
    ["clock samples do not fall behind slow instructions on this CPU", "the self-check of the sampler got"];
const MIB: &str = "32";
/// Metrics that are made of samples.
const OF_SAMPLES: [&str; 4] =
    ["mem_time_pct", "mem_time_remote_pct", "mem_time_error_points", "mem_time_pct_by_node"];

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let nodes = plan.machine.nodes.len();
    let mut shares = vec!["0"; nodes];
    shares[nodes - 1] = "100";
    let mut work = Work::start("numa_truth", &["0", &shares.join(","), MIB, "touched", "uniform"])?;
    work.go();
    let pid = work.pid();
    let mut batch = Batch::start(&["-d", "0.5", "--access"])?;
    let mut totals = Totals::default();
    let interval = batch.follow(&mut totals, 4)?;
    let row = totals.process(pid)?.last.clone();
    for id in OF_SAMPLES {
        let why = interval["missing"][id].as_str().unwrap_or("no reason");
        let refused = REFUSALS.iter().any(|refusal| why.contains(refusal));
        report.check(refused, format_args!("reason why there is no {id}"), REFUSALS[0], why);
        report.check(row[id].is_null(), format_args!("{id} of the process"), "none", &row[id]);
    }
    report.check(row["access"].is_null(), "samples of the process", "none", &row["access"]);
    if nodes > 1 {
        let source = row["remote_source"].as_str().unwrap_or("none");
        report.equal("remote_source", "placement", source);
    }
    drop(work);
    batch.stop()
}
