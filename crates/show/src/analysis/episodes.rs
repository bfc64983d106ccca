//! The beginnings of findings in a stretch of samples. Pure: one sample after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::analysis::curve::Curve;
use crate::analysis::highlights::Highlights;
use crate::analysis::summary::Summary;
use crate::finding::{Change, Engine, Severity};
use crate::model::sample::{HostFacts, Sample};
use crate::snapshot::{RowKind, derive};

/// The findings of a recording, from its beginning.
#[derive(Default)]
pub struct Episodes {
    engine: Engine,
    summary: Summary,
    curve: Curve,
    previous: Option<Sample>,
    /// Wall clocks of the last samples, ns since 1970: a mark is at a sample.
    walls: VecDeque<i64>,
    /// Titles by the wall clock of the sample with which they begin.
    began: Vec<(i64, &'static str)>,
}

/// Samples among which the beginning of a finding is looked for.
const WALLS: usize = 4096;

impl Episodes {
    /// Takes the next sample; `continues`: its counters go on from those of the sample before.
    pub fn take(&mut self, host: &Arc<HostFacts>, sample: Sample, continues: bool) {
        if !continues {
            self.engine.interrupt();
        }
        let previous = self.previous.as_ref().filter(|_| continues);
        self.walls.push_back(sample.wall_ns);
        if self.walls.len() > WALLS {
            self.walls.pop_front();
        }
        let snapshot = derive(host, previous, &sample, RowKind::Processes);
        self.summary.take(&snapshot);
        self.curve.take(&snapshot);
        for change in self.engine.take(&snapshot) {
            if let Change::Began(finding) = change
                && finding.severity > Severity::Info
                && !finding.is_symptom()
            {
                let first = self.walls.iter().find(|wall_ns| **wall_ns >= finding.since_wall_ns);
                self.began.push((first.copied().unwrap_or(sample.wall_ns), finding.title));
            }
        }
        self.previous = Some(sample);
    }

    /// Numbers over the whole stretch.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The curves over the whole stretch.
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// The engine that has processed the whole stretch.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// The marks, and one at the beginning of each finding above info that no other explains.
    pub fn added_to(&self, marks: &Highlights) -> Highlights {
        let mut marks = marks.clone();
        self.began.iter().for_each(|(wall_ns, title)| marks.add_finding(*wall_ns, title));
        marks
    }
}
