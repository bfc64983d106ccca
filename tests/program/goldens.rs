//! Output that users and other programs rely on, byte for byte. Each file of tests/goldens is the standard
//! output of a command, and `wrong_usage.txt` holds messages and exit codes.
//!
//! A change of output that is meant is accepted with `NUMATOP_ACCEPT_GOLDENS=1 cargo test --test program goldens`, and read in
//! `git diff` before it is committed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use machine::{Cpu, Machine};

use crate::{pmu_machine as machine, program};
use numatop_ng::list::registers;
use numatop_ng::model::event::Event;
use numatop_ng::model::sample::Reading;
use numatop_ng::pmu::budget::Budget;
use numatop_ng::pmu::catalog::Catalog;
use numatop_ng::pmu::sets::Chooser;

/// Set to rewrite the goldens instead of comparing with them.
const ACCEPT: &str = "NUMATOP_ACCEPT_GOLDENS";

/// Recordings of format 1 in tests/fixtures/recordings, all made by numatop-ng 0.1.0. They have two
/// processes, containers with short-lived processes, stacks, two rows with all others as one, and the demo
/// machine with four nodes.
const RECORDINGS: [&str; 5] = ["plain", "containers", "hot", "top", "demo"];

/// Output made of each recording: the golden's suffix, and the flags of `replay -b`.
const VIEWS: [(&str, &[&str]); 7] = [
    ("json", &["--format", "json", "--json-full"]),
    ("csv", &["--format", "csv"]),
    ("txt", &["--format", "text"]),
    (
        "threads.json",
        &["--format", "json", "--json-full", "-H", "--columns", "tid,comm,cpu_ns,run_pct_by_node"],
    ),
    ("threads.txt", &["--format", "text", "-H"]),
    ("containers.csv", &["--format", "csv", "--by-container"]),
    ("containers.txt", &["--format", "text", "--by-container"]),
];

/// Commands that depend on neither the machine nor the clock, and their goldens.
const COMMANDS: [(&str, &[&str]); 47] = [
    ("demo/lines.json", &["--demo", "-b", "-n", "3", "--format", "json"]),
    (
        "demo/lines.threads.json",
        &["--demo", "-b", "-n", "3", "-H", "--format", "json", "--columns", "comm,ipc,rss_bytes"],
    ),
    ("demo/processes.json", &["--demo", "-b", "-n", "2", "--json-full"]),
    ("demo/processes.csv", &["--demo", "-b", "-n", "4", "--format", "csv"]),
    ("demo/processes.txt", &["--demo", "-b", "-n", "4"]),
    ("demo/threads.json", &["--demo", "-b", "-n", "1", "-H", "--json-full"]),
    ("demo/threads.csv", &["--demo", "-b", "-n", "2", "-H", "--format", "csv"]),
    ("demo/threads.txt", &["--demo", "-b", "-n", "2", "-H"]),
    ("demo/containers.csv", &["--demo", "-b", "-n", "2", "--by-container", "--format", "csv"]),
    ("demo/containers.txt", &["--demo", "-b", "-n", "2", "--by-container"]),
    ("demo/llcs.txt", &["--demo", "-b", "-n", "1", "--by-llc"]),
    ("demo/sockets.csv", &["--demo", "-b", "-n", "2", "--by-socket", "--format", "csv"]),
    ("demo/sockets.txt", &["--demo", "-b", "-n", "2", "--by-socket", "--sort", "cpu_pct"]),
    ("demo/minutes.txt", &["--demo", "-b", "-n", "6", "-d", "20", "--sort", "-ipc", "--top", "8"]),
    ("demo/node.txt", &["--demo", "-b", "-n", "1", "--node", "3", "--columns", "pid,comm,run_pct_by_node"]),
    (
        "demo/on_demand.csv",
        &["--demo", "-b", "-n", "1", "--format", "csv", "-o", "comm,cmdline,cpus_allowed,huge_pct"],
    ),
    (
        "demo/hot.json",
        &["--demo", "-b", "-n", "1", "--hot", "--json-full", "--columns", "comm", "--comm", "train"],
    ),
    ("help/numatop-ng.txt", &["--help"]),
    ("help/numatop-ng.txt", &["-h"]),
    ("help/doctor.txt", &["doctor", "--help"]),
    ("help/topology.txt", &["topology", "--help"]),
    ("help/list.txt", &["list", "--help"]),
    ("help/list-events.txt", &["list", "events", "--help"]),
    ("help/run.txt", &["run", "--help"]),
    ("help/record.txt", &["record", "--help"]),
    ("help/replay.txt", &["replay", "--help"]),
    ("help/export.txt", &["export", "--help"]),
    ("help/verify.txt", &["verify", "--help"]),
    ("help/generate.txt", &["generate", "--help"]),
    ("help/diagnose.txt", &["diagnose", "--help"]),
    ("help/diff.txt", &["diff", "--help"]),
    ("help/exporter.txt", &["exporter", "--help"]),
    ("help/report.txt", &["report", "--help"]),
    ("help/calibrate.txt", &["calibrate", "--help"]),
    ("help/selftest.txt", &["selftest", "--help"]),
    ("list_findings.txt", &["list", "findings"]),
    ("demo/diagnose.txt", &["diagnose", "demo.nrec", "--all", "--allow-undecided"]),
    ("demo/diff.txt", &["diff", "plain.nrec", "demo.nrec", "--all"]),
    ("demo/diff.json", &["diff", "plain.nrec", "demo.nrec", "--format", "json"]),
    ("demo/report.txt", &["report", "demo.nrec", "--format", "text"]),
    ("demo/report.json", &["report", "demo.nrec", "--format", "json"]),
    ("demo/explain.txt", &["diagnose", "--explain", "zone-reclaim"]),
    ("help/record.txt", &["record", "-h"]),
    ("help/replay.txt", &["replay", "-h"]),
    ("list_metrics.txt", &["list", "metrics"]),
    ("recordings/format-1.verify.txt", &["verify", "format-1.nrec"]),
    ("recordings/hot.folded", &["export", "hot.nrec", "--format", "folded"]),
];

