//! The state of one rule about one subject, and conditions that have held for long enough: checked again over that
//! whole time, made active, or ended.

use std::collections::BTreeMap;

use super::look::{look_over, trend};
use super::{ENDED_MAX, Engine, Interval, SAME_NS};
use crate::finding::history::machine_over;
use crate::finding::hold::{self, Trail};
use crate::finding::rule::{Blindness, Conclusion, Rule};
use crate::finding::view::{Rows, View};
use crate::finding::{Blind, Confidence, End, Finding, FindingKey, Severity, State, Subject};
use crate::snapshot::Snapshot;

impl Engine {
    /// Checks conditions that have held for long enough again, over that whole time; makes them active, or
    /// ends them.
    pub(super) fn judge(&mut self, snapshot: &Snapshot, rows: &Rows, interval: Interval) {
        let mut windows: BTreeMap<u64, Snapshot> = BTreeMap::new();
        let now = interval.to_ns;
        for at in 0..self.rules.len() {
            let rule = self.rules[at];
            let on_ns = hold::length(rule.hold.on_s, self.options.scale, interval.usual_ns);
            let off_ns = hold::length(rule.hold.off_s, self.options.scale, interval.usual_ns);
            let mut states = std::mem::take(&mut self.states[at]);
            let mut late: Vec<Blindness> = Vec::new();
            states.retain(|subject, episode| {
                let over = episode.is_shown();
                let end = if episode.gone {
                    Some(End::Gone)
                } else if episode.blind_ns > on_ns.max(off_ns).saturating_mul(2) {
                    Some(End::Unseen)
                } else if over && episode.trail.held(false, now, off_ns) {
                    Some(End::Cleared)
                } else {
                    None
                };
                if let Some(end) = end {
                    self.end(rule, subject, episode, end, interval);
                    return false;
                }
                if !over && episode.trail.never(true) {
                    return false;
                }
                if !episode.trail.last_is(true) {
                    if over {
                        episode.state = State::Clearing;
                    }
                    return true;
                }
                let due = over || episode.trail.held_for(rule.hold.share, true, now, on_ns);
                // A one-shot asks for what is pending, too, so its text is made when it is new and when it is due.
                if !due && episode.seen.is_some() {
                    return true;
                }
                let since = now.saturating_sub(on_ns.max(now.saturating_sub(interval.from_ns)));
                let window =
                    windows.entry(since).or_insert_with(|| machine_over(snapshot, &self.machine, since));
                let trend = self.sums.get(subject).and_then(|series| trend(series, since));
                let view = View { snapshot, window, rows, rule, over: false, trend };
                // Between the two limits the state does not change.
                let whole = look_over(&view, subject, &self.sums, since);
                let mut seen = match (whole, over) {
                    (Ok(conclusion), _) => conclusion,
                    (Err(why), false) => {
                        late.extend(why);
                        return true;
                    }
                    (Err(_), true) => {
                        let view = View { over: true, ..view };
                        match look_over(&view, subject, &self.sums, since) {
                            Ok(conclusion) => episode.as_it_was(conclusion),
                            Err(Some(why)) => {
                                late.push(why);
                                return true;
                            }
                            // Over all of that time it is not so.
                            Err(None) => {
                                let ended = episode.deny(now, off_ns);
                                if ended {
                                    self.end(rule, subject, episode, End::Cleared, interval);
                                }
                                return !ended;
                            }
                        }
                    }
                };
                if seen.confidence == Confidence::Suspected {
                    seen.severity = Severity::Info;
                }
                if seen.severity == Severity::Warning && seen.advice.gain.is_too_small(over) {
                    // A gain that has become too small ends it.
                    let ended = episode.deny(now, off_ns) && over;
                    if ended {
                        self.end(rule, subject, episode, End::Cleared, interval);
                    }
                    return !ended;
                }
                let key = FindingKey { id: rule.id, subject: subject.clone() };
                let past =
                    self.past.get(&key).filter(|past| now.saturating_sub(past.ended_ns) <= SAME_NS).copied();
                episode.take(seen);
                if due {
                    episode.begin(past, interval.wall_ns, now);
                }
                true
            });
            self.states[at] = states;
            self.add_blind(rule, late);
        }
        self.past.retain(|_, past| now.saturating_sub(past.ended_ns) <= SAME_NS);
    }

    /// Adds what only a longer window showed: something is missing.
    fn add_blind(&mut self, rule: &'static Rule, late: Vec<Blindness>) {
        let (subjects, Some(why)) = (late.len(), late.into_iter().next()) else { return };
        match self.blind.iter_mut().find(|blind| blind.id == rule.id) {
            Some(blind) => blind.subjects = blind.subjects.map(|before| before + subjects),
            None => {
                let words = why.words.into_owned();
                self.blind.push(Blind { id: rule.id, reason: why.reason, words, subjects: Some(subjects) });
            }
        }
    }

    pub(super) fn end(
        &mut self,
        rule: &'static Rule,
        subject: &Subject,
        episode: &Episode,
        end: End,
        interval: Interval,
    ) {
        if !episode.is_shown() {
            return;
        }
        let key = FindingKey { id: rule.id, subject: subject.clone() };
        self.past.insert(key, episode.past(interval.to_ns));
        let Some(mut finding) = episode.finding(rule, subject, interval.to_ns) else { return };
        finding.state = State::Ended;
        finding.until_wall_ns = Some(interval.wall_ns);
        finding.until_mono_ns = Some(interval.to_ns);
        finding.end = Some((end, episode.last_value));
        self.ended.push_back(finding);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }
}

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
            key: FindingKey { id: rule.id, subject: subject.clone() },
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
