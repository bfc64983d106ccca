//! The sentences of a report, and the rules by which they are chosen.

use super::clock::{Clock, length};
use super::gaps::{Holes, Missing};
use super::lanes::Id;
use super::programs::{ProgramRow, Sums};
use super::track::Track;
use super::{About, Report};
use crate::finding::verdict::Verdict;
use crate::finding::{Finding, Severity};
use crate::metric::{Unit, Witness};
use crate::text::{plural, quantity};

/// A value with its unit: `32 %`, `1.21`, `5.1 GiB`, `255 /s`.
pub fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{} %", short(value)),
        Unit::Ratio => format!("{value:.2}"),
        Unit::Bytes => crate::text::prose::bytes(value),
        Unit::PerSecond => format!("{} /s", quantity::count(value)),
        _ => short(value),
    }
}

/// Two digits that matter: `0.4`, `3.2`, `32`; 0 as `0`.
pub fn short(value: f64) -> String {
    match value {
        v if v.abs() < 0.005 => "0".into(),
        v if v.abs() < 0.095 => format!("{v:.2}"),
        v if v.abs() < 9.95 => format!("{v:.1}").trim_end_matches(".0").into(),
        v => format!("{v:.0}"),
    }
}

/// The end of a scale of counts: `30k`, `5`.
pub fn short_scale(value: f64) -> String {
    quantity::count(value)
}

/// Two values of one unit: `18–47 %`.
pub fn range(low: f64, high: f64, unit: Unit) -> String {
    let (low, high) = (value(low, unit), value(high, unit));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, one)), Some((_, other))) if one == other => format!("{number}–{high}"),
        _ => format!("{low}–{high}"),
    }
}

/// The name of a lane.
pub fn lane(id: Id) -> &'static str {
    match id {
        Id::Cpu => "CPU busy",
        Id::Remote => "Remote accesses",
        Id::Ipc => "Instructions per cycle",
        Id::Free => "Free memory",
        Id::Pages => "Pages moved",
        Id::Tasks => "Tasks moved",
        Id::Wait => "Waiting for a CPU",
    }
}

/// The meaning of the rows of a lane.
pub fn about_lane(id: Id, has_nodes: bool) -> &'static str {
    match (id, has_nodes) {
        (Id::Cpu, true) => "share of each node's CPUs",
        (Id::Cpu, false) => "share of all CPUs",
        (Id::Remote, _) => "share of the accesses by each node",
        (Id::Ipc, true) => "of all tasks on each node",
        (Id::Ipc, false) => "of all tasks",
        (Id::Free, true) => "on each node",
        (Id::Free, false) => "of the machine",
        (Id::Pages, _) => "by NUMA balancing, per second",
        (Id::Tasks, _) => "between nodes, per second",
        (Id::Wait, _) => "runnable tasks without a CPU",
    }
}

/// The name of a lane in the summary, which has one number for the machine.
pub fn summary_name(id: Id, has_nodes: bool) -> &'static str {
    match (id, has_nodes) {
        (Id::Free, true) => "Least free memory of any node",
        (Id::Pages, _) => "Pages moved by NUMA balancing",
        (Id::Tasks, _) => "Tasks moved between nodes",
        (Id::Wait, _) => "Tasks waiting for a CPU",
        (id, _) => lane(id),
    }
}

/// The mark of a source in front of a number, as on the screen: `=` counted, `~` estimated; empty where no source is known.
pub fn mark(witness: Option<Witness>) -> &'static str {
    match witness {
        Some(Witness::Counted) => "=",
        Some(_) => "~",
        None => "",
    }
}

/// The source of remote shares.
pub fn source(witness: Option<Witness>) -> &'static str {
    match witness {
        Some(Witness::Counted) => "counted",
        Some(Witness::Estimate) => "estimated from samples",
        Some(Witness::Time) => "shares of time, from samples",
        Some(Witness::Memory) => "estimated from placement",
        Some(Witness::Hints) => "estimated from hinting faults",
        None => "not known",
    }
}

