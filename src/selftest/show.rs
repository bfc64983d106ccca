//! The report of a self-test as text for people, with counts of events beside the expected ones; its JSON is itself. Pure.

use super::expected::{CHECKS, WITHOUT_LOAD, by_id, loads};
use super::judge::Verdict;
use super::report::{CounterReport, Measured, Report};
use crate::model::event::Role;
use crate::pmu::table::Sees;
use crate::text::{clean_str, hanging, words};

/// The report as text of at most `width` columns.
pub fn render_text(report: &Report, width: usize) -> String {
    let machine = &report.machine;
    let kind = match machine.hypervisor {
        Some(true) => "a virtual machine",
        Some(false) => "bare metal",
        None => "bare metal or a virtual machine",
    };
    let head = format!(
        "{}, {kind}, nodes: {}, Linux {}; {:.0} s",
        if machine.cpu.is_empty() { "an unknown CPU" } else { &machine.cpu },
        machine.nodes.len(),
        report.kernel,
        report.took_s
    );
    let mut text = hanging("", words(&head), width);
    if !report.comparisons.is_empty() {
        text +=
            &format!("{:<18}{:>14}{:>14}  {:<9} tolerance\n", "check", "truth", "by numatop-ng", "verdict");
    }
    for comparison in &report.comparisons {
        let check = by_id(&comparison.check);
        let number = |value: Option<f64>| {
            value.map_or("-".to_string(), |value| shown(value, check.map_or("", |check| check.unit)))
        };
        let tolerance = check.map_or(String::new(), |check| check.tolerance.words());
        let line = format!(
            "{:<18}{:>14}{:>14}  {:<9} {tolerance}",
            comparison.check,
            number(comparison.truth),
            number(comparison.tool),
            comparison.verdict.word()
        );
        text += &format!("{}\n", line.trim_end());
        if let Some(reason) = &comparison.reason {
            text += &hanging("    ", words(reason), width);
        }
    }
    for counters in report.cores() {
        text += &counters_as_text(counters, width);
    }
    let count = |verdict| report.count(verdict);
    let mut counts = format!(
        "{} ok, {} wrong, {} untested",
        count(Verdict::Ok),
        count(Verdict::Wrong),
        count(Verdict::Untested)
    );
    for verdict in [Verdict::Plausible, Verdict::Known] {
        if count(verdict) > 0 {
            counts += &format!(", {} {}", count(verdict), verdict.word());
        }
    }
    text + &counts + "\n"
}

/// Times in ms, shares with a digit, counts as they are.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ns" => format!("{:.3} ms", value / 1e6),
        "%" => format!("{value:.1} %"),
        _ => format!("{value:.0}"),
    }
}

/// All checks of software numbers and loads of counters, as far as they are wanted, for `--list`.
pub fn render_list(software: bool, counters: bool, width: usize) -> String {
    let mut text = String::new();
    for check in CHECKS.iter().filter(|_| software) {
        let nodes = if check.two_nodes { "; needs memory on two nodes" } else { "" };
        let line = format!("{}; {}{nodes}", check.about, check.tolerance.words());
        text += &hanging(&format!("{:<18}", check.id), words(&line), width);
    }
    if counters {
        text += &counter_list(width);
    }
    text
}

/// The counts as text of at most `width` columns.
pub(super) fn counters_as_text(report: &CounterReport, width: usize) -> String {
    let pmu = if report.pmu.is_empty() { "no PMU of the CPU cores" } else { &report.pmu };
    let head = format!("events of {} on {pmu}, {} counters free", report.table, report.free_counters);
    let mut text = hanging("", words(&clean_str(&head)), width);
    if let Some(why) = &report.without_tool {
        let line = format!("counted with perf_event_open(2) instead of numatop-ng, because {why}");
        text += &hanging("  ", words(&clean_str(&line)), width);
    }
    if report.pmu.is_empty() {
        // Repeating the same reason for each event would add nothing.
        return text + &hanging("  ", words("no event is tested: hypervisors often hide the PMU"), width);
    }
    let mut event = "";
    for measured in &report.measured {
        if measured.subject.event != event {
            event = &measured.subject.event;
            let line = format!("{}  {event}  {}", measured.subject.role.id(), measured.subject.encoding);
            text += &hanging("", words(&clean_str(&line)), width);
        }
        text += &of_load(measured, width);
    }
    text
}

fn of_load(measured: &Measured, width: usize) -> String {
    let nodes = measured.nodes.map_or(String::new(), |(from, to)| format!(", {from} > {to}"));
    let load = format!("{}{nodes}", measured.load.word());
    let must = match measured.expected {
        None => "-".to_string(),
        Some((low, high)) if low > 0.0 => format!("{low:.0}-{high:.0}"),
        Some((_, high)) => format!("<{high:.0}"),
    };
    let counted = measured.count().map_or("-".to_string(), |count| format!("{count:.0}"));
    let line = format!("  {load:<16}{must:>22}{counted:>12}  {}", measured.verdict.word());
    let mut text = format!("{}\n", line.trim_end());
    if let Some(reason) = &measured.reason {
        text += &hanging("    ", words(&clean_str(reason)), width);
    }
    if measured.is_direct() {
        text += "    not through numatop-ng\n";
    }
    if let (Some(own), Some(tool)) = (measured.own, measured.tool) {
        let word = measured.tool_verdict.word();
        text += &hanging(
            "    ",
            words(&format!("whole job: {own} by its own count, {tool} by numatop-ng ({word})")),
            width,
        );
    }
    text
}

