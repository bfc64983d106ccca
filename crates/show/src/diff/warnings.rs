//! Circumstances that differ between two recordings besides the change under study. They are always reported.

use std::collections::BTreeSet;

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

/// Intervals differ if one is at least this many times as long as the other.
const OTHER_INTERVAL: f64 = 1.2;
/// A side drifts when its halves differ at this level.
const DRIFT: f64 = 0.01;

/// A fact that should be the same on both sides.
type Fact = fn(&Circumstances) -> String;

/// Sentences about two sides, each with the circumstances of all its recordings.
pub fn warnings(a: &[Side], b: &[Side], of_a: &[Circumstances], of_b: &[Circumstances]) -> Vec<String> {
    let mut said = Vec::new();
    let facts: [(&str, Fact); 5] = [
        ("hosts", |of| of.hostname.clone()),
        ("kernels", |of| of.kernel.clone()),
        ("processors", |of| of.cpu_model.clone()),
        ("scopes", |of| of.scope.clone()),
        ("events", |of| of.events.join(",")),
    ];
    for (what, fact) in facts {
        let [one, other] = [of_a, of_b].map(|of| of.iter().map(fact).collect::<BTreeSet<String>>());
        if one != other || one.len() > 1 {
            said.push(format!("different {what}: {} (A), {} (B)", listed(&one), listed(&other)));
        }
    }
    let [shortest, longest] = [f64::min, f64::max].map(|choose| {
        let intervals = |of: &[Circumstances]| of.iter().map(|of| of.interval_ns).reduce(choose);
        [of_a, of_b].map(|of| intervals(of).unwrap_or_default())
    });
    let times = longest[0].max(longest[1]) / shortest[0].min(shortest[1]);
    if times > OTHER_INTERVAL {
        let seconds = |side: usize| {
            let (least, most) = (shortest[side] / 1e9, longest[side] / 1e9);
            let several = most / least > OTHER_INTERVAL;
            if several { format!("{least:.2} to {most:.2} s") } else { format!("{most:.2} s") }
        };
        said.push(format!("different intervals: {} (A), {} (B)", seconds(0), seconds(1)));
    }
    for (name, sides) in [("A", a), ("B", b)] {
        said.extend(sides.iter().filter_map(drift).map(|what| format!("{name} changes over time: {what}")));
    }
    if a.len() < RECORDINGS || b.len() < RECORDINGS {
        said.push(format!(
            "intervals within one run do not show how runs differ: record {RECORDINGS} runs per side (--before, --after)"
        ));
    }
    said
}

fn listed(texts: &BTreeSet<String>) -> String {
    let shown = |text: &String| if text.is_empty() { "none".to_owned() } else { text.clone() };
    texts.iter().map(shown).collect::<Vec<_>>().join("; ")
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
        format!("CPU time was {a:.0} % in the first half and {b:.0} % in the second")
    })
}
