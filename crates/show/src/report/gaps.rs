//! Holes in a recording: when, how long, and why; and events worth a word.

use std::collections::BTreeMap;

use crate::snapshot::Snapshot;

/// Holes and events that are kept: those nearest to each other become one, and events are counted.
const KEPT: usize = 200;
/// Reasons of a hole that are kept; more are counted.
const REASONS: usize = 8;

/// A stretch without samples, or several that are near each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The last sample before it and the first behind it, ns since 1970.
    pub from_ns: i64,
    /// See `from_ns`.
    pub to_ns: i64,
    /// Stretches that it is, 1 or more; between two of them there are samples.
    pub count: usize,
    /// Time without samples in it, ns.
    pub ns: f64,
    /// The reasons that the recording has for it. Clean.
    pub why: Vec<String>,
    pub more_why: usize,
    /// Stretches after which counters started from zero: another run of the recorder.
    pub new_runs: usize,
    /// The machine was restarted in it.
    pub is_restart: bool,
}

impl Gap {
    /// A hole between these two samples (ns since 1970), in a run. A clock that was set back makes it a moment.
    pub fn pause((from_ns, to_ns): (i64, i64), mut why: Vec<String>) -> Gap {
        let to_ns = to_ns.max(from_ns);
        let more_why = why.len().saturating_sub(REASONS);
        why.truncate(REASONS);
        let ns = to_ns as f64 - from_ns as f64;
        Gap { from_ns, to_ns, count: 1, ns, why, more_why, new_runs: 0, is_restart: false }
    }

    /// A hole between the last sample of a run and the first of the next.
    pub fn new_run(between: (i64, i64), why: Vec<String>, is_restart: bool) -> Gap {
        Gap { new_runs: 1, is_restart, ..Gap::pause(between, why) }
    }

    /// Time between it and the next one, ns.
    fn distance(&self, next: &Gap) -> i64 {
        next.from_ns.saturating_sub(self.to_ns).max(0)
    }

    /// Merges this hole and the next one.
    fn join(&mut self, next: Gap) {
        self.from_ns = self.from_ns.min(next.from_ns);
        self.to_ns = self.to_ns.max(next.to_ns);
        self.count += next.count;
        self.ns += next.ns;
        self.more_why += next.more_why;
        for why in next.why.into_iter().filter(|why| !self.why.contains(why)).collect::<Vec<_>>() {
            if self.why.len() < REASONS {
                self.why.push(why);
            } else {
                self.more_why += 1;
            }
        }
        self.new_runs += next.new_runs;
        self.is_restart |= next.is_restart;
    }
}

/// Holes of a kind: their number, and the time in them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holes {
    pub count: usize,
    /// Time, ns.
    pub ns: f64,
}

/// Everything that is missing from a recording, or happened beside the numbers.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    /// In their order; see [`Missing::more_gaps`].
    pub gaps: Vec<Gap>,
    /// Holes between runs: their time is in no sum.
    pub gone: Holes,
    /// Holes in a run, whose counters continued: their time is in the totals, but not in the curves.
    pub paused: Holes,
    /// Other notes of samples with their time, ns since 1970. Clean.
    pub notes: Vec<(i64, String)>,
    pub more_notes: usize,
    /// Losses in the time of the report, by cause.
    pub lost: BTreeMap<String, u64>,
    /// CPU time of ended tasks without a row, ns.
    pub exit_lost_ns: u64,
    /// Metrics without values, and the reason.
    pub not_measured: BTreeMap<String, String>,
    /// Bytes at the end of the last file that are no whole frame.
    pub torn_bytes: u64,
}

