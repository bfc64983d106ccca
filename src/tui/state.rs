//! State that all screens share: the interval on the screen, its place in time, and messages.

pub mod time;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use ratatui::layout::Rect;

use super::history::conclusions::Conclusions;
use super::history::process::{Point, ProcessSnapshot};
use super::history::{Kept, Shown, Want};
use super::input::Effect;
use super::theme::Theme;
use crate::analysis::curve::Curve;
use crate::analysis::highlights::Highlights;
use crate::analysis::summary::SummaryRow;
use crate::finding::{Severity, Subject};
use crate::pmu::sets::Choice;
use crate::record::recorder::Progress;
use crate::snapshot::Snapshot;
use crate::text;

pub use self::time::{Replay, Timeline, seconds};

pub struct State {
    pub theme: Theme,
    /// The zone of times on screen.
    pub zone: TimeZone,
    pub interval: Duration,
    /// The whole screen.
    pub area: Rect,
    /// The interval on the screen; `None` before the first sample.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether its rows of containers were derived.
    pub has_containers: bool,
    /// The process in the detail view, once it is derived.
    pub process: Option<Arc<ProcessSnapshot>>,
    /// Findings at the end of the interval, and the gravest of each subject.
    pub conclusions: Arc<Conclusions>,
    pub marks: BTreeMap<Subject, Severity>,
    /// Numbers over the whole recording, or over all intervals so far.
    pub summary: Vec<SummaryRow>,
    /// Curves over the whole recording, or over the intervals that are kept.
    pub curve: Arc<Curve>,
    /// Text for the terminal's clipboard, until it is taken there.
    pub clipboard: Option<String>,
    /// Name of the new file for a report, until it is taken there.
    pub report: Option<String>,
    /// Number of the sample that ends the interval.
    pub(super) number: Option<u64>,
    pub(super) kept: Kept,
    /// Number of the sample that ends the interval to show; `None` follows the newest.
    pub(super) paused_at: Option<u64>,
    /// Moments worth a look among the samples that were kept when it was paused, and how much was looked through, 0 or 1.
    pub(super) kept_marks: Highlights,
    pub(super) kept_looked: f64,
    /// Cgroup id of the container that was made the scope here.
    pub scope: Option<u64>,
    /// Shown once, until the next key.
    pub message: Option<String>,
    /// The last event worth a word, until Esc.
    pub note: Option<String>,
    /// Properties that make this machine's numbers misleading.
    pub warnings: Vec<String>,
    /// Sets of events that can be chosen, and what each counts here; none for a recording.
    pub sets: Vec<(&'static str, Choice)>,
    /// Progress of the recording of this view; `None` without one.
    pub recording: Option<Progress>,
    /// The machine is made up: the header shows it.
    pub demo: bool,
    /// Memory use is sampled whatever is on the screen (`--access`).
    pub access: bool,
    /// Accesses of processes that matter on the screen are sampled, within a hundredth of a CPU.
    pub sampling: bool,
    /// Findings are looked for.
    pub findings: bool,
    /// Where in which recording we are; `None` when this is now.
    pub replay: Option<Replay>,
}

impl State {
    /// Before the first sample, on a screen of 80 by 24.
    pub fn new(theme: Theme, zone: TimeZone, interval: Duration) -> State {
        State {
            theme,
            zone,
            interval,
            area: Rect::new(0, 0, 80, 24),
            snapshot: None,
            has_containers: false,
            process: None,
            conclusions: Arc::default(),
            marks: BTreeMap::new(),
            summary: Vec::new(),
            curve: Arc::default(),
            clipboard: None,
            report: None,
            number: None,
            kept: Kept::default(),
            paused_at: None,
            kept_marks: Highlights::default(),
            kept_looked: 0.0,
            scope: None,
            message: None,
            note: None,
            warnings: Vec::new(),
            sets: Vec::new(),
            recording: None,
            demo: false,
            access: false,
            sampling: false,
            findings: true,
            replay: None,
        }
    }

    /// The interval on the screen; `None` before the first sample.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_deref()
    }

    /// Intervals of the process in the detail view, up to the one shown.
    pub fn history(&self) -> &[Point] {
        self.process.as_ref().map_or(&[], |process| &process.history)
    }

    /// Takes an interval, unless it was derived before a key for something other than `want`: the answer to
    /// that key is on its way. True if the interval has changed.
    pub(super) fn show(&mut self, shown: Shown, want: Want) -> bool {
        if let Some(note) = shown.note {
            self.note = Some(note);
        }
        if let (Some(replay), Some((_, newest))) = (&mut self.replay, shown.kept.span()) {
            replay.span.1 = replay.span.1.max(newest);
        }
        self.kept = shown.kept;
        if shown.want != want {
            return false;
        }
        let host = &shown.snapshot.host;
        if !self.snapshot().is_some_and(|known| Arc::ptr_eq(&known.host, host)) {
            self.warnings = host.topology.warnings().iter().map(|text| text::clean_str(text)).collect();
        }
        // The wanted interval may have been dropped.
        self.paused_at = self.paused_at.map(|_| shown.number);
        self.has_containers = shown.want.containers;
        self.snapshot = Some(shown.snapshot);
        self.process = shown.process;
        if self.replay.is_none() {
            self.summary = shown.summary;
            self.curve = shown.curve;
        }
        self.marks = shown.conclusions.marks();
        self.conclusions = shown.conclusions;
        self.number.replace(shown.number) != Some(shown.number)
    }

    /// The line below the header.
    pub fn notice(&self) -> Option<&str> {
        self.note.as_deref().or(self.warnings.first().map(String::as_str))
    }

    /// Begins to sample the accesses of processes on the screen, or ends it.
    pub fn toggle_sampling(&mut self) {
        if self.replay.is_some() {
            self.message = Some("accesses can be sampled only on a running machine".into());
            return;
        }
        self.sampling = !self.sampling;
        self.message = Some(match self.sampling {
            true => "sampling on, at most 1% of a CPU (U turns it off)".into(),
            false => "sampling off (U turns it on)".into(),
        });
    }

    /// Has a container watched only, or what the command line asked for.
    pub fn set_scope(&mut self, scope: Option<u64>) -> Option<Effect> {
        if self.replay.is_some() {
            self.message = Some("the scope of a recording is fixed".into());
            return None;
        }
        if self.scope == scope {
            self.message = Some("no scope is set: c on a container sets one".into());
            return None;
        }
        self.scope = scope;
        Some(Effect::SetScope(scope))
    }
}
