//! The event and the rate of sampling stacks: the meaning of `--hot-event` and `--hot-rate` on this machine.

use std::path::Path;

use super::{BadValue, bad, catalog, choose};
use crate::cli::{EventTableArgs, StackArgs};
use crate::collect::hot::Sampling;
use crate::model::event::{Event, Role};
use crate::model::sample::Missing;
use crate::pmu::open::try_event;
use crate::pmu::sets::Choice;

/// Tries events to find out which this machine has.
///
/// # Errors
/// An unknown event, or one that this machine does not have.
pub(super) fn sampling(args: &StackArgs, tables: &EventTableArgs) -> Result<Sampling, BadValue> {
    let event = match args.hot_event.as_str() {
        "auto" => Event::named("cycles").ok().filter(|event| try_event(event).is_ok()),
        "rma" => Some(of_role(tables, "numa", Role::Rma)?),
        "llc" => Some(of_role(tables, "cache", Role::Llc)?),
        name => Some(named(tables, name)?),
    };
    // A clock without a PMU.
    let event = event.unwrap_or(Sampling::default().event);
    Ok(Sampling { event, hz: args.hot_rate })
}

/// The event of a role, which is in this set.
fn of_role(tables: &EventTableArgs, set: &str, role: Role) -> Result<Event, BadValue> {
    let mut choice = chosen(tables, set)?;
    let why = choice.absent.remove(&role).unwrap_or_else(|| Missing::Unsupported("this CPU has none".into()));
    let event = choice.events.into_iter().find(|event| event.role == role);
    event.ok_or_else(|| bad("--hot-event", why.to_string()))
}

fn named(tables: &EventTableArgs, name: &str) -> Result<Event, BadValue> {
    let mut choice = chosen(tables, name)?;
    match (choice.events.pop(), choice.events.is_empty(), choice.refused.pop_first()) {
        (Some(event), true, None) => try_event(&event).map(|()| event),
        (None, _, Some((_, why))) => Err(why),
        _ => return Err(bad("--hot-event", "takes one event, not a set of them")),
    }
    .map_err(|why| bad("--hot-event", why.to_string()))
}

fn chosen(tables: &EventTableArgs, list: &str) -> Result<Choice, BadValue> {
    let root = Path::new("/");
    let catalog = catalog(root, tables.pmu_dir.as_deref())?;
    choose(root, &catalog, list).map_err(|error| bad("--hot-event", error.to_string()))
}
