//! Moments of a stretch of samples that are worth a look, and the beginnings of findings. Pure: one sample after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::analysis::curve::Curve;
use crate::analysis::summary::Summary;
use crate::finding::{Change, Engine, Severity};
use crate::metric::over::Quotient;
use crate::metric::{counters, task};
use crate::model::sample::{HostFacts, Sample};
use crate::snapshot::{RowKind, Snapshot, derive};

/// Moments of a kind that are kept at most; those after them are not.
const MOST: usize = 1 << 16;

/// Share of the machine's CPU time below which the efficiency of an interval is meaningless.
const BUSY_ENOUGH: f64 = 0.02;

/// Why a moment is worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HighlightKind {
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
    pub kind: HighlightKind,
    pub wall_ns: i64,
}

/// The moments found so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Highlights {
    gaps: Vec<i64>,
    losses: Vec<i64>,
    /// Titles of findings by the time at which they begin.
    findings: BTreeMap<i64, &'static str>,
    /// Findings that began.
    begun: usize,
    /// Time and value: accesses per second, instructions per cycle.
    remote: Option<(i64, f64)>,
    ipc: Option<(i64, f64)>,
}

impl Highlights {
    /// All of them in the order of time.
    pub fn all(&self) -> Vec<Highlight> {
        let of = |kind| move |wall_ns: i64| Highlight { kind, wall_ns };
        let mut all: Vec<Highlight> = self.gaps.iter().copied().map(of(HighlightKind::Gap)).collect();
        all.extend(self.losses.iter().copied().map(of(HighlightKind::Loss)));
        all.extend(self.findings.keys().copied().map(of(HighlightKind::Finding)));
        all.extend(self.remote.map(|(at, _)| of(HighlightKind::Remote)(at)));
        all.extend(self.ipc.map(|(at, _)| of(HighlightKind::Ipc)(at)));
        all.sort_by_key(|mark| (mark.wall_ns, mark.kind));
        all
    }

    /// The number of gaps or of findings, or of intervals with losses.
    pub fn count(&self, kind: HighlightKind) -> usize {
        match kind {
            HighlightKind::Gap => self.gaps.len(),
            HighlightKind::Loss => self.losses.len(),
            HighlightKind::Finding => self.begun,
            HighlightKind::Remote => self.remote.iter().count(),
            HighlightKind::Ipc => self.ipc.iter().count(),
        }
    }

    /// The highest remote accesses per second, or the lowest instructions per cycle.
    pub fn value(&self, kind: HighlightKind) -> Option<f64> {
        match kind {
            HighlightKind::Remote => self.remote.map(|(_, value)| value),
            HighlightKind::Ipc => self.ipc.map(|(_, value)| value),
            HighlightKind::Gap | HighlightKind::Loss | HighlightKind::Finding => None,
        }
    }

    /// Adds a finding that begins at this wall clock, ns since 1970.
    pub fn add_finding(&mut self, wall_ns: i64, title: &'static str) {
        self.begun += 1;
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

/// The findings of a recording, from its beginning.
#[derive(Default)]
pub struct Episodes {
    engine: Engine,
    summary: Summary,
    curve: Curve,
    previous: Option<Sample>,
    /// Wall clocks of the last samples, ns since 1970: a mark is at a sample.
    walls: VecDeque<i64>,
    /// Titles by the wall clock of the sample with which they begin.
    began: Vec<(i64, &'static str)>,
}

/// Samples among which the beginning of a finding is looked for.
const WALLS: usize = 4096;

impl Episodes {
    /// Takes the next sample; `continues`: its counters go on from those of the sample before.
    pub fn take(&mut self, host: &Arc<HostFacts>, sample: Sample, continues: bool) {
        if !continues {
            self.engine.interrupt();
        }
        let previous = self.previous.as_ref().filter(|_| continues);
        self.walls.push_back(sample.wall_ns);
        if self.walls.len() > WALLS {
            self.walls.pop_front();
        }
        let snapshot = derive(host, previous, &sample, RowKind::Processes);
        self.summary.take(&snapshot);
        self.curve.take(&snapshot);
        for change in self.engine.take(&snapshot) {
            if let Change::Began(finding) = change
                && finding.severity > Severity::Info
                && !finding.is_symptom()
            {
                let first = self.walls.iter().find(|wall_ns| **wall_ns >= finding.since_wall_ns);
                self.began.push((first.copied().unwrap_or(sample.wall_ns), finding.title));
            }
        }
        self.previous = Some(sample);
    }

    /// Numbers over the whole stretch.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The curves over the whole stretch.
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// The engine that has processed the whole stretch.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// The marks, and one at the beginning of each finding above info that no other explains.
    pub fn added_to(&self, marks: &Highlights) -> Highlights {
        let mut marks = marks.clone();
        self.began.iter().for_each(|(wall_ns, title)| marks.add_finding(*wall_ns, title));
        marks
    }
}
