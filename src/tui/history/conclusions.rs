//! Conclusions of the findings engine at the end of each interval that is kept. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::finding::verdict::Verdict;
use crate::finding::{Blind, Engine, Finding, Severity, Subject};
use crate::model::process::ProcessId;
use crate::snapshot::Snapshot;

/// Bytes of a command or a check of a finding with their texts, about.
const STEP_BYTES: usize = 256;

/// Ended findings are listed for this time, ns.
const LISTED_NS: u64 = 3_600_000_000_000;

/// The findings at the end of an interval.
#[derive(Clone, Debug, Default)]
pub struct Conclusions {
    /// Causes by rank, each followed by its symptoms; infos after them.
    pub findings: Vec<Finding>,
    /// Findings that ended within the last hour, the latest first. This and the next field are usually shared
    /// with the previous interval: ten minutes of copies would be megabytes.
    pub ended: Arc<Vec<Finding>>,
    pub blind: Arc<Vec<Blind>>,
    /// See [`Verdict`].
    pub verdict: Verdict,
    /// Processes whose accesses rules would like to know, those with findings first.
    pub asks: Vec<ProcessId>,
    /// See [`Engine::suspects`].
    pub suspects: Vec<ProcessId>,
}

impl Conclusions {
    fn of(engine: &Engine, mono_ns: u64, before: Option<&Conclusions>) -> Conclusions {
        let is_recent = |ended: &&Finding| {
            // A later time is that of another run.
            let ago = ended.until_mono_ns.and_then(|until| mono_ns.checked_sub(until));
            ago.is_some_and(|ago| ago < LISTED_NS)
        };
        let mut ended: Vec<&Finding> = engine.ended().filter(is_recent).collect();
        ended.reverse();
        let same_ended = before.filter(|before| before.ended.iter().eq(ended.iter().copied()));
        let same_blind = before.filter(|before| *before.blind == engine.blind());
        Conclusions {
            findings: engine.findings().to_vec(),
            ended: same_ended.map_or_else(
                || Arc::new(ended.into_iter().cloned().collect()),
                |before| Arc::clone(&before.ended),
            ),
            blind: same_blind
                .map_or_else(|| Arc::new(engine.blind().to_vec()), |before| Arc::clone(&before.blind)),
            verdict: Verdict::of(engine),
            asks: engine.asks(),
            suspects: engine.suspects(),
        }
    }

    /// Bytes of memory of its findings, as estimated: what it shares with others is not counted.
    pub fn heap_bytes(&self) -> usize {
        let of = |finding: &Finding| {
            let told = &finding.advice;
            let steps = told.commands.len() + told.undo.len() + told.check.len() + told.stop.len();
            size_of::<Finding>()
                + size_of_val(&finding.evidence[..])
                + told.sentence.len()
                + told.risk.len()
                + steps * STEP_BYTES
        };
        size_of::<Conclusions>()
            + size_of_val(&self.asks[..])
            + size_of_val(&self.suspects[..])
            + self.findings.iter().map(of).sum::<usize>()
    }

    /// The gravest finding above info of each subject that has one.
    pub fn marks(&self) -> BTreeMap<Subject, Severity> {
        let mut marks = BTreeMap::new();
        for finding in self.findings.iter().filter(|finding| finding.severity > Severity::Info) {
            let gravest = marks.entry(finding.key.subject.clone()).or_insert(finding.severity);
            *gravest = finding.severity.max(*gravest);
        }
        marks
    }
}

/// The engine, and its conclusions by the number of the sample that ends the interval.
#[derive(Default)]
pub struct Concluder {
    engine: Engine,
    kept: VecDeque<(u64, Arc<Conclusions>)>,
}

impl Concluder {
    /// Continues from an engine that has processed everything before the kept samples.
    pub fn from(engine: Engine) -> Concluder {
        Concluder { engine, kept: VecDeque::new() }
    }

    /// Takes the interval that ends with this sample, whose rows are processes. Returns the bytes that are kept for it.
    pub fn take(&mut self, number: u64, snapshot: &Snapshot) -> usize {
        self.engine.take(snapshot);
        self.keep(number, snapshot.mono_ns)
    }

    /// Keeps the conclusions so far as those of this sample. Returns the bytes that they take, as estimated.
    pub fn keep(&mut self, number: u64, mono_ns: u64) -> usize {
        let before = self.kept.back().map(|(_, before)| before.as_ref());
        let conclusions = Conclusions::of(&self.engine, mono_ns, before);
        let bytes = conclusions.heap_bytes();
        self.kept.push_back((number, Arc::new(conclusions)));
        bytes
    }

    /// Drops what belongs to samples before this one.
    pub fn drop_before(&mut self, oldest: u64) {
        while self.kept.front().is_some_and(|(number, _)| *number < oldest) {
            self.kept.pop_front();
        }
    }

    /// The conclusions at the end of an interval; none where it is not kept.
    pub fn at(&self, number: u64) -> Arc<Conclusions> {
        let at = self.kept.binary_search_by_key(&number, |(kept, _)| *kept);
        at.map_or_else(|_| Arc::default(), |at| Arc::clone(&self.kept[at].1))
    }

    /// Findings of the kept samples, each in its last form: those that are shown, and those that have ended.
    pub fn episodes(&self) -> impl Iterator<Item = &Finding> {
        self.engine.findings().iter().chain(self.engine.ended())
    }
}
