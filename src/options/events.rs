//! The events that `--events` selects on this machine, and the event and the rate of sampling stacks (`--hot-event`, `--hot-rate`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::{BadValue, bad};
use crate::cli::{CounterArgs, EventTableArgs, MeasureArgs, StackArgs};
use crate::collect::hot::Sampling;
use crate::model::event::{Event, Role};
use crate::model::sample::Missing;
use crate::model::topology::format_cpulist;
use crate::model::units::CpuId;
use crate::pmu::budget::{Budget, general_by_cpuid};
use crate::pmu::catalog::Catalog;
use crate::pmu::open::{try_event, try_together};
use crate::pmu::sets::{Choice, Chooser, SETS};
use crate::selftest;

/// The counts of each set of events on this machine. Asked before counters are opened: those in use cannot be tried.
///
/// # Errors
/// An event table of the user is not sound.
pub fn event_sets(args: &EventTableArgs) -> Result<Vec<(&'static str, Choice)>, BadValue> {
    let root = Path::new("/");
    let catalog = marked_catalog(root, args.pmu_dir.as_deref())?;
    let choose = |set: &'static str| choose(root, &catalog, set).map(|choice| (set, choice));
    let sets: anyhow::Result<_> = SETS.iter().map(|(set, ..)| choose(set)).collect();
    sets.map_err(|error| bad("--pmu-dir", format!("{error:#}")))
}

/// The events of `--events` on this machine, found by trying them.
///
/// # Errors
/// An unknown event, or an event table of the user that is not sound.
pub(super) fn of(args: &CounterArgs) -> Result<Choice, BadValue> {
    let root = Path::new("/");
    let catalog = marked_catalog(root, args.tables.pmu_dir.as_deref())?;
    let choice = with_chooser(root, &catalog, |chooser| match args.events_rotate {
        Some(_) => chooser.choose_in_turns(&args.events),
        None => chooser.choose(&args.events),
    });
    choice.map_err(|error| bad("--events", error.to_string()))
}

/// The length of the turns that events have.
///
/// # Errors
/// It is shorter than an interval, or counters would be opened on CPUs that are to be left alone.
pub(super) fn turn(args: &MeasureArgs, quiet: &BTreeSet<CpuId>) -> Result<Option<Duration>, BadValue> {
    let Some(turn) = args.counters.events_rotate else { return Ok(None) };
    if turn < args.interval() {
        return Err(bad(
            "--events-rotate",
            format!(
                "a turn of {} s is shorter than an interval of {} s (-d)",
                turn.as_secs_f64(),
                args.delay
            ),
        ));
    }
    if !quiet.is_empty() && !args.flush_isolated {
        let cpus = format_cpulist(quiet.iter().map(|cpu| cpu.0));
        return Err(bad(
            "--events-rotate",
            format!(
                "each turn interrupts CPUs, including isolated CPUs ({cpus}): --flush-isolated allows this"
            ),
        ));
    }
    Ok(Some(turn))
}

/// The event catalogue of the machine below `root`, with the tables of `--pmu-dir`.
///
/// # Errors
/// An event table of the user cannot be read or is not sound.
pub fn catalog(root: &Path, pmu_dir: Option<&Path>) -> Result<Catalog, BadValue> {
    Catalog::read(root, pmu_dir).map_err(|error| bad("--pmu-dir", format!("{error:#}")))
}

/// The same with the word of self-tests on each event: one that was wrong on this machine is not chosen for its role.
///
/// # Errors
/// As of [`catalog`].
pub fn marked_catalog(root: &Path, pmu_dir: Option<&Path>) -> Result<Catalog, BadValue> {
    let mut catalog = catalog(root, pmu_dir)?;
    selftest::trust(root).mark(&mut catalog);
    Ok(catalog)
}

/// The counters of the machine below `root`, on which this program runs.
pub fn budget(root: &Path, catalog: &Catalog) -> Budget {
    let smt = crate::host::topology::read(root).ok().is_none_or(|topology| topology.smt());
    Budget::read(root, catalog, smt, general_by_cpuid())
}