/// Commands that are refused, for every kind of message.
const WRONG_USAGE: [&[&str]; 80] = [
    &["exporter", "--listen", "6862"],
    &["exporter", "--listen", "unix:"],
    &["exporter", "--from-recording", "nowhere.nrec", "--record", "x"],
    &["exporter", "--record-top", "5"],
    &["exporter", "--from-recording", "demo.nrec", "--pid", "1"],
    &["--frobnicate"],
    &["frobnicate"],
    &["-b", "-d", "0.05"],
    &["-b", "-d", "soon"],
    &["-b", "-n", "0"],
    &["-b", "-p", "abc"],
    &["-b", "-p", "0"],
    &["-b", "-p", "4194305"],
    &["-b", "-t", "4194305"],
    &["-b", "--top", "0"],
    &["-b", "--format", "xml"],
    &["-b", "--sort", "cpu_percent"],
    &["-b", "--columns", "pid,nonsense"],
    &["-b", "--columns", "pid,pid"],
    &["-b", "--comm", "("],
    &["-b", "--user", "no-such-user-here"],
    &["-b", "--color", "sometimes"],
    &["-b", "--container="],
    &["-b", "--by-container", "--columns", "pid"],
    &["-b", "--by-container", "--threads"],
    &["-b", "--by-llc", "--by-socket"],
    &["-b", "--by-socket", "--columns", "home_node"],
    &["-b", "--host", "--container", "web"],
    &["-b", "--hot"],
    &["-b", "--hot-rate", "1000"],
    &["-b", "--wait"],
    &["-b", "--record-top", "5"],
    &["doctor", "--format", "csv"],
    &["list", "everything"],
    &["record"],
    &["record", "x", "--sort", "ipc"],
    &["replay", "x", "--pid", "7"],
    &["replay", "no-such-file", "-b"],
    &["replay", "plain.nrec", "-b", "--at", "yesterday"],
    &["export", "plain.nrec"],
    &["export", "plain.nrec", "--format", "json", "--layout", "flat"],
    &["export", "plain.nrec", "--format", "parquet", "--tables", "nonsense"],
    &["verify"],
    &["--demo", "-b", "--pid", "7"],
    &["--demo", "-b", "--events", "branch-misses"],
    &["--demo", "-b", "--container", "repotr"],
    &["--demo", "-b", "--node", "4"],
    &["--demo", "-b", "--hot"],
    &["--demo", "doctor"],
    &["record", "x", "-H"],
    &["record", "x", "--wait"],
    &["replay", "x", "-b", "--by-container", "-H"],
    &["export", "plain.nrec", "--hot"],
    &["export", "plain.nrec", "--format", "otlp"],
    &["export", "demo.nrec", "--format", "perfetto", "--columns", "pid"],
    &["export", "demo.nrec", "--format", "pprof", "--top", "5"],
    &["export", "plain.nrec", "--format", "folded"],
    &["--follow"],
    &["-b", "--overhead"],
    &["-b", "--json-full", "--format", "csv"],
    &["export", "demo.nrec", "--format", "perfetto", "--json-full"],
    &["diagnose", "--rules", "zone-reclaims"],
    &["diff", "demo.nrec"],
    &["diff", "demo.nrec", "nothing.nrec"],
    &["diff", "demo.nrec", "demo.nrec@yesterday"],
    &["diff", "demo.nrec", "demo.nrec", "--metrics", "comm"],
    &["diff", "demo.nrec", "demo.nrec", "--skip", "soon"],
    &["diff", "demo.nrec", "demo.nrec", "--fail-on", "better"],
    &["diff", "demo.nrec", "demo.nrec", "--fail-on", "worse=cpu_pct"],
    &["diagnose", "--explain", "nonsense"],
    &["diagnose", "demo.nrec", "--pid", "7"],
    &["report"],
    &["report", "x", "--points", "99"],
    &["report", "demo.nrec", "--format", "pdf"],
    &["report", "demo.nrec", "-o", "demo.nrec"],
    &["report", "demo.nrec", "-o", "-", "--from", "2030-01-01 00:00"],
    &["calibrate", "--only", "everything"],
    &["calibrate", "--time", "0.5"],
    &["calibrate", "--from", "x"],
    &["selftest", "hardware"],
];

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs numatop-ng among the recordings. Of our environment it gets only the variables for place and time.
fn numatop(words: &[&str]) -> Output {
    Command::new(program::path())
        .args(words)
        .current_dir(manifest().join("tests/fixtures/recordings"))
        .env_clear()
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Standard output of a command that succeeds without a word on standard error.
fn stdout(words: &[&str]) -> Vec<u8> {
    let Output { status, stdout, stderr } = numatop(words);
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success() && stderr.is_empty(), "numatop-ng {}: {status}\n{stderr}", words.join(" "));
    stdout
}

