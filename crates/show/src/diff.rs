//! Whether a change helped: two recordings, or two stretches of one, metric by metric.
//!
//! Rows have names that stay from run to run: programs (container and name), containers, nodes, the machine. Every value is a
//! quotient of sums over all intervals of a side, and its error reckons with neighbouring intervals being alike
//! (see [`stats`]).

pub mod elapsed;
pub mod json;
pub mod page;
pub mod series;
pub mod stats;
pub mod text;
pub mod warnings;

use std::collections::BTreeMap;

use series::Side;
use stats::{cliffs_delta, compare, compare_recordings, false_discovery_rates};

use self::stats::{Limits, Verdict};
use crate::entity::{By, Who};
use crate::metric::Unit;
use crate::metric::over::Better;

/// Recordings of a side from which on each of them is one draw.
const RECORDINGS: usize = 3;

/// One metric of one row on both sides.
#[derive(Clone, Debug)]
pub struct DiffRow {
    pub who: Who,
    pub metric: &'static str,
    pub unit: Unit,
    pub better: Better,
    /// Intervals of each side.
    pub intervals: [usize; 2],
    pub comparison: stats::Comparison,
    /// The least rate of false discoveries among all rows at which this one is a difference.
    pub q: f64,
    /// See [`cliffs_delta`]; `None` where recordings are compared.
    pub cliff: Option<f64>,
    pub verdict: Verdict,
}

/// All that two sides say about each other.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Of a command, where `run` recorded one on both sides.
    pub elapsed: Option<elapsed::Elapsed>,
    /// By row, the machine first and then those with the most CPU time.
    pub rows: Vec<DiffRow>,
    /// Only in B, and only in A, with their CPU time as a number of CPUs.
    pub appeared: Vec<(Who, f64)>,
    pub gone: Vec<(Who, f64)>,
    /// Metrics that a side lacks, with the reason.
    pub not_compared: BTreeMap<&'static str, String>,
    /// Metrics of rows that are 0 on both sides, and say nothing.
    pub zeros: usize,
}

/// Compares two sides, each of one recording or several.
pub fn diff(a: &[Side], b: &[Side], limits: &Limits) -> Diff {
    let mut found = Diff::default();
    let (of_a, of_b) = (Whole::of(a), Whole::of(b));
    for who in of_a.order(&of_b) {
        match (of_a.cpus.get(&who), of_b.cpus.get(&who)) {
            (Some(_), Some(_)) => compare_row(&who, a, b, &mut found),
            (Some(cpus), None) => found.gone.push((who, *cpus)),
            (None, Some(cpus)) => found.appeared.push((who, *cpus)),
            (None, None) => {}
        }
    }
    // A row that is too short is no comparison.
    let long: Vec<usize> =
        (0..found.rows.len()).filter(|at| limits.too_short(&found.rows[*at]).is_none()).collect();
    let rates =
        false_discovery_rates(&long.iter().map(|at| found.rows[*at].comparison.p).collect::<Vec<_>>());
    for (at, q) in long.iter().zip(rates) {
        found.rows[*at].q = q;
    }
    for row in &mut found.rows {
        row.verdict = limits.judge(row);
    }
    found
}

/// The rows of a side with their CPU time, as a number of CPUs.
struct Whole {
    cpus: BTreeMap<Who, f64>,
}

impl Whole {
    fn of(sides: &[Side]) -> Whole {
        let mut cpus = BTreeMap::new();
        let seconds: f64 = sides.iter().map(|side| side.interval_ns).sum();
        for side in sides {
            for (who, subject) in side.subjects.iter().filter(|(_, subject)| subject.seen) {
                *cpus.entry(who.clone()).or_insert(0.0) += subject.run_ns / seconds.max(1.0);
            }
        }
        Whole { cpus }
    }

    /// All rows of both: by kind, and the one with the most CPU time first.
    fn order(&self, other: &Whole) -> Vec<Who> {
        let cpus = |who: &Who| {
            let of = |whole: &Whole| whole.cpus.get(who).copied().unwrap_or(0.0);
            of(self).max(of(other))
        };
        let mut all: Vec<Who> = self.cpus.keys().chain(other.cpus.keys()).cloned().collect();
        all.sort_by(|one, two| {
            let most =
                if one.by == By::Node { std::cmp::Ordering::Equal } else { cpus(two).total_cmp(&cpus(one)) };
            one.by.cmp(&two.by).then(most).then_with(|| one.cmp(two))
        });
        all.dedup();
        all
    }
}

fn compare_row(who: &Who, a: &[Side], b: &[Side], found: &mut Diff) {
    for column in series::columns(who.by, &a[0].wanted) {
        let parts = |sides: &[Side]| -> Vec<Vec<stats::Part>> {
            let of =
                |side: &Side| side.subjects.get(who).and_then(|subject| subject.parts(column.id)).cloned();
            sides.iter().filter_map(of).collect()
        };
        let (of_a, of_b) = (parts(a), parts(b));
        let each =
            |of: &[Vec<stats::Part>]| of.iter().filter_map(|one| stats::value(one)).collect::<Vec<_>>();
        let by_recording = a.len() >= RECORDINGS && b.len() >= RECORDINGS;
        let (all_a, all_b) = (of_a.concat(), of_b.concat());
        let comparison = if by_recording {
            compare_recordings(&each(&of_a), &each(&of_b))
        } else {
            compare(&all_a, &all_b)
        };
        let Some(comparison) = comparison else {
            let missing = a.iter().chain(b).find_map(|side| side.missing.get(column.id)).cloned();
            let why = missing.or_else(|| {
                (by_recording && !(of_a.is_empty() && of_b.is_empty()))
                    .then(|| "fewer than two recordings per side have this value".into())
            });
            if let Some(why) = why {
                found.not_compared.entry(column.id).or_insert(why);
            }
            continue;
        };
        // A row that is always zero is left out.
        if comparison.a.value == 0.0 && comparison.b.value == 0.0 {
            found.zeros += 1;
            continue;
        }
        let intervals = [a, b].map(|sides| {
            let of = |side: &Side| side.subjects.get(who).map_or(0, |subject| subject.intervals(column.id));
            sides.iter().map(of).sum()
        });
        let values = |parts: &[stats::Part]| parts.iter().map(|(num, den)| num / den).collect::<Vec<_>>();
        let cliff = (!by_recording).then(|| cliffs_delta(&values(&all_a), &values(&all_b))).flatten();
        found.rows.push(DiffRow {
            who: who.clone(),
            metric: column.id,
            unit: column.unit,
            better: column.better,
            intervals,
            comparison,
            q: 1.0,
            cliff,
            verdict: Verdict::Same,
        });
    }
}
