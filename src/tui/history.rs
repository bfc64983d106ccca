//! Samples of the recent past, and the interval among them that the screen wants. Pure.

pub mod conclusions;
pub mod process;

use std::sync::Arc;

use jiff::tz::TimeZone;

use self::conclusions::{Concluder, Conclusions};
use self::process::{ProcessHistory, ProcessSnapshot};
use super::ring::{Ring, Samples};
use crate::analysis::curve::Curve;
use crate::analysis::highlights::{Finder, Highlights};
use crate::analysis::summary::{Summary, SummaryRow};
use crate::finding::{Engine, Severity};
use crate::model::process::ProcessId;
use crate::model::sample::{HostFacts, Sample};
use crate::program::pace;
use crate::record::pack::Rows;
use crate::report::Options;
use crate::report::clock::Clock;
use crate::report::fold::{Fold, Interval};
use crate::report::page::{View, render};
use crate::snapshot::{RowKind, Snapshot, derive, derive_both, derive_tasks};
use crate::text;

/// The interval that the screen wants, and its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// Number of the sample that ends the interval; `None` follows the newest.
    pub number: Option<u64>,
    /// Rows are threads, or else processes.
    pub threads: bool,
    /// Rows of containers are wanted, too: with thousands of cgroups they cost as much as all the rest.
    pub containers: bool,
    /// The process in the detail view.
    pub process: Option<ProcessId>,
    /// Numbers over all intervals so far are wanted, too.
    pub summary: bool,
    /// No findings are looked for, and no numbers are added up for the summary.
    pub without_findings: bool,
}

/// Times of the samples that end an interval that can be shown.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Number of the oldest of them.
    first: u64,
    /// Wall clock in ns since 1970 and CLOCK_MONOTONIC in ns, by ascending number.
    times: Vec<(i64, u64)>,
}

impl Kept {
    fn of(ring: &Ring) -> Kept {
        let (Some(oldest), Some(newest)) = (ring.oldest(), ring.newest()) else { return Kept::default() };
        let ended = (newest + 1 - oldest) as usize;
        let times: Vec<(i64, u64)> = ring.times().collect();
        Kept { first: oldest, times: times[times.len() - ended..].to_vec() }
    }

    /// Numbers of the oldest and of the newest sample; `None` before the first.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        Some((self.first, self.first + self.times.len().checked_sub(1)? as u64))
    }

    /// Wall clock of the oldest and of the newest sample, ns since 1970.
    pub fn span(&self) -> Option<(i64, i64)> {
        Some((self.times.first()?.0, self.times.last()?.0))
    }

    /// When the newest sample was taken, CLOCK_MONOTONIC in ns.
    pub fn newest_mono_ns(&self) -> Option<u64> {
        self.times.last().map(|(_, mono_ns)| *mono_ns)
    }

    /// Number of the last sample at or before this wall clock, or of the oldest.
    pub fn at_or_before(&self, wall_ns: i64) -> Option<u64> {
        let (oldest, newest) = self.numbers()?;
        let before = self.times.iter().rposition(|(taken, _)| *taken <= wall_ns);
        Some(before.map_or(oldest, |at| oldest + at as u64).min(newest))
    }
}

/// An interval for the screen. Until the screen takes it, a later one replaces it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The request that this answers.
    pub want: Want,
    /// Number of the sample that ends the interval; the oldest if the wanted one has been dropped.
    pub number: u64,
    pub snapshot: Arc<Snapshot>,
    pub process: Option<Arc<ProcessSnapshot>>,
    pub conclusions: Arc<Conclusions>,
    /// Empty where they are not wanted.
    pub summary: Vec<SummaryRow>,
    /// Curves over the samples that are kept.
    pub curve: Arc<Curve>,
    pub kept: Kept,
    /// Samples that came since the interval before was shown.
    pub taken: u64,
    /// The last event worth a word in them.
    pub note: Option<String>,
    /// The recording was moved: samples before are those of another time.
    pub moved: bool,
}

impl Shown {
    /// Carries along what only an earlier one has, which was not shown.
    pub fn follow(&mut self, earlier: Shown) {
        self.taken += earlier.taken;
        if !self.moved {
            self.note = self.note.take().or(earlier.note);
            self.moved = earlier.moved;
        }
    }
}

/// All samples that are kept, for another thread.
pub struct KeptSamples {
    pub host: Arc<HostFacts>,
    /// Wall clock of each, ns since 1970.
    pub wall_ns: Vec<i64>,
    pub samples: Samples,
}

/// The samples, and the wanted view of them.
pub struct History {
    ring: Ring,
    host: Option<Arc<HostFacts>>,
    want: Want,
    process: Option<ProcessHistory>,
    concluder: Concluder,
    /// Number of the newest sample, which the engine takes when it is shown or when the next one comes.
    pending: Option<u64>,
    summary: Summary,
    curve: Arc<Curve>,
    /// The last snapshot with the number of its sample and what it was derived for.
    derived: Option<(u64, Want, Arc<Snapshot>)>,
    /// Since the last [`History::show`].
    taken: u64,
    note: Option<String>,
    moved: bool,
}