/// The source of accesses by pair of nodes; this percentage (0 to 100) is of processes with sampled accesses.
/// Counters do not know the node of memory, so no pair is counted.
pub fn source_of_pairs(sampled_pct: f64) -> String {
    match sampled_pct {
        pct if pct < 0.5 => source(Some(Witness::Memory)).into(),
        pct if pct >= 99.5 => source(Some(Witness::Estimate)).into(),
        pct => format!(
            "estimated from samples for {} % of the CPU time, from placement for the rest",
            short(pct)
        ),
    }
}

/// The remote share of a row with its mark; `?` where it is not known.
pub fn remote(sums: &Sums) -> String {
    if sums.remote.den <= 0.0 {
        return "?".into();
    }
    format!("{}{}", mark(sums.sources.most()), short(sums.remote.num * sums.remote.scale / sums.remote.den))
}

/// The first line: host and day, or the title that was given.
pub fn title(report: &Report, clock: &Clock) -> String {
    let host = if report.about.hostname.is_empty() { "a machine" } else { &report.about.hostname };
    match &report.title {
        Some(title) => crate::text::one_line(title),
        None => format!("{host}, {}", clock.day(report.span.0)),
    }
}

/// The second line: time, intervals, machine, kernel, scope.
pub fn subtitle(report: &Report, clock: &Clock) -> String {
    let About { host, kernel, cpu_model, scope, .. } = &report.about;
    let topology = &host.topology;
    let memory: u64 = report.memory.values().fold(0, |sum, (total, _)| sum.saturating_add(*total));
    let sockets = topology.sockets.max(1);
    let machine = [
        if cpu_model.is_empty() { None } else { Some(format!("{sockets} × {cpu_model}")) },
        Some(plural(topology.nodes.len(), "node")),
        Some(plural(topology.online_cpus().count(), "CPU")),
        (memory > 0).then(|| crate::text::prose::bytes(memory as f64)),
    ];
    let machine: Vec<String> = machine.into_iter().flatten().collect();
    let interval = length(report.interval_ns);
    let parts = [
        format!(
            "{}–{} {}",
            clock.time(report.span.0),
            clock.time(report.span.1),
            clock.offset(report.span.0)
        ),
        format!("{} of {interval}", plural(report.intervals, "interval")),
        machine.join(", "),
        format!("Linux {kernel}"),
        if scope.is_empty() { "whole machine".into() } else { scope.clone() },
    ];
    parts.join(" · ")
}

/// Two or three facts: how busy, how remote or the user of the CPUs, and the number of actionable findings.
pub fn lede(report: &Report) -> String {
    let mut said = Vec::new();
    let of = |id: Id| report.lane(id).filter(|lane| lane.missing.is_none()).map(|lane| &lane.machine);
    if let Some(busy) = of(Id::Cpu).and_then(|track| track.quantile(0.5)) {
        said.push(format!("{} {} % busy (median).", machine(report), short(busy)));
    }
    let remote = of(Id::Remote).filter(|track| track.value().is_some());
    match remote {
        Some(track) => {
            said.push(remote_sentence(report, track));
            said.extend(most_remote(report));
        }
        None => said.extend(busiest(report)),
    }
    if !report.has_nodes() {
        said.push("With one node all memory is local, so this report is about CPU time and waiting.".into());
    }
    said.push(findings_sentence(&report.findings, &report.verdict));
    said.join(" ")
}

fn machine(report: &Report) -> String {
    match report.about.host.topology.online_cpus().count() {
        1 => "The CPU was".into(),
        cpus if !report.has_nodes() => format!("The {cpus} CPUs were"),
        _ => "The machine was".into(),
    }
}

fn remote_sentence(report: &Report, track: &Track) -> String {
    let mean = track.value().unwrap_or(0.0);
    let least_worth = 1.0;
    let begin = format!("On average, {} % of memory accesses left their node", short(mean));
    match track.worst(false) {
        Some((_, worst)) if worst > mean + least_worth => {
            format!("{begin}, {} % in the worst {}.", short(worst), worst_span(report))
        }
        _ => format!("{begin}."),
    }
}

