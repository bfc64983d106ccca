//! Conclusions of the findings engine at the end of each interval that is kept. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::finding::{Blind, Engine, Finding, Severity, Subject, Summary};
use crate::model::process::ProcessId;
use crate::snapshot::Snapshot;

/// Findings that have ended are listed for so long, ns.
const LISTED_NS: u64 = 3_600_000_000_000;

/// The findings at the end of an interval.
#[derive(Clone, Debug, Default)]
pub struct Conclusions {
    /// Causes by rank, each followed by its symptoms; infos after them.
    pub findings: Vec<Finding>,
    /// Findings that ended within the last hour, the latest first.
    pub ended: Vec<Finding>,
    pub blind: Vec<Blind>,
    pub summary: Summary,
    /// Time that was watched up to here, ns.
    pub watched_ns: u64,
    /// Processes whose accesses rules would like to know, those with findings first.
    pub asks: Vec<ProcessId>,
}

impl Conclusions {
    fn of(engine: &Engine, mono_ns: u64) -> Conclusions {
        let is_recent = |ended: &&Finding| {
            ended.until_mono_ns.is_some_and(|until| mono_ns.saturating_sub(until) < LISTED_NS)
        };
        let mut ended: Vec<Finding> = engine.ended().filter(is_recent).cloned().collect();
        ended.reverse();
        Conclusions {
            findings: engine.findings().to_vec(),
            ended,
            blind: engine.blind().to_vec(),
            summary: engine.summary(),
            watched_ns: engine.watched_ns(),
            asks: engine.asks(),
        }
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
    /// Goes on from what an engine has seen before the samples that are kept.
    pub fn from(engine: Engine) -> Concluder {
        Concluder { engine, kept: VecDeque::new() }
    }

    /// Takes the interval that ends with this sample, whose rows are processes.
    pub fn take(&mut self, number: u64, snapshot: &Snapshot) {
        self.engine.take(snapshot);
        self.keep(number, snapshot.mono_ns);
    }

    /// Keeps the conclusions so far as those of this sample.
    pub fn keep(&mut self, number: u64, mono_ns: u64) {
        self.kept.push_back((number, Arc::new(Conclusions::of(&self.engine, mono_ns))));
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

    /// Findings of the samples that are kept, each as it was last: those that are shown, and those that have ended.
    pub fn episodes(&self) -> impl Iterator<Item = &Finding> {
        self.engine.findings().iter().chain(self.engine.ended())
    }
}
