//! Messages and exit codes of the program for recordings: times, rings in which little can be used, files that go away.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use numatop_ng::model::sample::Sample;
use numatop_ng::record::format::{End, FrameKind};

use crate::hostile::{Forged, Payload};
use crate::machine::Machine;
use crate::program;
use crate::roundtrip::write;
use crate::scratch::Scratch;

fn numatop(words: &[&str]) -> Command {
    let mut command = Command::new(program::path());
    command.args(words).stdin(Stdio::null()).env("TZ", "UTC");
    command
}

pub fn output(words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = numatop(words).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn record(path: &Path, samples: &[Sample]) {
    write(path, samples).end(End::Stopped).unwrap();
}

#[test]
fn a_number_that_is_none_is_no_time() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    record(&file, &Machine::new(3).ticks(3));
    let file = file.to_str().unwrap();
    for time in ["@NaN", "@inf", "@-inf", "@1e18"] {
        let (code, out, error) = output(&["replay", file, "-b", "--at", time]);
        assert!(
            code == Some(2) && error.contains("is not a time") && out.is_empty(),
            "{time}: {code:?} {error}"
        );
        let (code, _, error) = output(&["export", file, "--from", time]);
        assert!(code == Some(2) && error.contains("--from"), "{time}: {code:?} {error}");
    }
    let (code, out, error) = output(&["export", file, "--format", "json", "--to", "9999-12-31T23:59:59Z"]);
    assert!(code == Some(0) && out.lines().count() == 2, "{code:?} {error}");
}

#[test]
fn a_time_before_a_recording_shows_its_beginning_and_says_so() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    record(&file, &Machine::new(3).ticks(3));
    let file = file.to_str().unwrap();
    let (code, out, error) = output(&["replay", file, "-b", "--format", "json", "--at", "1971-01-01"]);
    assert!(code == Some(0) && out.lines().count() == 2, "{code:?} {out}");
    assert!(error.contains("--at is before") && error.contains("whose first sample is from"), "{error}");
    let (_, _, error) = output(&["replay", file, "-b", "--at", "-1s"]);
    assert!(!error.contains("--at"), "{error}");
}

#[test]
fn a_clock_that_was_wrong_is_the_fault_of_the_recording() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    let mut forged = Forged::new();
    forged.wall_ns = Some(i64::MIN);
    forged.frame(FrameKind::Key, 0, &Payload::default().bytes());
    std::fs::write(&file, &forged.bytes).unwrap();
    let file = file.to_str().unwrap();
    let (code, _, error) = output(&["replay", file, "-b", "--at", "00:01"]);
    assert!(code == Some(1) && error.contains(file) && error.contains("clock"), "{code:?} {error}");
}

#[test]
fn a_ring_of_files_that_cannot_be_used_is_told_in_short() {
    let scratch = Scratch::new();
    let ring = scratch.path();
    for at in 0..1000 {
        std::fs::write(ring.join(format!("numatop-20260101T000000Z-{at:03}.nrec")), "").unwrap();
    }
    let dir = ring.to_str().unwrap();
    let (code, _, error) = output(&["replay", dir, "-b"]);
    assert!(code == Some(1) && error.contains("none of the 1000 recordings"), "{code:?} {error}");
    assert!(error.contains("and 997 more") && error.len() < 1000, "{error}");

    record(&ring.join("numatop-20260102T000000Z-000.nrec"), &Machine::new(3).ticks(3));
    let (code, out, error) = output(&["replay", dir, "-b", "--format", "json"]);
    assert_eq!(code, Some(0), "{error}");
    let first: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let notes = first["notes"].as_array().unwrap();
    assert!(notes.len() == 4 && notes[3] == "left out: and 997 more", "{notes:?}");
}

/// A program that follows a recording, and has shown all of its samples.
struct Follower {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    errors: Lines<BufReader<ChildStderr>>,
}

impl Follower {
    fn start(path: &Path, intervals: usize) -> Follower {
        let words = ["replay", path.to_str().unwrap(), "-b", "--follow", "--format", "json"];
        let mut child = numatop(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = BufReader::new(child.stderr.take().unwrap()).lines();
        (0..intervals).for_each(|_| drop(out.next().expect("it shows what is there").unwrap()));
        Follower { child, out, errors }
    }

    fn says(&mut self) -> String {
        self.errors.next().expect("it says something").unwrap()
    }

    /// Its exit code, and its output up to that point.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let rest: Vec<String> = self.errors.by_ref().map(Result::unwrap).collect();
        assert_eq!(self.out.next().map(Result::unwrap), None);
        (self.child.wait().unwrap().code(), rest)
    }
}

#[test]
fn a_file_that_is_removed_is_not_waited_for() {
    let scratch = Scratch::new();
    let (file, other) = (scratch.join("file"), scratch.join("other"));
    for replaced in [false, true] {
        record(&file, &Machine::new(3).ticks(3));
        let follower = Follower::start(&file, 2);
        if replaced {
            std::fs::write(&other, "another").unwrap();
            std::fs::rename(&other, &file).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        let (code, said) = follower.end();
        let what = if replaced { "was replaced by another file" } else { "was removed" };
        assert_eq!(code, Some(1), "{said:?}");
        assert!(
            said.len() == 1 && said[0].contains(what) && said[0].contains("no more samples will come"),
            "{said:?}"
        );
    }
}

#[test]
fn a_file_that_is_emptied_is_told_once_and_waited_for() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    let mut machine = Machine::new(3);
    let mut writer = write(&file, &machine.ticks(3));
    let mut follower = Follower::start(&file, 2);
    let len = file.metadata().unwrap().len();
    let handle = std::fs::File::options().write(true).open(&file).unwrap();
    let whole = std::fs::read(&file).unwrap();
    handle.set_len(0).unwrap();
    let said = follower.says();
    assert!(said.contains("was cut to 0 bytes"), "{said}");
    // Samples that were in it come back, and more.
    std::fs::write(&file, whole).unwrap();
    assert_eq!(file.metadata().unwrap().len(), len);
    writer.sample(&machine.tick(), None).unwrap();
    let interval = follower.out.next().unwrap().unwrap();
    assert!(interval.contains("interval_ns"), "{interval}");
    std::fs::remove_file(&file).unwrap();
    let (code, said) = follower.end();
    assert!(code == Some(1) && said.len() == 1, "{said:?}");
}

#[test]
fn a_ring_whose_file_is_removed_is_waited_for() {
    let scratch = Scratch::new();
    let ring = scratch.path();
    let [first, second] = [0, 1].map(|at| ring.join(format!("numatop-20260101T000000Z-00{at}.nrec")));
    let mut machine = Machine::new(3);
    record(&first, &machine.ticks(3));
    let mut follower = Follower::start(ring, 2);
    record(&second, &machine.ticks(2));
    // Of another file of the same run: the interval between them counts.
    (0..2).for_each(|_| drop(follower.out.next().unwrap().unwrap()));
    std::fs::remove_file(&second).unwrap();
    let said = follower.says();
    assert!(said.contains("was removed") && said.contains("the next file of the ring"), "{said}");
    follower.child.kill().unwrap();
    follower.child.wait().unwrap();
}