/// The program that has so much of the time with remote memory that it is worth a word. All others are in that time, too, whether
/// they have rows of their own or not.
fn most_remote(report: &Report) -> Option<String> {
    const WORTH: f64 = 0.3;
    let remote_ns = |sums: &Sums| match sums.remote.den > 0.0 {
        true => sums.run_ns * sums.remote.num / sums.remote.den,
        false => 0.0,
    };
    let rest = report.programs.rest.as_ref().map_or(0.0, remote_ns);
    let rows = &report.programs.rows;
    let most = rows.iter().max_by(|a, b| remote_ns(&a.sums).total_cmp(&remote_ns(&b.sums)))?;
    let own = remote_ns(&most.sums);
    let all = rest + rows.iter().map(|row| remote_ns(&row.sums)).sum::<f64>();
    let share = own / all.max(1.0);
    (share >= WORTH).then(|| {
        let whose = most.container.as_ref().map_or(String::new(), |container| format!(" in {container}"));
        let cpus = report.cpus_of(most.sums.run_ns);
        let used = if cpus < 0.95 { "less than one CPU".into() } else { format!("{} CPUs", short(cpus)) };
        let pct = short(most.sums.remote.value());
        let word = part_word(share, rest <= own);
        format!(
            "{}{whose} made {word} of these accesses: {pct} % of its own accesses were remote, and it used \
             {used}.",
            most.name
        )
    })
}

/// The word for a share (0 to 1) of something. `is_largest`: no other one can have more.
fn part_word(share: f64, is_largest: bool) -> &'static str {
    match is_largest {
        _ if share > 0.5 => "most",
        true => "the largest part",
        // One of the others may have more than it.
        false => "a large part",
    }
}

/// The programs with the most CPU time, where the machine has one node.
fn busiest(report: &Report) -> Option<String> {
    let all: f64 = report.programs.rows.iter().map(|row| row.sums.run_ns).sum::<f64>()
        + report.programs.rest.as_ref().map_or(0.0, |rest| rest.run_ns);
    let share = |row: &ProgramRow| row.sums.run_ns * 100.0 / all.max(1.0);
    let names: Vec<String> = report
        .programs
        .rows
        .iter()
        .take(3)
        .filter(|row| share(row) >= 1.0)
        .map(|row| format!("{} ({} %)", row.name, short(share(row))))
        .collect();
    (!names.is_empty()).then(|| format!("Most CPU time went to {}.", and(&names)))
}

