//! Events of this machine in loads whose counts are known: counted by the thread that does them, and by the tool.

use std::path::Path;
use std::time::Instant;

use super::expected::{CountedIn, WITHOUT_LOAD, loads};
use super::report::{CounterReport, Measured, Subject};
use super::run::{Places, Stopped, Watch, options, reason};
use crate::calibrate::job::{Answer, Count, Counts, Job, Limits};
use crate::calibrate::machine::count_facts;
use crate::calibrate::worker::Worker;
use crate::known::counted::Load;
use crate::model::event::{Event, Role, ShareOf};
use crate::pmu::budget::Budget;
use crate::pmu::catalog::{Core, Resolved};
use crate::pmu::sets::Choice;
use crate::source::live::{LiveOptions, LiveSource};

/// Repeats of both lengths; their median counts.
const REPEATS: u32 = 5;

/// Events that the tool counts at a time: the thread has a separate one as well.
const AT_A_TIME: usize = 2;

/// The cores of a kind, and the wishes of the command line.
pub struct Asked<'a> {
    pub core: &'a Core,
    pub budget: Budget,
    /// Roles and names of events; empty for all.
    pub only: &'a [String],
    /// CPUs of that kind, and nodes that have some; or why no load may run on any.
    pub places: Result<&'a Places, String>,
    pub limits: Limits,
    /// The machine is too busy for counts to be those of loads alone, in words.
    pub busy: Option<String>,
    /// The moment after which no event is begun.
    pub until: Instant,
    /// Starts a live source.
    pub start: &'a dyn Fn(LiveOptions) -> anyhow::Result<LiveSource>,
}

/// Makes all counts that cores of a kind can make.
///
/// # Errors
/// A signal came, or the process ended.
pub fn counters(asked: &Asked, worker: &mut Worker) -> Result<CounterReport, Stopped> {
    let core = asked.core;
    let (microcode, huge_pages) = count_facts(Path::new("/"));
    let mut report = CounterReport {
        free_counters: asked.budget.free(),
        microcode,
        huge_pages,
        ..CounterReport::default()
    };
    // The path of a user's table would reveal the user.
    report.table.clone_from(&core.in_use.id);
    report.pmu.clone_from(&core.in_use.pmu);
    let mut to_watch: Vec<(usize, Event)> = Vec::new();
    for role in Role::MEASURED.into_iter().chain([Role::Slots]) {
        for resolved in core.of(role).filter(|resolved| is_asked_for(asked.only, resolved)) {
            let subject = subject(resolved);
            let loads = loads(role, resolved.entry.sees);
            if loads.is_empty() {
                let why = Some(WITHOUT_LOAD.to_string());
                report.measured.push(Measured { why, ..subject.measured(Load::Nops, None) });
            }
            for (at, (load, place)) in loads.into_iter().enumerate() {
                let measured = one(asked, worker, resolved, load, place)?;
                if at == 0 && measured.why.is_none() && load != Load::Written {
                    to_watch.extend(resolved.event.clone().ok().map(|event| (report.measured.len(), event)));
                }
                report.measured.push(measured);
            }
        }
    }
    for some in to_watch.chunks(AT_A_TIME) {
        if let Err(why) = by_the_tool(asked, worker, &mut report.measured, some)? {
            report.without_tool = Some(why);
            break;
        }
    }
    Ok(report)
}

fn is_asked_for(only: &[String], resolved: &Resolved) -> bool {
    let entry = &resolved.entry;
    only.is_empty()
        || only.iter().any(|word| word == entry.role.id() || word.eq_ignore_ascii_case(&entry.name))
}

fn subject(resolved: &Resolved) -> Subject {
    let entry = &resolved.entry;
    Subject {
        event: entry.name.clone(),
        encoding: resolved.encoding(),
        sees: entry.sees,
        errata: entry.errata.clone(),
        ..Subject::new(entry.role, resolved.event.as_ref().unwrap_or(&Event::default()))
    }
}