/// Loads of all roles, for `--list`.
pub(super) fn counter_list(width: usize) -> String {
    let mut text = String::new();
    for role in Role::MEASURED {
        let loads = loads(role, Sees::Demand);
        let about = match &loads[..] {
            [] => WITHOUT_LOAD.to_string(),
            [(first, _), rest @ ..] => {
                let controls: Vec<&str> = rest.iter().map(|(load, _)| load.word()).collect();
                let nearly = if controls.is_empty() {
                    String::new()
                } else {
                    format!("; almost no events in: {}", controls.join(", "))
                };
                format!("loads that raise the count: {}{nearly}", first.word())
            }
        };
        text += &hanging(&format!("{:<18}", role.id()), words(&about), width);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::counted::Load;
    use crate::model::event::Event;
    use crate::model::profile::MachineKey;
    use crate::selftest::judge::Verdict;
    use crate::selftest::report::{Comparison, SCHEMA, Subject};

    fn report() -> Report {
        let comparisons = vec![
            Comparison::new("minor_faults", 20_000.0, 20_000.0),
            Comparison::new("cpu_time", 500_000_000.0, 500_128_000.0),
            Comparison::new("moved_pages", 4000.0, 2000.0),
            Comparison { error: Some(2.0), ..Comparison::new("placement", 30.0, 30.6) },
            Comparison::untested("remote", "one node: nothing is remote"),
        ];
        Report {
            schema: SCHEMA,
            tool: "0.1.0".into(),
            kernel: "6.12".into(),
            machine: MachineKey::default(),
            took_s: 4.2,
            comparisons,
            counters: None,
            other_cores: Vec::new(),
        }
        .judged()
    }

    #[test]
    fn numbers_stand_beside_the_truth_and_reasons_below() {
        let text = render_text(&report(), 80);
        for said in [
            "minor_faults               20000         20000  ok        +-20\n",
            "cpu_time              500.000 ms    500.128 ms  ok        +-0.1 % and one clock tick\n",
            "moved_pages                 4000          2000  WRONG     exact\n    half the expected count: one of two",
            "placement                 30.0 %        30.6 %  ok        within the stated error",
            "remote                         -             -  untested  +-5 points\n    one node: nothing is remote\n",
            "\n3 ok, 1 wrong, 1 untested\n",
        ] {
            assert!(text.contains(said), "{said:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_file_is_trusted_for_its_numbers_only() {
        let mut lies = report();
        lies.comparisons.iter_mut().for_each(|comparison| comparison.verdict = Verdict::Ok);
        let read: Report = serde_json::from_str(&serde_json::to_string(&lies).unwrap()).unwrap();
        assert_eq!(read.count(Verdict::Ok), 5);
        assert_eq!(read.judged(), report());
    }

    #[test]
    fn every_check_is_listed() {
        let text = render_list(true, false, 100);
        assert!(CHECKS.iter().all(|check| text.contains(check.id)));
        assert!(text.lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn counts_stand_beside_what_they_must_be() {
        let event = Event { name: "INST_RETIRED.ANY".into(), ..Event::default() };
        let subject = Subject::new(Role::Instructions, &event);
        let measured = Measured {
            expected: Some((3_999_900.0, 4_000_500.0)),
            user: vec![2_000_000],
            own: Some(10),
            tool: Some(20),
            verdict: Verdict::Wrong,
            reason: Some("half the expected count: one of two".into()),
            ..subject.measured(Load::Loop, Some((0, 1)))
        };
        let untested = Measured { why: Some("one node".into()), ..subject.measured(Load::Coin, None) };
        let report = CounterReport {
            table: "intel/ice-lake-sp".into(),
            pmu: "cpu".into(),
            free_counters: 4,
            without_tool: Some("no BPF".into()),
            measured: vec![measured, untested],
            ..CounterReport::default()
        };
        let text = counters_as_text(&report, 80);
        for said in [
            "events of intel/ice-lake-sp on cpu, 4 counters free\n",
            "  counted with perf_event_open(2) instead of numatop-ng, because no BPF\n",
            "instructions  INST_RETIRED.ANY  type 0 config 0x0\n",
            "  loop, 0 > 1            3999900-4000500     2000000  WRONG\n    half the expected count: one of two\n",
            "    whole job: 10 by its own count, 20 by numatop-ng (untested)\n",
            "  coin                                 -           -  untested\n",
        ] {
            assert!(text.contains(said), "{said:?} is not in\n{text}");
        }
        assert_eq!(text.matches("INST_RETIRED.ANY").count(), 1, "each event once");
        assert!(!text.contains("    not through numatop-ng\n"), "{text}");
        let mut direct = report.clone();
        direct.measured[0].tool = None;
        let direct = counters_as_text(&direct, 80);
        assert!(
            direct.contains("half the expected count: one of two\n    not through numatop-ng\n"),
            "{direct}"
        );
        let without = counters_as_text(&CounterReport { pmu: String::new(), ..report }, 80);
        assert!(without.contains("on no PMU of the CPU cores") && without.contains("no event is tested"));
        assert!(!without.contains("INST_RETIRED"), "{without}");
        let list = counter_list(80);
        assert!(Role::MEASURED.iter().all(|role| list.contains(role.id())), "{list}");
    }
}
