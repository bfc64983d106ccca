//! `run`: a command from its first instruction to its end, and a page about it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::epoll;

use super::destination::{Existing, Out, quoted};
use super::diagnose::asked;
use super::stop_signals;
use super::watch::{recorder_at, rotate_signal, start};
use crate::cli::{Binding, RunArgs, RunFormat, ScopeArgs};
use crate::finding::verdict::Verdict;
use crate::finding::{Engine, Finding, Options, Severity};
use crate::model::sample::{HostFacts, Sample};
use crate::outcome::totals::Totals;
use crate::outcome::{End, Outcome, Series, data, text};
use crate::program::launch::{Ended, Held, NotStarted, Order, Running};
use crate::program::output::{self, Form};
use crate::program::signals;
use crate::record::recorder::Recorder;
use crate::snapshot::{RowKind, derive};
use crate::source::live::{LiveOptions, LiveSource};
use crate::source::recorded::Recorded;
use crate::source::{Focus, Source, poll};
use crate::{error, options};

/// The beginning of the scope of a recording of `run`.
pub(super) const COMMAND_SCOPE: &str = "command ";

/// Time in which a task that has ended makes its last switch, on a busy machine too.
const LAST_SWITCH: Duration = Duration::from_millis(20);

/// The same at most, where descendants come and go.
const LAST_SWITCH_MAX: Duration = Duration::from_millis(500);

pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let out = args.output.as_deref().map(|path| Out::of(Some(path), false, Existing::Kept)).transpose()?;
    let places = places(args)?;
    let mut series = Vec::new();
    let mut code = None;
    for (binding, order) in places {
        let mut runs = Vec::new();
        for _ in 0..args.warmup {
            if let Err(why) = unwatched(&order, &args.command)? {
                return Ok(not_started(&why));
            }
        }
        for _ in 0..args.repeat {
            let (ended, outcome) = match watched(args, &order)? {
                Ok(ran) => ran,
                Err(why) => return Ok(not_started(&why)),
            };
            // The first failure counts: a later success does not undo it.
            if code.is_none_or(|code| code == 0) {
                code = Some(exit_code(end_of(ended.status)));
            }
            match outcome {
                Ok(outcome) => runs.push(outcome),
                // The command has run all the same, and its status is its own.
                Err(error) => output::lines(error::message(&error, &[])),
            }
            if signals::ended_by().is_some() {
                break;
            }
        }
        series.push(Series { binding: binding.map(|binding| binding.text.clone()), runs });
        if signals::ended_by().is_some() {
            break;
        }
    }
    series.retain(|one: &Series| !one.runs.is_empty());
    if !series.is_empty() {
        write(args, &series, out.as_ref())?;
    }
    Ok(code.unwrap_or(0).into())
}

/// The places that the command runs in, one after the other.
fn places(args: &RunArgs) -> Result<Vec<(Option<&Binding>, Order)>> {
    let user = args.as_user.then(options::user_of_sudo).transpose()?;
    if args.bindings.is_empty() {
        return Ok(vec![(None, Order { user, ..Order::default() })]);
    }
    let topology = crate::host::topology::read(Path::new("/")).context("reading the topology")?;
    let place = |binding| -> Result<_> {
        let order = options::place(binding, &topology)?;
        Ok((Some(binding), Order { user: user.clone(), ..order }))
    };
    args.bindings.iter().map(place).collect()
}

fn not_started(why: &NotStarted) -> ExitCode {
    output::message(format!("numatop-ng: {why}"));
    why.exit_code().into()
}

/// As in a shell.
fn exit_code(end: End) -> u8 {
    match end {
        End::Exited(code) => code,
        End::Killed(signal) => signals::exit_code(signal),
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code as u8),
        (None, signal) => End::Killed(signal.unwrap_or(0)),
    }
}

/// Readable when a command has ended, or a signal has come.
struct Events(OwnedFd);

impl Events {
    fn of(running: &Running) -> Result<Events> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("waiting for the command")?;
        for (at, fd) in [(0, running.end.as_fd()), (1, stop_signals()?)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(at), epoll::EventFlags::IN)
                .context("waiting for the command")?;
        }
        Ok(Events(epoll))
    }

    /// Hands signals on. True when the command has ended.
    fn take(running: &Running) -> io::Result<bool> {
        while let Some(signal) = signals::take() {
            // A terminal sends these to all of its foreground, and so to the command.
            if !matches!(signal, libc::SIGINT | libc::SIGQUIT) {
                running.signal(signal);
            }
        }
        Ok(poll(&[running.end.as_fd()], Instant::now())?.is_some())
    }
}

/// Runs the command without watching it.
fn unwatched(order: &Order, command: &[OsString]) -> Result<Result<Ended, NotStarted>> {
    match Held::start(order, command).and_then(Held::go) {
        Ok(running) => end(&running).map(Ok),
        Err(why) => Ok(Err(why)),
    }
}

/// The end of a command, and its outcome, or why that is not known.
type Ran = (Ended, Result<Outcome>);

/// Runs the command with everything attached.
///
/// # Errors
/// Nothing could be attached, and the command did not run.
fn watched(args: &RunArgs, order: &Order) -> Result<Result<Ran, NotStarted>> {
    let held = match Held::start(order, &args.command) {
        Ok(held) => held,
        Err(why) => return Ok(Err(why)),
    };
    let recorder = recorder_at(args.record.as_deref(), &args.limits, args.measure.interval())?;
    let mut source = start(live_options(args, held.pid())?)?;
    match recorder {
        None => follow(&mut source, args, held),
        Some(recorder) => recorded(source, recorder, args, held),
    }
}

