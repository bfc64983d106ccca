//! At which event, and how often, stacks are sampled: what `--hot-event` and `--hot-rate` mean on this machine.

use std::path::Path;

use super::{BadValue, bad, catalog, choose};
use crate::cli::{BatchFormat, ViewArgs};
use crate::collect::hot::Sampling;
use crate::model::event::{Event, Role};
use crate::model::sample::Missing;
use crate::pmu::open::try_event;
use crate::pmu::sets::Choice;

/// Refuses `--hot` with output that has no place for stacks. `kept`: stacks go into a recording.
///
/// # Errors
/// Names the formats that have one.
pub fn check(args: &ViewArgs, kept: bool) -> Result<(), BadValue> {
    match args.hot && !kept && args.format != Some(BatchFormat::Json) {
        true => Err(bad(
            "--hot",
            "is for the command record and for --format json; on the screen, h shows hot spots",
        )),
        false => Ok(()),
    }
}

/// Tries events to find out which this machine has. `kept`: stacks go into a recording.
///
/// # Errors
/// An unknown event, or one that this machine does not have; `--hot` where nobody would see it.
pub(super) fn sampling(args: &ViewArgs, kept: bool) -> Result<Sampling, BadValue> {
    check(args, kept)?;
    let event = match args.hot_event.as_str() {
        "auto" => Event::named("cycles").ok().filter(|event| try_event(event).is_ok()),
        "rma" => Some(of_role(args, "numa", Role::Rma)?),
        "llc" => Some(of_role(args, "cache", Role::Llc)?),
        name => Some(named(args, name)?),
    };
    // A clock where there is no PMU.
    let event = event.unwrap_or(Sampling::default().event);
    Ok(Sampling { event, hz: args.hot_rate })
}

/// The event of a role, which is in this set.
fn of_role(args: &ViewArgs, set: &str, role: Role) -> Result<Event, BadValue> {
    let mut choice = chosen(args, set)?;
    let why = choice.absent.remove(&role).unwrap_or_else(|| Missing::Unsupported("this CPU has none".into()));
    let event = choice.events.into_iter().find(|event| event.role == role);
    event.ok_or_else(|| bad("--hot-event", why.to_string()))
}

fn named(args: &ViewArgs, name: &str) -> Result<Event, BadValue> {
    let mut choice = chosen(args, name)?;
    match (choice.events.pop(), choice.events.is_empty(), choice.refused.pop_first()) {
        (Some(event), true, None) => try_event(&event).map(|()| event),
        (None, _, Some((_, why))) => Err(why),
        _ => return Err(bad("--hot-event", "takes one event, not a set of them")),
    }
    .map_err(|why| bad("--hot-event", why.to_string()))
}

fn chosen(args: &ViewArgs, list: &str) -> Result<Choice, BadValue> {
    let root = Path::new("/");
    let catalog = catalog(root, args.pmu_dir.as_deref())?;
    choose(root, &catalog, list).map_err(|error| bad("--hot-event", error.to_string()))
}
