//! Conditions that have held for long enough: checked again over that whole time, made active, or ended.

use std::collections::BTreeMap;

use super::super::history::machine_over;
use super::super::hold;
use super::super::rule::{Blindness, Rule};
use super::super::view::{Rows, View};
use super::super::{Blind, Confidence, End, Key, Severity, State, Subject};
use super::over::{look_over, trend};
use super::state::Episode;
use super::{ENDED_MAX, Engine, Interval, SAME_NS};
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
                let key = Key { id: rule.id, subject: subject.clone() };
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
        let key = Key { id: rule.id, subject: subject.clone() };
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