impl Missing {
    /// Notes a hole, the last one in time.
    pub fn gap(&mut self, gap: Gap) {
        let holes = if gap.new_runs > 0 { &mut self.gone } else { &mut self.paused };
        holes.count += gap.count;
        holes.ns += gap.ns;
        self.gaps.push(gap);
        if self.gaps.len() > KEPT {
            let distance = |at: &usize| self.gaps[*at].distance(&self.gaps[at + 1]);
            if let Some(near) = (0..self.gaps.len() - 1).min_by_key(distance) {
                let next = self.gaps.remove(near + 1);
                self.gaps[near].join(next);
            }
        }
    }

    /// Gaps that are a part of another one.
    pub fn more_gaps(&self) -> usize {
        self.gone.count + self.paused.count - self.gaps.len()
    }

    /// Notes the facts of a sample besides its numbers.
    pub fn notes(&mut self, wall_ns: i64, notes: &[String]) {
        for note in notes {
            if self.notes.len() < KEPT {
                self.notes.push((wall_ns, crate::text::one_line(note)));
            } else {
                self.more_notes += 1;
            }
        }
    }

    /// Notes the losses of an interval. They are cumulative in samples.
    pub fn losses(&mut self, before: &(BTreeMap<String, u64>, u64), snapshot: &Snapshot) {
        for (cause, count) in &snapshot.lost {
            let more = count.saturating_sub(before.0.get(cause).copied().unwrap_or(0));
            if more > 0 {
                *self.lost.entry(crate::text::one_line(cause)).or_default() += more;
            }
        }
        self.exit_lost_ns = self.exit_lost_ns.saturating_add(snapshot.exit_lost_ns.saturating_sub(before.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A pause of a second at this one.
    fn pause(at: i64, why: &str) -> Gap {
        Gap::pause((at * SECOND, (at + 1) * SECOND), vec![why.into()])
    }

    #[test]
    fn the_nearest_gaps_become_one_and_none_is_lost() {
        let mut missing = Missing::default();
        let kept = KEPT as i64;
        // A minute apart, except two that are a second apart.
        (0..kept).for_each(|at| missing.gap(pause(at * 60, "full")));
        missing.gap(pause(kept * 60 - 58, "slow"));
        missing.gap(pause(kept * 60 + 600, "late"));
        assert_eq!((missing.gaps.len(), missing.more_gaps()), (KEPT, 2));
        assert_eq!(missing.paused, Holes { count: KEPT + 2, ns: ((kept + 2) * SECOND) as f64 });
        let joined = &missing.gaps[KEPT - 2];
        assert_eq!((joined.from_ns, joined.to_ns), ((kept * 60 - 60) * SECOND, (kept * 60 - 57) * SECOND));
        assert_eq!((joined.count, joined.ns), (2, 2e9));
        assert_eq!(joined.why, ["full", "slow"]);
        assert_eq!(missing.gaps[0].count, 2, "then the first of those that are equally near");
        assert_eq!(missing.gaps[KEPT - 1].why, ["late"]);
    }

    #[test]
    fn a_gap_has_a_few_reasons() {
        let mut missing = Missing::default();
        for at in 0..2 * KEPT as i64 {
            missing.gap(pause(at * 2, &format!("reason {at}")));
        }
        assert!(missing.gaps.iter().all(|gap| gap.why.len() <= REASONS));
        let reasons = missing.gaps.iter().map(|gap| gap.why.len() + gap.more_why).sum::<usize>();
        assert_eq!(reasons, 2 * KEPT);
    }

    #[test]
    fn a_new_run_in_a_gap_is_kept_where_gaps_become_one() {
        let mut missing = Missing::default();
        (0..KEPT as i64).for_each(|at| missing.gap(pause(at * 60, "full")));
        let last = KEPT as i64 * 60 - 58;
        missing.gap(Gap::new_run((last * SECOND, (last + 5) * SECOND), Vec::new(), true));
        let joined = missing.gaps.last().unwrap();
        assert_eq!((joined.count, joined.new_runs, joined.is_restart), (2, 1, true));
        assert_eq!((missing.gone.ns, missing.paused.count), (5e9, KEPT));
    }
}
