//! The question to each rule about each subject, of an interval and of a longer window, and the guards that all rules have.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::judge::Episode;
use super::undecided::Asked;
use super::{Engine, Interval, rows};
use crate::finding::history::{RowSums, Series, container_over, task_over};
use crate::finding::rule::{Blindness, Conclusion, Reason, Rule, Unmet};
use crate::finding::view::{Rows, SubjectRef, View};
use crate::finding::{Blind, Subject, SubjectKind, rules};
use crate::model::sample::{HostFacts, Missing};
use crate::snapshot::{Remote, Snapshot, Task};

/// Seconds that a subject must live.
const LIVES_S: f64 = 60.0;

/// CPUs that a subject must use to matter: the threshold of numad and of this tool (S2).
const MATTERS_CPUS: f64 = 0.5;

/// The part of a limit that is enough for a subject with a finding.
const OVER: f64 = 0.75;

impl Engine {
    /// Asks each rule about each subject in the interval. Returns subjects that are not quiet or have a
    /// state.
    pub(super) fn look(
        &mut self,
        snapshot: &Snapshot,
        rows: &Rows,
        interval: Interval,
    ) -> Vec<(usize, Subject, Result<(), Unmet>)> {
        let subjects = rows::subjects(snapshot, rows);
        let nodes = snapshot.host.topology.nodes.len();
        let reasons = self.reasons(snapshot);
        // Once for each subject: all rules ask.
        let uses: Vec<Option<f64>> = subjects
            .iter()
            .map(|(_, of)| use_of(snapshot, of, || self.uses.age_s(snapshot, rows, of, interval.to_ns)))
            .collect();
        let kinds = Together::of(&subjects, &uses);
        let mut looks = Vec::new();
        self.blind.clear();
        self.asked.clear();
        for (at, rule) in self.rules.iter().enumerate() {
            let (never, states) = (&reasons[at], &self.states[at]);
            let cannot = never.is_some() || (rule.group.needs_nodes() && nodes < 2);
            let (mut all, mut blind, mut first): (usize, usize, Option<Blindness>) = (0, 0, None);
            for kind in kinds.iter().filter(|kind| rule.of.contains(&kind.kind)) {
                all += kind.all.len();
                // Of the others only states are of interest, and most rules have none.
                let some = match (states.is_empty(), cannot, rule.idle_too) {
                    (true, true, _) => &[][..],
                    (true, false, false) => &kind.busy,
                    _ => &kind.all,
                };
                // Both are in the order of subjects.
                let mut known = states.iter();
                let mut next = known.next();
                for ((subject, of), cpus) in some.iter().map(|place| (&subjects[*place], uses[*place])) {
                    while next.is_some_and(|(other, _)| other < subject) {
                        next = known.next();
                    }
                    let state = next.filter(|(other, _)| *other == subject).map(|(_, state)| state);
                    let over = state.is_some_and(Episode::is_shown);
                    let look = match never {
                        Some(why) => Err(Unmet::Blind(why.clone())),
                        None if !cannot && matters(rule, over, cpus) => {
                            let view = View { snapshot, window: snapshot, rows, rule, over, trend: None };
                            rule.judge.look(&view, of).map(drop)
                        }
                        None => Err(Unmet::Quiet),
                    };
                    if let Err(unmet) = &look
                        && rule.of_places()
                    {
                        Asked::note(&mut self.asked, rule, subject, unmet);
                    }
                    if let (Err(Unmet::Blind(why)), None) = (&look, never) {
                        blind += 1;
                        first.get_or_insert_with(|| why.clone());
                    }
                    if state.is_some() || look.is_ok() {
                        looks.push((at, subject.clone(), look));
                    }
                }
            }
            if let Some(why) = never.as_ref().or(first.as_ref()) {
                let looked = if never.is_some() { 0 } else { all - blind };
                self.blind.push(Blind {
                    id: rule.id,
                    reason: why.reason,
                    words: why.words.clone().into_owned(),
                    subjects: (looked > 0).then_some(blind),
                });
            }
        }
        looks
    }

    /// Why each rule lacks all data on this machine, computed again only if the machine changes.
    fn reasons(&mut self, snapshot: &Snapshot) -> Arc<[Option<Blindness>]> {
        if let Some(known) = &self.reasons
            && Arc::ptr_eq(&known.host, &snapshot.host)
        {
            return Arc::clone(&known.of_rules);
        }
        let hidden = rules::hides_nodes(snapshot);
        let of_rules = self.rules.iter().map(|rule| cannot_look(rule, snapshot, hidden)).collect();
        let host = Arc::clone(&snapshot.host);
        Arc::clone(&self.reasons.insert(Reasons { host, of_rules }).of_rules)
    }
}

/// Places of the subjects of one kind.
struct Together {
    kind: SubjectKind,
    all: Vec<usize>,
    /// Places of subjects that use enough to matter to every rule.
    busy: Vec<usize>,
}