/// Chooses events for the machine below `root`, on which this program runs.
///
/// # Errors
/// As [`Chooser::choose`].
pub fn choose(root: &Path, catalog: &Catalog, list: &str) -> anyhow::Result<Choice> {
    with_chooser(root, catalog, |chooser| chooser.choose(list))
}

fn with_chooser<T>(root: &Path, catalog: &Catalog, choose: impl FnOnce(&mut Chooser<'_>) -> T) -> T {
    // Without a topology nothing can be counted anyway, and the live source reports why.
    let subnuma = crate::host::topology::read(root).is_ok_and(|topology| {
        let with_cpus = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
        topology.sockets > 0 && with_cpus > topology.sockets as usize
    });
    choose(&mut Chooser { catalog, budget: budget(root, catalog), subnuma, opens: &mut try_together })
}

/// Tries events to find out which this machine has.
///
/// # Errors
/// An unknown event, or one that this machine does not have.
pub(super) fn sampling(args: &StackArgs, tables: &EventTableArgs) -> Result<Sampling, BadValue> {
    let event = match args.hot_event.as_str() {
        "auto" => Event::named("cycles").ok().filter(|event| try_event(event).is_ok()),
        "rma" => Some(of_role(tables, "numa", Role::Rma)?),
        "llc" => Some(of_role(tables, "cache", Role::Llc)?),
        name => Some(named_event(tables, name)?),
    };
    // A clock without a PMU.
    let event = event.unwrap_or(Sampling::default().event);
    Ok(Sampling { event, hz: args.hot_rate })
}

/// The event of a role, which is in this set.
fn of_role(tables: &EventTableArgs, set: &str, role: Role) -> Result<Event, BadValue> {
    let mut choice = chosen(tables, set)?;
    let why = choice
        .absent
        .remove(&role)
        .unwrap_or_else(|| Missing::Unsupported("this CPU has no such event".into()));
    let event = choice.events.into_iter().find(|event| event.role == role);
    event.ok_or_else(|| bad("--hot-event", why.to_string()))
}

fn named_event(tables: &EventTableArgs, name: &str) -> Result<Event, BadValue> {
    let mut choice = chosen(tables, name)?;
    match (choice.events.pop(), choice.events.is_empty(), choice.refused.pop_first()) {
        (Some(event), true, None) => try_event(&event).map(|()| event),
        (None, _, Some((_, why))) => Err(why),
        _ => return Err(bad("--hot-event", "takes one event, not a set of events")),
    }
    .map_err(|why| bad("--hot-event", why.to_string()))
}

fn chosen(tables: &EventTableArgs, list: &str) -> Result<Choice, BadValue> {
    let root = Path::new("/");
    let catalog = catalog(root, tables.pmu_dir.as_deref())?;
    choose(root, &catalog, list).map_err(|error| bad("--hot-event", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;

    fn turn_of(words: &[&str], quiet: &[u32]) -> Result<Option<Duration>, String> {
        let quiet = quiet.iter().copied().map(CpuId).collect();
        turn(&args(words).watch.measure, &quiet).map_err(|error| error.to_string())
    }

    #[test]
    fn a_turn_is_no_shorter_than_an_interval() {
        let words = |delay, turn| ["-d", delay, "--events", "auto", "--events-rotate", turn];
        assert_eq!(turn_of(&words("2", "2s"), &[]), Ok(Some(Duration::from_secs(2))));
        let error = turn_of(&words("2", "1.5"), &[]).unwrap_err();
        assert!(error.contains("--events-rotate") && error.contains("1.5 s is shorter"), "{error}");
        assert_eq!(turn_of(&["-d", "2"], &[]), Ok(None));
    }

    #[test]
    fn cpus_that_are_left_alone_have_no_turns_unless_that_is_allowed() {
        let words = ["--events", "auto", "--events-rotate", "5s", "--flush-isolated"];
        let error = turn_of(&words[..4], &[2, 3]).unwrap_err();
        assert!(error.contains("(2-3)") && error.contains("--flush-isolated"), "{error}");
        assert!(turn_of(&words, &[2, 3]).is_ok() && turn_of(&words[..4], &[]).is_ok());
    }
}
