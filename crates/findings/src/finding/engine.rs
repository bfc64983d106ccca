//! The fold: takes one interval after the other, and returns conditions that held for long enough. Same
//! snapshots, same findings: no clock, no file, no random number, no order of a hash table.

mod judge;
mod look;
mod rows;
mod undecided;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use self::judge::{Episode, Past};
use self::undecided::{Asked, Stretch};
use super::fit::NodeDistances;
use super::history::{Limits, MachineSums, RowSums, Series};
use super::rule::{Rule, Unmet};
use super::verdict::Doubt;
use super::view::Rows;
use super::{Blind, Confidence, End, Finding, FindingKey, Severity, State, Subject, causes, hold, rules};
use crate::model::sample::HostFacts;
use crate::snapshot::{RowKind, Snapshot};

pub(super) use self::rows::{Rare, Uses};

/// Sums are kept for this time, ns: somewhat more than the longest time that a condition must hold.
const KEEP_NS: u64 = 200_000_000_000;

/// CPU time is kept for this time, ns: the need of a subject is computed from it. Hinting faults are kept for
/// two fifths of this time.
const NEED_NS: u64 = 300_000_000_000;

/// An episode that begins so soon after the last one is the same one, ns: pmie holds off 10 minutes by default (S15).
const SAME_NS: u64 = 600_000_000_000;

/// A finding that an ended one would explain is an info for this time, ns. Memory that was asked to move is
/// still seen at its old place until it has moved and was read again.
const AFTERMATH_NS: u64 = 60_000_000_000;

/// Findings that have ended and are kept.
const ENDED_MAX: usize = 200;

/// The choice of rules and the scale of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Factor of all times that a condition must hold; 1 except in tests in guests, which cannot wait for
    /// minutes.
    pub scale: f64,
    /// Ids of the rules that look; `None`: all.
    pub only: Option<BTreeSet<String>>,
    /// Ids of rules that do not.
    pub without: BTreeSet<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { scale: 1.0, only: None, without: BTreeSet::new() }
    }
}

impl Options {
    /// Rules that look.
    pub fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        let wanted = |rule: &&'static Rule| {
            self.only.as_ref().is_none_or(|only| only.contains(rule.id)) && !self.without.contains(rule.id)
        };
        rules::RULES.iter().copied().filter(wanted)
    }
}

/// Something that began or ended in an interval.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It has been so for long enough.
    Began(Box<Finding>),
    /// It has been untrue for long enough.
    Ended(Box<Finding>),
}

/// Numbers of findings and rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Causes that are critical.
    pub critical: usize,
    /// Causes that are warnings.
    pub warning: usize,
    /// Causes that are infos.
    pub info: usize,
    /// Findings that another one explains.
    pub explained: usize,
    /// Rules that could look at some subject.
    pub could_look: usize,
    /// Rules that were asked.
    pub rules: usize,
}

/// States of one rule.
type States = BTreeMap<Subject, Episode>;

/// The fold.
pub struct Engine {
    options: Options,
    rules: Vec<&'static Rule>,
    machine: Series<MachineSums>,
    /// Sums of subjects that have a state.
    sums: BTreeMap<Subject, Series<RowSums>>,
    /// Shared with the rows of an interval while rules look at them.
    uses: Arc<Uses>,
    /// Facts of the nodes of a host.
    near: (Option<Arc<HostFacts>>, Arc<OnceLock<NodeDistances>>),
    /// Why rules can look at nothing there.
    reasons: Option<look::Reasons>,
    /// By the place of the rule.
    states: Vec<States>,
    /// Time without a gap that each rule was watched for, by its place.
    stretches: Vec<Stretch>,
    /// Reasons why rules about places of memory name no process, in this interval.
    asked: BTreeMap<Subject, Asked>,
    /// Since when accesses of processes leave their node without a finding, ns.
    doubted: BTreeMap<Subject, u64>,
    doubts: Vec<Doubt>,
    past: BTreeMap<FindingKey, Past>,
    findings: Vec<Finding>,
    ended: VecDeque<Finding>,
    /// Of causes that have ended, kept or not.
    gravest_ended: Option<Severity>,
    blind: Vec<Blind>,
    /// Lengths of the last intervals, ns.
    lengths: VecDeque<u64>,
    began_ns: Option<u64>,
    last_ns: u64,
    last_wall_ns: i64,
    /// Time that was watched before the last interruption, ns.
    watched_before_ns: u64,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new(Options::default())
    }
}

