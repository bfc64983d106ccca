//! A recording shows the same as the live view, at any of its times, while it grows and where it is damaged.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use numatop_ng::export::Export;
use numatop_ng::model::sample::Sample;
use numatop_ng::record::recorder::Recorder;
use numatop_ng::record::verify::verify;
use numatop_ng::run::replay::{self, Part};
use numatop_ng::snapshot::{RowKind, Snapshot, derive};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::machine::{self, Machine};
use crate::recorder::options;
use crate::scratch::Scratch;

const ALL: Part = Part {
    from_wall_ns: None,
    to_wall_ns: None,
    iterations: None,
    follow: false,
    grain: RowKind::Processes,
    progress: false,
};

/// Keeps what it is given, as text with every value in it.
#[derive(Default)]
struct Kept(Vec<(i64, String)>);

impl Export for Kept {
    fn wants_containers(&self) -> bool {
        true
    }

    fn write(&mut self, _: &mut dyn std::io::Write, snapshot: &Snapshot) -> std::io::Result<()> {
        self.0.push((snapshot.wall_ns, format!("{snapshot:?}")));
        Ok(())
    }
}

/// The reader is gone.
struct Closed;

impl Export for Closed {
    fn wants_containers(&self) -> bool {
        false
    }

    fn write(&mut self, _: &mut dyn std::io::Write, _: &Snapshot) -> std::io::Result<()> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

fn replayed(recording: &mut Recording, part: Part) -> Vec<(i64, String)> {
    let (_write, read) = UnixStream::pair().unwrap();
    let stop: OwnedFd = read.into();
    let mut kept = Kept::default();
    replay::run(recording, &mut kept, &mut std::io::sink(), part, stop.as_fd(), &mut |_| ()).unwrap();
    kept.0
}

fn derived(samples: &[Sample], grain: RowKind) -> Vec<(i64, String)> {
    let host = Arc::new(machine::host());
    let pairs = samples.windows(2);
    pairs
        .map(|pair| (pair[1].wall_ns, format!("{:?}", derive(&host, Some(&pair[0]), &pair[1], grain))))
        .collect()
}

fn record(path: &std::path::Path, samples: &[Sample]) {
    let mut recorder = Recorder::open(path, options()).unwrap();
    let host = Arc::new(machine::host());
    for sample in samples {
        recorder.record(&host, sample).unwrap();
    }
    recorder.finish().unwrap();
}

/// A replay derives rows of this kind as the live view did, across two keyframes.
fn replays_as_live(grain: RowKind) {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(40).ticks(130);
    record(&path, &samples);
    let mut recording = Recording::open(&path).unwrap();
    assert_eq!(recording.host(), Arc::new(machine::host()));
    assert!(replayed(&mut recording, Part { grain, ..ALL }) == derived(&samples, grain));
}

#[test]
fn processes_are_derived_as_they_were_live() {
    replays_as_live(RowKind::Processes);
}

#[test]
fn threads_are_derived_as_they_were_live() {
    replays_as_live(RowKind::Threads);
}

#[test]
fn a_part_has_the_intervals_that_end_in_it() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(20).ticks(150);
    record(&path, &samples);
    let live = derived(&samples, RowKind::Processes);
    let mut recording = Recording::open(&path).unwrap();
    assert_eq!(recording.span(), Some((samples[0].wall_ns, samples[149].wall_ns)));
    for (from, to) in [(1, 1), (1, 149), (60, 61), (59, 62), (100, 149)] {
        let part =
            Part { from_wall_ns: Some(samples[from].wall_ns), to_wall_ns: Some(samples[to].wall_ns), ..ALL };
        assert!(replayed(&mut recording, part) == live[from - 1..to], "{from} to {to}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_lack_of_intervals() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    record(&path, &Machine::new(20).ticks(3));
    let (_write, read) = UnixStream::pair().unwrap();
    let mut recording = Recording::open(&path).unwrap();
    let found =
        replay::run(&mut recording, &mut Closed, &mut std::io::sink(), ALL, read.as_fd(), &mut |_| ());
    assert_eq!(found.unwrap(), 1);
}

#[test]
fn any_time_is_found_in_one_file_and_in_many() {
    let scratch = Scratch::new();
    let (one, many) = (scratch.join("file"), scratch.join("ring/"));
    // Enough for the search to halve the file, and for hours to pass.
    let mut samples = Machine::new(120).ticks(300);
    for (at, sample) in samples.iter_mut().enumerate() {
        sample.wall_ns += at as i64 * 40_000_000_000;
    }
    record(&one, &samples);
    record(&many, &samples);
    for path in [one, many] {
        let mut recording = Recording::open(&path).unwrap();
        for at in [0, 1, 59, 60, 61, 150, 298, 299, 7] {
            for off in [0, 1, 39_000_000_000] {
                recording.seek(samples[at].wall_ns + off).unwrap();
                let sample = recording.next().unwrap().unwrap();
                assert!(sample == samples[at], "{at} + {off}");
                assert!(!recording.continues(), "nothing is derived across a jump");
            }
            recording.step_back().unwrap();
            assert!(recording.next().unwrap().unwrap() == samples[at.saturating_sub(1)], "back from {at}");
        }
        recording.seek(0).unwrap();
        assert!(recording.next().unwrap().unwrap() == samples[0]);
    }
}

#[test]
fn a_recording_is_followed_while_it_grows() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let host = Arc::new(machine::host());
    let samples = Machine::new(10).ticks(5);
    let mut recorder = Recorder::open(&path, options()).unwrap();
    recorder.record(&host, &samples[0]).unwrap();
    let mut recording = Recording::open(&path).unwrap();
    assert!(verify(&path).unwrap().being_written);
    for pair in samples.windows(2) {
        assert_eq!(recording.next().unwrap().as_ref(), Some(&pair[0]));
        assert_eq!(recording.next().unwrap(), None);
        recorder.rotate();
        recorder.record(&host, &pair[1]).unwrap();
    }
    assert_eq!(recording.next().unwrap().as_ref(), Some(&samples[4]));
    assert!(recording.continues());
}

#[test]
fn runs_of_the_recorder_are_not_mixed() {
    let scratch = Scratch::new();
    let dir = scratch.join("ring/");
    record(&dir, &Machine::new(10).ticks(3));
    let mut second = Machine::new(10).ticks(3);
    second.iter_mut().for_each(|sample| {
        sample.wall_ns += 60_000_000_000;
        sample.mono_ns += 1;
    });
    record(&dir, &second);
    let mut recording = Recording::open(&dir).unwrap();
    let intervals = replayed(&mut recording, ALL);
    assert_eq!(intervals.len(), 4, "two of each run");
    assert!(intervals[2].1.contains("another run"), "{}", intervals[2].1);
}

#[test]
fn damage_is_reported_where_it_is() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(30).ticks(10);
    record(&path, &samples);
    assert!(verify(&path).unwrap().is_intact());
    let len = path.metadata().unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // The End frame is the last; before it is the frame of the last sample.
    file.write_all_at(&[0xff; 8], len - 300).unwrap();

