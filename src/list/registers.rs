//! The output of `numatop-ng list`: events of the tables of this CPU, each with whether it works here; every metric, its rows, its
//! meaning; and the rules, their limits, and when they stay silent.

use crate::finding::Rule;
use crate::finding::rule::Group;
use crate::finding::rules::RULES;
use crate::metric::Metric;
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::cpu_set::CPU_SET_METRICS;
use crate::metric::host::HOST_METRICS;
use crate::metric::matrix::PAIR_METRICS;
use crate::metric::node::NODE_METRICS;
use crate::metric::task::{TASK_METRICS, by_id};
use crate::model::event::{Event, Role, Tested, names};
use crate::model::sample::{Missing, Reading};
use crate::pmu::budget::Budget;
use crate::pmu::catalog::{Catalog, Core, Resolved};
use crate::pmu::sets::{Choice, SETS};
use crate::report::words::thousands;
use crate::text::{clean_str, hanging, plural, words};

/// Lines below an event hang under its name.
const INDENT: &str = "      ";

/// The list as text of at most `width` columns; a single long word may be longer. `works` opens an event and
/// counts with it for a moment; `choose` returns a set on this machine.
pub fn events(
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
    out += "events that the kernel provides by name\n";
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
            "; the NMI watchdog uses the counter for cycles, so cycles take one of these (kernel.nmi_watchdog)"
        } else {
            "; the NMI watchdog uses one (kernel.nmi_watchdog)"
        };
    }
    if core.table.counters.is_none() {
        text += "; this number is an assumption";
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
        let assumed = if entry.assumed { " The encoding is an assumption." } else { "" };
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

/// The list as text of at most `width` columns. A metric is in a line that begins with its id.
pub fn metrics(width: usize) -> String {
    let mut out = String::from("Tasks: processes, or threads with -H (--columns, --sort)\n");
    for metric in TASK_METRICS {
        out += &metric_line(metric.id, metric.help, width);
    }
    out += "\nContainers (--by-container with --columns and --sort; in JSON)\n";
    for metric in CONTAINER_METRICS.iter().filter(|metric| !is_of_tasks(metric)) {
        out += &metric_line(metric.id, metric.help, width);
    }
    let summed = CONTAINER_METRICS.iter().filter(|metric| is_of_tasks(metric));
    let ids: Vec<&str> = summed.map(|metric| metric.id).collect();
    out += &metric_line("and the same metrics as for tasks:", &ids.join(", "), width);
    out += "\nNodes (in JSON)\n";
    for metric in NODE_METRICS {
        out += &metric_line(metric.id, metric.help, width);
    }
    out += "\nSockets and L3 domains that differ from nodes (in JSON: sockets, llcs)\n";
    for metric in CPU_SET_METRICS {
        out += &metric_line(metric.id, metric.help, width);
    }
    out += "\nNode to node (in JSON, under matrix)\n";
    for metric in PAIR_METRICS {
        out += &metric_line(metric.id, metric.help, width);
    }
    out += "\nThe host (in JSON, under host)\n";
    for metric in &HOST_METRICS {
        out += &metric_line(metric.id, metric.help, width);
    }
    out
}

/// True for a metric that is a sum of tasks for a container.
fn is_of_tasks<R>(metric: &Metric<R>) -> bool {
    by_id(metric.id).is_some_and(|of_task| of_task.help == metric.help)
}

fn metric_line(id: &str, help: &str, width: usize) -> String {
    hanging(&format!("{id:27} "), words(help), width)
}

/// All rules, one line each, as text of at most `width` columns.
pub fn rules(width: usize) -> String {
    let mut out =
        String::from("Rules of findings, with their highest severity (diagnose --rules, --explain)\n");
    for rule in RULES {
        out += &hanging(&format!("{:24} {:8} ", rule.id, rule.gravest.name()), words(rule.about), width);
    }
    out
}

/// One rule: its condition, limits with their sources, and guards, as text of at most `width` columns.
pub fn explain_rule(rule: &Rule, width: usize) -> String {
    let mut out = hanging("", words(&format!("{} - {}", rule.id, rule.title)), width);
    out += &hanging("  ", words(rule.about), width);
    let kinds: Vec<&str> = rule.of.iter().map(|kind| kind.name()).collect();
    out += &hanging(
        "  subject  ",
        words(&format!("{}; up to {}", kinds.join(", "), rule.gravest.name())),
        width,
    );
    out += &hanging("  held     ", words(&held(rule)), width);
    for limit in rule.limits {
        let text = format!(
            "{} - starts at {}, ends at {}; {}",
            limit.name,
            in_unit(limit.on, limit.unit),
            in_unit(limit.off, limit.unit),
            limit.source
        );
        out += &hanging("  limit    ", words(&text), width);
    }
    for (word, meaning) in rule.not_when {
        out += &hanging("  not when ", words(&format!("{word} - {meaning}")), width);
    }
    if !rule.needs.is_empty() {
        out += &hanging("  needs    ", words(&rule.needs.join(", ")), width);
    }
    out
}

/// All rules as tables in markdown, one for each group: the list in docs/rules.md. [`explain_rule`] has limits and guards.
pub fn rules_as_markdown() -> String {
    let mut groups: Vec<Group> = RULES.iter().map(|rule| rule.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut out = String::new();
    for group in groups {
        out += &format!("## {}\n\n| rule | at most | held | condition |\n|---|---|---|---|\n", group.title());
        for rule in RULES.iter().filter(|rule| rule.group == group) {
            out += &format!(
                "| `{}` | {} | {} s | {} |\n",
                rule.id,
                rule.gravest.name(),
                rule.hold.on_s,
                rule.about
            );
        }
        out.push('\n');
    }
    out
}

/// A limit with its unit: `50,000,000/s`, `20 %`.
fn in_unit(value: f64, unit: &str) -> String {
    let number = if value >= 1000.0 { thousands(value as usize) } else { value.to_string() };
    if unit.starts_with('/') { format!("{number}{unit}") } else { format!("{number} {unit}") }
}

fn held(rule: &Rule) -> String {
    match rule.hold.on_s {
        0.0 => "at once".to_owned(),
        seconds => format!(
            "the condition must hold for {seconds} s; the finding ends {} s after the condition stops holding",
            rule.hold.off_s
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_listed_with_its_rows() {
        let text = metrics(usize::MAX);
        let parts: Vec<&str> = text.split("\n\n").collect();
        let [tasks, containers, nodes, sets, pairs, host] = parts[..] else {
            panic!("{} parts", parts.len())
        };
        let has = |part: &str, id: &str| part.split([' ', ',', '\n']).any(|word| word == id);
        assert!(TASK_METRICS.iter().all(|metric| has(tasks, metric.id)));
        assert!(CONTAINER_METRICS.iter().all(|metric| has(containers, metric.id)));
        assert!(NODE_METRICS.iter().all(|metric| has(nodes, metric.id)));
        assert!(CPU_SET_METRICS.iter().all(|metric| has(sets, metric.id)));
        assert!(PAIR_METRICS.iter().all(|metric| has(pairs, metric.id)));
        assert!(HOST_METRICS.iter().all(|metric| has(host, metric.id)));
    }

    #[test]
    fn it_fits_the_terminal() {
        assert!(metrics(80).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn it_fits_the_terminal_of_findings() {
        assert!(rules(80).lines().all(|line| line.chars().count() <= 80));
        for rule in RULES {
            let text = explain_rule(rule, 80);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(rule.limits.iter().all(|limit| text.contains(limit.name)), "{text}");
        }
    }
}