/// `a`, `a and b`, `a, b and c`.
pub fn and(names: &[String]) -> String {
    match names.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// The number of findings, and of those for which a command can be typed now.
pub fn findings_sentence(findings: &[Finding], verdict: &Verdict) -> String {
    let asks = |finding: &&Finding| !finding.is_symptom() && finding.severity > Severity::Info;
    let grave: Vec<&Finding> = findings.iter().filter(asks).collect();
    let now = |finding: &&&Finding| {
        finding.advice.commands.iter().any(|command| command.line.is_some() && command.when.id() == "now")
    };
    let can = grave.iter().filter(now).count();
    if grave.is_empty() { verdict.words() } else { counted(grave.len(), can) }
}

/// The number of findings, one or more, and of those with a command to run now (`can`).
fn counted(all: usize, can: usize) -> String {
    match (all, can) {
        (1, 1) => "One finding, with a command to run now.".into(),
        (1, _) => "One finding.".into(),
        (all, 0) => format!("{} findings.", number(all)),
        (all, can) if all == can => {
            format!("{} findings, each with a command to run now.", number(all))
        }
        (all, 1) => format!("{} findings, one with a command to run now.", number(all)),
        (all, can) => format!("{} findings, {can} with a command to run now.", number(all)),
    }
}

fn number(number: usize) -> String {
    match number {
        2 => "Two".into(),
        3 => "Three".into(),
        4 => "Four".into(),
        more => more.to_string(),
    }
}

/// The length of the intervals that percentiles and the worst are of: `second`, `minute`, `5 min`.
pub fn worst_span(report: &Report) -> String {
    match report.grid.width_ns {
        1_000_000_000 => "second".into(),
        60_000_000_000 => "minute".into(),
        ns => length(ns as f64),
    }
}

/// The sentence about what a reader could miss; empty where nothing is.
pub fn caveat(report: &Report, clock: &Clock) -> Vec<String> {
    let mut said = Vec::new();
    let missing = &report.missing;
    said.extend(holes(missing, clock));
    if let Some(lane) = report.lane(Id::Remote)
        && lane.missing.is_none()
        && let Some(witness) = lane.sources.most()
        && witness != Witness::Counted
    {
        let error = lane.sources.error_points();
        let error = error.map_or(String::new(), |points| format!(" (± {} points)", short(points)));
        said.push(format!("Remote shares are {}{error}.", source(Some(witness))));
    }
    let unknown: Vec<String> = report
        .lanes
        .iter()
        .filter(|lane| lane.missing.is_some() && (report.has_nodes() || !lane.id.needs_nodes()))
        .map(|lane| lane_word(lane.id).to_owned())
        .collect();
    if !unknown.is_empty() {
        said.push(format!("Not measured: {}.", and(&unknown)));
    }
    let lost: u64 = missing.lost.values().fold(0, |sum, more| sum.saturating_add(*more));
    if lost > 0 {
        said.push(format!("{} were lost; the losses are counted.", plural(lost as usize, "event")));
    }
    if missing.torn_bytes > 0 {
        said.push("The end of the last file is damaged, or was being written.".into());
    }
    said
}

/// Sentences on holes: time that no sum has, and time that no line has.
fn holes(missing: &Missing, clock: &Clock) -> Vec<String> {
    let of = |holes: Holes, is_gone: bool| {
        let place = match missing.gaps.iter().find(|gap| (gap.new_runs > 0) == is_gone) {
            Some(gap) if holes.count == 1 => {
                let why = if gap.is_restart { " (the machine was restarted)" } else { "" };
                format!("at {}{why}", clock.time(gap.from_ns))
            }
            _ => format!("in {}", plural(holes.count, "gap")),
        };
        format!("{} {place}", length(holes.ns))
    };
    let mut said = Vec::new();
    if missing.gone.count > 0 {
        said.push(format!("Not included: {}.", of(missing.gone, true)));
    }
    if missing.paused.count > 0 {
        said.push(format!("Included in the totals, but not in the curves: {}.", of(missing.paused, false)));
    }
    said
}

fn lane_word(id: Id) -> &'static str {
    match id {
        Id::Cpu => "CPU time",
        Id::Remote => "remote accesses",
        Id::Ipc => "instructions per cycle",
        Id::Free => "free memory",
        Id::Pages => "moved pages",
        Id::Tasks => "moved tasks",
        Id::Wait => "waits for a CPU",
    }
}

/// A row that represents several: `1,889 others`, `1 other`.
pub fn others(count: usize) -> String {
    if count == 1 { "1 other".into() } else { format!("{} others", thousands(count)) }
}

/// `1,889`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The pid of a program that is one process for the most part, or the number of its processes.
pub fn who(sums: &Sums) -> String {
    match (sums.main_pid(), sums.processes) {
        (Some(pid), _) => pid.to_string(),
        (None, 0 | 1) => String::new(),
        (None, many) => format!("{} processes", thousands(many)),
    }
}

/// The sentence on rules: never a number of findings without that of the rules that ran.
pub fn rules(report: &Report) -> String {
    let rules = report.verdict.rules();
    if report.findings.iter().any(Finding::counts) {
        return rules;
    }
    format!("{} {rules}", report.verdict.words())
}

/// The sign and the word of a severity.
pub fn severity(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Critical => ("■", "Critical"),
        Severity::Warning => ("▲", "Warning"),
        Severity::Info => ("·", "Note"),
    }
}

