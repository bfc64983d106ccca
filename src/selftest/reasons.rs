//! Verdicts on counts of events, and the likeliest reason of each that is wrong. Pure.

use super::expected::{Expected, expected};
use super::judge::Verdict;
use super::report::{CounterReport, Measured};
use crate::known::counted::Load;
use crate::model::event::Role;
use crate::model::profile::MachineKey;
use crate::pmu::table::Sees;

/// The part of the time in which a counter must have counted, and of memory that must be on its node.
const ALL: f64 = 0.99;

/// The tool may differ from the thread's own count by so much: the job is read and answered beside it.
const TOOL_PART: f64 = 0.005;
const TOOL_MORE: f64 = 2000.0;

impl CounterReport {
    /// The same with the verdicts of this version.
    #[must_use]
    pub fn judged(mut self, machine: &MachineKey) -> CounterReport {
        let arm = machine.cpu.starts_with("Arm");
        let all = self.measured.clone();
        for measured in &mut self.measured {
            measured.tool_verdict = by_the_tool(measured);
            let (verdict, reason, range) = judge(measured, &all, arm);
            (measured.verdict, measured.reason) = (verdict, reason);
            measured.expected = range.map(|range| (range.low.max(0.0), range.high));
        }
        self
    }
}

/// Whether the tool counted what the thread counted of itself.
fn by_the_tool(measured: &Measured) -> Verdict {
    match (measured.own, measured.tool) {
        (Some(own), Some(tool)) if own > 0 => {
            let allowed = (own as f64 * TOOL_PART).max(TOOL_MORE);
            if (tool as f64 - own as f64).abs() <= allowed { Verdict::Ok } else { Verdict::Wrong }
        }
        _ => Verdict::Untested,
    }
}

/// A count that can be compared.
///
/// # Errors
/// The reason why it is meaningless, in words.
fn compared(measured: &Measured) -> Result<f64, String> {
    if let Some(why) = &measured.why {
        return Err(why.clone());
    }
    let count = measured.count().filter(|_| measured.amount > 0).ok_or("the event was not counted")?;
    if measured.running < ALL {
        return Err(format!(
            "the event was counted {:.0} % of the time: another tool uses the counters",
            100.0 * measured.running
        ));
    }
    if measured.on_node < ALL {
        return Err(format!(
            "only {:.0} % of the memory was on the requested node",
            100.0 * measured.on_node
        ));
    }
    Ok(count)
}

/// The verdict on one count; `all` are the counts of the same machine. Never right without a comparison.
fn judge(measured: &Measured, all: &[Measured], arm: bool) -> (Verdict, Option<String>, Option<Expected>) {
    let untested = |why: String| (Verdict::Untested, Some(why), None);
    let count = match compared(measured) {
        Ok(count) => count,
        Err(why) => return untested(why),
    };
    let range = match expected(measured, arm) {
        Ok(range) => range,
        Err(why) => return untested(why),
    };
    if (range.low..=range.high).contains(&count) {
        // A control is meaningful only beside a load that must count.
        let alone = range.control && !counts_more_where_it_must(measured, count, all, arm);
        return match (alone, range.plausible) {
            (true, _) => (
                Verdict::Untested,
                Some("unknown: the count did not rise in any load that should raise it".into()),
                Some(range),
            ),
            (false, true) => (Verdict::Plausible, None, Some(range)),
            (false, false) => (Verdict::Ok, None, Some(range)),
        };
    }
    let reason = reason(measured, count, &range, all, arm);
    match &measured.subject.errata {
        Some(errata) => (Verdict::Known, Some(format!("erratum {errata}: {reason}")), Some(range)),
        None => (Verdict::Wrong, Some(reason), Some(range)),
    }
}

/// Counts of the same event in other loads.
fn siblings<'a>(measured: &'a Measured, all: &'a [Measured]) -> impl Iterator<Item = &'a Measured> {
    all.iter().filter(move |other| {
        other.subject.event == measured.subject.event
            && other.subject.role == measured.subject.role
            && (other.load, other.nodes) != (measured.load, measured.nodes)
    })
}

