//! `calibrate`: a plan, a look at whether the machine is idle, the measurement, and the profile that is stored.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{has_colour, print, stop_signals, terminal_width};
use crate::calibrate::machine::Facts;
use crate::calibrate::merge::kept;
use crate::calibrate::plan::{self, Asked, Plan, Stage};
use crate::calibrate::results::Run;
use crate::calibrate::show;
use crate::calibrate::store::{self, Lock, Wanted};
use crate::calibrate::worker::{Ended, Worker};
use crate::cli::{CalibrateArgs, NodeList, PartArg, ProfileFormat};
use crate::collect::plan::Advice;
use crate::error::{Exit, Refusal};
use crate::host::kernel::read_trimmed;
use crate::known::idle::{Usage, too_busy};
use crate::model::profile::Profile;
use crate::options::BadValue;
use crate::program::guard;
use crate::program::output::{self, Form};
use crate::program::progress::Ticking;
use crate::source::poll;

/// Time after which a measurement is ended, in parts of the time that it may take.
const PATIENCE: f64 = 1.2;

/// The second in which others are looked at before anything runs.
pub(super) const LOOK: Duration = Duration::from_secs(1);

pub(super) fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    if let Some(file) = &args.show {
        return stored(args, file.as_deref());
    }
    let mut facts = Facts::read(Path::new("/"))?;
    let asked = asked(args);
    check_nodes(args, &facts)?;
    if args.dry_run {
        print(&show::render_plan(&plan::plan(&asked, &facts), terminal_width()), Form::Text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop_signals()?;
    let _lock = lock()?;
    // Files are looked at first: two minutes for nothing would be rude.
    let place = (!args.no_save).then(store::own_place).transpose()?;
    if let Some(Err(error)) = place.as_deref().map(store::prepare) {
        output::message(format!(
            "numatop-ng: the profile cannot be stored, so nothing is measured (--no-save measures anyway): \
             {error:#}"
        ));
        return Ok(Exit::Privilege.into());
    }
    let compared = args.compare.as_deref().map(store::read).transpose()?;
    if let Some(path) = &args.output {
        new_file(path).and_then(|_| guard::remove(path).context("removing the test file"))?;
    }
    let before = (Usage::read(Path::new("/"), &[]), std::mem::take(&mut facts.interrupts));
    let begin = Instant::now();
    if poll(&[stop], begin + LOOK).context("waiting for a signal")?.is_some() {
        return Ok(interrupted());
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut facts = Facts::read(Path::new("/"))?;
    facts
        .interrupts
        .iter_mut()
        .for_each(|(cpu, count)| *count -= before.1.get(cpu).copied().unwrap_or(0).min(*count));
    let busy = too_busy(&before.0, &facts.usage, seconds);
    if let Some(why) = busy.as_ref().filter(|_| !args.force) {
        let advice = "wait until the machine is idle, or measure anyway (that profile is not used)";
        return Err(refusal(why, vec![Advice::command(advice, "numatop-ng calibrate --force")]).into());
    }
    let plan = plan::plan(&asked, &facts);
    output::lines(show::render_plan(&plan, 80));
    if plan.stages.is_empty() {
        output::message("numatop-ng: nothing can be measured on this machine");
        return Ok(Exit::CouldNotMeasure.into());
    }
    let limit =
        Duration::from_secs_f64(PATIENCE * args.time.unwrap_or_else(|| plan.seconds().max(10.0) * 2.0));
    let started = Instant::now();
    let mut worker =
        Worker::start(stop, started + limit, args.force).context("starting the measuring process")?;
    let ticking = Ticking::new("measuring", Duration::from_secs_f64(plan.seconds().max(1.0)));
    let (results, ended) = crate::calibrate::run::run(&plan, &mut worker, args.force);
    drop(ticking);
    let run = Run {
        time: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        took_s: started.elapsed().as_secs_f64(),
        boot_id: store::boot_id(),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        forced: busy.is_some(),
        cut_short: ended.is_some(),
        others_pct: worker.others_pct(),
    };
    drop(worker);
    let profile = results.profile(&plan, facts.key.clone(), run);
    finish(args, &plan, &profile, ended, place.as_deref(), compared.as_ref())
}

/// Stores a complete measurement, and shows it: a reader that is gone takes no profile away.
fn finish(
    args: &CalibrateArgs,
    plan: &Plan,
    profile: &Profile,
    ended: Option<Ended>,
    place: Option<&Path>,
    compared: Option<&Profile>,
) -> Result<ExitCode> {
    let stored = match place {
        Some(place) if ended.is_none() => keep(place, args, profile),
        _ => Ok(()),
    };
    match compared {
        Some(old) => {
            write(args.output.as_deref(), &show::compare(old, profile, terminal_width()), Form::Text)?;
        }
        None => render(args, profile)?,
    }
    let Some(ended) = ended else {
        if let Err(error) = stored {
            output::message(format!("numatop-ng: the profile is not stored: {error:#}"));
            return Ok(Exit::Privilege.into());
        }
        let absent = |key: &String| plan.absent.iter().any(|(stage, _)| stage.word() == key);
        let whole = plan.left_out.is_empty() && profile.missing.keys().all(absent);
        return Ok(if whole { Exit::Ok } else { Exit::CouldNotMeasure }.into());
    };
    let why = match ended {
        Ended::Signal => return Ok(interrupted()),
        Ended::Busy(why) => format!("other tasks became busy ({why}): only complete parts are shown"),
        Ended::TimeUp => "the time limit was reached: only complete parts are shown".to_string(),
        Ended::Died(why) => why,
    };
    output::message(format!("numatop-ng: {why}; nothing is stored"));
    Ok(Exit::CouldNotMeasure.into())
}

fn interrupted() -> ExitCode {
    output::message("numatop-ng: interrupted; nothing is stored");
    Exit::CouldNotMeasure.into()
}

/// Stores a profile. A part goes into the existing profile of this machine; a disturbed one never replaces a
/// good one.
fn keep(place: &Path, args: &CalibrateArgs, profile: &Profile) -> Result<()> {
    let old = store::read(place).ok();
    let old = old.filter(|old| old.inapplicable(&profile.machine, &profile.boot_id).is_none());
    let asked = asked(args).only;
    let is_part =
        args.from.is_some() || args.to.is_some() || Stage::USUAL.iter().any(|stage| !asked.contains(stage));
    let Some(new) = kept(old.as_ref(), profile.clone(), is_part) else {
        output::message("numatop-ng: the stored profile is kept, because its measurement was not disturbed");
        return Ok(());
    };
    store::write(place, &new)?;
    output::message(format!("numatop-ng: profile stored in {}", place.display()));
    Ok(())
}

/// Shows a file, or the profile that is found.
fn stored(args: &CalibrateArgs, file: Option<&Path>) -> Result<ExitCode> {
    let topology = crate::host::topology::read(Path::new("/"))?;
    let (profile, inapplicable) = match file {
        Some(path) => {
            let profile = store::read(path)?;
            let key = crate::calibrate::machine::key(Path::new("/"), &topology);
            let why = profile.inapplicable(&key, &store::boot_id());
            (profile, why)
        }
        None => {
            let (found, notes) = store::find(&Wanted::Stored, &topology);
            notes.iter().for_each(|note| output::message(format!("numatop-ng: {note}")));
            let Some(found) = found else {
                output::message("numatop-ng: no profile is stored: run numatop-ng calibrate to measure one");
                return Ok(Exit::CouldNotMeasure.into());
            };
            output::message(format!("numatop-ng: {}, measured {}", found.path.display(), found.profile.time));
            (found.profile, found.inapplicable)
        }
    };
    match &args.compare {
        Some(path) => write(
            args.output.as_deref(),
            &show::compare(&store::read(path)?, &profile, terminal_width()),
            Form::Text,
        )?,
        None => render(args, &profile)?,
    }
    match inapplicable {
        Some(why) => {
            output::message(format!("numatop-ng: the profile is from another machine or state: {why}"));
        }
        None => output::message("numatop-ng: the profile matches this machine"),
    }
    Ok(ExitCode::SUCCESS)
}

fn render(args: &CalibrateArgs, profile: &Profile) -> Result<()> {
    match args.format {
        ProfileFormat::Text => {
            let colour = args.output.is_none() && has_colour(args.color);
            let form = if colour { Form::Coloured } else { Form::Text };
            write(args.output.as_deref(), &show::render_text(profile, terminal_width(), colour), form)
        }
        ProfileFormat::Json => {
            write(args.output.as_deref(), &format!("{}\n", serde_json::to_string(profile)?), Form::Json)
        }
        ProfileFormat::Csv => write(args.output.as_deref(), &show::render_csv(profile), Form::Text),
    }
}

/// Writes to the file that was named, or to standard output.
pub(super) fn write(file: Option<&Path>, text: &str, form: Form) -> Result<()> {
    match file {
        None => print(text, form),
        Some(path) => {
            let mut file = output::Cleaned::new(new_file(path)?, form);
            file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))
        }
    }
}

