//! The commands that work known loads: refusals, signals, limits, and profiles on the disk. Numbers are compared with
//! nothing here: a busy machine has none.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use numatop_ng::calibrate::job::Job;
use serde_json::Value;

use crate::program;

/// Anything that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Calibrations exclude each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is removed with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("numatop-calibrate-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command with a separate folder for stored profiles.
fn command(state: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program::path());
    command.args(words).env("STATE_DIRECTORY", state).stdin(Stdio::null());
    command
}

fn run(state: &Path, words: &[&str]) -> Output {
    command(state, words).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn a_dry_run_says_what_would_run_and_stores_nothing() {
    let folder = Folder::new("dry");
    let output = run(&folder.0, &["calibrate", "--dry-run"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        text.contains("of full load on each core")
            && text.contains("latency")
            && text.contains("MiB of node"),
        "{text}"
    );
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn a_node_that_is_not_there_and_a_part_that_is_none_are_wrong_usage() {
    let folder = Folder::new("usage");
    for (words, named) in [
        (&["calibrate", "--from", "1000"][..], "no node 1000"),
        (&["calibrate", "--only", "everything"], "everything"),
        (&["calibrate", "--memory", "90"], "50 percent"),
        (&["selftest", "--from", "1000"], "--from: node 1000"),
        (&["selftest", "--to", "1000"], "--to: node 1000"),
        (&["selftest", "--time", "0"], "outside 1 to 3600"),
        (&["calibrate", "--dry-run", "--show"], "--show"),
    ] {
        let output = run(&folder.0, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn a_busy_machine_is_not_measured() {
    let _alone = alone();
    let folder = Folder::new("busy");
    let stop = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let output = run(&folder.0, &["calibrate"]);
        stop.store(true, Ordering::Relaxed);
        output
    });
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("other tasks use"), "{}", stderr(&output));
    assert!(stderr(&output).contains("numatop-ng calibrate --force"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn two_calibrations_do_not_measure_each_other() {
    let _alone = alone();
    let folder = Folder::new("two");
    let address = SocketAddr::from_abstract_name("numatop-ng-known-load").unwrap();
    let _other = UnixListener::bind_addr(&address).unwrap();
    let output = run(&folder.0, &["calibrate", "--force"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("another calibrate"), "{}", stderr(&output));
}

#[test]
fn what_was_measured_is_stored_and_shown_again() {
    let _alone = alone();
    let folder = Folder::new("stored");
    let words = ["calibrate", "--force", "--only", "latency,cores", "--format", "json", "--memory", "2"];
    let measured = json(&run(&folder.0, &words));
    assert_eq!(measured["schema"], 1);
    let ns = measured["latency_ns"][0][0].as_f64().unwrap();
    assert!((0.5..20_000.0).contains(&ns), "{ns} ns");
    assert!(
        ["disturbed", "wandering", "partial"].contains(&measured["state"].as_str().unwrap()),
        "a part is no whole"
    );

    let file = folder.0.join("machine.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    let shown = run(&folder.0, &["calibrate", "--show", file.to_str().unwrap(), "--format", "json"]);
    assert_eq!(json(&shown), measured);
    assert!(stderr(&shown).contains("the profile matches this machine"), "{}", stderr(&shown));
    let same =
        run(&folder.0, &["calibrate", "--show", file.to_str().unwrap(), "--compare", file.to_str().unwrap()]);
    assert!(String::from_utf8(same.stdout).unwrap().contains("+0.0 %  (the same)"));

    let other = folder.0.join("other.json");
    let text = fs::read_to_string(&file).unwrap().replace(r#""line_bytes":"#, r#""line_bytes":1"#);
    fs::write(&other, text).unwrap();
    let shown = run(&folder.0, &["calibrate", "--show", other.to_str().unwrap()]);
    assert!(
        stderr(&shown).contains("the profile is from another machine or state: the machine's cache lines have changed since the measurement"),
        "{}",
        stderr(&shown)
    );
    fs::write(&other, "{").unwrap();
    let damaged = run(&folder.0, &["calibrate", "--show", other.to_str().unwrap()]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(stderr(&damaged).contains("other.json is damaged"), "{}", stderr(&damaged));
}

#[test]
fn files_that_cannot_be_written_end_it_before_anything_is_measured() {
    let _alone = alone();
    let folder = Folder::new("place");
    let file = folder.0.join("a-file");
    fs::write(&file, "").unwrap();
    let words = ["calibrate", "--force", "--only", "cores", "--format", "json"];
    let output = run(&file, &words);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing is measured"), "{}", stderr(&output));
    assert!(output.stdout.is_empty() && !stderr(&output).contains("about"), "{}", stderr(&output));

    let named = file.to_str().unwrap();
    for words in [["calibrate", "--force", "--output", named], ["calibrate", "--force", "--compare", named]] {
        let output = run(&folder.0, &words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("a-file") && !stderr(&output).contains("stages"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "", "a file that is there stays");
}

/// Runs the command with this umask.
fn run_with_umask(state: &Path, umask: &str, words: &[&str]) -> Output {
    let line = format!("umask {umask}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &line, program::path()]).args(words).stdin(Stdio::null());
    command.env("STATE_DIRECTORY", state).output().unwrap()
}

#[test]
fn a_umask_changes_nothing_for_readers() {
    let _alone = alone();
    for umask in ["002", "077"] {
        let folder = Folder::new(&format!("umask-{umask}"));
        let state = folder.0.join("made");
        let words = ["calibrate", "--force", "--only", "cores", "--time", "60"];
        let output = run_with_umask(&state, umask, &words);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o755, "{umask}: {}", stderr(&output));
        assert_eq!(mode(&state.join("machine.json")), 0o644, "{umask}: {}", stderr(&output));
    }
}

#[test]
fn a_reader_that_is_gone_takes_no_profile_away() {
    let _alone = alone();
    let folder = Folder::new("gone");
    let mut child = command(&folder.0, &["calibrate", "--force", "--only", "cores"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    ended(&mut child);
    assert!(folder.0.join("machine.json").exists());
}

#[test]
fn a_self_test_waits_for_no_calibration_and_does_not_disturb_one() {
    let _alone = alone();
    let folder = Folder::new("locked");
    let address = SocketAddr::from_abstract_name("numatop-ng-known-load").unwrap();
    let _other = UnixListener::bind_addr(&address).unwrap();
    let output = run(&folder.0, &["selftest"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("another calibrate or selftest"), "{}", stderr(&output));
}

/// A calibration that has begun to measure.
fn begun(state: &Path, words: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = command(state, words);
    // A separate process group, as a shell makes one.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("rounds of latency") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    (child, lines)
}

/// Processes of ours that measure, whose parent is `pid`.
fn loads_of(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    // The one thread that starts it is not the first.
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map(|tasks| tasks.flatten().collect::<Vec<_>>());
    let of_task = |task: &fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.unwrap_or_default().iter().map(of_task).collect::<Vec<_>>().join(" ") + &children;
    all.split_whitespace().count()
}

fn ended(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("it does not end");
}

#[test]
fn a_signal_ends_it_at_once_and_nothing_is_stored() {
    let _alone = alone();
    let folder = Folder::new("signal");
    let words = ["calibrate", "--force", "--only", "latency,pages", "--time", "60", "--memory", "2"];
    let (mut child, mut lines) = begun(&folder.0, &words);
    let begin = Instant::now();
    while loads_of(child.id()) == 0 && begin.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(5));
    }
    let begin = Instant::now();
    // Ctrl-C goes to the process that measures as well.
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    assert_eq!(ended(&mut child), Some(1));
    println!("ended {:?} after SIGINT", begin.elapsed());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("interrupted; nothing is stored"), "{rest}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn the_process_that_measures_is_the_first_to_be_killed_and_ends_with_its_parent() {
    let _alone = alone();
    let folder = Folder::new("child");
    let words = ["calibrate", "--force", "--only", "latency,pages", "--time", "60", "--memory", "2"];
    let (mut child, _lines) = begun(&folder.0, &words);
    let begin = Instant::now();
    let load = loop {
        assert!(begin.elapsed() < LIMIT, "no process measures");
        let named = |entry: &fs::DirEntry| {
            fs::read_to_string(entry.path().join("status")).is_ok_and(|status| {
                status.starts_with("Name:\tknown-load\n")
                    && status.contains(&format!("PPid:\t{}\n", child.id()))
            })
        };
        if let Some(found) = fs::read_dir("/proc").unwrap().flatten().find(named) {
            break found.path();
        }
    };
    let begin = Instant::now();
    while fs::read_to_string(load.join("oom_score_adj")).unwrap().trim() != "1000" {
        assert!(begin.elapsed() < LIMIT, "it is not the first to be killed");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let begin = Instant::now();
    while load.join("exe").symlink_metadata().is_ok() && load.join("cmdline").exists() {
        assert!(begin.elapsed() < LIMIT, "it goes on without its parent");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The name under which the process that measures is started.
const KNOWN_LOAD: &str = "numatop-ng-known-load";

/// A CPU that we may run on.
fn own_cpu() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().parse().unwrap()
}

#[test]
fn the_process_that_measures_ends_by_itself_when_its_time_is_up() {
    for (job, what) in [(None, "waiting"), (Some(Job::Warm { cpu: own_cpu(), ms: 600_000 }), "in a job")] {
        let mut command = Command::new(program::path());
        command.arg0(KNOWN_LOAD).arg("limit=0.5").stdin(Stdio::piped()).stdout(Stdio::null());
        let begin = Instant::now();
        let mut child = command.spawn().unwrap();
        // It gets no further question, and its input stays open.
        let mut input = child.stdin.take().unwrap();
        if let Some(job) = job {
            writeln!(input, "{}", serde_json::to_string(&job).unwrap()).unwrap();
        }
        assert_eq!(ended(&mut child), Some(124), "{what}");
        assert!(begin.elapsed() >= Duration::from_millis(500), "{what}: {:?}", begin.elapsed());
        drop(input);
    }
}

#[test]
fn the_process_that_measures_is_killed_with_its_parent_in_the_middle_of_a_job() {
    let folder = Folder::new("orphan");
    std::os::unix::fs::symlink(program::path(), folder.0.join(KNOWN_LOAD)).unwrap();
    // A shell is the parent. The input comes from here and stays open, so that the process cannot notice its
    // end.
    let script = format!("exec 3<&0; {KNOWN_LOAD} limit=600 <&3 3<&- & echo $!; wait");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).env("PATH", &folder.0).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = command.spawn().unwrap();
    let mut input = parent.stdin.take().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let load = PathBuf::from("/proc").join(line.trim());
    let job = Job::Warm { cpu: own_cpu(), ms: 600_000 };
    writeln!(input, "{}", serde_json::to_string(&job).unwrap()).unwrap();

    let begin = Instant::now();
    // It asks to be killed with its parent before it makes itself the first to be killed.
    while fs::read_to_string(load.join("oom_score_adj")).is_ok_and(|adjusted| adjusted.trim() != "1000") {
        assert!(begin.elapsed() < LIMIT, "it does not begin");
        thread::sleep(Duration::from_millis(5));
    }
    let state = || fs::read_to_string(load.join("status")).ok();
    assert!(state().is_some_and(|status| status.starts_with("Name:\tknown-load")), "it does not run");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let begin = Instant::now();
    while state().is_some_and(|status| !status.contains("State:\tZ")) {
        assert!(begin.elapsed() < LIMIT, "it goes on without its parent");
        thread::sleep(Duration::from_millis(5));
    }
    drop(input);
}

#[test]
fn a_service_stores_the_profile_in_the_first_of_its_folders_and_finds_it_there() {
    let _alone = alone();
    let folder = Folder::new("service");
    let (first, second) = (folder.0.join("first"), folder.0.join("second"));
    let both = PathBuf::from(format!("{}:{}", first.display(), second.display()));
    let output = run(&both, &["calibrate", "--force", "--only", "cores", "--time", "60"]);
    assert!(first.join("machine.json").exists() && !second.exists(), "{}", stderr(&output));
    let shown = run(&both, &["calibrate", "--show"]);
    assert!(stderr(&shown).contains(first.join("machine.json").to_str().unwrap()), "{}", stderr(&shown));
}

#[test]
fn a_profile_is_named_in_place_of_the_stored_one() {
    let folder = Folder::new("named");
    let none = folder.0.join("none.json");
    let output = run(&folder.0, &["topology", "--machine-profile", none.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--machine-profile: reading"), "{}", stderr(&output));

    let other = folder.0.join("other.json");
    fs::write(&other, r#"{"schema": 1, "time": "2026-11-22T10:03:00Z"}"#).unwrap();
    let output =
        run(&folder.0, &["topology", "--format", "json", "--machine-profile", other.to_str().unwrap()]);
    let why = json(&output)["measured"]["unused"].to_string();
    assert!(why.contains("does not match this machine: the profile is from an unknown CPU"), "{why}");
    let output = run(&folder.0, &["topology", "--format", "json", "--machine-profile", ""]);
    assert!(json(&output)["measured"].is_null(), "{}", stderr(&output));
}

#[test]
fn time_is_a_limit() {
    let _alone = alone();
    let folder = Folder::new("time");
    let begin = Instant::now();
    let output =
        run(&folder.0, &["calibrate", "--force", "--time", "2", "--memory", "2", "--format", "json"]);
    let took = begin.elapsed();
    // The look before it, 1.2 times the limit, and what starting takes on a busy machine.
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(json(&output)["took_s"].as_f64().unwrap() <= 2.0 * 1.2 + 0.5, "{}", stderr(&output));
}

#[test]
fn events_are_counted_also_where_the_tool_may_not_watch() {
    let _alone = alone();
    let folder = Folder::new("unwatched");
    let mut command = command(&folder.0, &["selftest", "--no-save", "--format", "json"]);
    if rustix::process::geteuid().is_root() {
        // The user "nobody" on all distributions.
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let report = json(&output);
    assert!(!report["counters"]["measured"].as_array().unwrap().is_empty());
    let comparisons = report["comparisons"].as_array().unwrap();
    assert!(comparisons.len() >= 9, "{comparisons:?}");
    for comparison in comparisons {
        let why = comparison["reason"].as_str().unwrap();
        assert!(
            comparison["verdict"] == "untested" && !why.is_empty() && !why.contains('\n'),
            "{comparison}"
        );
    }
}

#[test]
fn a_report_of_a_self_test_is_judged_again() {
    let folder = Folder::new("check");
    let listed = run(&folder.0, &["selftest", "--list"]);
    assert!(listed.status.success());
    assert!(String::from_utf8(listed.stdout).unwrap().contains("cpu_moves"));
    let report = |tool: u32| {
        let comparison = serde_json::json!({
            "check": "cpu_moves", "truth": 2000.0, "tool": tool, "error": null, "why": null,
            "verdict": "ok", "reason": null,
        });
        let machine = serde_json::json!({
            "cpu": "x", "hypervisor": null, "cores": 1, "threads": 1, "line_bytes": 64, "nodes": [], "caches": [],
        });
        serde_json::json!({
            "schema": 1, "tool": "0", "kernel": "x\u{1b}[2J", "machine": machine, "took_s": 1.0,
            "comparisons": [comparison],
        })
    };
    for (tool, code, word) in [(2000, 0, "ok"), (1000, 1, "WRONG")] {
        let file = folder.0.join(format!("{tool}.json"));
        fs::write(&file, report(tool).to_string()).unwrap();
        let output = run(&folder.0, &["selftest", "--check", file.to_str().unwrap()]);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(word) && !text.contains('\u{1b}'), "{text}");
    }
}
