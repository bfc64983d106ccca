//! The report of a self-test as text for people; its JSON is itself. Pure.

use super::judge::Verdict;
use super::report::Report;
use super::software::{CHECKS, by_id};
use crate::text::{hanging, words};

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
        text += &format!("{:<18}{:>14}{:>14}  {:<9} tolerance\n", "check", "truth", "by the tool", "verdict");
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
        text += &super::show_counters::render(counters, width);
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
        text += &super::show_counters::render_list(width);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::MachineKey;
    use crate::selftest::report::{Comparison, SCHEMA};

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
            "cpu_time              500.000 ms    500.128 ms  ok        +-0.1 % and a tick\n",
            "moved_pages                 4000          2000  WRONG     exact\n    half: one of two",
            "placement                 30.0 %        30.6 %  ok        within the error",
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
}
