//! Counts of events beside the expected ones, as text. Pure.

use super::counts::{CounterReport, Measured};
use super::expected::{WITHOUT_LOAD, loads};
use crate::model::event::Role;
use crate::pmu::table::Sees;
use crate::text::{clean_str, hanging, words};

/// The counts as text of at most `width` columns.
pub(super) fn render(report: &CounterReport, width: usize) -> String {
    let pmu = if report.pmu.is_empty() { "no PMU of the CPU cores" } else { &report.pmu };
    let head = format!("events of {} on {pmu}, {} counters free", report.table, report.free_counters);
    let mut text = hanging("", words(&clean_str(&head)), width);
    if let Some(why) = &report.without_tool {
        let line = format!("counted with perf_event_open(2) instead of the tool, because {why}");
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
        text += "    not through the tool\n";
    }
    if let (Some(own), Some(tool)) = (measured.own, measured.tool) {
        let word = measured.tool_verdict.word();
        text += &hanging(
            "    ",
            words(&format!("all of a job: {own} by itself, {tool} by the tool: {word}")),
            width,
        );
    }
    text
}

/// Loads of all roles, for `--list`.
pub(super) fn render_list(width: usize) -> String {
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
                    format!("; nearly nothing in: {}", controls.join(", "))
                };
                format!("counts in the load: {}{nearly}", first.word())
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
    use crate::selftest::counts::Subject;
    use crate::selftest::judge::Verdict;

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
            reason: Some("half: one of two".into()),
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
        let text = render(&report, 80);
        for said in [
            "events of intel/ice-lake-sp on cpu, 4 counters free\n",
            "  counted with perf_event_open(2) instead of the tool, because no BPF\n",
            "instructions  INST_RETIRED.ANY  type 0 config 0x0\n",
            "  loop, 0 > 1            3999900-4000500     2000000  WRONG\n    half: one of two\n",
            "    all of a job: 10 by itself, 20 by the tool: untested\n",
            "  coin                                 -           -  untested\n",
        ] {
            assert!(text.contains(said), "{said:?} is not in\n{text}");
        }
        assert_eq!(text.matches("INST_RETIRED.ANY").count(), 1, "each event once");
        assert!(!text.contains("    not through the tool\n"), "{text}");
        let mut direct = report.clone();
        direct.measured[0].tool = None;
        let direct = render(&direct, 80);
        assert!(direct.contains("half: one of two\n    not through the tool\n"), "{direct}");
        let without = render(&CounterReport { pmu: String::new(), ..report }, 80);
        assert!(without.contains("on no PMU of the CPU cores") && without.contains("no event is tested"));
        assert!(!without.contains("INST_RETIRED"), "{without}");
        let list = render_list(80);
        assert!(Role::MEASURED.iter().all(|role| list.contains(role.id())), "{list}");
    }
}