/// One interval.
#[derive(Clone, Copy)]
struct Interval {
    from_ns: u64,
    to_ns: u64,
    wall_ns: i64,
    /// The usual length, ns.
    usual_ns: u64,
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(options: Options) -> Engine {
        let rules: Vec<&'static Rule> = options.rules().collect();
        Engine {
            states: rules.iter().map(|_| States::new()).collect(),
            stretches: vec![Stretch::default(); rules.len()],
            asked: BTreeMap::new(),
            doubted: BTreeMap::new(),
            doubts: Vec::new(),
            rules,
            options,
            machine: Series::default(),
            sums: BTreeMap::new(),
            uses: Arc::default(),
            near: Default::default(),
            reasons: None,
            past: BTreeMap::new(),
            findings: Vec::new(),
            ended: VecDeque::new(),
            gravest_ended: None,
            blind: Vec::new(),
            lengths: VecDeque::new(),
            began_ns: None,
            last_ns: 0,
            last_wall_ns: 0,
            watched_before_ns: 0,
        }
    }

    /// Starts afresh: the next interval does not continue the previous ones, as at the beginning of another
    /// recorded run. Findings that are shown end there, because they cannot be observed further; ended ones
    /// are kept.
    pub fn interrupt(&mut self) {
        let interval = Interval {
            from_ns: self.last_ns,
            to_ns: self.last_ns,
            wall_ns: self.last_wall_ns,
            usual_ns: self.lengths.back().copied().unwrap_or(0),
        };
        for (at, states) in std::mem::take(&mut self.states).iter().enumerate() {
            let rule = self.rules[at];
            states
                .iter()
                .for_each(|(subject, episode)| self.end(rule, subject, episode, End::Unseen, interval));
        }
        let shown = std::mem::take(&mut self.findings);
        self.note_ended(&shown, self.last_ns);
        let watched_before_ns = self.watched_ns();
        let stretches = self.stretches.iter().map(|stretch| stretch.interrupted()).collect();
        *self = Engine {
            stretches,
            ended: std::mem::take(&mut self.ended),
            gravest_ended: self.gravest_ended,
            watched_before_ns,
            ..Engine::new(self.options.clone())
        };
    }

    /// Takes one interval, whose rows are processes, and returns which findings began and ended. Snapshots of
    /// one run come in the order of time; one of an earlier time starts the engine afresh.
    pub fn take(&mut self, snapshot: &Snapshot) -> Vec<Change> {
        debug_assert_eq!(snapshot.grain, RowKind::Processes, "rules look at processes");
        if snapshot.mono_ns <= self.last_ns && self.last_ns > 0 {
            self.interrupt();
        }
        (self.last_ns, self.last_wall_ns) = (snapshot.mono_ns, snapshot.wall_ns);
        let Some(length) = snapshot.interval_ns.filter(|ns| *ns > 0) else { return Vec::new() };
        let from_ns = snapshot.mono_ns - length.min(snapshot.mono_ns);
        self.began_ns.get_or_insert(from_ns);
        let interval = Interval {
            from_ns,
            to_ns: snapshot.mono_ns,
            wall_ns: snapshot.wall_ns,
            usual_ns: self.usual(length),
        };
        self.machine.add(from_ns, interval.to_ns, self.scaled(KEEP_NS), |sums| sums.add(snapshot));
        let tracked = self.tracked();
        let mut rows = rows::find(snapshot, &tracked);
        let keep_ns = self.scaled(NEED_NS);
        Arc::make_mut(&mut self.uses).add(snapshot, &rows, interval.from_ns, keep_ns);
        (rows.uses, rows.tracked) = (Arc::clone(&self.uses), tracked);
        rows.near = self.near_of(&snapshot.host);
        self.stretch(interval);
        let looks = self.look(snapshot, &rows, interval);
        self.hold(snapshot, &rows, looks, interval);
        self.keep_sums(snapshot, &rows, interval);
        self.judge(snapshot, &rows, interval);
        let changes = self.list(snapshot, &rows, interval);
        self.doubt(snapshot, &rows, interval);
        changes
    }

    /// Findings that are active or clearing: causes by rank, each followed by its symptoms, infos last.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Rules that could not look in the last interval, and why.
    pub fn blind(&self) -> &[Blind] {
        &self.blind
    }

    /// Rules that could look at nothing in the last interval.
    pub fn wholly_blind(&self) -> impl Iterator<Item = &Blind> {
        self.blind.iter().filter(|blind| blind.subjects.is_none())
    }