fn recorded(
    source: LiveSource,
    recorder: Recorder,
    args: &RunArgs,
    held: Held,
) -> Result<Result<Ran, NotStarted>> {
    let mut source = Recorded::new(source, recorder, rotate_signal()?);
    let ran = follow(&mut source, args, held)?;
    let finished = source.finish();
    Ok(ran.map(|(ended, outcome)| (ended, outcome.and_then(|outcome| finished.map(|()| outcome)))))
}

fn live_options(args: &RunArgs, pid: u32) -> Result<LiveOptions> {
    let mut live = options::watched(&ScopeArgs::default(), &args.measure)?;
    live.scope.trees = [pid].into();
    live.scope_text = format!("{COMMAND_SCOPE}{}", typed(&args.command));
    Ok(live)
}

/// The words of a command as they are typed.
fn typed(command: &[OsString]) -> String {
    command.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// The samples of a run as they become sums, and what rules find in them.
struct Gathered {
    totals: Totals,
    engine: Engine,
    last: Option<(Arc<HostFacts>, Sample)>,
}

impl Gathered {
    fn take(&mut self, host: Arc<HostFacts>, sample: Sample) {
        let snapshot =
            self.last.as_ref().map(|(_, before)| derive(&host, Some(before), &sample, RowKind::Processes));
        if let Some(snapshot) = &snapshot {
            self.engine.take(snapshot);
        }
        self.totals.take(&sample, snapshot.as_ref());
        self.last = Some((host, sample));
    }
}

/// Lets the command go, and takes samples until it has ended.
fn follow(source: &mut dyn Source, args: &RunArgs, held: Held) -> Result<Result<Ran, NotStarted>> {
    source.focus(Focus { asked: asked(&source.host()), ..Focus::default() });
    let engine = Engine::new(Options::default());
    let mut gathered = Gathered { totals: Totals::default(), engine, last: None };
    next(source, &mut gathered)?;
    let running = match held.go() {
        Ok(running) => running,
        Err(why) => return Ok(Err(why)),
    };
    let watched = watch(source, &mut gathered, &running, args.measure.interval());
    // If measuring ends, the command continues.
    let ended = end(&running)?;
    let outcome = watched.and_then(|()| {
        settle(source);
        next(source, &mut gathered)?;
        outcome(source, gathered, &ended)
    });
    Ok(Ok((ended, outcome)))
}

/// Takes samples until the command has ended.
fn watch(
    source: &mut dyn Source,
    gathered: &mut Gathered,
    running: &Running,
    interval: Duration,
) -> Result<()> {
    let events = Events::of(running)?;
    let mut due = Instant::now() + interval;
    while !Events::take(running).context("waiting for the command")? {
        if !source.wait(due, events.0.as_fd())? {
            next(source, gathered)?;
            due = (due + interval).max(Instant::now());
        }
    }
    Ok(())
}

/// Waits for the end of the command.
fn end(running: &Running) -> Result<Ended> {
    let events = Events::of(running)?;
    while !Events::take(running).context("waiting for the command")? {
        poll(&[events.0.as_fd()], Instant::now() + Duration::from_secs(3600))
            .context("waiting for the command")?;
    }
    running.wait().context("waiting for the command")
}

fn next(source: &mut dyn Source, gathered: &mut Gathered) -> Result<()> {
    source.prepare()?;
    let sample = source.next()?.context("the live measurement has ended")?;
    gathered.take(source.host(), sample);
    Ok(())
}

/// Waits for the last switches of tasks that have ended: their end is known a moment before. The final row is
/// made there.
fn settle(source: &dyn Source) {
    let begin = Instant::now();
    let (mut alive, mut since) = (source.trees().alive, begin);
    while alive > 0 && since.elapsed() < LAST_SWITCH && begin.elapsed() < LAST_SWITCH_MAX {
        std::thread::sleep(Duration::from_millis(1));
        let now = source.trees().alive;
        if now != alive {
            (alive, since) = (now, Instant::now());
        }
    }
}

fn outcome(source: &dyn Source, gathered: Gathered, ended: &Ended) -> Result<Outcome> {
    let Gathered { totals, engine, last } = gathered;
    let (host, last) = last.context("none of the samples is complete")?;
    let sums = totals.finish(&host).map_err(|why| anyhow::anyhow!("{why}"))?;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let findings = engine.findings().iter().filter(|finding| finding.counts());
    let over = engine.ended().filter(|finding| finding.severity > Severity::Info);
    let findings: Vec<Finding> = findings.chain(over).cloned().collect();
    let verdict = Verdict::of(&engine);
    Ok(Outcome {
        end: end_of(ended.status),
        elapsed_ns: ns(ended.elapsed),
        user_ns: ns(ended.times.user),
        system_ns: ns(ended.times.system),
        born: source.trees().born,
        living: sums.living,
        machine: sums.machine,
        row: sums.row,
        waits: sums.waits,
        peak: sums.peak,
        lost: last.lost.into_iter().filter(|(_, lost)| *lost > 0).collect(),
        lost_ns: sums.lost_ns,
        findings,
        verdict: format!("{} {}", verdict.words(), verdict.rules()),
    })
}

fn write(args: &RunArgs, series: &[Series], out: Option<&Out>) -> Result<()> {
    let (page, form) = match args.format {
        RunFormat::Text => (text::render(&typed(&args.command), series), Form::Text),
        RunFormat::Csv => (data::csv(series), Form::Csv),
        RunFormat::Json => {
            let words: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into()).collect();
            (format!("{:#}\n", data::object(&words, series)), Form::Json)
        }
    };
    match out {
        Some(out) => out.write(&page, form).inspect_err(|_| {
            // The page is not lost.
            let _ = output::aside(&page, form);
        }),
        None => output::aside(&page, form).context("writing to standard error"),
    }
}