/// Compares with the golden `name`, or writes it. Returns the difference.
fn compare(name: &str, actual: &[u8]) -> Option<String> {
    let path = manifest().join("tests/goldens").join(name);
    if std::env::var_os(ACCEPT).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
        return None;
    }
    let golden = fs::read(&path).unwrap_or_default();
    (golden != actual).then(|| format!("tests/program/goldens/{name}: {}", first_difference(&golden, actual)))
}

/// The first different line, cut to the surroundings of the difference.
fn first_difference(golden: &[u8], actual: &[u8]) -> String {
    let same = golden.iter().zip(actual).take_while(|(a, b)| a == b).count();
    let line = golden[..same].iter().filter(|byte| **byte == b'\n').count() + 1;
    let around = |bytes: &[u8]| {
        let begin = same.saturating_sub(60);
        let end = bytes.len().min(same + 60);
        String::from_utf8_lossy(&bytes[begin.min(end)..end]).escape_debug().to_string()
    };
    format!("line {line}\n  golden: {}\n  now:    {}", around(golden), around(actual))
}

/// Fails with the difference and how to accept it.
fn check(differences: Vec<String>) {
    assert!(
        differences.is_empty(),
        "{}\nif this is meant: {ACCEPT}=1 cargo test --test program goldens, then read git diff tests/goldens",
        differences.join("\n")
    );
}

