//! The output of `numatop-ng list events`: the tables of this CPU, each event, whether it works here.

use crate::model::event::{Event, Role, Tested, names};
use crate::model::sample::{Missing, Reading};
use crate::pmu::budget::Budget;
use crate::pmu::catalog::{Catalog, Core, Resolved};
use crate::pmu::sets::{Choice, SETS};
use crate::text::{clean_str, hanging, plural, words};

/// Lines below an event hang under its name.
const INDENT: &str = "      ";

/// The list as text of at most `width` columns; a single long word may be longer. `works` opens an event and
/// counts with it for a moment; `choose` returns a set on this machine.
pub fn render_text(
    catalog: &Catalog,
    budget: Budget,
    works: &dyn Fn(&Event) -> Reading<()>,
    choose: &dyn Fn(&str) -> Choice,
    width: usize,
) -> String {
    let mut out = String::new();
    for core in &catalog.cores {
        out += &head(core, width);
        out += &counters(core, budget, width);
        for role in Role::MEASURED.iter().chain(&[Role::Slots, Role::Other]) {
            out += &of_role(core, *role, works, width);
        }
        out.push('\n');
    }
    out += "events that the kernel names\n";
    for event in names::all() {
        out += &line(&event.name, works(&event), width);
    }
    out += "\nsets (--events)\n";
    for (name, _, about) in SETS {
        out += &set(name, about, &choose(name), width);
    }
    out
}

fn head(core: &Core, width: usize) -> String {
    let table = &core.in_use;
    let of_roles: Vec<&str> = core.table.verified.iter().map(|verified| verified.machine.as_str()).collect();
    let verified = match table.verified_on.as_slice() {
        [] if of_roles.is_empty() => "not verified on hardware".to_string(),
        [] => format!("some roles verified on {}", of_roles.join("; ")),
        machines => format!("verified on {}", machines.join(", ")),
    };
    let about = format!("{} ({}, {}; {verified})", table.id, table.name, table.origin);
    let mut out = hanging("CPU    ", words(&clean_str(&table.cpu)), width);
    out += &hanging("table  ", words(&clean_str(&about)), width);
    if !core.table.notes.is_empty() {
        out += &hanging("       ", words(&clean_str(&core.table.notes)), width);
    }
    out
}

fn counters(core: &Core, budget: Budget, width: usize) -> String {
    let Some(device) = &core.device else {
        return hanging("PMU    ", words("none: the kernel shows no PMU of the CPU cores"), width);
    };
    let mut text = format!(
        "{} (type {}): {} for any event, {} free",
        device.name,
        device.kind,
        plural(budget.general as usize, "counter"),
        budget.free()
    );
    if budget.watchdog {
        text += if budget.cycles_fixed {
            "; the NMI watchdog holds the counter for cycles, so cycles take one of these (kernel.nmi_watchdog)"
        } else {
            "; the NMI watchdog has one (kernel.nmi_watchdog)"
        };
    }
    if core.table.counters.is_none() {
        text += "; the real number is unknown";
    }
    hanging("PMU    ", words(&text), width)
}

fn of_role(core: &Core, role: Role, works: &dyn Fn(&Event) -> Reading<()>, width: usize) -> String {
    // The head of a table without any verified event states that once.
    let some_tested =
        core.entries.iter().any(|other| !matches!(other.tested, Tested::Unsaid | Tested::Nowhere));
    let entries: Vec<&Resolved> = core.of(role).collect();
    let why = match core.table.absent.get(&role) {
        Some(why) => why.clone(),
        None if role == Role::Lma && core.table.lma_is_llc_less_rma => {
            "role llc minus role rma: an estimate, never below 0".into()
        }
        None if entries.is_empty() => return String::new(),
        None => String::new(),
    };
    let mut out = format!("\n{}\n", role.id());
    if !why.is_empty() {
        out += &hanging("  -   ", words(&clean_str(&why)), width);
    }
    for resolved in entries {
        let reading = match (&core.device, &resolved.event) {
            // Stated once, above.
            (None, _) => Ok(()),
            (Some(_), Ok(event)) => works(event),
            (Some(_), Err(why)) => Err(why.clone()),
        };
        let entry = &resolved.entry;
        let name = if core.device.is_some() {
            line(&entry.name, reading, width)
        } else {
            hanging("  -   ", [clean_str(&entry.name)], width)
        };
        out += &name;
        let assumed = if entry.assumed { " Its encoding is assumed." } else { "" };
        out += &hanging(INDENT, words(&clean_str(&resolved.encoding())), width);
        out += &hanging(INDENT, words(&clean_str(&format!("{}{assumed}", entry.meaning()))), width);
        if some_tested && !resolved.tested.is_unsaid() {
            out += &hanging(INDENT, words(&clean_str(resolved.tested.words())), width);
        }
    }
    out
}

fn line(name: &str, reading: Reading<()>, width: usize) -> String {
    match reading {
        Ok(()) => hanging("  ok  ", [clean_str(name)], width),
        Err(why) => hanging("  no  ", words(&clean_str(&format!("{name}: {why}"))), width),
    }
}

fn set(name: &str, about: &str, choice: &Choice, width: usize) -> String {
    let names: Vec<&str> = choice.events.iter().map(|event| event.name.as_str()).collect();
    let mut out = hanging("  ", words(&format!("{name}: {about}")), width);
    if !names.is_empty() {
        out += &hanging(INDENT, words(&clean_str(&names.join(" "))), width);
    }
    let mut told: Vec<&Missing> = Vec::new();
    for (role, why) in &choice.absent {
        if !told.contains(&why) {
            out += &hanging(INDENT, words(&clean_str(&format!("without {}: {why}", role.id()))), width);
            told.push(why);
        }
    }
    out
}
