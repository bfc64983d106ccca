//! Where recordings go, what they never touch, and how they are kept within their size.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use numatop_ng::model::sample::Sample;
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::machine::{self, Machine};
use crate::scratch::Scratch;

pub fn options() -> RecordOptions {
    RecordOptions::every(Duration::from_secs(1))
}

/// All samples of a recording, without what the reader adds to their notes.
pub fn samples(path: &Path) -> Vec<Sample> {
    let mut recording = Recording::open(path).unwrap();
    std::iter::from_fn(|| recording.next().unwrap()).collect()
}

fn refused(path: &Path) -> String {
    format!("{:#}", Recorder::open(path, options()).err().unwrap())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    files.sort();
    files
}

#[test]
fn a_file_is_new_and_for_its_owner_only() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let mut recorder = Recorder::open(&path, options()).unwrap();
    assert!(!path.exists(), "it is made with the first sample");
    recorder.record(&Arc::new(machine::host()), &Machine::new(3).tick()).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    recorder.finish().unwrap();
    assert!(refused(&path).contains("never overwritten"), "{}", refused(&path));
}

#[test]
fn a_recording_that_cannot_begin_leaves_no_file() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let mut machine = Machine::new(3);
    let too_large = Sample { notes: vec!["x".repeat(1 << 20)], ..machine.tick() };
    for attempt in 0..2 {
        let mut recorder = Recorder::open(&path, options()).unwrap();
        let why = format!("{:#}", recorder.record(&Arc::new(machine::host()), &too_large).unwrap_err());
        assert!(
            why.starts_with("recording cannot begin: ") && why.contains("bytes in a name"),
            "{attempt}: {why}"
        );
        drop(recorder);
        assert!(files(scratch.path()).is_empty(), "{attempt}: {:?}", files(scratch.path()));
    }
}

#[test]
fn a_symbolic_link_is_never_followed() {
    let scratch = Scratch::new();
    let (path, target) = (scratch.join("link"), scratch.join("target"));
    symlink(&target, &path).unwrap();
    assert!(refused(&path).contains("never overwritten"));
    // It appears between the look and the first sample.
    std::fs::remove_file(&path).unwrap();
    let mut recorder = Recorder::open(&path, options()).unwrap();
    symlink(&target, &path).unwrap();
    assert!(recorder.record(&Arc::new(machine::host()), &Machine::new(1).tick()).is_err());
    assert!(!target.exists());
}

#[test]
fn a_directory_that_others_write_to_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refused(&dir).contains("mode 0777"), "{}", refused(&dir));
}

#[test]
fn a_directory_is_made_private_and_has_one_recorder() {
    let scratch = Scratch::new();
    let dir = scratch.join("ring/");
    let first = Recorder::open(&dir, options()).unwrap();
    assert_eq!(dir.metadata().unwrap().mode() & 0o777, 0o700);
    assert!(refused(&dir).contains("another recorder"), "{}", refused(&dir));
    drop(first);
    Recorder::open(&dir, options()).unwrap();
}

#[test]
fn a_ring_begins_a_file_each_hour() {
    let scratch = Scratch::new();
    let dir = scratch.join("ring/");
    let mut recorder = Recorder::open(&dir, options()).unwrap();
    let host = Arc::new(machine::host());
    let mut recorded = Machine::new(4).ticks(6);
    for (at, sample) in recorded.iter_mut().enumerate() {
        sample.wall_ns += at as i64 * 1_200_000_000_000;
        assert!(recorder.record(&host, sample).unwrap().is_empty());
    }
    recorder.finish().unwrap();
    let names = files(&dir);
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[0], Path::new("numatop-20260102T030406Z-000.nrec"));
    assert_eq!(samples(&dir), recorded);
}

#[test]
fn a_rotated_file_goes_on_in_the_next() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let mut recorder = Recorder::open(&path, options()).unwrap();
    let host = Arc::new(machine::host());
    let recorded = Machine::new(4).ticks(9);
    for sample in &recorded {
        recorder.rotate();
        recorder.record(&host, sample).unwrap();
    }
    recorder.finish().unwrap();
    assert_eq!(files(scratch.path()).len(), 9);
    assert_eq!(samples(&path), recorded);
}

#[test]
fn rows_that_do_not_change_are_shared_over_keyframes_and_files() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let mut recorder = Recorder::open(&path, options()).unwrap();
    let host = Arc::new(machine::host());
    let recorded = Machine::new(50).ticks(140);
    for (at, sample) in recorded.iter().enumerate() {
        if at == 100 {
            recorder.rotate();
        }
        recorder.record(&host, sample).unwrap();
    }
    recorder.finish().unwrap();
    assert_eq!(files(scratch.path()).len(), 2);
    let read = samples(&path);
    assert_eq!(read, recorded);
    let mut shared = 0;
    for (at, pair) in read.windows(2).enumerate() {
        for task in &pair[1].tasks {
            if let Some(old) = pair[0].tasks.iter().find(|old| *old == task) {
                assert!(Arc::ptr_eq(old, task), "serial {} of sample {}", task.serial, at + 1);
                shared += 1;
            }
        }
    }
    assert!(shared > 3000, "{shared}");
}