/// One event in one load.
fn one(
    asked: &Asked,
    worker: &mut Worker,
    resolved: &Resolved,
    load: Load,
    place: CountedIn,
) -> Result<Measured, Stopped> {
    let subject = subject(resolved);
    let untested = |why: String| Measured { why: Some(why), ..subject.measured(load, None) };
    if let Some(why) = &asked.busy {
        return Ok(untested(format!("{why}: wait until the machine is idle, or use --force")));
    }
    if Instant::now() >= asked.until {
        return Ok(untested("no time was left for this event (--time)".into()));
    }
    let event = match &resolved.event {
        Ok(event) => event,
        Err(why) => return Ok(untested(why.to_string())),
    };
    let places = match &asked.places {
        Ok(places) => *places,
        Err(why) => return Ok(untested(why.clone())),
    };
    let whole = match whole(asked.core, event) {
        Ok(whole) => whole,
        Err(why) => return Ok(untested(why)),
    };
    let Some(count) = job(places, asked.limits, event, whole, (load, place)) else {
        return Ok(untested("two nodes with usable memory are needed".into()));
    };
    let nodes = (load.has_node()).then(|| (places.nodes.map_or(count.node, |nodes| nodes[0].0), count.node));
    let answer = worker.ask(&Job::Count(Box::new(count)));
    Ok(match super::run::going_on(answer)? {
        Answer::Counted(counts) => filled(subject.measured(load, nodes), counts),
        Answer::Failed { why } => untested(why),
        other => untested(format!("unexpected answer: {other:?}")),
    })
}

fn filled(measured: Measured, counts: Counts) -> Measured {
    let Counts { amount, user, kernel, whole, running, on_node, all: _ } = counts;
    Measured { amount, user, kernel, whole, running, on_node, ..measured }
}

/// The event that a stall is a share of; `None` for other events.
fn whole(core: &Core, event: &Event) -> Result<Option<Event>, String> {
    if !matches!(event.role, Role::StallBackend | Role::StallFrontend) {
        return Ok(None);
    }
    let role = if event.share_of == ShareOf::Slots { Role::Slots } else { Role::Cycles };
    let found = core.of(role).find_map(|resolved| resolved.event.clone().ok());
    found.map(Some).ok_or_else(|| format!("no event of role {} counts the total", role.id()))
}

/// The job; `None` where the machine has no other node.
fn job(
    places: &Places,
    limits: Limits,
    event: &Event,
    whole: Option<Event>,
    (load, place): (Load, CountedIn),
) -> Option<Count> {
    let (own, other) = match places.nodes {
        Some([own, other]) => (own, Some(other)),
        None => ((places.own_node, *places.cpus.first()?), None),
    };
    let (memory, writer) = match (place, load) {
        (CountedIn::Own, _) => (own, None),
        // The lines are of the own node, and in the cache of another.
        (CountedIn::Other, Load::Written) => (own, Some(other?.1)),
        (CountedIn::Other, _) => (other?, None),
    };
    Some(Count {
        event: event.clone(),
        whole,
        load,
        cpu: own.1,
        node: memory.0,
        touched_by: memory.1,
        writer,
        repeats: REPEATS,
        all: false,
        limits,
    })
}

/// All of a job of each event, counted by the thread and by the tool: why the tool cannot be asked, or nothing.
fn by_the_tool(
    asked: &Asked,
    worker: &mut Worker,
    all: &mut [Measured],
    events: &[(usize, Event)],
) -> Result<Result<(), String>, Stopped> {
    let chosen: Vec<Event> = events.iter().map(|(_, event)| event.clone()).collect();
    let options = LiveOptions { events: Choice::from(chosen), ..options(worker.pid()) };
    let source = match (asked.start)(options) {
        Ok(source) => source,
        Err(error) => return Ok(Err(reason(&error))),
    };
    let Ok(places) = asked.places.as_ref() else { return Ok(Ok(())) };
    let mut watch = Watch::new(worker, source);
    for (at, event) in events {
        let measured = &mut all[*at];
        let place = (measured.load, place_of(measured));
        let Some(job) = job(places, asked.limits, event, None, place) else { continue };
        let job = Job::Count(Box::new(Count { all: true, ..job }));
        let between = match watch.between(&job) {
            Ok(between) => between,
            Err(Stopped::Signal) => return Err(Stopped::Signal),
            // Counts of the thread itself are still available.
            Err(Stopped::Failed(error)) => return Ok(Err(reason(&error))),
        };
        let Ok((Answer::Counted(counts), snapshot)) = between else { continue };
        let own = counts.all.filter(|_| counts.running >= 0.99);
        if let (Some(own), Some(tool)) = (own, watch.count_of(&snapshot, &event.name)) {
            (measured.own, measured.tool) = (Some(own), Some(tool));
        }
    }
    Ok(Ok(()))
}

fn place_of(measured: &Measured) -> CountedIn {
    if measured.is_local() { CountedIn::Own } else { CountedIn::Other }
}
