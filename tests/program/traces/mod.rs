//! Exports for other tools, read by numbers of fields alone, against the same recording as JSON.

mod perfetto;
mod profiles;
mod wire;

use std::path::Path;
use std::process::Command;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::Value as Json;

use crate::pages;
use crate::program;
use crate::scratch::Scratch;
use pages::{demo, numatop, stdout, text};

/// Intervals of a recording, as JSON has them.
fn json(path: &Path, flags: &[&str]) -> Vec<Json> {
    let lines = stdout(&[&["export", text(path), "--format", "json", "--json-full"], flags].concat());
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file that export has made.
fn exported(path: &Path, format: &str, flags: &[&str]) -> Vec<u8> {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    stdout(&[&["export", text(path), "--format", format, "-o", text(&out)], flags].concat());
    std::fs::read(out).unwrap()
}

/// A recording of the demo machine with stacks, by the program itself.
fn with_stacks(scratch: &Scratch, intervals: &str) -> std::path::PathBuf {
    let path = scratch.join("hot.nrec");
    stdout(&["--demo", "-b", "-n", intervals, "--hot", "--format", "csv", "--record", text(&path)]);
    path
}

#[test]
fn standard_output_has_the_same_bytes_as_a_file() {
    let scratch = Scratch::new();
    let path = with_stacks(&scratch, "3");
    for format in ["perfetto", "pprof", "folded"] {
        for flags in [&[][..], &["-o", "-"]] {
            let words = [&["export", text(&path), "--format", format], flags].concat();
            let written = numatop(&words);
            assert!(written.status.success(), "{format}: {written:?}");
            assert!(written.stdout == exported(&path, format, &[]), "{format} {flags:?}");
        }
    }
}

#[test]
fn a_terminal_gets_no_binary() {
    let scratch = Scratch::new();
    let path = with_stacks(&scratch, "3");
    for (format, flags, refused) in [
        ("perfetto", &[][..], true),
        ("perfetto", &["-o", "-"][..], true),
        ("pprof", &[][..], true),
        ("folded", &[][..], false),
    ] {
        let size = PtySize { rows: 24, cols: 200, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program::path());
        command.args([&["export", text(&path), "--format", format], flags].concat());
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut bytes = Vec::new();
        // A terminal whose last program has ended gives EIO.
        let _ = std::io::Read::read_to_end(&mut pair.master.try_clone_reader().unwrap(), &mut bytes);
        let code = child.wait().unwrap().exit_code();
        let said = String::from_utf8(bytes).unwrap();
        assert_eq!(
            (code, said.contains("cannot be written to a terminal")),
            (if refused { 2 } else { 0 }, refused),
            "{said}"
        );
    }
}

#[test]
fn a_file_that_is_there_stays_and_half_a_trace_does_not() {
    let scratch = Scratch::new();
    let (path, out) = (demo(&scratch), scratch.join("x.pftrace"));
    std::fs::write(&out, "theirs").unwrap();
    let words = ["export", text(&path), "--format", "perfetto", "-o", text(&out)];
    let written = numatop(&words);
    assert_eq!(written.status.code(), Some(1), "{written:?}");
    assert_eq!(std::fs::read(&out).unwrap(), b"theirs");
    std::fs::remove_file(&out).unwrap();
    // The limit on the size of a file simulates a full disk.
    let limited = Command::new("bash")
        .args(["-c", "ulimit -f 8; exec \"$@\"", "bash", program::path()])
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8(limited.stderr).unwrap();
    assert_eq!(limited.status.code(), Some(1), "{said}");
    assert!(said.contains("x.pftrace") && said.contains("too large"), "{said}");
    assert!(!out.exists(), "half a trace was left");
}

#[test]
fn a_time_without_intervals_is_said_and_makes_no_file() {
    let scratch = Scratch::new();
    let (path, out) = (with_stacks(&scratch, "3"), scratch.join("out"));
    for format in ["perfetto", "pprof", "folded"] {
        let from: [&str; 2] = ["--from", "2030-01-01 00:00"];
        let words = [&["export", text(&path), "--format", format, "-o", text(&out)][..], &from[..]].concat();
        let written = numatop(&words);
        let said = String::from_utf8(written.stderr).unwrap();
        assert!(written.status.code() == Some(1) && said.contains("no interval in this period"), "{said}");
        assert!(!out.exists(), "{format}");
    }
}