    let report = verify(&path).unwrap();
    assert!(!report.is_intact());
    assert_eq!((report.samples, report.lost_frames, report.flaws.len()), (9, 1, 1));
    let text = report.to_string();
    assert!(text.contains("damaged") && text.contains("the data of 1 frame\n"), "{text}");
    let read = crate::recorder::samples(&path);
    assert!(read == samples[..9]);
}

#[test]
fn what_follows_damage_says_so() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(30).ticks(10);
    record(&path, &samples);
    let report = verify(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Somewhere in the middle of the deltas.
    file.write_all_at(&[0xff; 8], report.bytes * 3 / 4).unwrap();
    let read = crate::recorder::samples(&path);
    assert_eq!(read.len(), 9);
    let told: Vec<&String> = read.iter().flat_map(|sample| &sample.notes).collect();
    assert!(told.len() == 1 && told[0].contains("damaged"), "{told:?}");
}

#[test]
fn what_is_no_recording_is_refused_in_words() {
    let scratch = Scratch::new();
    let (empty, text, dir) = (scratch.join("empty"), scratch.join("text"), scratch.join("dir"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&text, "some words\n".repeat(10_000)).unwrap();
    std::fs::create_dir(&dir).unwrap();
    for path in [&empty, &text, &dir, &scratch.join("none")] {
        let error = format!("{:#}", Recording::open(path).err().unwrap());
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
