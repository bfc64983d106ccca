//! Recordings whose file is removed, and rings of a machine whose clock is set back.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::recorded_machine::{self as machine, Machine};
use crate::scratch::Scratch;

const HOUR_NS: i64 = 3_600_000_000_000;

fn recorder(path: &Path) -> Recorder {
    Recorder::open(path, RecordOptions::every(Duration::from_secs(1))).unwrap()
}

fn times(path: &Path) -> Vec<u64> {
    let mut recording = Recording::open(path).unwrap();
    std::iter::from_fn(|| recording.next().unwrap()).map(|sample| sample.mono_ns).collect()
}

#[test]
fn a_file_that_is_removed_is_followed_by_another() {
    let place = Scratch::new();
    let path = place.join("a.nrec");
    let (mut machine, host) = (Machine::new(3), Arc::new(machine::host()));
    let mut recorder = recorder(&path);
    recorder.record(&host, &machine.tick()).unwrap();
    fs::remove_file(&path).unwrap();
    let words = recorder.record(&host, &machine.tick()).unwrap();
    assert!(words.iter().any(|word| word.contains("a.nrec was removed")), "{words:?}");
    assert!(recorder.record(&host, &machine.tick()).unwrap().is_empty());
    recorder.finish().unwrap();
    assert_eq!(times(&place.join("a.nrec.1")).len(), 2);
}

#[test]
fn files_of_a_ring_are_in_the_order_in_which_they_were_recorded() {
    let place = Scratch::new();
    let ring = place.join("ring/");
    let (mut machine, host) = (Machine::new(3), Arc::new(machine::host()));
    let mut recorder = recorder(&ring);
    let mut recorded = Vec::new();
    for second in 0..12 {
        let mut sample = machine.tick();
        // The clock is set back by two hours in the middle.
        if second >= 6 {
            sample.wall_ns -= 2 * HOUR_NS;
        }
        recorded.push(sample.mono_ns);
        recorder.record(&host, &sample).unwrap();
    }
    recorder.finish().unwrap();
    assert_eq!(
        fs::read_dir(&ring)
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "nrec")
            })
            .count(),
        2
    );
    assert_eq!(times(&ring), recorded);
}