/// A command as on the command line.
fn typed(words: &[&str]) -> String {
    let quote = |word: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./".contains(c);
        if word.chars().all(plain) { word.to_string() } else { format!("'{word}'") }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn recording_golden(recording: &str, suffix: &str) -> String {
    format!("recordings/{recording}.{suffix}")
}

#[test]
fn recordings_of_today_say_the_same_for_ever() {
    let mut differences = Vec::new();
    for recording in RECORDINGS {
        let file = format!("{recording}.nrec");
        let verified = stdout(&["verify", &file]);
        differences.extend(compare(&recording_golden(recording, "verify.txt"), &verified));
        for (suffix, flags) in VIEWS {
            let shown = stdout(&[&["replay", &file, "-b"], flags].concat());
            differences.extend(compare(&recording_golden(recording, suffix), &shown));
        }
    }
    check(differences);
}

#[test]
fn export_writes_as_replay_does() {
    for recording in RECORDINGS {
        let file = format!("{recording}.nrec");
        for format in ["json", "csv", "text"] {
            for rows in [&[][..], &["-H"], &["--by-container"]] {
                let flags = [&["--format", format], rows].concat();
                let exported = stdout(&[&["export", &file], &flags[..]].concat());
                let replayed = stdout(&[&["replay", &file, "-b"], &flags[..]].concat());
                assert!(exported == replayed, "{file} {flags:?}");
            }
        }
    }
}

#[test]
fn commands_print_what_they_printed() {
    let output = |(name, words): &(&str, &[&str])| compare(name, &stdout(words));
    check(COMMANDS.iter().filter_map(output).collect());
}

/// Made-up machines on which every event of the table works: the machine that runs the test does not matter.
#[test]
fn events_are_listed_as_they_were() {
    fn works(_: &Event) -> Reading<()> {
        Ok(())
    }
    for (name, cpu) in [
        ("list_events_intel.txt", Cpu::X86("GenuineIntel", 6, 143, 8)),
        ("list_events_amd.txt", Cpu::X86("AuthenticAMD", 25, 17, 1)),
        ("list_events_arm.txt", Cpu::Arm(0x41, 0xd0c)),
    ] {
        let machine = Machine::new(cpu);
        let catalog = Catalog::read(&machine.root, None).unwrap();
        let budget = Budget::read(&machine.root, &catalog, true, None);
        let choose = |set: &str| {
            let opens = &mut |_: &[Event]| Ok(());
            Chooser { catalog: &catalog, budget, subnuma: false, opens }.choose(set).unwrap()
        };
        let text = registers::events(&catalog, budget, &works, &choose, 100);
        check(compare(name, text.as_bytes()).into_iter().collect());
    }
}

#[test]
fn wrong_usage_is_refused_as_it_was() {
    let mut all = String::new();
    for words in WRONG_USAGE {
        let Output { status, stdout, stderr } = numatop(words);
        let code = status.code().unwrap();
        assert!(code != 0 && stdout.is_empty(), "{words:?}: {code}");
        let message = String::from_utf8(stderr).unwrap();
        writeln!(all, "$ numatop-ng {}\n{message}exit code {code}\n", typed(words)).unwrap();
    }
    check(compare("wrong_usage.txt", all.as_bytes()).into_iter().collect());
}

#[test]
fn every_golden_is_compared() {
    let mut known: BTreeSet<String> = COMMANDS.iter().map(|(name, _)| name.to_string()).collect();
    let others = ["wrong_usage.txt", "list_events_intel.txt", "list_events_amd.txt", "list_events_arm.txt"];
    known.extend(others.map(String::from));
    for recording in RECORDINGS {
        let suffixes = VIEWS.iter().map(|(suffix, _)| *suffix).chain(["verify.txt"]);
        known.extend(suffixes.map(|suffix| recording_golden(recording, suffix)));
    }
    let root = manifest().join("tests/goldens");
    let mut found = BTreeSet::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => _ = found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_string()),
            }
        }
    }
    // While goldens are written, those of other tests may still be missing.
    if std::env::var_os(ACCEPT).is_none() {
        assert_eq!(found, known, "remove the goldens of no test, accept those that are missing");
    }
}
