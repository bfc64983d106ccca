//! A profile as text for people and as CSV; its JSON is itself. Pure.

mod matrix;

use std::collections::BTreeMap;

use super::classes::classes;
use super::plan::{Plan, Stage};
use crate::model::profile::values::{part, values};
use crate::model::profile::{Profile, State};
use crate::text::{hanging, words};

pub use self::matrix::compare;
pub use matrix::latency_matrix;

/// A profile as text of at most `width` columns, in ASCII; with `colour` cells of matrices are marked with their shades.
pub fn render_text(profile: &Profile, width: usize, colour: bool) -> String {
    let mut text = summary(profile, width);
    let classes = classes(profile);
    for section in [
        matrix::latency(profile, &classes, width, colour),
        matrix::bandwidth(profile, &classes, colour),
        numbers(profile, width),
        matrix::meaning(profile, &classes, width),
        other_runs(profile, width),
        missing(profile, width),
    ] {
        if !section.is_empty() {
            text.push('\n');
            text += &section;
        }
    }
    text
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The machine, the measurement, and whether it may be used.
fn summary(profile: &Profile, width: usize) -> String {
    let machine = &profile.machine;
    let cpu = if machine.cpu.is_empty() { "an unknown CPU" } else { &machine.cpu };
    let error = profile.error_pct().map_or(String::new(), |percent| format!(", +-{percent:.1} %"));
    let mut text = hanging(
        "",
        words(&format!(
            "{}, {}, {cpu}; took {:.0} s, other tasks used {:.1} % of the CPUs{error}",
            count(machine.nodes.len(), "node"),
            count(machine.cores as usize, "core"),
            profile.took_s,
            profile.others_pct
        )),
        width,
    );
    let state = match profile.state {
        State::Good => None,
        State::Disturbed => Some("discarded: the machine was busy".to_string()),
        State::Wandering => Some(wandering(profile)),
        State::Partial => Some("partial: some parts were not measured".to_string()),
    };
    if let Some(state) = state {
        text += &hanging("", words(&state), width);
    }
    text
}

/// The looks at two CPUs, in words.
fn wandering(profile: &Profile) -> String {
    let Some(wandering) = &profile.wandering else { return "wandering".into() };
    let looks: u32 = wandering.classes.iter().sum();
    let counts: Vec<String> = wandering.classes.iter().map(ToString::to_string).collect();
    format!(
        "wandering: the hypervisor moves this machine's CPUs. {looks} measurements between CPUs {} and {} \
         gave {} different distances ({}); only ratios between nodes are used",
        wandering.cpus.0,
        wandering.cpus.1,
        wandering.classes.len(),
        counts.join(", ")
    )
}

/// Everything that is one number, a line each.
fn numbers(profile: &Profile, width: usize) -> String {
    let mut lines = Vec::new();
    for local in &profile.local {
        let gbs = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.1}"));
        let fill = local.cores_to_fill.map(|cores| format!("{} fill it", count(cores as usize, "core")));
        let parts = [
            gbs("reads by one core", local.one_core_gbs),
            fill,
            gbs("copy", local.copy_gbs),
            gbs("triad", local.triad_gbs),
            gbs("write", local.write_gbs),
            gbs("non-temporal writes", local.write_nt_gbs),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        lines.push(format!("within node {}, GB/s: {}", local.node, parts.join(", ")));
    }
    let lines_ns = &profile.lines_ns;
    let pairs = [
        ("same core", lines_ns.core),
        ("same cache", lines_ns.llc),
        ("same node", lines_ns.node),
        ("data line plus flag line", lines_ns.two_lines),
        ("other node", farthest(profile)),
    ];
    let pairs: Vec<String> =
        pairs.iter().filter_map(|(name, ns)| ns.map(|ns| format!("{name} {ns:.0}"))).collect();
    if !pairs.is_empty() {
        lines.push(format!("transfer of a cache line between cores, one way, ns: {}", pairs.join(", ")));
    }
    lines.extend(lines_ns.pairs.iter().map(|(a, b, ns)| format!("  CPUs {a} and {b}: {ns:.1} ns")));
    let smt = [
        ("independent additions", profile.smt.additions),
        ("branches", profile.smt.branches),
        ("memory", profile.smt.memory),
        ("dependent additions", profile.smt.waiting),
    ];
    let smt: Vec<String> =
        smt.iter().filter_map(|(name, times)| times.map(|times| format!("{name} {times:.2}"))).collect();
    if !smt.is_empty() {
        lines.push(format!("throughput of both threads of a core, one thread = 1: {}", smt.join(", ")));
    }
    if let Some(ns) = profile.walk_ns {
        lines.push(format!("a page walk adds {ns:.0} ns (random access, small pages); huge pages avoid it"));
    }
    for loaded in &profile.loaded {
        let points: Vec<String> =
            loaded.points.iter().map(|(gbs, ns)| format!("latency {ns:.0} ns at {gbs:.1} GB/s")).collect();
        lines.push(format!(
            "under traffic, CPUs of node {} to memory of node {}: {}",
            loaded.from,
            loaded.to,
            points.join(", ")
        ));
    }
    lines.iter().map(|line| hanging("", words(line), width)).collect()
}

/// The longest way of a line between two nodes.
fn farthest(profile: &Profile) -> Option<f64> {
    let rows = profile.lines_ns.nodes.iter().enumerate();
    let other = rows.flat_map(|(from, row)| row.iter().enumerate().filter(move |(to, _)| *to != from));
    other.filter_map(|(_, ns)| *ns).max_by(f64::total_cmp)
}

/// Numbers that are not of the last run, or not clean: a line for each run.
fn other_runs(profile: &Profile, width: usize) -> String {
    let mut runs: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for key in values(profile).keys() {
        let state = match profile.taint(key) {
            Some(State::Disturbed) => ", disturbed",
            Some(State::Wandering) => ", while the hypervisor moved CPUs",
            _ => "",
        };
        let parts = runs.entry((profile.when(key), state)).or_default();
        *parts.entry(part(key).unwrap_or_default()).or_default() += 1;
    }
    // Words on the whole are in the text already.
    if runs.len() < 2 {
        return String::new();
    }
    let line = |((time, state), parts): (&(&str, &str), &BTreeMap<&str, usize>)| {
        let parts: Vec<String> =
            parts.iter().map(|(part, numbers)| format!("{part} ({})", count(*numbers, "number"))).collect();
        hanging(&format!("measured {time}{state}: "), words(&parts.join(", ")), width)
    };
    runs.iter().map(line).collect()
}

/// Numbers that are missing, with the reason and its day, and words on the measurement.
fn missing(profile: &Profile, width: usize) -> String {
    let notes = profile.notes.iter().map(|note| hanging("note: ", words(note), width));
    let missing = profile.missing.iter().map(|(key, why)| {
        let day = profile.origins.get(key).map(|origin| origin.time.split('T').next().unwrap_or_default());
        let day = day.map_or(String::new(), |day| format!(" ({day})"));
        hanging("missing: ", words(&format!("{key}: {why}{day}")), width)
    });
    notes.chain(missing).collect()
}

/// A profile as CSV: a row for each pair of nodes.
pub fn render_csv(profile: &Profile) -> String {
    let mut text =
        "from,to,slit,latency_ns,latency_error_ns,latency_asleep_ns,read_gbs,read_error_gbs,line_ns\n"
            .to_string();
    let nodes = &profile.machine.nodes;
    for (from, row) in nodes.iter().enumerate() {
        for (to, column) in nodes.iter().enumerate() {
            let cell = |matrix: &Vec<Vec<Option<f64>>>| {
                let value = matrix.get(from).and_then(|row| row.get(to)).copied().flatten();
                value.map_or(String::new(), |value| value.to_string())
            };
            let slit = row.slit.get(to).map_or(String::new(), ToString::to_string);
            let cells = [
                &profile.latency_ns,
                &profile.latency_error,
                &profile.latency_asleep_ns,
                &profile.read_gbs,
                &profile.read_error,
                &profile.lines_ns.nodes,
            ];
            let cells: Vec<String> = cells.into_iter().map(cell).collect();
            text += &format!("{},{},{slit},{}\n", row.node, column.node, cells.join(","));
        }
    }
    text
}

/// A plan, for those who are about to wait for it.
pub fn render_plan(plan: &Plan, width: usize) -> String {
    let rows: Vec<String> =
        plan.rows.iter().map(|row| format!("{} ({})", row.node, count(row.cpus.len(), "core"))).collect();
    let memory: Vec<String> =
        plan.memory().iter().map(|(node, bytes)| format!("{} MiB of node {node}", bytes >> 20)).collect();
    let stages: Vec<String> =
        plan.stages.iter().map(|(stage, seconds)| format!("{} {seconds:.1} s", stage.word())).collect();
    let mut text = hanging(
        "",
        words(&format!("about {:.0} s of full load on each core that is used", plan.seconds().ceil())),
        width,
    );
    for (name, parts) in [("CPUs of node ", rows), ("memory: ", memory), ("stages: ", stages)] {
        text += &hanging(&format!("  {name}"), words(&parts.join(", ")), width);
    }
    if plan.has(Stage::Latency) {
        let line =
            format!("{} rounds of latency measurements over {} MiB", plan.rounds, plan.walk_bytes >> 20);
        text += &hanging("  ", words(&line), width);
    }
    let left_out = plan
        .left_out
        .iter()
        .chain(&plan.absent)
        .map(|(stage, why)| hanging("  left out: ", words(&format!("{}: {why}", stage.word())), width));
    text.extend(left_out);
    text.extend(
        plan.missing.iter().map(|(key, why)| hanging("  missing: ", words(&format!("{key}: {why}")), width)),
    );
    text
}

#[cfg(test)]
mod tests;