impl Together {
    /// In the order of subjects, in which those of a kind are beside each other.
    fn of(subjects: &[(Subject, SubjectRef<'_>)], uses: &[Option<f64>]) -> Vec<Together> {
        let mut kinds: Vec<Together> = Vec::new();
        for (place, ((subject, _), cpus)) in subjects.iter().zip(uses).enumerate() {
            let kind = subject.kind();
            if kinds.last().is_none_or(|last| last.kind != kind) {
                kinds.push(Together { kind, all: Vec::new(), busy: Vec::new() });
            }
            if let Some(last) = kinds.last_mut() {
                last.all.push(place);
                last.busy.extend((*cpus >= Some(MATTERS_CPUS * OVER)).then_some(place));
            }
        }
        kinds
    }
}

/// Reasons of one machine.
pub(super) struct Reasons {
    host: Arc<HostFacts>,
    /// By the place of the rule.
    of_rules: Arc<[Option<Blindness>]>,
}

/// Why a rule can look at nothing on this machine.
fn cannot_look(rule: &Rule, snapshot: &Snapshot, hidden: bool) -> Option<Blindness> {
    if rule.group.needs_nodes() && hidden {
        return Some(Blindness::new(Reason::HiddenNodes, "the machine hides its NUMA nodes"));
    }
    if rule.group.needs_nodes() && snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    let missing = |id: &&&str| snapshot.host_missing(id).is_some();
    let id = rule.needs.iter().find(missing)?;
    snapshot.host_missing(id).map(|why: &Missing| {
        let why = Blindness::from(why.clone());
        Blindness { words: format!("{id}: {}", why.words).into(), ..why }
    })
}

/// CPUs that a subject used in the interval, endless for one that is no task; `None` where no rule may ask about it: it has not lived
/// long enough, has ended, or is numatop-ng itself.
fn use_of(snapshot: &Snapshot, of: &SubjectRef<'_>, age_s: impl FnOnce() -> Option<f64>) -> Option<f64> {
    let Some(task) = of.task() else { return Some(f64::INFINITY) };
    let comm = task.raw.comm;
    let own = comm.bytes().starts_with(b"numatop-ng") || comm.bytes().starts_with(b"nng-");
    if own || task.raw.kthread || task.exited || age_s().is_none_or(|age| age < LIVES_S) {
        return None;
    }
    Some(snapshot.share(task.run_ns()).map_or(0.0, |pct| pct / 100.0))
}

/// Whether a rule asks about a subject that uses this many CPUs. Smaller subjects matter only to rules about
/// waiting.
fn matters(rule: &Rule, over: bool, cpus: Option<f64>) -> bool {
    let least = if over { MATTERS_CPUS * OVER } else { MATTERS_CPUS };
    cpus.is_some_and(|cpus| rule.idle_too || cpus >= least)
}

/// Asks a rule about a longer window.
///
/// # Errors
/// The condition does not hold there; the reason where it cannot be seen.
pub(super) fn look_over(
    view: &View<'_>,
    subject: &Subject,
    sums: &BTreeMap<Subject, Series<RowSums>>,
    since: u64,
) -> Result<Conclusion, Option<Blindness>> {
    let look = |of: &SubjectRef<'_>| {
        view.rule.judge.conclude(view, of).map_err(|unmet| match unmet {
            Unmet::Blind(why) => Some(why),
            Unmet::Quiet | Unmet::Excused(_) => None,
        })
    };
    match subject {
        Subject::Host => look(&SubjectRef::Host),
        Subject::Node(id) => look(&SubjectRef::Node(view.node(*id).ok_or(None)?)),
        Subject::Socket(id) => look(&SubjectRef::Socket(view.socket(*id).ok_or(None)?)),
        Subject::Process(..) => {
            let task: &Task = &view.snapshot.tasks[*view.rows.processes.get(subject).ok_or(None)?];
            look(&SubjectRef::Process(&task_over(task, sums.get(subject).ok_or(None)?, since)))
        }
        Subject::Group(..) => {
            let group = view.rows.groups.get(subject).ok_or(None)?;
            look(&SubjectRef::Group(&task_over(&group.row, sums.get(subject).ok_or(None)?, since), group))
        }
        Subject::Container(id) => {
            let row = &view.snapshot.containers[*view.rows.containers.get(id).ok_or(None)?];
            look(&SubjectRef::Container(&container_over(row, sums.get(subject).ok_or(None)?, since)))
        }
        Subject::Device(name) => {
            let mut devices = rows::devices(view.snapshot);
            let (device, node) = devices.find(|(device, _)| device.name == *name).ok_or(None)?;
            look(&SubjectRef::Device(device, node))
        }
    }
}

/// Shares of remote accesses in the first and in the last third of a window, in percent.
pub(super) fn trend(series: &Series<RowSums>, since: u64) -> Option<(f64, f64)> {
    let third = series.end_ns().saturating_sub(since) / 3;
    let mut first = Remote::default();
    let mut last = first;
    for segment in series.since(since) {
        if segment.to_ns <= since.saturating_add(third + third / 2) {
            first += &segment.sums.remote;
        }
        if segment.from_ns.saturating_add(third + third / 2) >= series.end_ns() {
            last += &segment.sums.remote;
        }
    }
    first.pct().zip(last.pct())
}