impl History {
    /// Without samples, which come later.
    pub fn new(want: Want) -> History {
        History {
            ring: Ring::default(),
            host: None,
            want,
            process: None,
            concluder: Concluder::default(),
            pending: None,
            summary: Summary::default(),
            curve: Arc::default(),
            derived: None,
            taken: 0,
            note: None,
            moved: false,
        }
    }

    /// Has something else shown from now on. True when a pause begins: then [`History::marks`] is of interest.
    pub fn want(&mut self, want: Want) -> bool {
        let pauses = self.want.number.is_none() && want.number.is_some();
        if want.process != self.want.process {
            self.process = None;
        }
        self.want = want;
        pauses
    }

    /// The machine and all samples that are kept; `None` before the first.
    pub fn kept(&self) -> Option<KeptSamples> {
        let host = Arc::clone(self.host.as_ref()?);
        let wall_ns = self.ring.times().map(|(wall_ns, _)| wall_ns).collect();
        Some(KeptSamples { host, wall_ns, samples: self.ring.all(Rows::All) })
    }

    /// The interval that is shown.
    pub fn wanted(&self) -> Want {
        self.want
    }

    /// Keeps a sample, which is the next one; `taken` samples became one in it.
    pub fn sample(&mut self, host: Arc<HostFacts>, sample: Sample, taken: u64) {
        // A key that cuts an interval short needs no words.
        if let Some(note) = sample.notes.iter().rev().find(|note| !pace::is_of_a_short_interval(note)) {
            self.note = Some(text::clean_str(note));
        }
        self.taken += taken;
        // Of samples that come together only the last one is shown: the others need no rows of threads.
        self.conclude_pending(false);
        self.ring.push(sample);
        if let (Some(process), Some(newest)) = (&mut self.process, self.ring.newest()) {
            process.extend(&host, &self.ring, newest);
        }
        self.host = Some(host);
        self.pending = self.ring.newest();
    }

    /// Has the engine take the newest interval, where it has not.
    fn conclude_pending(&mut self, is_shown: bool) {
        if let Some(number) = self.pending.take().filter(|_| !self.want.without_findings) {
            self.conclude(number, is_shown);
        }
    }

    /// Gives the engine the interval that ends with this sample. Its rows are usually those on the screen, or
    /// are derived together with them.
    fn conclude(&mut self, number: u64, is_shown: bool) {
        let (Some(host), Some((previous, current))) = (&self.host, self.ring.pair(number)) else { return };
        let (previous, current) = (previous.as_deref(), &*current);
        let snapshot = if is_shown && self.want.number.is_none() && self.want.threads {
            let (threads, processes) = derive_both(host, previous, current, self.want.containers);
            self.derived = Some((number, self.want, Arc::new(threads)));
            Arc::new(processes)
        } else {
            Arc::new(derive(host, previous, current, RowKind::Processes))
        };
        self.summary.take(&snapshot);
        let kept_from = self.ring.times().next().map_or(i64::MIN, |(wall_ns, _)| wall_ns);
        let curve = Arc::make_mut(&mut self.curve);
        curve.take(&snapshot);
        curve.drop_before(kept_from);
        let bytes = self.concluder.take(number, &snapshot);
        self.ring.keep_beside(number, bytes);
        self.concluder.drop_before(self.ring.oldest().unwrap_or(number));
        // A paused screen, and one of threads, shows another one, which is kept.
        if self.want.number.is_none() && !self.want.threads {
            let derived_for = Want { containers: true, ..Want::default() };
            self.derived = Some((number, derived_for, snapshot));
        }
    }

    /// Continues from an engine that has processed everything up to the kept sample of this time
    /// (CLOCK_MONOTONIC, ns), inclusive. False if that sample has been dropped.
    pub fn concluded(&mut self, engine: Engine, mono_ns: u64) -> bool {
        self.conclude_pending(false);
        let (Some(oldest), Some(newest)) = (self.ring.oldest(), self.ring.newest()) else { return false };
        let mut times = Kept::of(&self.ring).times.into_iter();
        let Some(at) = times.position(|(_, taken)| taken == mono_ns) else { return false };
        let number = oldest + at as u64;
        self.concluder = Concluder::from(engine);
        let bytes = self.concluder.keep(number, mono_ns);
        self.ring.keep_beside(number, bytes);
        (number + 1..=newest).for_each(|number| self.conclude(number, false));
        true
    }

