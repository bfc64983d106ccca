//! `selftest`: deeds of a process of ours, watched by the tool, and a report with a verdict on each number.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};

use super::calibrate::{LOOK, lock, write};
use super::watch::start;
use super::{print, stop_signals, terminal_width};
use crate::calibrate::job::Limits;
use crate::calibrate::machine::Facts;
use crate::calibrate::worker::Worker;
use crate::cli::{ReportFormat, SelftestArgs, SelftestPart};
use crate::error::Exit;
use crate::host::kernel::read_trimmed;
use crate::known::idle::{Usage, too_busy};
use crate::model::event::Role;
use crate::options::{self, BadValue};
use crate::pmu::catalog::{Catalog, Core};
use crate::program::guard::{self, Owner};
use crate::program::output::{self, Form};
use crate::selftest::judge::Verdict;
use crate::selftest::report::{Comparison, Report, SCHEMA};
use crate::selftest::run::{self, Places, Stopped, software};
use crate::selftest::verdicts::EventVerdicts;
use crate::selftest::{self, counters, show};
use crate::source::poll;

/// Bytes of a report at most: one has some kilobytes.
const REPORT_MAX: u64 = 16 << 20;

/// The limit of everything but the time of events: on a machine at rest it takes five seconds.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(args: &SelftestArgs) -> Result<ExitCode> {
    if args.list {
        print(
            &show::render_list(
                args.part != SelftestPart::Counters,
                args.part != SelftestPart::Software,
                terminal_width(),
            ),
            Form::Text,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut unwatched = None;
    let report = match &args.check {
        Some(path) => {
            let text = guard::read_text(path, REPORT_MAX, Owner::Caller)
                .with_context(|| format!("reading {}", path.display()))?;
            let report: Report = serde_json::from_str(&text)
                .with_context(|| format!("{} is not a report of a self-test", path.display()))?;
            anyhow::ensure!(
                report.schema == SCHEMA,
                "{} has the unknown schema {}",
                path.display(),
                report.schema
            );
            report.judged()
        }
        None => match test(args)? {
            Some((report, failed)) => {
                unwatched = failed;
                report
            }
            None => {
                output::message("numatop-ng: interrupted");
                return Ok(Exit::CouldNotMeasure.into());
            }
        },
    };
    if args.check.is_none() && !args.no_save {
        keep(&report);
    }
    match args.format {
        ReportFormat::Text => {
            write(args.output.as_deref(), &show::render_text(&report, terminal_width()), Form::Text)?;
        }
        ReportFormat::Json => {
            let text = serde_json::to_string_pretty(&report).context("writing JSON")? + "\n";
            write(args.output.as_deref(), &text, Form::Json)?;
        }
    }
    // The numbers of events are still available.
    if let Some(error) = unwatched {
        return Err(error);
    }
    let wrong = report.count(Verdict::Wrong) > 0 || report.count(Verdict::Ok) == 0;
    Ok(if wrong { Exit::CouldNotMeasure } else { Exit::Ok }.into())
}

/// Stores the verdicts on events beside the profile of the machine: other commands say them. A failure is no fault of the test.
fn keep(report: &Report) {
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let trust = EventVerdicts::of(report, &date);
    if trust.events.is_empty() {
        return;
    }
    if let Err(error) = selftest::keep(trust) {
        output::message(format!("numatop-ng: the verdicts on events are not stored: {error:#}"));
    }
}

/// The report on this machine, and why the tool could not watch it, where events were counted all the same; `None` when a signal
/// came.
fn test(args: &SelftestArgs) -> Result<Option<(Report, Option<Error>)>> {
    let root = Path::new("/");
    let catalog = options::catalog(root, args.tables.pmu_dir.as_deref())?;
    check_events(&args.events, &catalog)?;
    let facts = Facts::read(Path::new("/"))?;
    let places = Places::of(&facts, args.from, args.to)
        .map_err(|no| BadValue { flag: no.flag, why: no.to_string() })?;
    let stop = stop_signals()?;
    let _lock = lock()?;
    let busy = match args.part {
        SelftestPart::Software => None,
        _ if args.force || !has_events(&catalog) => None,
        SelftestPart::Counters | SelftestPart::All => match busy(stop)? {
            Look::Signal => return Ok(None),
            Look::Quiet => None,
            Look::Busy(why) => Some(why),
        },
    };
    let begin = Instant::now();
    let mut worker = Worker::start_beside_others(stop, begin + LIMIT + Duration::from_secs_f64(args.time))
        .context("starting the process that is measured")?;
    let counters = if args.part == SelftestPart::Software {
        Ok(Vec::new())
    } else {
        let budget = options::budget(root, &catalog);
        let kinds = catalog.cores.iter().zip(run::by_core(&catalog, &facts, args.from, args.to));
        let count = catalog.cores.len() as f64;
        let of_kind = |(at, (core, places)): (usize, (&Core, Result<Places, String>))| {
            let asked = counters::Asked {
                core,
                budget,
                only: &args.events,
                places: places.as_ref().map_err(Clone::clone),
                limits: Limits { line_bytes: facts.key.line_bytes, keep_bytes: 0 },
                busy: busy.clone(),
                // Each kind of cores has its part of the time.
                until: begin + Duration::from_secs_f64(args.time * (at + 1) as f64 / count),
                start: &start,
            };
            counters::counters(&asked, &mut worker)
        };
        kinds.enumerate().map(of_kind).collect::<Result<Vec<_>, Stopped>>()
    };
    let comparisons = match args.part {
        SelftestPart::Counters => Ok(Vec::new()),
        SelftestPart::Software | SelftestPart::All => start(run::options(worker.pid()))
            .map_err(Stopped::from)
            .and_then(|source| software(&mut worker, source, &places)),
    };
    let (counters, (comparisons, unwatched)) = match (counters, comparisons) {
        (Ok(counters), Ok(comparisons)) => (counters, (comparisons, None)),
        (Err(Stopped::Signal), _) | (_, Err(Stopped::Signal)) => return Ok(None),
        (Ok(counters), Err(Stopped::Failed(error))) if !counters.is_empty() => {
            (counters, (Comparison::none_made(&run::reason(&error)), Some(error)))
        }
        (Err(Stopped::Failed(error)), _) | (_, Err(Stopped::Failed(error))) => return Err(error),
    };
    let mut counters = counters.into_iter();
    let report = Report {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION").into(),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        machine: facts.key,
        took_s: (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        comparisons,
        counters: counters.next(),
        other_cores: counters.collect(),
    };
    Ok(Some((report.judged(), unwatched)))
}

/// Whether the kernel takes any event of the tables.
fn has_events(catalog: &Catalog) -> bool {
    catalog.cores.iter().flat_map(|core| &core.entries).any(|resolved| resolved.event.is_ok())
}

/// A look at other tasks before events are counted: counts of a CPU's caches include everything that ran
/// there.
enum Look {
    Quiet,
    Busy(String),
    /// A signal came.
    Signal,
}

fn busy(stop: BorrowedFd<'static>) -> Result<Look> {
    let root = Path::new("/");
    let (before, begin) = (Usage::read(root, &[]), Instant::now());
    if poll(&[stop], begin + LOOK).context("waiting for a signal")?.is_some() {
        return Ok(Look::Signal);
    }
    let why = too_busy(&before, &Usage::read(root, &[]), begin.elapsed().as_secs_f64());
    Ok(why.map_or(Look::Quiet, Look::Busy))
}

/// Refuses roles and events that no table of this machine has.
fn check_events(events: &[String], catalog: &Catalog) -> Result<()> {
    let roles = || Role::MEASURED.into_iter().chain([Role::Slots]);
    let unknown = |word: &&String| !roles().any(|role| role.id() == *word) && catalog.named(word).is_none();
    match events.iter().find(unknown) {
        Some(word) => Err(BadValue {
            flag: "--events",
            why: format!(
                "'{word}' is neither a role (such as lma) nor an event of this CPU: see numatop-ng \
                          list events"
            ),
        }
        .into()),
        None => Ok(()),
    }
}