/// When a finding was so: `03:04–04:10`, `03:04 to the end`.
pub fn when(finding: &Finding, clock: &Clock) -> String {
    let since = clock.time(finding.since_wall_ns);
    match finding.until_wall_ns {
        Some(until) => format!("{since}–{}", clock.time(until)),
        None => format!("{since} to the end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::gaps::Gap;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.004, 0.04, 0.44, 3.0, 3.24, 9.96, 1131.4].map(short),
            ["0", "0", "0.04", "0.4", "3", "3.2", "10", "1131"]
        );
        assert_eq!(value(5.1 * (1u64 << 30) as f64, Unit::Bytes), "5.1 GiB");
        assert_eq!(value(0.0, Unit::PerSecond), "0 /s");
        assert_eq!(value(1.214, Unit::Ratio), "1.21");
    }

    #[test]
    fn a_range_says_its_unit_once() {
        assert_eq!(range(18.0, 47.0, Unit::Percent), "18–47 %");
        assert_eq!(range(1.11, 1.3, Unit::Ratio), "1.11–1.30");
        let (mib, gib) = ((1u64 << 20) as f64, (1u64 << 30) as f64);
        assert_eq!(range(900.0 * mib, 11.0 * gib, Unit::Bytes), "900 MiB–11.0 GiB");
    }

    #[test]
    fn lists_end_with_and() {
        let names = |all: &[&str]| and(&all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            [names(&[]), names(&["a"]), names(&["a", "b"]), names(&["a", "b", "c"])],
            ["", "a", "a and b", "a, b and c"]
        );
    }

    #[test]
    fn counts_are_singular_or_plural() {
        assert_eq!((others(1), others(1889)), ("1 other".into(), "1,889 others".into()));
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".into(), "1,234,567".into()));
    }

    #[test]
    fn findings_are_counted_with_what_can_be_done() {
        let verdict = Verdict { watched_ns: 60_000_000_000, ..Verdict::default() };
        assert_eq!(findings_sentence(&[], &verdict), "No finding in 60 s.");
        assert_eq!(
            [(1, 0), (1, 1)].map(|(all, can)| counted(all, can)),
            ["One finding.", "One finding, with a command to run now."]
        );
        assert_eq!(counted(2, 0), "Two findings.");
        assert_eq!(counted(2, 1), "Two findings, one with a command to run now.");
        assert_eq!(counted(9, 9), "9 findings, each with a command to run now.");
    }

    #[test]
    fn what_is_not_known_is_no_zero() {
        assert_eq!(remote(&Sums::default()), "?");
        let mut sums = Sums::default();
        sums.remote.add(crate::metric::over::Quotient::pct(3.0, 12.0));
        assert_eq!(remote(&sums), "25");
    }

    #[test]
    fn a_part_is_the_largest_where_no_other_can_be_larger() {
        let parts =
            [(0.51, true), (0.5, true), (0.4, false)].map(|(share, largest)| part_word(share, largest));
        assert_eq!(parts, ["most", "the largest part", "a large part"]);
    }

    #[test]
    fn a_pause_is_in_the_sums_and_a_new_run_is_not() {
        const MINUTE: i64 = 60_000_000_000;
        let gap = |begin: i64, minutes: i64, is_new_run| {
            let between = (begin * MINUTE, (begin + minutes) * MINUTE);
            if is_new_run { Gap::new_run(between, Vec::new(), true) } else { Gap::pause(between, Vec::new()) }
        };
        let clock = Clock::new(jiff::tz::TimeZone::UTC, (0, 100 * MINUTE), MINUTE);
        let mut missing = Missing::default();
        missing.gap(gap(10, 5, false));
        assert_eq!(
            holes(&missing, &clock),
            ["Included in the totals, but not in the curves: 5 min at 00:10."]
        );
        missing.gap(gap(20, 3, true));
        let gone = "Not included: 3 min at 00:20 (the machine was restarted).";
        assert_eq!(
            holes(&missing, &clock),
            [gone, "Included in the totals, but not in the curves: 5 min at 00:10."]
        );
        missing.gap(gap(30, 3, true));
        missing.gap(gap(40, 5, false));
        let both = [
            "Not included: 6 min in 2 gaps.",
            "Included in the totals, but not in the curves: 10 min in 2 gaps.",
        ];
        assert_eq!(holes(&missing, &clock), both);
    }

    #[test]
    fn accesses_of_pairs_are_estimated() {
        let samples = "estimated from samples for 40 % of the CPU time, from placement for the rest";
        assert_eq!(
            [0.0, 40.0, 100.0].map(source_of_pairs),
            ["estimated from placement", samples, "estimated from samples"]
        );
    }

    #[test]
    fn a_source_has_its_mark() {
        assert_eq!([Some(Witness::Counted), Some(Witness::Memory), None].map(mark), ["=", "~", ""]);
    }
}
