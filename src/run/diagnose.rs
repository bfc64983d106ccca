//! Watching for findings: this machine for a while, or a recording; what was found, and an exit code that says it.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::stretch::{Read, samples};
use super::watch::start;
use super::{print, ran, stop_signals, terminal_width};
use crate::cli::{DiagnoseArgs, LevelArg, ReportFormat};
use crate::error::Exit;
use crate::finding::redact::Redactor;
use crate::finding::{Engine, Options, Severity, diagnosis, rules};
use crate::host::users;
use crate::list::findings::explain;
use crate::model::event::Role;
use crate::model::process::Asked;
use crate::model::sample::{HostFacts, Sample};
use crate::options;
use crate::program::say::{self, Form};
use crate::program::signals;
use crate::snapshot::{RowKind, derive};
use crate::source::{Focus, Source};

pub(super) fn run(args: &DiagnoseArgs) -> Result<ExitCode> {
    if let Some(id) = &args.explain {
        let rule = rules::by_id(id).ok_or_else(|| options::no_rule("--explain", id))?;
        print(&explain(rule, terminal_width()), Form::Text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = options::rules(&args.rules)?;
    let stop = stop_signals()?;
    let redactor = args.redact.then(Redactor::default);
    let mut folded = Folded { engine: Engine::new(chosen.clone()), previous: None, host: None, redactor };
    match &args.path {
        Some(path) => {
            let stretch = (args.from.as_deref(), args.to.as_deref());
            samples(path, stretch, stop, |Read { host, sample, goes_on, .. }| {
                folded.take(host, sample, goes_on);
                Ok(())
            })?;
        }
        None => fold_machine(args, &mut folded, stop)?,
    }
    if signals::ended_by().is_some_and(|signal| signal != libc::SIGINT) {
        return Ok(ran());
    }
    let (Some(host), Some(last)) = (&folded.host, &folded.previous) else {
        say::message("numatop-ng: nothing was measured");
        return Ok(Exit::CouldNotMeasure.into());
    };
    let exit = exit(args, &chosen, &folded.engine);
    match args.format {
        ReportFormat::Text => {
            print(&diagnosis::render_text(&folded.engine, host, args.all, terminal_width()), Form::Text)?;
        }
        ReportFormat::Json => {
            let object = diagnosis::render_json(&folded.engine, host, args.all, last.wall_ns, exit as u8);
            print(&format!("{object:#}\n"), Form::Json)?;
        }
    }
    Ok(exit.into())
}

/// The engine, and the last sample that it took.
struct Folded {
    engine: Engine,
    previous: Option<Sample>,
    host: Option<Arc<HostFacts>>,
    /// Replaces names, where they are not to be shown.
    redactor: Option<Redactor>,
}

impl Folded {
    /// Takes the interval that a sample ends. `goes_on`: it is of the same run as the one before.
    fn take(&mut self, mut host: Arc<HostFacts>, mut sample: Sample, goes_on: bool) {
        if !goes_on {
            self.engine.interrupt();
        }
        if let Some(redactor) = &mut self.redactor {
            redactor.sample(&mut sample);
            host = Arc::new(redactor.host(&host));
        }
        if let Some(previous) = self.previous.take().filter(|_| goes_on) {
            self.engine.take(&derive(&host, Some(&previous), &sample, RowKind::Processes));
        }
        self.previous = Some(sample);
        self.host = Some(host);
    }
}

/// Folds intervals of this machine for as long as was asked for.
fn fold_machine(args: &DiagnoseArgs, folded: &mut Folded, stop: BorrowedFd<'_>) -> Result<()> {
    let live = options::watched(&args.scope, &args.measure, &users::read(Path::new("/")))?;
    let mut source = start(live)?;
    source.focus(Focus { asked: asked(&source.host()), ..Focus::default() });
    say::message(format!("numatop-ng: watching for {} s", args.seconds));
    let (begin, interval) = (Instant::now(), args.measure.interval());
    let end = begin + Duration::from_secs(args.seconds);
    let mut due = begin;
    while let Some(sample) = source.next()? {
        folded.take(source.host(), sample, true);
        due = (due + interval).max(Instant::now());
        // The last interval may be a little longer, so that the whole time is watched.
        if due > end + interval / 2 || source.wait(due, stop)? {
            break;
        }
    }
    Ok(())
}

/// Fields of processes that rules need beside what samples always have: lists of CPUs, and huge pages where misses of the TLB are
/// counted. The kernel looks at every page table for the latter.
pub(super) fn asked(host: &HostFacts) -> Asked {
    Asked { texts: true, huge: host.slots(Role::Dtlb).next().is_some() }
}

/// 1 where every rule or one that was named could not look; 5 where a finding is grave enough; else 0.
fn exit(args: &DiagnoseArgs, chosen: &Options, engine: &Engine) -> Exit {
    let least = match args.fail_on {
        LevelArg::Info => Severity::Info,
        LevelArg::Warning => Severity::Warning,
        LevelArg::Critical => Severity::Critical,
    };
    let blind: BTreeSet<&str> = engine.wholly_blind().map(|blind| blind.id).collect();
    let named = chosen.only.iter().flatten().any(|id| blind.contains(id.as_str()));
    let found = diagnosis::is_found(engine, least);
    let nothing = engine.summary().could_look == 0;
    match () {
        () if named => Exit::CouldNotMeasure,
        () if found => Exit::Found,
        () if nothing => Exit::CouldNotMeasure,
        () => Exit::Ok,
    }
}