    /// Keeps a sample of another time, and the one before it, in place of all others.
    pub fn moved(&mut self, host: Arc<HostFacts>, previous: Option<Sample>, sample: Sample) {
        self.ring.clear();
        self.pending = None;
        if let Some(previous) = previous {
            self.ring.push(previous);
        }
        // Its history is that of another time.
        (self.process, self.note, self.moved) = (None, None, true);
        (self.concluder, self.curve) = (Concluder::default(), Arc::default());
        self.sample(host, sample, 1);
    }

    /// The wanted interval; `None` before the first sample.
    pub fn show(&mut self) -> Option<Shown> {
        self.conclude_pending(true);
        let kept = Kept::of(&self.ring);
        let (oldest, newest) = kept.numbers()?;
        let host = self.host.as_ref()?;
        let number = self.want.number.unwrap_or(newest).clamp(oldest, newest);
        let same =
            |known: &Want| known.threads == self.want.threads && (known.containers || !self.want.containers);
        let snapshot = match &self.derived {
            Some((at, known, snapshot)) if *at == number && same(known) => Arc::clone(snapshot),
            _ => {
                let (previous, current) = self.ring.pair(number)?;
                let grain = if self.want.threads { RowKind::Threads } else { RowKind::Processes };
                let derive = if self.want.containers { derive } else { derive_tasks };
                Arc::new(derive(host, previous.as_deref(), &current, grain))
            }
        };
        if !self.derived.as_ref().is_some_and(|(_, _, known)| Arc::ptr_eq(known, &snapshot)) {
            self.derived = Some((number, self.want, Arc::clone(&snapshot)));
        }
        let process = self.want.process.and_then(|wanted| {
            let open = || ProcessHistory::open(wanted, host, &self.ring);
            self.process.get_or_insert_with(open).show(host, &self.ring, number)
        });
        Some(Shown {
            want: self.want,
            number,
            snapshot,
            process,
            conclusions: self.concluder.at(number),
            curve: Arc::clone(&self.curve),
            summary: if self.want.summary { self.summary.rows() } else { Vec::new() },
            kept,
            taken: std::mem::take(&mut self.taken),
            note: self.note.take(),
            moved: std::mem::take(&mut self.moved),
        })
    }

    /// Has older samples take less memory. It is for after the newest interval is on its way to the screen.
    pub fn tidy(&mut self) {
        self.ring.tidy();
    }

    /// Moments of the kept samples that are worth a look.
    pub fn marks(&self) -> Highlights {
        let mut finder = Finder::default();
        if let Some(host) = &self.host {
            // The first interval has its beginning kept, too.
            for (at, sample) in self.ring.all(Rows::NoTasks).enumerate() {
                finder.take(host, process::without_tasks(&sample), false, at > 0);
            }
        }
        let mut marks = finder.marks().clone();
        for finding in self.concluder.episodes().filter(|finding| finding.severity > Severity::Info) {
            let kept = Kept::of(&self.ring);
            let first =
                kept.times.iter().map(|(wall_ns, _)| *wall_ns).find(|at| *at >= finding.since_wall_ns);
            if let Some(first) = first {
                marks.add_finding(first, finding.title);
            }
        }
        marks
    }
}

/// The page, with times of this zone; `None` before the first interval.
pub fn page(kept: KeptSamples, zone: TimeZone) -> Option<String> {
    let KeptSamples { host, wall_ns, mut samples } = kept;
    let span = (*wall_ns.first()?, *wall_ns.last()?);
    let mut lengths: Vec<i64> = wall_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    lengths.sort_unstable();
    let interval_ns = lengths.get(lengths.len() / 2).copied()?;
    let mut fold = Fold::new(Options::default(), span, interval_ns, &host)?;
    let mut previous = samples.next()?;
    fold.begin(previous.lost.clone(), previous.exit_lost_ns.iter().sum());
    for sample in samples {
        let snapshot = derive(&host, Some(&previous), &sample, RowKind::Processes);
        fold.take(Interval { snapshot: &snapshot, is_interrupted: false, hot: None });
        previous = sample;
    }
    let report = fold.finish()?;
    let clock = Clock::new(zone, report.span, report.grid.width_ns);
    Some(render(&View { report: &report, clock: &clock, command: String::new() }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source::synthetic::demo_machine;
    use crate::tui::history::{History, Want};

    #[test]
    fn samples_that_are_kept_become_a_page() {
        let mut machine = demo_machine();
        let mut history = History::new(Want::default());
        let mut page_after = |samples: u64| {
            for _ in 0..samples {
                history.sample(Arc::clone(&machine.host), machine.tick(), 1);
                history.tidy();
            }
            page(history.kept().unwrap(), TimeZone::UTC)
        };
        assert_eq!(page_after(1), None);
        let made = page_after(4).unwrap();
        assert!(made.starts_with("<!DOCTYPE html>") && made.contains("postgres"));
        assert!(made.contains("4 intervals of 1 s"));
        assert!(page_after(200).unwrap().contains("204 intervals of 1 s"), "most of them were packed");
    }
}
