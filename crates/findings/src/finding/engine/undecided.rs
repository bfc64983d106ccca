//! Rules and subjects without a decision: watched for too short a time, suspected, or in doubt; and the processes
//! about which rules need more data.

use std::collections::BTreeMap;

use super::{Engine, Interval};
use crate::finding::rule::{Rule, Unmet};
use crate::finding::verdict::{Doubt, Undecided, Why};
use crate::finding::view::{Rows, SubjectRef, View};
use crate::finding::{Severity, State, Subject, SubjectKind, guards, hold};
use crate::metric::Value;
use crate::metric::placement::{REMOTE_BEST_PCT, REMOTE_SOURCE};
use crate::model::process::ProcessId;
use crate::snapshot::Snapshot;

/// CPUs that a subject in doubt uses at least.
const DOUBT_CPUS: f64 = 0.5;

/// Points by which its remote share is above the best possible one.
const DOUBT_POINTS: f64 = 20.0;

/// CPUs that a better place would save at least.
const DOUBT_GAIN: f64 = 0.1;

/// Cost of a remote access in local ones, without better data: the usual distance of a neighbour (SLIT 21 to
/// 10 is an upper bound).
const REMOTE_COST: f64 = 1.5;

/// Time that accesses must leave the node, ns.
const DOUBT_NS: u64 = 30_000_000_000;

/// Subjects in doubt that are kept, the busiest first.
const DOUBTS_MAX: usize = 16;

/// Time without a gap for which a rule was watched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    now_ns: u64,
    longest_ns: u64,
}

impl Stretch {
    /// A new run begins.
    pub(super) fn interrupted(self) -> Stretch {
        Stretch { now_ns: 0, ..self }
    }
}

/// The reason why a rule names no process whose memory is elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    rule: &'static str,
    because: String,
    is_blind: bool,
}

impl Asked {
    /// Notes what a rule found wanting. The first rule that a guard excuses comes before one that lacks an input.
    pub(super) fn note(
        asked: &mut BTreeMap<Subject, Asked>,
        rule: &'static Rule,
        subject: &Subject,
        unmet: &Unmet,
    ) {
        if subject.kind() != SubjectKind::Process {
            return;
        }
        let (because, is_blind) = match unmet {
            Unmet::Excused(guard) => (rule.guard(guard).unwrap_or(guard).to_owned(), false),
            Unmet::Blind(why) if why.reason != super::super::Reason::Cold => {
                (why.words.clone().into_owned(), true)
            }
            _ => return,
        };
        if asked.get(subject).is_none_or(|before| before.is_blind && !is_blind) {
            asked.insert(subject.clone(), Asked { rule: rule.id, because, is_blind });
        }
    }
}

impl Engine {
    /// Adds an interval to the stretches of rules. One that is long for a rule does not show how often its
    /// condition changed.
    pub(super) fn stretch(&mut self, interval: Interval) {
        let length = interval.to_ns - interval.from_ns;
        for (rule, stretch) in self.rules.iter().zip(&mut self.stretches) {
            let needs = hold::length(rule.hold.on_s, self.options.scale, interval.usual_ns);
            stretch.now_ns =
                if hold::is_gap(length, needs) { 0 } else { stretch.now_ns.saturating_add(length) };
            stretch.longest_ns = stretch.longest_ns.max(stretch.now_ns);
        }
    }

    /// Time that the condition of a rule must hold at the length of intervals so far, ns; 0 for an unknown rule.
    pub fn needs_ns(&self, id: &str) -> u64 {
        let usual_ns = self.lengths.iter().copied().min().unwrap_or(0);
        let rule = self.rules.iter().find(|rule| rule.id == id);
        rule.map_or(0, |rule| hold::length(rule.hold.on_s, self.options.scale, usual_ns))
    }

    /// Rules that came to no decision. A rule that has a finding is decided, and so is one that can look at nothing.
    pub fn undecided(&self) -> Vec<Undecided> {
        let blind: Vec<&str> = self.wholly_blind().map(|blind| blind.id).collect();
        let usual_ns = self.lengths.iter().copied().min().unwrap_or(0);
        let pending = self.pending();
        let mut undecided = Vec::new();
        for (at, rule) in self.rules.iter().enumerate().filter(|(_, rule)| !blind.contains(&rule.id)) {
            let needs_ns = hold::length(rule.hold.on_s, self.options.scale, usual_ns);
            let found = self.findings.iter().any(|finding| finding.key.id == rule.id)
                || self.ended.iter().any(|finding| finding.key.id == rule.id);
            let had_ns = self.stretches[at].longest_ns;
            if !found && had_ns < needs_ns {
                let (why, gravest) = (Why::TooShort, rule.gravest);
                undecided.push(Undecided {
                    id: rule.id,
                    why,
                    gravest,
                    needs_ns,
                    had_ns,
                    subjects: Vec::new(),
                });
            }
            let of_rule: Vec<_> = pending.iter().filter(|finding| finding.key.id == rule.id).collect();
            if let Some(gravest) = of_rule.iter().map(|finding| finding.severity).max() {
                let had_ns = of_rule.iter().map(|finding| finding.held_ns).max().unwrap_or(0);
                let subjects = of_rule.iter().map(|finding| finding.identity.label.clone()).collect();
                undecided.push(Undecided {
                    id: rule.id,
                    why: Why::Suspected,
                    gravest,
                    needs_ns,
                    had_ns,
                    subjects,
                });
            }
        }
        undecided.extend(self.doubts.iter().map(|doubt| Undecided {
            id: doubt.rule,
            why: if doubt.is_blind { Why::InDoubt } else { Why::Excused },
            gravest: Severity::Warning,
            needs_ns: 0,
            had_ns: self.watched_ns(),
            subjects: vec![doubt.identity.label.clone()],
        }));
        undecided
    }

