//! Measures what numatop-ng costs and how true its numbers are, beside other tools in the same run.
#![expect(unsafe_code, reason = "calls C")]

mod access;
mod burst;
mod cgroups;
mod containers;
mod cpus;
mod findings;
mod findings_cost;
mod frames;
mod hotpath;
mod known_loads;
mod memory;
mod numbers;
mod pace;
mod pages;
mod placement;
mod process;
mod programs;
mod progs;
mod record;
mod refresh;
mod report;
mod rest;
mod screen;
mod start;
mod truth;
mod work;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use report::Report;
use work::Work;

#[derive(Parser, Debug)]
#[command(name = "numatop-bench", about, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    plan: Plan,

    #[command(subcommand)]
    what: What,
}

/// The measurements, and their length.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The numatop-ng to measure.
    #[arg(long, global = true, value_name = "PATH", default_value = "target/release/numatop-ng")]
    binary: PathBuf,

    /// A tenth of the time: to see that it works, not to publish.
    #[arg(long, global = true)]
    quick: bool,

    /// Write the results to this file too.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum What {
    /// ns per context switch, and the wall-clock time of a load of context switches.
    Hotpath,
    /// CPU time and memory of one refresh with many threads.
    Refresh,
    /// CPU share at rest.
    Rest,
    /// Time from exec to the first frame.
    Start,
    /// CPU time against what the kernel says.
    Truth,
    /// Where the memory of a process is: a sample beside walks over all of it.
    Placement,
    /// A context switch out of scope, and a refresh with many cgroups.
    Containers,
    /// Bytes and CPU time of a recorded sample, and how fast a day of them opens.
    Record,
    /// Time of the diagnosis engine for an interval, by the number of processes.
    Findings,
    /// Start, refresh and memory of the same binary with findings and without; not one of all.
    FindingsCost,
    /// Time, memory and size of a report, by the number of nodes and the length of the recording; not one of all.
    Pages,
    /// Memory in use: samples of programs that time and count their own accesses.
    Access,
    /// Memory in use: cost to a program that is sampled, and of the live view; not one of all.
    AccessCost,
    /// Memory in use of programs that people run; not one of all.
    Programs,
    /// Costs of the machine: ten runs of calibrate, and other tools in turns; not one of all.
    KnownLoads,
    /// Parts of a refresh and of a start that grow with CPUs, for up to 1,024 made-up ones; not one of all.
    Cpus,
    /// Memory of the live view a minute after bursts of threads and processes; not one of all.
    Burst,
    /// Distance of samples from their seconds, at rest and on a busy machine; not one of all.
    Pace,
    /// All of these.
    All,
    /// Be one of the loads.
    #[command(subcommand, hide = true)]
    Work(Work),
}

fn main() -> Result<()> {
    let mut cli = Cli::parse();
    let all: [fn(&Plan) -> Result<Report>; 10] = [
        hotpath::run,
        refresh::run,
        rest::run,
        start::run,
        truth::run,
        placement::run,
        containers::run,
        record::run,
        findings::run,
        access::run,
    ];
    let apart: [fn(&Plan) -> Result<Report>; 8] = [
        programs::run,
        access::cost::run,
        pages::run,
        known_loads::run,
        findings_cost::run,
        burst::run,
        cpus::run,
        pace::run,
    ];
    let wanted = match cli.what {
        What::Hotpath => &all[0..1],
        What::Refresh => &all[1..2],
        What::Rest => &all[2..3],
        What::Start => &all[3..4],
        What::Truth => &all[4..5],
        What::Placement => &all[5..6],
        What::Containers => &all[6..7],
        What::Record => &all[7..8],
        What::Findings => &all[8..9],
        What::Access => &all[9..10],
        What::Pages => &apart[2..3],
        What::Programs => &apart[0..1],
        What::AccessCost => &apart[1..2],
        What::KnownLoads => &apart[3..4],
        What::FindingsCost => &apart[4..5],
        What::Burst => &apart[5..6],
        What::Cpus => &apart[6..7],
        What::Pace => &apart[7..8],
        What::All => &all[..],
        What::Work(work) => return work.run(),
    };
    let binary =
        cli.plan.binary.canonicalize().with_context(|| {
            format!("{}: build it, or name another with --binary", cli.plan.binary.display())
        })?;
    // A terminal starts it from another directory.
    cli.plan.binary = binary;
    let mut reports = Vec::new();
    for benchmark in wanted {
        let report = benchmark(&cli.plan)?.finish();
        println!("{}", report.markdown());
        reports.push(report);
        if let Some(path) = &cli.plan.json {
            let text = serde_json::to_string_pretty(&reports)?;
            fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}