/// Names that a rotated file could have, already in use: recording pauses until one is free.
fn take_names(path: &Path) -> Vec<PathBuf> {
    let name = |number| PathBuf::from(format!("{}.{number}", path.display()));
    let names: Vec<PathBuf> = (1..1000).map(name).collect();
    names.iter().for_each(|name| std::fs::write(name, "somebody else's").unwrap());
    names
}

#[test]
fn processes_that_end_during_a_pause_are_recorded_after_it() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let mut recorder = Recorder::open(&path, options()).unwrap();
    let host = Arc::new(machine::host());
    let mut machine = Machine::new(100);
    machine.churn = 50;
    let taken = machine.ticks(6);
    recorder.record(&host, &taken[0]).unwrap();
    let names = take_names(&path);
    recorder.rotate();
    for sample in &taken[1..4] {
        let words = recorder.record(&host, sample).unwrap();
        assert!(words[0].contains("recording is paused"), "{words:?}");
    }
    names.iter().for_each(|name| std::fs::remove_file(name).unwrap());
    let words = recorder.record(&host, &taken[4]).unwrap();
    assert_eq!(words, ["recording resumed; 3 samples were not recorded"]);
    recorder.record(&host, &taken[5]).unwrap();
    recorder.finish().unwrap();

    let recorded = samples(&path);
    let ends: Vec<_> = taken[1..5].iter().flat_map(|sample| sample.exited.clone()).collect();
    assert!(ends.len() >= 20);
    assert_eq!(recorded[1].exited, ends);
    assert_eq!(recorded[2], taken[5]);
}

#[test]
fn a_ring_stays_within_its_size_and_removes_only_its_own() {
    let scratch = Scratch::new();
    let dir = scratch.join("ring/");
    let limit = 512 << 10;
    let mut recorder = Recorder::open(&dir, RecordOptions { max_bytes: limit, ..options() }).unwrap();
    let foreign = ["numatop-20200101T000000Z-000.nrec", "numatop-20200101T000000Z-000.nrec.bak", "notes.txt"];
    for name in foreign {
        std::fs::write(dir.join(name), "somebody else's").unwrap();
    }
    let host = Arc::new(machine::host());
    let recorded = Machine::new(50).ticks(700);
    for sample in &recorded {
        recorder.record(&host, sample).unwrap();
        let bytes: u64 = files(&dir)
            .iter()
            .filter(|name| !foreign.iter().any(|other| Path::new(other) == *name))
            .map(|name| dir.join(name).metadata().unwrap().len())
            .sum();
        assert!(bytes <= limit, "{bytes} bytes");
    }
    recorder.finish().unwrap();
    for name in foreign {
        assert!(dir.join(name).exists(), "{name} was removed");
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    let left = samples(&dir);
    assert!(left.len() > 50 && recorded.ends_with(&left), "the newest {} are left", left.len());
}

#[test]
fn old_files_of_a_ring_are_removed() {
    let scratch = Scratch::new();
    let dir = scratch.join("ring/");
    let host = Arc::new(machine::host());
    let mut machine = Machine::new(4);
    let mut recorder = Recorder::open(&dir, options()).unwrap();
    recorder.record(&host, &machine.tick()).unwrap();
    recorder.finish().unwrap();
    // The imagined clock is years after the time at which the file was written, or before it.
    let mut later = machine.tick();
    later.wall_ns = jiff::Timestamp::now().as_nanosecond() as i64 + 90_000_000_000_000;
    let aged = RecordOptions { max_age: Some(Duration::from_secs(86400)), ..options() };
    let mut recorder = Recorder::open(&dir, aged).unwrap();
    recorder.record(&host, &later).unwrap();
    assert_eq!(files(&dir).len(), 1);
    assert_eq!(samples(&dir), [later]);
}

#[test]
fn an_old_file_of_a_ring_is_removed_behind_a_younger_one() {
    let scratch = Scratch::new();
    let dir = scratch.join("ring/");
    let host = Arc::new(machine::host());
    let mut machine = Machine::new(4);
    for sample in machine.ticks(2) {
        let mut recorder = Recorder::open(&dir, options()).unwrap();
        recorder.record(&host, &sample).unwrap();
        recorder.finish().unwrap();
    }
    let names = files(&dir);
    // The first was copied just now; the second has the age in its head.
    let old = std::fs::File::options().append(true).open(dir.join(&names[1])).unwrap();
    old.set_modified(std::time::SystemTime::now() - Duration::from_secs(7200)).unwrap();
    let mut now = machine.tick();
    now.wall_ns = jiff::Timestamp::now().as_nanosecond() as i64;
    let aged = RecordOptions { max_age: Some(Duration::from_secs(3600)), ..options() };
    let mut recorder = Recorder::open(&dir, aged).unwrap();
    recorder.record(&host, &now).unwrap();
    let left = files(&dir);
    assert!(
        left.len() == 2 && left.contains(&names[0]) && !left.contains(&names[1]),
        "{left:?} of {names:?}"
    );
}