/// Whether a load in which the event must count was compared, and gave more than the control's `count`.
fn counts_more_where_it_must(measured: &Measured, count: f64, all: &[Measured], arm: bool) -> bool {
    let must = |other: &&Measured| expected(other, arm).is_ok_and(|range| !range.control);
    siblings(measured, all).filter(must).any(|other| compared(other).is_ok_and(|more| more > count.max(0.0)))
}

/// Whether an event counts anything in another load.
fn counts_at_all(measured: &Measured, all: &[Measured]) -> bool {
    siblings(measured, all).any(|other| other.count().is_some_and(|count| count > 0.0))
}

/// The likeliest reason, the first that fits.
fn reason(measured: &Measured, count: f64, range: &Expected, all: &[Measured], arm: bool) -> String {
    let subject = &measured.subject;
    let truth = if range.low.is_finite() { range.low.midpoint(range.high) } else { range.high };
    let near = |times: f64, percent: f64| (count / truth / times - 1.0).abs() < percent / 100.0;
    let amount = measured.amount as f64;
    if count == 0.0 && !counts_at_all(measured, all) {
        return "can be opened and counts nothing: a hypervisor or the firmware does not offer the event, or the \
                core does not implement it"
            .into();
    }
    let memory = matches!(subject.role, Role::Lma | Role::Rma);
    if memory && let Some(elsewhere) = siblings(measured, all).find(|other| other.load == measured.load) {
        let other = elsewhere.count().unwrap_or(0.0);
        let wrong_way = match range.control {
            true => count > 0.5 * amount && other < 0.1 * amount,
            false => count < 0.1 * amount && other > 0.5 * amount,
        };
        if wrong_way {
            return "counts the other node's accesses: the encodings of lma and rma are swapped".into();
        }
        if range.control && count > 0.5 * amount && other > 0.5 * amount {
            return "counts both nodes equally: the nodes may be artificial (interleaving, a hypervisor); \
                    calibrate shows whether their latencies differ"
                .into();
        }
    }
    if range.control {
        let percent = 100.0 * count / amount;
        return format!(
            "counts {percent:.1} % of the operations in a control test that should count none: the event includes cache hits, or counts something else"
        );
    }
    match (subject.role, measured.load) {
        (Role::Instructions, _) if near(16.0, 2.0) => {
            return "16 times the expected count: AMD erratum 1291".into();
        }
        (Role::Instructions, _) if !near(1.0, 30.0) && !near(0.5, 2.0) && !near(2.0, 2.0) => {
            return format!(
                "{:.2} times the expected count: the encoding may belong to another event",
                count / truth
            );
        }
        (Role::Cycles, Load::Additions) if near(66.0 / 64.0, 0.5) => {
            return "+3.1 %: each instruction takes one cycle, which indicates an emulator".into();
        }
        (Role::Lma | Role::Rma | Role::Llc, Load::Single) if near(2.0, 8.0) => {
            return match subject.sees {
                _ if arm => {
                    "twice the expected count: the event counts bus beats, or prefetched lines".into()
                }
                Sees::Core | Sees::Unknown => "twice the expected count: the neighbour of each line is \
                                               prefetched"
                    .into(),
                _ => "twice the expected count: the neighbour of each line is prefetched, and 'sees' in the \
                     table is wrong"
                    .into(),
            };
        }
        (Role::Lma | Role::Rma | Role::Llc, Load::Pairs) if near(0.5, 8.0) => {
            return "half the expected count: the event does not see prefetched lines, and 'sees' in the table is wrong"
                .into();
        }
        (Role::Lma | Role::Rma | Role::Llc, _) if arm && near(4.0, 8.0) => {
            return "four times the expected count: the event counts bus beats, not lines".into();
        }
        _ => {}
    }
    if near(0.5, 2.0) {
        return "half the expected count: one of two ways, threads or ports is missing".into();
    }
    if near(2.0, 2.0) {
        return "twice the expected count: each event is counted twice".into();
    }
    let percent = 100.0 * (count / truth - 1.0);
    format!("differs by {percent:+.1} %: please report this")
}

#[cfg(test)]
mod tests;
