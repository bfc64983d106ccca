//! Measures what numatop-ng costs and how true its numbers are, beside other tools in the same run.
#![expect(unsafe_code, reason = "calls C")]

mod access;
mod burst;
mod cgroups;
mod containers;
mod contention;
mod cpus;
mod empty;
mod findings;
mod findings_cost;
#[path = "../../tests/common/fixture.rs"]
mod fixture;
mod frames;
mod held;
mod hotpath;
mod known_loads;
mod memory;
mod new_pages;
mod numbers;
mod pace;
mod pages;
mod placement;
mod policies;
mod process;
mod programs;
mod progs;
mod record;
mod refresh;
mod report;
mod rest;
mod screen;
mod soak;
mod start;
mod truth;
mod work;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use report::Report;
use work::Work;

use numatop_ng::run;

#[derive(Parser, Debug)]
#[command(name = "numatop-bench", about, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    plan: Plan,

    #[command(subcommand)]
    what: Option<What>,
}

/// The measurements, and their length.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The numatop-ng to measure.
    #[arg(long, global = true, value_name = "PATH", default_value = "target/shipped/numatop-ng")]
    binary: PathBuf,

    /// A numatop-ng of before there were findings, beside which the cost of findings is measured.
    #[arg(long, global = true, value_name = "PATH")]
    before: Option<PathBuf>,

    /// A tenth of the time: to see that it works, not to publish.
    #[arg(long, global = true)]
    quick: bool,

    /// Length of the soak in minutes, instead of 120, or 12 of the quick one.
    #[arg(long, global = true, value_name = "N")]
    minutes: Option<u64>,

    /// Threads of a refresh, or of the machine whose report is timed, instead of several loads one after the other.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,

    /// Write the results to this file too.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum What {
    /// ns per context switch, and the wall-clock time of a load of context switches.
    Hotpath,
    /// ns per context switch while another CPU switches, too; not one of all.
    Contention,
    /// ns per page allocation, and the time to touch a page.
    NewPages,
    /// CPU time and memory of one refresh with many threads.
    Refresh,
    /// CPU share at rest.
    Rest,
    /// Time from exec to the first frame.
    Start,
    /// CPU time against the kernel's account.
    Truth,
    /// The memory placement of a process: a sample beside walks over all pages.
    Placement,
    /// A context switch out of scope, and a refresh with many cgroups.
    Containers,
    /// Bytes and CPU time of a recorded sample, and how fast a day of them opens.
    Record,
    /// Time of the diagnosis engine for an interval, by the number of processes.
    Findings,
    /// Start, refresh and memory with findings and without; not one of all.
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
    /// Memory, descriptors and sums of three watchers while the machine changes all the time, for two hours; not one of all.
    Soak,
    /// All except the ones excluded from `all`; the same as no word.
    All,
    /// Be one of the loads.
    #[command(subcommand, hide = true)]
    Work(Work),
}

type Measure = fn(&Plan) -> Result<Report>;

/// Measurements that are published together.
const ALL: [Measure; 11] = [
    hotpath::run,
    new_pages::run,
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

fn main() -> Result<ExitCode> {
    // A live source starts its helpers from this program, as it does from the tool.
    if let Some(code) = run::started_as() {
        return Ok(code);
    }
    measure().map(|()| ExitCode::SUCCESS)
}

fn measure() -> Result<()> {
    let mut cli = Cli::parse();
    let wanted: Vec<Measure> = match cli.what.unwrap_or(What::All) {
        What::Hotpath => vec![hotpath::run],
        What::Contention => vec![contention::run],
        What::NewPages => vec![new_pages::run],
        What::Refresh => vec![refresh::run],
        What::Rest => vec![rest::run],
        What::Start => vec![start::run],
        What::Truth => vec![truth::run],
        What::Placement => vec![placement::run],
        What::Containers => vec![containers::run],
        What::Record => vec![record::run],
        What::Findings => vec![findings::run],
        What::Access => vec![access::run],
        What::Pages => vec![pages::run],
        What::Programs => vec![programs::run],
        What::AccessCost => vec![access::cost::run],
        What::KnownLoads => vec![known_loads::run],
        What::FindingsCost => vec![findings_cost::run],
        What::Burst => vec![burst::run],
        What::Cpus => vec![cpus::run],
        What::Pace => vec![pace::run],
        What::Soak => vec![soak::run],
        What::All => ALL.to_vec(),
        What::Work(work) => return work.run(),
    };
    // A terminal starts them from another directory.
    for binary in std::iter::once(&mut cli.plan.binary).chain(&mut cli.plan.before) {
        *binary = binary.canonicalize().with_context(|| {
            format!("{}: build it, or name another with --binary or --before", binary.display())
        })?;
    }
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
