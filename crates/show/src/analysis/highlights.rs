//! Moments of a stretch of samples that are worth a look. Pure: one sample after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::metric::counters;
use crate::metric::over::Quotient;
use crate::metric::task;
use crate::model::sample::{HostFacts, Sample};
use crate::snapshot::{RowKind, Snapshot, derive};

/// Moments of a kind that are kept at most; those after them are not.
const MOST: usize = 1 << 16;

/// Share of the machine's CPU time below which the efficiency of an interval is meaningless.
const BUSY_ENOUGH: f64 = 0.02;

/// Why a moment is worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Samples are missing before it.
    Gap,
    /// A finding above info begins.
    Finding,
    /// A measurement was lost in the interval that ends here.
    Loss,
    /// The interval with the most remote accesses per second.
    Remote,
    /// The interval with the fewest instructions per cycle, except idle ones.
    Ipc,
}

/// A moment, by the wall clock of the sample, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Highlight {
    pub kind: Kind,
    pub wall_ns: i64,
}

/// The moments found so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Highlights {
    gaps: Vec<i64>,
    losses: Vec<i64>,
    /// Titles of findings by the time at which they begin.
    findings: BTreeMap<i64, &'static str>,
    /// Time and value: accesses per second, instructions per cycle.
    remote: Option<(i64, f64)>,
    ipc: Option<(i64, f64)>,
}

impl Highlights {
    /// All of them in the order of time.
    pub fn all(&self) -> Vec<Highlight> {
        let of = |kind| move |wall_ns: i64| Highlight { kind, wall_ns };
        let mut all: Vec<Highlight> = self.gaps.iter().copied().map(of(Kind::Gap)).collect();
        all.extend(self.losses.iter().copied().map(of(Kind::Loss)));
        all.extend(self.findings.keys().copied().map(of(Kind::Finding)));
        all.extend(self.remote.map(|(at, _)| of(Kind::Remote)(at)));
        all.extend(self.ipc.map(|(at, _)| of(Kind::Ipc)(at)));
        all.sort_by_key(|mark| (mark.wall_ns, mark.kind));
        all
    }

    /// The number of gaps, or of intervals with losses.
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Gap => self.gaps.len(),
            Kind::Loss => self.losses.len(),
            Kind::Finding => self.findings.len(),
            Kind::Remote => self.remote.iter().count(),
            Kind::Ipc => self.ipc.iter().count(),
        }
    }

    /// The highest remote accesses per second, or the lowest instructions per cycle.
    pub fn value(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Remote => self.remote.map(|(_, value)| value),
            Kind::Ipc => self.ipc.map(|(_, value)| value),
            Kind::Gap | Kind::Loss | Kind::Finding => None,
        }
    }

    /// Adds a finding that begins at this wall clock, ns since 1970.
    pub fn add_finding(&mut self, wall_ns: i64, title: &'static str) {
        if self.findings.len() < MOST {
            self.findings.entry(wall_ns).or_insert(title);
        }
    }

    /// The title of a finding that begins at this wall clock.
    pub fn finding_at(&self, wall_ns: i64) -> Option<&'static str> {
        self.findings.get(&wall_ns).copied()
    }
}

/// Goes through samples and finds the moments.
#[derive(Default)]
pub struct Finder {
    previous: Option<Sample>,
    marks: Highlights,
}

impl Finder {
    /// Takes the next sample. `gap`: samples are missing before it; `continues`: its counters go on from
    /// those of the sample before.
    pub fn take(&mut self, host: &Arc<HostFacts>, mut sample: Sample, gap: bool, continues: bool) {
        // The sums of the machine as a whole are in the rows of its CPUs.
        (sample.tasks, sample.exited) = Default::default();
        let previous = self.previous.as_ref().filter(|_| continues);
        if gap && self.previous.is_some() {
            keep(&mut self.marks.gaps, sample.wall_ns);
        }
        if let Some(previous) = previous {
            let lost = |sample: &Sample| {
                let causes = sample.lost.values().fold(0u64, |sum, count| sum.wrapping_add(*count));
                sample.exit_lost_ns.iter().fold(causes, |sum, ns| sum.wrapping_add(*ns))
            };
            if lost(&sample) != lost(previous) {
                keep(&mut self.marks.losses, sample.wall_ns);
            }
            self.weigh(&derive(host, Some(previous), &sample, RowKind::Processes));
        }
        self.previous = Some(sample);
    }

    fn weigh(&mut self, interval: &Snapshot) {
        let cpus = f64::from(interval.online_cpus.max(1));
        let is_busy =
            interval.share(interval.on_cpus.busy_ns).is_ok_and(|pct| pct >= BUSY_ENOUGH * 100.0 * cpus);
        let measured = |metric: &str| interval.host_missing(metric).is_none();
        if is_busy
            && measured(task::IPC.id)
            && let Ok(ipc) = counters::ipc(&interval.on_cpus.slots, interval.on_cpus.busy_ns, interval)
                .map(Quotient::value)
            && ipc > 0.0
            && self.marks.ipc.is_none_or(|(_, lowest)| ipc < lowest)
        {
            self.marks.ipc = Some((interval.wall_ns, ipc));
        }
        if measured(task::RMA_PER_S.id)
            && let Ok(remote) =
                counters::rma(&interval.on_cpus.slots, interval).and_then(|n| interval.rate_f64(n))
            && remote > 0.0
            && self.marks.remote.is_none_or(|(_, most)| remote > most)
        {
            self.marks.remote = Some((interval.wall_ns, remote));
        }
    }

    /// The highlights so far.
    pub fn marks(&self) -> &Highlights {
        &self.marks
    }
}

fn keep(moments: &mut Vec<i64>, wall_ns: i64) {
    if moments.len() < MOST {
        moments.push(wall_ns);
    }
}
