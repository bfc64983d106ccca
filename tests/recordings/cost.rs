//! The size of recordings, on an imagined machine with realistic churn. Their time is in benches/.

use std::path::Path;
use std::sync::Arc;

use numatop_ng::model::sample::Sample;
use numatop_ng::record::recorder::Recorder;

use crate::machine::{self, Machine};
use crate::recorder::options;
use crate::scratch::Scratch;

/// A running task keeps running; one task in two hundred is replaced in each interval.
fn busy(tasks: usize) -> Machine {
    let mut machine = Machine::new(tasks);
    machine.churn = 5;
    machine.ticks(20);
    machine
}

fn record(path: &Path, samples: &[Sample]) {
    let host = Arc::new(machine::host());
    let mut recorder = Recorder::open(path, options()).unwrap();
    for sample in samples {
        recorder.record(&host, sample).unwrap();
    }
    recorder.finish().unwrap();
}

#[test]
fn a_sample_is_as_small_as_promised() {
    for (tasks, count, most) in [(500, 360, 4_150), (5000, 180, 36_000)] {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        let samples = busy(tasks).ticks(count);
        record(&path, &samples);
        let bytes = path.metadata().unwrap().len() / count as u64;
        assert!(bytes <= most, "{bytes} bytes per sample of {tasks} tasks");
    }
}
