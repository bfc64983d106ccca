//! Holes in a recording: when, how long, and why; and events worth a word.

use std::collections::BTreeMap;

use crate::snapshot::Snapshot;

/// Holes and events that are kept; more are counted.
const KEPT: usize = 200;

/// A stretch without samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last sample before it and the first behind it, ns since 1970.
    pub from_ns: i64,
    /// See `from_ns`.
    pub to_ns: i64,
    /// The reasons that the recording has for it. Clean.
    pub why: Vec<String>,
    /// Counters began anew behind it: another run of the recorder.
    pub is_new_run: bool,
    /// The machine was restarted in it.
    pub is_restart: bool,
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
    pub gaps: Vec<Gap>,
    pub more_gaps: usize,
    /// Holes between runs: their time is in no sum.
    pub gone: Holes,
    /// Holes in a run, whose counters went on: their time is in the sums, but in no line.
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
    /// Notes a hole.
    pub fn gap(&mut self, gap: Gap) {
        let holes = if gap.is_new_run { &mut self.gone } else { &mut self.paused };
        holes.count += 1;
        holes.ns += (gap.to_ns as f64 - gap.from_ns as f64).max(0.0);
        if self.gaps.len() < KEPT {
            self.gaps.push(gap);
        } else {
            self.more_gaps += 1;
        }
    }

    /// Notes what a sample says beside its numbers.
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