/// The lock of this machine, which known loads hold.
pub(super) fn lock() -> Result<Lock> {
    Lock::take().map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => refusal("another calibrate or selftest is running", Vec::new()).into(),
        _ => anyhow::Error::from(error).context("taking the lock of this machine"),
    })
}

/// Makes a file that is not there yet.
fn new_file(path: &Path) -> Result<File> {
    guard::create_new(path).with_context(|| format!("making {}", path.display()))
}

fn asked(args: &CalibrateArgs) -> Asked {
    let stage = |part: &PartArg| match part {
        PartArg::Latency => Stage::Latency,
        PartArg::Bandwidth => Stage::Bandwidth,
        PartArg::Cores => Stage::Cores,
        PartArg::Smt => Stage::Smt,
        PartArg::Pages => Stage::Pages,
        PartArg::Loaded => Stage::Loaded,
    };
    let set =
        |list: &Option<NodeList>| list.as_ref().map(|list| list.0.iter().copied().collect::<BTreeSet<_>>());
    Asked {
        only: args.only.iter().map(stage).collect(),
        from: set(&args.from),
        to: set(&args.to),
        every_core: args.cores,
        seconds: args.time,
        memory_pct: args.memory,
    }
}

/// Refuses nodes that are not there.
fn check_nodes(args: &CalibrateArgs, facts: &Facts) -> Result<()> {
    for (flag, list) in [("--from", &args.from), ("--to", &args.to)] {
        for node in list.iter().flat_map(|list| &list.0) {
            if !facts.topology.nodes.iter().any(|known| known.id.0 == *node) {
                return Err(BadValue { flag, why: format!("there is no node {node} here") }.into());
            }
        }
    }
    Ok(())
}

/// A refusal to measure now.
pub(super) fn refusal(why: &str, advice: Vec<Advice>) -> Refusal {
    Refusal {
        exit: Exit::CouldNotMeasure,
        what: "this machine cannot be measured now".into(),
        why: Some(why.to_string()),
        said: None,
        advice,
    }
}
