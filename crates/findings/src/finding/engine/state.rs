//! The state of one rule about one subject, from the first interval in which its condition held.

use super::super::hold::Trail;
use super::super::rule::{Conclusion, Rule};
use super::super::{Finding, Key, State, Subject};

/// An episode that has ended a short while ago.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) ended_ns: u64,
    since_wall_ns: i64,
    since_mono_ns: u64,
    times: u32,
}

/// One rule about one subject.
#[derive(Clone, Debug)]
pub(super) struct Episode {
    pub(super) state: State,
    pub(super) trail: Trail,
    /// The end of the last interval in which the rule was asked about the subject, ns.
    pub(super) asked_ns: u64,
    /// Time without an answer, ns.
    pub(super) blind_ns: u64,
    /// Its subject has ended.
    pub(super) gone: bool,
    /// The conclusion over the last window in which it held.
    pub(super) seen: Option<Conclusion>,
    /// The worst and the last first value of the evidence.
    pub(super) peak: Option<f64>,
    pub(super) last_value: Option<f64>,
    since_wall_ns: i64,
    since_mono_ns: u64,
    times: u32,
}

impl Episode {
    pub(super) fn new(from_ns: u64) -> Episode {
        Episode {
            state: State::Pending,
            trail: Trail::default(),
            asked_ns: 0,
            blind_ns: 0,
            gone: false,
            seen: None,
            peak: None,
            last_value: None,
            since_wall_ns: 0,
            since_mono_ns: from_ns,
            times: 1,
        }
    }

    /// Whether it is in lists.
    pub(super) fn is_shown(&self) -> bool {
        matches!(self.state, State::Active | State::Clearing)
    }

    /// Notes that it was untrue in the last interval. Returns whether it has been untrue for long enough.
    pub(super) fn deny(&mut self, now_ns: u64, off_ns: u64) -> bool {
        self.trail.deny_last();
        if self.is_shown() {
            self.state = State::Clearing;
        }
        self.trail.held(false, now_ns, off_ns)
    }

    /// Takes a conclusion over the last window.
    pub(super) fn take(&mut self, seen: Conclusion) {
        if let Some(first) = seen.evidence.first() {
            self.last_value = Some(first.value);
            self.peak = Some(self.peak.map_or(first.value, |peak| peak.max(first.value)));
        }
        self.seen = Some(seen);
    }

    /// A conclusion with the severity and the confidence of the one before.
    pub(super) fn as_it_was(&self, mut seen: Conclusion) -> Conclusion {
        if let Some(before) = &self.seen {
            (seen.severity, seen.confidence) = (before.severity, before.confidence);
        }
        seen
    }

    /// Makes it active. It continues an episode that ended a short while ago.
    pub(super) fn begin(&mut self, past: Option<Past>, wall_ns: i64, now_ns: u64) {
        if self.state == State::Pending {
            let first = self.trail.first().unwrap_or(now_ns);
            self.since_mono_ns = past.map_or(first, |past| past.since_mono_ns);
            let first_wall =
                wall_ns.saturating_sub(i64::try_from(now_ns.saturating_sub(first)).unwrap_or(i64::MAX));
            self.since_wall_ns = past.map_or(first_wall, |past| past.since_wall_ns);
            self.times = past.map_or(1, |past| past.times.saturating_add(1));
        }
        self.state = State::Active;
    }

    pub(super) fn past(&self, ended_ns: u64) -> Past {
        Past {
            ended_ns,
            since_wall_ns: self.since_wall_ns,
            since_mono_ns: self.since_mono_ns,
            times: self.times,
        }
    }

    /// The current finding; `None` while it was in no window.
    pub(super) fn finding(&self, rule: &'static Rule, subject: &Subject, now_ns: u64) -> Option<Finding> {
        let seen = self.seen.clone()?;
        let begin = if self.is_shown() { self.since_mono_ns } else { self.trail.first().unwrap_or(now_ns) };
        Some(Finding {
            key: Key { id: rule.id, subject: subject.clone() },
            title: rule.title,
            identity: seen.identity,
            severity: seen.severity,
            confidence: seen.confidence,
            state: self.state,
            since_wall_ns: self.since_wall_ns,
            since_mono_ns: begin,
            until_wall_ns: None,
            until_mono_ns: None,
            held_ns: now_ns.saturating_sub(begin),
            times: self.times,
            evidence: seen.evidence,
            advice: seen.advice,
            because_of: None,
            rank: None,
            peak: self.peak,
            end: None,
        })
    }
}