    /// Findings that have ended, the oldest first.
    pub fn ended(&self) -> impl Iterator<Item = &Finding> {
        self.ended.iter()
    }

    /// The highest severity of findings that were causes and have ended, including dropped ones.
    pub fn gravest_ended(&self) -> Option<Severity> {
        self.gravest_ended
    }

    /// Time from the first interval to the end of the last one, ns, without the time between runs.
    pub fn watched_ns(&self) -> u64 {
        let now = self.began_ns.map_or(0, |began| self.last_ns.saturating_sub(began));
        self.watched_before_ns.saturating_add(now)
    }

    /// Numbers of findings and rules.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            rules: self.rules.len(),
            // Each rule counts once.
            could_look: self.rules.len() - self.wholly_blind().count(),
            ..Summary::default()
        };
        for finding in &self.findings {
            match (finding.is_symptom(), finding.severity) {
                (true, _) => summary.explained += 1,
                (false, Severity::Critical) => summary.critical += 1,
                (false, Severity::Warning) => summary.warning += 1,
                (false, Severity::Info) => summary.info += 1,
            }
        }
        summary
    }

    /// Conditions that have held in most of the time that was watched, and not yet for long enough: suspected. Each has the
    /// severity that it would have.
    pub fn pending(&self) -> Vec<Finding> {
        let mut pending = Vec::new();
        for (rule, states) in self.rules.iter().zip(&self.states) {
            let length =
                hold::length(rule.hold.on_s, self.options.scale, self.lengths.back().copied().unwrap_or(0));
            for (subject, episode) in states {
                if episode.state == State::Pending
                    && episode.trail.held_so_far(rule.hold.share, self.last_ns, length)
                {
                    let finding = episode.finding(rule, subject, self.last_ns);
                    // It may be over in a moment: only suspected.
                    pending.extend(
                        finding.map(|finding| Finding { confidence: Confidence::Suspected, ..finding }),
                    );
                }
            }
        }
        pending
    }

    fn scaled(&self, ns: u64) -> u64 {
        (ns as f64 * self.options.scale) as u64
    }

    /// Subjects that have a state, in their order.
    fn tracked(&self) -> Vec<Subject> {
        let mut tracked: Vec<Subject> =
            self.states.iter().flat_map(|states| states.keys().cloned()).collect();
        // Subjects of each rule are in order: this sort takes such runs as they are.
        tracked.sort();
        tracked.dedup();
        tracked
    }

    /// Facts of the nodes of this host, computed again only if the host changes.
    fn near_of(&mut self, host: &Arc<HostFacts>) -> Arc<OnceLock<NodeDistances>> {
        if !self.near.0.as_ref().is_some_and(|before| Arc::ptr_eq(before, host)) {
            self.near = (Some(Arc::clone(host)), Arc::default());
        }
        Arc::clone(&self.near.1)
    }

    /// The usual length of an interval: the shortest of the last five.
    fn usual(&mut self, length: u64) -> u64 {
        self.lengths.push_back(length);
        if self.lengths.len() > 5 {
            self.lengths.pop_front();
        }
        self.lengths.iter().copied().min().unwrap_or(length)
    }

    /// Notes in which intervals conditions held.
    fn hold(
        &mut self,
        snapshot: &Snapshot,
        rows: &Rows,
        looks: Vec<(usize, Subject, Result<(), Unmet>)>,
        interval: Interval,
    ) {
        let length = interval.to_ns - interval.from_ns;
        for (at, subject, look) in looks {
            let so = match look {
                Err(Unmet::Blind(_)) => {
                    if let Some(episode) = self.states[at].get_mut(&subject) {
                        episode.asked_ns = interval.to_ns;
                        episode.blind_ns = episode.blind_ns.saturating_add(length);
                    }
                    continue;
                }
                Err(Unmet::Quiet | Unmet::Excused(_)) => false,
                Ok(()) => true,
            };
            let episode = self.states[at].entry(subject).or_insert_with(|| Episode::new(interval.from_ns));
            episode.asked_ns = interval.to_ns;
            episode.blind_ns = 0;
            episode.trail.add(interval.from_ns, interval.to_ns, so, KEEP_NS);
        }
        // A subject that no rule was asked about is idle, or has ended.
        for states in &mut self.states {
            for (subject, episode) in
                states.iter_mut().filter(|(_, episode)| episode.asked_ns != interval.to_ns)
            {
                episode.gone = !rows::exists(snapshot, rows, subject);
                episode.trail.add(interval.from_ns, interval.to_ns, false, KEEP_NS);
            }
        }
    }

    /// Adds the interval to the sums of subjects with a state, and forgets others.
    fn keep_sums(&mut self, snapshot: &Snapshot, rows: &Rows, interval: Interval) {
        let tracked = self.tracked();
        self.sums.retain(|subject, _| tracked.binary_search(subject).is_ok());
        let keep = self.scaled(KEEP_NS).max(interval.usual_ns.saturating_mul(4));
        for subject in tracked {
            let (from, to) = (interval.from_ns, interval.to_ns);
            match &subject {
                Subject::Process(..) => {
                    let Some(at) = rows.processes.get(&subject) else { continue };
                    let task = &snapshot.tasks[*at];
                    self.sums
                        .entry(subject)
                        .or_default()
                        .add(from, to, keep, |sums| sums.add_task(task, &snapshot.room));
                }
                Subject::Group(..) => {
                    let Some(group) = rows.groups.get(&subject) else { continue };
                    self.sums
                        .entry(subject)
                        .or_default()
                        .add(from, to, keep, |sums| sums.add_task(&group.row, &snapshot.room));
                }
                Subject::Container(id) => {
                    let Some(at) = rows.containers.get(id) else { continue };
                    let row = &snapshot.containers[*at];
                    let series = self.sums.entry(subject.clone()).or_default();
                    // A window with two quotas or two lists in it is valid for neither.
                    let limits = Limits::of(row);
                    if series.newest().is_some_and(|sums: &RowSums| sums.limits != limits) {
                        self.sums.remove(&subject);
                        continue;
                    }
                    series.add(from, to, keep, |sums| sums.add_container(row, limits));
                }
                _ => {}
            }
        }
    }

    /// Makes the list: several findings of one rule become one, symptoms go below their causes, and all are ordered.
    fn list(&mut self, snapshot: &Snapshot, rows: &Rows, interval: Interval) -> Vec<Change> {
        let mut list = Vec::new();
        for (rule, states) in self.rules.iter().zip(&self.states) {
            for (subject, episode) in states.iter().filter(|(_, episode)| episode.is_shown()) {
                list.extend(episode.finding(rule, subject, interval.to_ns));
            }
        }
        let list = causes::roll_up(list, snapshot, rows);
        let mut list = causes::explain(list, snapshot, rows);
        let aftermath = interval.to_ns.saturating_sub(self.scaled(AFTERMATH_NS));
        let ended = self.ended.iter().rev().take_while(|ended| ended.until_mono_ns >= Some(aftermath));
        causes::soften(&mut list, ended, snapshot, rows);
        let list = causes::order(list, rules::place);
        let before = std::mem::replace(&mut self.findings, list);
        self.note_ended(&before, interval.to_ns);
        let is_new = |finding: &&Finding| !before.iter().any(|old| old.key == finding.key);
        let began = self.findings.iter().filter(is_new).filter(|finding| finding.times == 1);
        let mut changes: Vec<Change> =
            began.map(|finding| Change::Began(Box::new(finding.clone()))).collect();
        for old in before.iter().filter(|old| !self.findings.iter().any(|new| new.key == old.key)) {
            // One that became a part of another has not ended.
            let now = interval.to_ns;
            let ended = self.ended.iter().rev().take_while(|ended| ended.until_mono_ns == Some(now));
            match ended.into_iter().find(|ended| ended.key == old.key) {
                Some(ended) => changes.push(Change::Ended(Box::new(ended.clone()))),
                None if causes::is_sum(old) && !self.findings.iter().any(|new| new.key.id == old.key.id) => {
                    changes.push(Change::Ended(Box::new(Finding { state: State::Ended, ..old.clone() })));
                }
                None => {}
            }
        }
        changes
    }
}

impl Engine {
    /// Gives what ended at `now_ns` the severity and the cause that it was shown with.
    fn note_ended(&mut self, shown: &[Finding], now_ns: u64) {
        for ended in self.ended.iter_mut().rev().take_while(|ended| ended.until_mono_ns == Some(now_ns)) {
            let whole = |old: &&Finding| old.key == ended.key;
            let sum = |old: &&Finding| old.key.id == ended.key.id && causes::is_sum(old);
            if let Some(old) = shown.iter().find(whole).or_else(|| shown.iter().find(sum)) {
                (ended.severity, ended.because_of) = (old.severity, old.because_of.clone());
            }
            if !ended.is_symptom() {
                self.gravest_ended = self.gravest_ended.max(Some(ended.severity));
            }
        }
    }
}
