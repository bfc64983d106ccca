//! The command where nothing needs to be measured: help, bad values, missing privileges.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};

use crate::program;

fn numatop(words: &[&str]) -> Output {
    Command::new(program::path()).args(words).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_and_version_go_to_stdout_and_succeed() {
    for words in [&["--help"][..], &["--version"], &["doctor", "--help"]] {
        let output = numatop(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn a_bad_flag_or_value_exits_2_and_is_named() {
    for (words, named) in [
        (&["--frobnicate"][..], "--frobnicate"),
        (&["-b", "-d", "0.05"], "0.05"),
        (&["-b", "-n", "0"], "0"),
        (&["-b", "-p", "abc"], "abc"),
        (&["-b", "-p", "0"], "0"),
        (&["-b", "--format", "xml"], "xml"),
        (&["-b", "--sort", "cpu_percent"], "cpu_percent"),
        (&["-b", "--columns", "pid,nonsense"], "nonsense"),
        (&["-b", "--columns", "pid,pid"], "pid"),
        (&["-b", "--comm", "("], "--comm"),
        (&["-b", "--user", "no-such-user-here"], "no-such-user-here"),
        (&["-b", "--events", "cyclse"], "cyclse"),
        (&["-b", "--runtime-socket", "/etc/passwd"], "/etc/passwd is not a socket"),
        (&["-b", "--by-container", "--columns", "pid"], "pid"),
        (&["-b", "--by-container", "--threads"], "--threads"),
        (&["-b", "--host", "--container", "web"], "--container"),
        (&["-b", "--cgroup", "/sys/fs/cgroup-of-nobody/x"], "hierarchy"),
        (&["doctor", "--format", "csv"], "csv"),
        // Metrics come from no table.
        (&["list", "metrics", "--pmu-dir", "/etc"], "unexpected argument '--pmu-dir'"),
        (&["list", "--pmu-dir", "/etc", "metrics"], "unexpected argument '--pmu-dir'"),
        (&["list", "everything"], "list has 'metrics', 'findings' and 'events'"),
    ] {
        let output = numatop(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{words:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn control_characters_in_a_value_are_not_echoed() {
    let output = numatop(&["-b", "--sort", "\x1b]0;PWN\x07"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!output.stderr.contains(&0x1b), "{}", stderr(&output));
}

#[test]
fn metrics_and_events_are_listed() {
    let metrics = String::from_utf8(numatop(&["list", "metrics"]).stdout).unwrap();
    for id in ["cpu_ns", "cpu_pct", "run_pct_by_node", "ipc", "counters_running_pct"] {
        assert!(metrics.lines().any(|line| line.split(' ').next() == Some(id)), "{id} is not listed");
    }
    let events = String::from_utf8(numatop(&["list", "events"]).stdout).unwrap();
    assert!(events.contains("cycles") && events.contains("page-faults"), "{events}");
}

#[test]
fn topology_needs_no_privilege() {
    let output = numatop(&["topology", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let topology: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(topology["schema"], 1);
    assert!(!topology["nodes"].as_array().unwrap().is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(program::path())
        .args(["list", "metrics"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn verify_tells_of_each_file_once_and_of_all() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");
    let dir = std::env::temp_dir();
    let output = numatop(&["verify", dir.join("no-such-recording").to_str().unwrap(), fixture, fixture]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("unreadable").count(), 1, "{text}");
    assert_eq!(text.matches("format-1.nrec: intact").count(), 1, "{text}");
}

#[test]
fn a_message_that_nobody_reads_is_no_panic() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(program::path());
    command.args(["replay", "-b", "/no/such/recording"]).stdout(Stdio::null()).stderr(writer);
    assert_eq!(command.status().unwrap().code(), Some(1));
}

#[test]
fn a_small_stack_is_enough() {
    let mut command = Command::new(program::path());
    command.args(["list", "metrics"]).stdout(Stdio::null());
    let small = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
    #[expect(unsafe_code, reason = "pre_exec is unsafe")]
    // SAFETY: setrlimit may be called between fork and exec, and the struct outlives the call.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_STACK, &small) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let status = command.status().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

/// `record` has flags that the live view has only beside `--record`; a release build once refused them.
#[test]
fn record_takes_the_limits_of_a_recording() {
    for words in [
        &["--record-max-size", "2GiB", "--record-max-age", "7d"][..],
        &["--record-top", "50"],
        &["--record-min-cpu", "1"],
    ] {
        let output = numatop(&[&["record", "/no/such/folder/ring/"], words].concat());
        // If the error is about the path or the privilege, the flags were accepted.
        assert_ne!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("--record"), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn limits_of_a_directory_are_refused_for_one_file() {
    for (words, named) in [
        (&["record", "/tmp/x.nrec", "--record-max-size", "32MiB"][..], "--record-max-size"),
        (&["record", "/tmp/x.nrec", "--record-max-age", "7d"], "--record-max-age"),
        (&["-b", "--record", "/tmp/x.nrec", "--record-max-size", "1G"], "--record-max-size"),
        (&["exporter", "--record", "/tmp/x.nrec", "--record-max-size", "1G"], "--record-max-size"),
    ] {
        let output = numatop(words);
        let message = stderr(&output);
        assert!(
            output.status.code() == Some(2) && message.contains(named) && message.contains("/tmp/x.nrec/"),
            "{words:?}: {message}"
        );
    }
}

/// The released build is without Parquet, the build beside the tests has Parquet.
#[test]
fn a_build_without_parquet_says_how_to_get_it() {
    let has_parquet = program::path() == program::beside_tests() && cfg!(feature = "parquet");
    let wanted = if has_parquet { "/proc/nowhere" } else { "cargo install --features parquet" };
    let output = numatop(&[
        "export",
        "tests/fixtures/recordings/demo.nrec",
        "--format",
        "parquet",
        "-o",
        "/proc/nowhere/",
    ]);
    let message = stderr(&output);
    assert!(output.status.code() != Some(0) && message.contains(wanted), "{message}");
}

#[test]
fn a_flag_without_use_is_refused_in_this_build_too() {
    for words in [
        &["--record-top", "5", "-b"][..],
        &["--wait", "-b"],
        &["record", "x", "--sort", "ipc"],
        &["replay", "x", "--pid", "7"],
    ] {
        let output = numatop(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
    }
}

/// A folder that is removed with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("numatop-cli-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The message of `list events` on a folder of tables, and its exit code. It has to end by itself.
fn tables(dir: &Path) -> (Option<i32>, String) {
    let began = Instant::now();
    let mut child = Command::new(program::path())
        .args(["list", "events", "--pmu-dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end: {}", dir.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn only_a_regular_file_of_a_sensible_size_is_an_event_table() {
    let folder = Folder::new("tables");
    assert_eq!(
        tables(&folder.0),
        (
            Some(2),
            format!("numatop-ng: --pmu-dir: {} contains no event table (*.toml)\n", folder.0.display())
        )
    );
    let table = folder.0.join("a.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &table, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (code, said) = tables(&folder.0);
    assert!(code == Some(2) && said.contains("a.toml: the file is not a regular file"), "{code:?} {said}");
    fs::remove_file(&table).unwrap();
    symlink("/dev/zero", &table).unwrap();
    let (code, said) = tables(&folder.0);
    assert!(code == Some(2) && said.contains("a.toml: the file is not a regular file"), "{code:?} {said}");
    fs::remove_file(&table).unwrap();
    fs::File::create(&table).unwrap().set_len(1 << 40).unwrap();
    let (code, said) = tables(&folder.0);
    assert!(code == Some(2) && said.contains("longer than 1048576 bytes"), "{code:?} {said}");
}

#[test]
fn a_path_that_is_not_utf8_is_no_wrong_usage() {
    let output = Command::new(program::path())
        .args(["-b", "-n", "1", "--cgroup"])
        .arg(OsStr::from_bytes(b"/no-such-cgroup-\xff"))
        .output()
        .unwrap();
    assert!(!stderr(&output).contains("UTF-8"), "{}", stderr(&output));
}
