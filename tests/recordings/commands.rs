//! What the program says of recordings, and how it ends: times that are none, and clocks that were wrong.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use numatop_ng::record::format::{End, Kind};
use numatop_ng::sample::Sample;

use crate::hostile::{Forged, Payload};
use crate::machine::Machine;
use crate::roundtrip::write;
use crate::scratch::Scratch;

fn numatop(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numatop-ng"));
    command.args(words).stdin(Stdio::null()).env("TZ", "UTC");
    command
}

fn output(words: &[&str]) -> (Option<i32>, String, String) {
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
            code == Some(2) && error.contains("is no time") && out.is_empty(),
            "{time}: {code:?} {error}"
        );
        let (code, _, error) = output(&["export", file, "--from", time]);
        assert!(code == Some(2) && error.contains("--from"), "{time}: {code:?} {error}");
    }
    let (code, out, error) = output(&["export", file, "--format", "json", "--to", "9999-12-31T23:59:59Z"]);
    assert!(code == Some(0) && out.lines().count() == 2, "{code:?} {error}");
}

#[test]
fn a_clock_that_was_wrong_is_the_fault_of_the_recording() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    let mut forged = Forged::new();
    forged.wall_ns = Some(i64::MIN);
    forged.frame(Kind::Key, 0, &Payload::default().bytes());
    std::fs::write(&file, &forged.bytes).unwrap();
    let file = file.to_str().unwrap();
    let (code, _, error) = output(&["replay", file, "-b", "--at", "00:01"]);
    assert!(code == Some(1) && error.contains(file) && error.contains("clock"), "{code:?} {error}");
}
