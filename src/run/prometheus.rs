//! The exporter: this machine or a recording as a page of counters, until a signal comes.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::pipe::PipeFlags;

use super::diagnose::asked;
use super::watch::{recorded, recorder_at, rotate_signal, start};
use super::{messages, ran, stop_signals};
use crate::cli::ExporterArgs;
use crate::exporter::server::Server;
use crate::exporter::{Exporter, Shared};
use crate::finding::{Engine, Options};
use crate::metric::needs::Demand;
use crate::model::facility::Facility;
use crate::options;
use crate::program::output;
use crate::program::systemd::{self, Watchdog};
use crate::run::batch::{self, Counted, Pace};
use crate::run::replay::{Part, intervals};
use crate::snapshot::RowKind;
use crate::source::Source;
use crate::source::recording::Recording;

pub(super) fn run(args: &ExporterArgs) -> Result<ExitCode> {
    let inherited = systemd::sockets();
    let addresses = options::addresses(args, !inherited.is_empty())?;
    let stop = stop_signals()?;
    let page = Shared::default();
    let recording = args.from_recording.as_deref().map(Recording::open).transpose()?;
    // First of all, because a port that is taken is found out at once.
    let server = if inherited.is_empty() { Server::listen(&addresses) } else { Server::inherit(inherited) }?;
    let measured = match recording {
        Some(recording) => {
            let serving = Serving::begin(server, &page)?;
            systemd::ready("serving a recording");
            let done = replay(args, recording, &page, stop);
            systemd::stopping();
            done.and(serving.end())
        }
        None => watch(args, server, &page, stop),
    };
    measured.map(|()| ran())
}

/// Measures this machine, and serves the page when everything is attached.
fn watch(args: &ExporterArgs, server: Server, page: &Shared, stop: BorrowedFd<'_>) -> Result<()> {
    let mut live = options::watched(&args.scope, &args.measure)?;
    if args.record.is_none() {
        // It has series of sockets, and none of disks: those only matter to findings.
        live.demand = Demand::Screen(BTreeSet::from([Facility::SocketTraffic]));
    }
    let interval = args.measure.interval();
    let recorder = recorder_at(args.record.as_deref(), &args.limits, interval)?;
    let rotate = rotate_signal()?;
    let source = start(live)?;
    let mut exporter = exporter(args, page, &source).of_this_process();
    let serving = Serving::begin(server, page)?;
    let mut out = messages()?;
    let pace = Pace {
        interval,
        iterations: args.count.iterations,
        counted: Counted::Taken,
        grain: RowKind::Processes,
        hot: false,
        access: false,
        overhead: false,
        findings: true,
        progress: false,
    };
    let done = recorded(source, recorder, rotate, |source| {
        batch::run(source, &mut exporter, &mut out, pace, stop).map(drop)
    });
    done.and(serving.end())
}

fn exporter(args: &ExporterArgs, page: &Shared, source: &dyn Source) -> Exporter {
    let engine = Engine::new(Options::default());
    Exporter::new(options::limits(args), (engine, asked(&source.host())), page.clone(), args.textfile.clone())
}

/// The intervals of a recording, each when as much time has passed as it took.
fn replay(args: &ExporterArgs, mut recording: Recording, page: &Shared, stop: BorrowedFd<'_>) -> Result<()> {
    let mut exporter = exporter(args, page, &recording);
    let part = Part {
        from_wall_ns: None,
        to_wall_ns: None,
        iterations: args.count.iterations,
        follow: false,
        grain: RowKind::Processes,
        progress: false,
    };
    let mut last: Option<(u64, Instant)> = None;
    let mut watchdog = Watchdog::new();
    let mut read = 0u64;
    let next = |recording: &mut Recording, _: &mut dyn std::io::Write| {
        let Some(sample) = recording.next()? else { return Ok(None) };
        if let Some((mono_ns, at)) = last {
            let due = at + Duration::from_nanos(sample.mono_ns.saturating_sub(mono_ns));
            if watchdog.wait(due, |due| recording.wait(due, stop))? {
                return Ok(None);
            }
        }
        last = Some((sample.mono_ns, Instant::now()));
        read += 1;
        watchdog.beat(|| format!("{read} samples of the recording"));
        Ok(Some(sample))
    };
    intervals(&mut recording, next, &mut exporter, &mut messages()?, part, stop)?;
    Ok(())
}

/// The thread that serves the page. Its sockets are gone when this is ended.
struct Serving {
    thread: JoinHandle<std::io::Result<()>>,
    /// Closed, it ends the thread.
    end: OwnedFd,
}

impl Serving {
    /// Serves the page on a separate thread, and prints its address.
    fn begin(server: Server, page: &Shared) -> Result<Serving> {
        let ports = server.ports();
        for address in &ports {
            output::message(format!("numatop-ng: serving http://{address}/metrics"));
        }
        if ports.iter().any(|address| !address.ip().is_loopback()) {
            output::message(
                "numatop-ng: anyone who can connect reads names of programs and containers; use a proxy for TLS",
            );
        }
        let (stop, end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context("making a pipe")?;
        let page = page.clone();
        let thread = thread::Builder::new().name("exporter".into());
        let thread = thread
            .spawn(move || server.serve(&page, &stop))
            .context("starting the thread that serves the page")?;
        Ok(Serving { thread, end })
    }

    fn end(self) -> Result<()> {
        drop(self.end);
        let served = self.thread.join();
        served
            .map_err(|_| anyhow!("the thread that serves the page panicked; this is a bug"))?
            .context("serving the page")
    }
}
