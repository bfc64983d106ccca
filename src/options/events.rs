//! The events that `--events` stands for on this machine.

use std::path::Path;

use super::{BadValue, bad};
use crate::cli::{CounterArgs, EventTableArgs};
use crate::model::topology::Topology;
use crate::pmu::budget::{Budget, general_by_cpuid};
use crate::pmu::catalog::Catalog;
use crate::pmu::open::try_together;
use crate::pmu::sets::{Choice, Chooser, SETS};
use crate::selftest::stored;

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
    choose(root, &catalog, &args.events).map_err(|error| bad("--events", error.to_string()))
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
    stored::trust(root).mark(&mut catalog);
    Ok(catalog)
}

/// The counters of the machine below `root`, which is the one that this runs on.
pub fn budget(root: &Path, catalog: &Catalog) -> Budget {
    let smt = Topology::read(root).ok().is_none_or(|topology| topology.smt());
    Budget::read(root, catalog, smt, general_by_cpuid())
}

/// Chooses events for the machine below `root`, which is the one that this runs on.
///
/// # Errors
/// As [`Chooser::choose`].
pub fn choose(root: &Path, catalog: &Catalog, list: &str) -> anyhow::Result<Choice> {
    // Without a topology nothing can be counted anyway, and the live source says why.
    let subnuma = Topology::read(root).is_ok_and(|topology| {
        let with_cpus = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
        topology.sockets > 0 && with_cpus > topology.sockets as usize
    });
    Chooser { catalog, budget: budget(root, catalog), subnuma, opens: &mut try_together }.choose(list)
}