    /// Processes whose accesses leave their node, as counted or sampled, and that no finding names; the busiest first.
    pub fn doubts(&self) -> &[Doubt] {
        &self.doubts
    }

    /// Looks for them at the end of an interval.
    pub(super) fn doubt(&mut self, snapshot: &Snapshot, rows: &Rows, interval: Interval) {
        let mut doubts = Vec::new();
        let mut since = BTreeMap::new();
        for (subject, asked) in &self.asked {
            let Some(doubt) = self.doubt_of(snapshot, rows, subject, asked) else { continue };
            let began = *self.doubted.get(subject).unwrap_or(&interval.from_ns);
            since.insert(subject.clone(), began);
            let enough = self.scaled(DOUBT_NS).min(self.watched_ns());
            if interval.to_ns.saturating_sub(began) >= enough {
                doubts.push(doubt);
            }
        }
        doubts.sort_by(|a: &Doubt, b: &Doubt| b.cpus.total_cmp(&a.cpus));
        doubts.truncate(DOUBTS_MAX);
        (self.doubted, self.doubts) = (since, doubts);
    }

    fn doubt_of(&self, snapshot: &Snapshot, rows: &Rows, subject: &Subject, asked: &Asked) -> Option<Doubt> {
        let task = &snapshot.tasks[*rows.processes.get(subject)?];
        let rule = self.rules.iter().find(|rule| rule.id == asked.rule)?;
        let view = View { snapshot, window: snapshot, rows, rule, over: false, trend: None };
        let of = SubjectRef::Process(task);
        let cpus = view.cpus(&of);
        let (remote_pct, error) = guards::remote_accesses(&view, &of)?;
        let best = view.number(&REMOTE_BEST_PCT, &of).unwrap_or(0.0);
        let over = remote_pct - error - best;
        let cost = |share: f64| 1.0 + share / 100.0 * (REMOTE_COST - 1.0);
        let gain = cpus * (1.0 - cost(best) / cost(remote_pct));
        if cpus < DOUBT_CPUS || over < DOUBT_POINTS || gain < DOUBT_GAIN || self.names(subject, &view, &of) {
            return None;
        }
        let run = &task.delta.run_ns;
        let home = (0..).zip(run).filter(|(_, ns)| **ns > 0).max_by_key(|(_, ns)| **ns).map(|(node, _)| node);
        Some(Doubt {
            identity: view.identity(&of),
            rule: asked.rule,
            remote_pct,
            error,
            source: match REMOTE_SOURCE.read(task, snapshot) {
                Ok(Value::Text(source)) => source.clone(),
                _ => return None,
            },
            cpus,
            home,
            because: asked.because.clone(),
            is_blind: asked.is_blind,
        })
    }

    /// Whether a finding names the subject, its container, or several like it.
    fn names(&self, subject: &Subject, view: &View<'_>, of: &SubjectRef<'_>) -> bool {
        let container = view.container_of(of).map(|row| row.id);
        self.findings.iter().any(|finding| {
            finding.key.subject == *subject
                || matches!(finding.key.subject, Subject::Container(id) if Some(id) == container)
                || (crate::finding::causes::is_sum(finding)
                    && finding.key.subject.kind() != SubjectKind::Process)
        })
    }
}

impl Engine {
    /// Processes for which a condition about nodes holds now, for any length of time, those with findings
    /// first. Samples of their accesses would show whether it matters.
    pub fn asks(&self) -> Vec<ProcessId> {
        self.open(|rule| rule.group.needs_nodes())
    }

    /// Processes for which any condition holds now, those with findings first. Severities and commands depend
    /// on their allowed CPUs and nodes, which are read for these processes.
    pub fn suspects(&self) -> Vec<ProcessId> {
        self.open(|_| true)
    }

    fn open(&self, wanted: impl Fn(&Rule) -> bool) -> Vec<ProcessId> {
        let states = self.rules.iter().zip(&self.states).filter(|(rule, _)| wanted(rule));
        let open = states.flat_map(|(_, states)| states).filter(|(_, episode)| !episode.gone);
        let mut asks: Vec<(bool, ProcessId)> = open
            .filter_map(|(subject, episode)| Some((episode.state == State::Pending, subject.process()?)))
            .collect();
        asks.sort_unstable();
        let mut processes: Vec<ProcessId> = Vec::new();
        for (_, process) in asks {
            if !processes.contains(&process) {
                processes.push(process);
            }
        }
        processes
    }
}
