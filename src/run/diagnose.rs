//! Watching for findings: this machine for a while, or a recording. The result is a list, and an exit code.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::tz::TimeZone;

use super::destination::{Existing, Out, quoted};
use super::replay::{Read, blame, nothing_there, samples_between};
use super::report::{Deriving, Step, begin, check_hosts};
use super::watch::start;
use super::{print, ran, stop_signals, terminal_width};
use crate::cli::{DiagnoseArgs, LevelArg, ReportFormat};
use crate::error::Exit;
use crate::finding::redact::Redactor;
use crate::finding::verdict::{Verdict, Why};
use crate::finding::{Engine, Options, Severity, diagnosis, rules};
use crate::list::registers::explain_rule;
use crate::model::event::Role;
use crate::model::process::Asked;
use crate::model::sample::HostFacts;
use crate::options;
use crate::program::output::{self, Form};
use crate::program::progress::Progress;
use crate::program::signals;
use crate::report::clock::Clock;
use crate::report::fold::Fold;
use crate::report::page::{self, View};
use crate::snapshot::Snapshot;
use crate::source::demo::Demo;
use crate::source::recording::Recording;
use crate::source::{Focus, Source};
use crate::text::{hanging, plural, words};

pub(super) fn run(args: &DiagnoseArgs) -> Result<ExitCode> {
    if let Some(id) = &args.explain {
        let rule = rules::by_id(id).ok_or_else(|| options::no_rule("--explain", id))?;
        print(&explain_rule(rule, terminal_width()), Form::Text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = options::rules(&args.rules)?;
    let stop = stop_signals()?;
    let out = args.report.as_deref().map(|path| Out::of(Some(path), true, Existing::Kept)).transpose()?;
    let deriving = Deriving::new(args.redact.then(Redactor::default));
    let mut folded =
        Folded { engine: Engine::new(chosen.clone()), deriving, page: None, load: Load::default() };
    match &args.path {
        Some(path) => {
            let span = fold_recording(path, args, &mut folded, stop)?;
            let is_part = args.from.is_some() || args.to.is_some();
            if is_part && folded.engine.watched_ns() == 0 && signals::ended_by().is_none() {
                return Ok(nothing_there(path, span));
            }
        }
        None => {
            let seconds = seconds(args, &chosen);
            warn_of_short(&chosen, least(args), seconds, &format!("--for {seconds}"));
            match args.demo {
                true => fold_demo(args, seconds, &mut folded)?,
                false => fold_machine(args, seconds, &mut folded, stop)?,
            }
        }
    }
    if signals::ended_by().is_some_and(|signal| signal != libc::SIGINT) {
        return Ok(ran());
    }
    let Some((host, last)) = &folded.deriving.previous else {
        output::message("numatop-ng: nothing was measured");
        return Ok(Exit::CouldNotMeasure.into());
    };
    if args.path.is_some() && !args.allow_undecided {
        let had_s = folded.engine.watched_ns().div_ceil(1_000_000_000);
        warn_of_short(&chosen, least(args), had_s, &format!("the recording of {had_s} s"));
    }
    let exit = exit(args, &chosen, &folded.engine);
    match args.format {
        ReportFormat::Text => {
            let mut text = diagnosis::render_text(&folded.engine, host, args.all, terminal_width());
            if let Some(short) = folded.load.words() {
                text += &hanging("", words(&short), terminal_width());
            }
            if host.topology.nodes.len() == 1 {
                text += "This machine has one node: no memory is remote, and rules about placement do not apply.\n";
            }
            print(&text, Form::Text)?;
        }
        ReportFormat::Json => {
            let object = diagnosis::render_json(&folded.engine, host, args.all, last.wall_ns, exit as u8);
            print(&format!("{object:#}\n"), Form::Json)?;
        }
    }
    if let (Some(out), Some(page)) = (&out, folded.page.take()) {
        write_page(args, page, out)?;
    }
    Ok(exit.into())
}

/// The engine, and the page if one is asked for.
struct Folded {
    engine: Engine,
    deriving: Deriving,
    page: Option<Fold>,
    load: Load,
}

impl Folded {
    /// Takes the next sample.
    fn take(&mut self, read: Read) {
        let step = self.deriving.step(read);
        match &step {
            Step::Interval { snapshot, .. } => {
                self.engine.take(snapshot);
                self.load.take(snapshot);
            }
            Step::Begin { .. } => self.engine.interrupt(),
        }
        if let Some(page) = &mut self.page {
            step.put_in(page);
        }
    }
}

/// CPU time over all intervals: used, there, and in which some task waited for a CPU.
#[derive(Default)]
struct Load {
    busy_ns: f64,
    cpu_ns: f64,
    time_ns: f64,
    waited_ns: f64,
}

impl Load {
    fn take(&mut self, snapshot: &Snapshot) {
        let Some(ns) = snapshot.interval_ns else { return };
        self.busy_ns += snapshot.on_cpus.busy_ns as f64;
        self.cpu_ns += ns as f64 * f64::from(snapshot.online_cpus);
        self.time_ns += ns as f64;
        self.waited_ns += snapshot.counts.pressure.map_or(0.0, |pressure| pressure.cpu_some_us as f64 * 1e3);
    }

    /// A sentence where CPUs are short.
    fn words(&self) -> Option<String> {
        let (busy, waited) = (self.busy_ns / self.cpu_ns.max(1.0), self.waited_ns / self.time_ns.max(1.0));
        (busy >= SHORT_BUSY && waited >= SHORT_WAITED).then(|| {
            format!(
                "Too few CPUs: {:.0} % busy, and some task waited for a CPU {:.0} % of the time.",
                100.0 * busy.min(1.0),
                100.0 * waited.min(1.0)
            )
        })
    }
}

/// Shares of CPU time used, and of time in which some task waited for a CPU, from which on CPUs are short.
const SHORT_BUSY: f64 = 0.9;
const SHORT_WAITED: f64 = 0.2;

/// Writes the folded intervals as a page.
fn write_page(args: &DiagnoseArgs, page: Fold, out: &Out) -> Result<()> {
    let report = page.finish().context("a report needs at least two samples")?;
    let clock = Clock::new(TimeZone::system(), report.span, report.grid.width_ns);
    let recording = args.path.as_ref().filter(|_| !args.redact);
    let command = recording.map(|path| format!("numatop-ng report {}", quoted(&path.to_string_lossy())));
    let view = View { report: &report, clock: &clock, command: command.unwrap_or_default() };
    out.write(&page::render(&view), Form::Text)
}

/// Folds the intervals of a recording. Returns the moments of its first and last sample, ns since 1970.
fn fold_recording(
    path: &Path,
    args: &DiagnoseArgs,
    folded: &mut Folded,
    stop: BorrowedFd<'_>,
) -> Result<(i64, i64)> {
    if args.report.is_some() {
        check_hosts(path)?;
    }
    let mut recording = Recording::open(path)?;
    let span = recording.span().unwrap_or_default();
    let between = options::stretch(args.from.as_deref(), args.to.as_deref(), span)
        .map_err(|error| blame(path, error))?;
    if args.report.is_some() {
        folded.page = Some(begin(&recording, span, between, crate::report::Options::default())?);
    }
    samples_between(&mut recording, between, stop, |read| {
        folded.take(read);
        Ok(())
    })?;
    if let Some(page) = &mut folded.page {
        page.torn(recording.torn());
    }
    Ok(span)
}

/// Folds `seconds` seconds of the made-up machine, without waiting.
fn fold_demo(args: &DiagnoseArgs, seconds: u64, folded: &mut Folded) -> Result<()> {
    let interval = args.measure.interval();
    let simulated = options::simulated(&args.scope, &args.measure, Some(interval))?;
    let mut source = Demo::of(&simulated)?;
    source.focus(Focus { asked: asked(&source.host()), ..Focus::default() });
    let intervals = Duration::from_secs(seconds).as_nanos().div_ceil(interval.as_nanos());
    for _ in 0..=intervals {
        let Some(sample) = source.next()? else { break };
        let host = source.host();
        begin_page(args, folded, &host, sample.wall_ns, seconds)?;
        folded.take(Read { host, sample, goes_on: true, is_interrupted: false });
    }
    Ok(())
}

/// Begins the page, if one is requested and not begun.
fn begin_page(
    args: &DiagnoseArgs,
    folded: &mut Folded,
    host: &HostFacts,
    wall_ns: i64,
    seconds: u64,
) -> Result<()> {
    if args.report.is_none() || folded.page.is_some() {
        return Ok(());
    }
    let seconds_ns = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
    let interval_ns = i64::try_from(args.measure.interval().as_nanos()).unwrap_or(i64::MAX);
    let span = (wall_ns, wall_ns.saturating_add(seconds_ns));
    let page = Fold::new(crate::report::Options::default(), span, interval_ns, host);
    folded.page = Some(page.context("creating an empty report")?);
    Ok(())
}

/// Folds intervals of this machine for as long as was asked for.
fn fold_machine(args: &DiagnoseArgs, seconds: u64, folded: &mut Folded, stop: BorrowedFd<'_>) -> Result<()> {
    let live = options::watched(&args.scope, &args.measure)?;
    let mut source = start(live)?;
    source.focus(Focus { asked: asked(&source.host()), ..Focus::default() });
    output::message(format!("numatop-ng: watching for {seconds} s"));
    let (begin, interval) = (Instant::now(), args.measure.interval());
    let end = begin + Duration::from_secs(seconds);
    let mut due = begin;
    let mut progress = Progress::new("watching");
    while let Some(sample) = source.next()? {
        let host = source.host();
        begin_page(args, folded, &host, sample.wall_ns, seconds)?;
        folded.take(Read { host, sample, goes_on: true, is_interrupted: false });
        let (past, all) = (begin.elapsed().as_secs_f64(), seconds as f64);
        progress.at(past / all.max(1.0), || format!("{past:.0} of {all:.0} s"));
        due = (due + interval).max(Instant::now());
        // The last interval may be a little longer, so that the whole time is watched.
        if due > end + interval / 2 || source.wait(due, stop)? {
            break;
        }
    }
    Ok(())
}

/// Fields of processes that rules need in addition to those in every sample: lists of CPUs, and huge pages
/// where misses of the TLB are counted. The kernel walks every page table for the latter.
pub(super) fn asked(host: &HostFacts) -> Asked {
    Asked { texts: true, huge: host.slots(Role::Dtlb).next().is_some() }
}

/// The severity from which on a finding is a failure.
fn least(args: &DiagnoseArgs) -> Severity {
    match args.fail_on {
        LevelArg::Info => Severity::Info,
        LevelArg::Warning => Severity::Warning,
        LevelArg::Critical => Severity::Critical,
    }
}

/// Rules that are asked and can be a failure, and the seconds that each needs.
fn needs(chosen: &Options, least: Severity) -> impl Iterator<Item = u64> {
    chosen.rules().filter(move |rule| rule.gravest >= least).map(|rule| rule.hold.on_s.ceil() as u64)
}

/// Seconds in addition to the need of a rule: samples before the first interval, and a late one.
const MARGIN_S: u64 = 5;

/// Seconds to watch for.
fn seconds(args: &DiagnoseArgs, chosen: &Options) -> u64 {
    let all = chosen.rules().map(|rule| rule.hold.on_s.ceil() as u64);
    let longest = needs(chosen, least(args)).max().or(all.max()).unwrap_or(0);
    args.seconds.unwrap_or(longest.max(MARGIN_S) + MARGIN_S)
}

/// Reports how many rules need a longer time.
fn warn_of_short(chosen: &Options, least: Severity, seconds: u64, what: &str) {
    let short: Vec<u64> = needs(chosen, least).filter(|needs| *needs > seconds).collect();
    let (Some(from), Some(to)) = (short.iter().min(), short.iter().max()) else { return };
    let range = if from == to { format!("{from} s") } else { format!("{from} to {to} s") };
    let (number, all) = (short.len(), chosen.rules().count());
    output::message(format!(
        "numatop-ng: {what} is too short for {number} of {}: these rules need {range}; until then their findings \
         are only suspected",
        plural(all, "rule")
    ));
}

/// The exit code. The first matching one wins: rules requested by name and undecided, findings, open
/// conditions.
fn exit(args: &DiagnoseArgs, chosen: &Options, engine: &Engine) -> Exit {
    let least = least(args);
    let verdict = Verdict::of(engine);
    let open = |id: &str| {
        engine.wholly_blind().any(|blind| blind.id == id)
            || verdict.undecided.iter().any(|rule| rule.id == id && rule.why != Why::Excused)
    };
    let named = chosen.only.iter().flatten().any(|id| open(id));
    match () {
        () if named && !args.allow_undecided => Exit::CouldNotMeasure,
        () if diagnosis::is_found(engine, least) => Exit::Found,
        () if verdict.summary.could_look == 0 => Exit::CouldNotMeasure,
        () if !verdict.decides(least) && !args.allow_undecided => Exit::CouldNotMeasure,
        () => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn cpus_are_short_where_they_are_busy_and_tasks_wait_for_them() {
        let words = |busy_ns, waited_ns| Load { busy_ns, cpu_ns: 2e9, time_ns: 1e9, waited_ns }.words();
        let short = "Too few CPUs: 99 % busy, and some task waited for a CPU 80 % of the time.";
        assert_eq!(words(1.98e9, 0.8e9).as_deref(), Some(short));
        assert_eq!(words(1.98e9, 0.0), None, "nothing waits");
        assert_eq!(words(1.0e9, 0.8e9), None, "bound tasks wait for one CPU");
        assert_eq!(Load::default().words(), None);
    }
}
