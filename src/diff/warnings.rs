//! Circumstances that differ between two recordings beside the change that is looked for. They are said without being asked.

use super::RECORDINGS;
use super::series::Side;
use super::stats::{LEAST_EFFECTIVE, LEAST_INTERVALS, Part, compare};
use crate::model::sample::HostFacts;
use crate::text::one_line;

/// The circumstances of one side.
#[derive(Clone, Debug)]
pub struct Circumstances {
    pub hostname: String,
    pub kernel: String,
    pub cpu_model: String,
    pub scope: String,
    /// Names of the events that were counted.
    pub events: Vec<String>,
    /// Mean length of an interval, in ns.
    pub interval_ns: f64,
}

impl Circumstances {
    /// Of a recording of `host`, whose intervals were this long on average.
    pub fn of(host: &HostFacts, interval_ns: f64) -> Circumstances {
        Circumstances {
            hostname: one_line(&host.hostname),
            kernel: one_line(&host.kernel),
            cpu_model: one_line(&host.cpu_model),
            scope: one_line(&host.scope),
            events: host.events.iter().map(|event| one_line(&event.name)).collect(),
            interval_ns,
        }
    }
}

/// Intervals differ when one is so many times as long as the other.
const OTHER_INTERVAL: f64 = 1.2;
/// A side drifts when its halves differ at this level.
const DRIFT: f64 = 0.01;

/// Sentences about two sides.
pub fn warnings(a: &[Side], b: &[Side], of_a: &Circumstances, of_b: &Circumstances) -> Vec<String> {
    let mut said = Vec::new();
    let pairs = [
        ("hosts", &of_a.hostname, &of_b.hostname),
        ("kernels", &of_a.kernel, &of_b.kernel),
        ("processors", &of_a.cpu_model, &of_b.cpu_model),
        ("scopes", &of_a.scope, &of_b.scope),
    ];
    for (what, one, other) in pairs {
        if one != other {
            said.push(format!("different {what}: {} (A), {} (B)", shown(one), shown(other)));
        }
    }
    if of_a.events != of_b.events {
        said.push(format!("different events: {} (A), {} (B)", listed(&of_a.events), listed(&of_b.events)));
    }
    let times = of_a.interval_ns.max(of_b.interval_ns) / of_a.interval_ns.min(of_b.interval_ns);
    if times > OTHER_INTERVAL {
        let seconds = |side: &Circumstances| side.interval_ns / 1e9;
        said.push(format!("different intervals: {:.2} s (A), {:.2} s (B)", seconds(of_a), seconds(of_b)));
    }
    for (name, sides) in [("A", a), ("B", b)] {
        said.extend(sides.iter().filter_map(drift).map(|what| format!("{name} drifts by itself: {what}")));
    }
    if a.len() < RECORDINGS || b.len() < RECORDINGS {
        said.push(format!(
            "differences from run to run are in no interval: {RECORDINGS} recordings a side (--before, --after) would show them"
        ));
    }
    said
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(",") }
}

/// The CPU time of the first half of a side against the second.
fn drift(side: &Side) -> Option<String> {
    let who = side.subjects.keys().find(|who| who.by == super::By::Host)?;
    let parts: &Vec<Part> = side.subjects[who].parts(crate::metric::host::BUSY.id)?;
    let (first, second) = parts.split_at(parts.len() / 2);
    if first.len() < LEAST_INTERVALS / 2 {
        return None;
    }
    let halves = compare(first, second)?;
    let sure = halves.p < DRIFT && halves.a.effective.min(halves.b.effective) >= LEAST_EFFECTIVE;
    sure.then(|| {
        let (a, b) = (halves.a.value, halves.b.value);
        format!("CPU time was {a:.0} % in its first half and {b:.0} % in its second")
    })
}
