//! Files: their names, which ones are not written again, and that nothing is left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parquet::file::reader::FileReader;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use numatop_ng::tables::Table;

use super::scratch::Scratch;
use super::{demo, export, files_below, fixture, int, numatop, rows, sum, text};
use crate::program;

/// Names of files below `out`, and their bytes.
fn contents(out: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let name = |path: &PathBuf| path.strip_prefix(out).unwrap().to_owned();
    files_below(out).iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

/// A ring with copies of these recordings, which begin in the order of their names.
fn ring(scratch: &Scratch, recordings: &[&Path]) -> PathBuf {
    let folder = scratch.join("ring");
    fs::create_dir(&folder).unwrap();
    for (at, recording) in recordings.iter().enumerate() {
        fs::copy(recording, folder.join(format!("numatop-2026010{}T000000Z-000.nrec", at + 1))).unwrap();
    }
    folder
}

#[test]
fn the_same_recording_has_the_same_names_and_bytes() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "60", "1");
    let [one, two] = ["one", "two"].map(|name| {
        let out = scratch.join(name);
        let message = export(&machine, &out, &[]);
        assert!(message.contains("13 files written"), "{message}");
        contents(&out)
    });
    assert_eq!(one.len(), Table::ALL.len());
    assert!(one == two);
    let name = one[0].0.to_str().unwrap();
    assert!(
        name.starts_with("container_nodes/date=2026-01-02/host=") && name.ends_with("Z-00000000.parquet"),
        "{name}"
    );
}

#[test]
fn a_file_that_is_there_is_left() {
    let scratch = Scratch::new();
    let (machine, out) = (demo(&scratch, "10", "1"), scratch.join("out"));
    export(&machine, &out, &[]);
    let before = contents(&out);
    let message = export(&machine, &out, &[]);
    assert!(message.contains("0 files written") && message.contains("13 files already present"), "{message}");
    assert!(contents(&out) == before);
    // One is another's, and one is missing.
    let theirs = files_below(&out.join("tasks")).remove(0);
    fs::write(&theirs, "theirs").unwrap();
    fs::remove_file(files_below(&out.join("nodes")).remove(0)).unwrap();
    let message = export(&machine, &out, &[]);
    assert!(message.contains("1 file written") && message.contains("12 files already present"), "{message}");
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    let made = contents(&out).into_iter().filter(|(name, _)| name.starts_with("nodes"));
    assert!(made.eq(before.into_iter().filter(|(name, _)| name.starts_with("nodes"))));
}

#[test]
fn hours_and_days_have_the_same_rows() {
    let scratch = Scratch::new();
    // Three hours and a bit, from 03:04 on.
    let machine = demo(&scratch, "560", "20");
    let tables: &[&str] = &["--tables", "tasks,nodes,host,lost"];
    let count = |layout: &[&str]| {
        let out = scratch.join(&layout.concat());
        export(&machine, &out, &[tables, layout].concat());
        let tasks = rows(&out, Table::Tasks);
        let is_of_tasks = |path: &&PathBuf| path.strip_prefix(&out).unwrap().starts_with("tasks");
        (
            files_below(&out).iter().filter(is_of_tasks).count(),
            tasks.len(),
            sum(&tasks, "cpu_ns"),
            rows(&out, Table::Host).len(),
        )
    };
    let (hours, by_hour, cpu_ns, hosts) = count(&["--per", "hour"]);
    let (days, by_day, by_day_ns, _) = count(&["--per", "day"]);
    let (_, flat, flat_ns, _) = count(&["--layout", "flat"]);
    assert_eq!((hours, days, hosts), (4, 1, 4));
    assert_eq!((by_hour, cpu_ns), (by_day, by_day_ns), "an interval is in the file that its end is in");
    assert_eq!((by_hour, cpu_ns), (flat, flat_ns));
    let out = scratch.join("--perhour");
    for path in files_below(&out.join("tasks")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("20260102T0"), "{name}");
        let file = super::reader(&path);
        let mut own = file.get_row_iter(None).unwrap();
        let first = own.next().unwrap().unwrap().into_columns().into_iter().collect();
        let hour = int(&first, "time").unwrap() / 3_600_000_000 % 24;
        assert_eq!(name[9..11].parse::<i64>().unwrap(), hour, "{name}");
    }
}

#[test]
fn a_part_that_was_made_is_jumped_over() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "560", "20");
    let (whole, out) = (scratch.join("whole"), scratch.join("out"));
    export(&machine, &whole, &["--tables", "tasks,lost"]);
    export(&machine, &out, &["--tables", "tasks,lost"]);
    // The third hour is written again, from the sample before it on.
    fs::remove_file(files_below(&out.join("tasks")).remove(2)).unwrap();
    let message = export(&machine, &out, &["--tables", "tasks,lost"]);
    assert!(message.contains("1 file written") && message.contains("7 files already present"), "{message}");
    assert!(contents(&out) == contents(&whole));
}

#[test]
fn the_recording_that_is_being_made_is_left_for_later() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "560", "20");
    let ring = ring(&scratch, &[&fixture("demo.nrec"), &machine]);
    let last = fs::File::open(ring.join("numatop-20260102T000000Z-000.nrec")).unwrap();
    flock(&last, FlockOperation::LockExclusive).unwrap();
    let out = scratch.join("out");
    // Both begin in the same hour, which is not complete.
    let message = export(&ring, &out, &[]);
    assert!(
        message.contains("0 files written") && message.contains("1 recording still being recorded"),
        "{message}"
    );
    assert!(!out.exists() || files_below(&out).is_empty());
    flock(&last, FlockOperation::Unlock).unwrap();
    let message = export(&ring, &out, &["--tables", "tasks"]);
    assert!(message.contains("4 files written") && !message.contains("later"), "{message}");
}

#[test]
fn a_ring_that_lost_its_oldest_file_has_no_part_twice() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "20", "1");
    let (ring, out) = (ring(&scratch, &[&machine]), scratch.join("out"));
    export(&ring, &out, &["--tables", "tasks"]);
    let made = files_below(&out).remove(0);
    // As if it had been written when the ring still held the beginning of the hour.
    let name = made.file_name().unwrap().to_str().unwrap().replace("T0304", "T0300");
    let earlier = made.with_file_name(name);
    assert_ne!(earlier, made);
    fs::rename(&made, &earlier).unwrap();
    let message = export(&ring, &out, &["--tables", "tasks"]);
    assert!(message.contains("0 files written") && message.contains("1 file already present"), "{message}");
    assert_eq!(files_below(&out), std::slice::from_ref(&earlier));
    // A single file never loses its beginning: that is another recording.
    export(&machine, &out, &["--tables", "tasks"]);
    assert_eq!(files_below(&out), [earlier, made]);
}

#[test]
fn recordings_of_two_hosts_are_two_folders_and_no_flat_file() {
    let scratch = Scratch::new();
    let ring = ring(&scratch, &[&fixture("demo.nrec"), &fixture("plain.nrec")]);
    let out = scratch.join("out");
    export(&ring, &out, &["--tables", "tasks"]);
    let hosts: Vec<String> = files_below(&out)
        .iter()
        .map(|path| path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(
        hosts.len() == 2 && hosts[0] != hosts[1] && hosts.iter().all(|host| host.starts_with("host=")),
        "{hosts:?}"
    );
    let flat = scratch.join("flat");
    let words = ["export", ring.to_str().unwrap(), "--format", "parquet", "--layout", "flat", "-o"];
    let output = numatop(&[&words[..], &[&format!("{}/", flat.display())]].concat());
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("recordings of 2 hosts"), "{message}");
    assert!(!flat.exists());
}

#[test]
fn a_stretch_is_for_one_flat_file() {
    let scratch = Scratch::new();
    let machine = demo(&scratch, "60", "1");
    let out = scratch.join("out");
    export(&machine, &out, &["--layout", "flat", "--from", "-9s", "--tables", "nodes"]);
    let times: std::collections::BTreeSet<Option<i64>> =
        rows(&out, Table::Nodes).iter().map(|row| int(row, "time")).collect();
    assert_eq!(times.len(), 10, "as export of JSON has them");
}

#[test]
fn a_disk_that_is_full_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let (machine, out) = (demo(&scratch, "60", "1"), scratch.join("out"));
    // A limit of the size of files is an error of the write, as a full disk is: 16 KiB.
    let command = "ulimit -f 16; exec \"$0\" export \"$1\" --format parquet -o \"$2/\"";
    let binary = program::beside_tests();
    let output = Command::new("bash").args(["-c", command, binary]).arg(&machine).arg(&out).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("writing") && message.contains(".parquet") && message.contains("File too large"),
        "{message}"
    );
    for path in files_below(&out) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(!name.starts_with(".tmp-"), "{name}");
        super::reader(&path);
    }
}

#[test]
fn a_signal_leaves_nothing_that_is_not_whole() {
    let scratch = Scratch::new();
    let (machine, out) = (demo(&scratch, "560", "20"), scratch.join("out"));
    let mut command = Command::new(program::beside_tests());
    command.args(["export", machine.to_str().unwrap(), "--format", "parquet", "--tables", "tasks", "-o"]);
    let mut child = command.arg(format!("{}/", out.display())).stderr(Stdio::null()).spawn().unwrap();
    let begun = || out.exists() && !files_below(&out).is_empty();
    // It has not been waited for: its id is not that of another.
    let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !begun() {
        assert!(std::time::Instant::now() < late, "it made no file");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    let left = files_below(&out);
    assert!(left.len() < 4, "it was over before the signal came: {left:?}");
    for path in left {
        assert!(!path.file_name().unwrap().to_str().unwrap().starts_with('.'), "{}", path.display());
        super::reader(&path);
    }
}

#[test]
fn flags_that_have_no_meaning_are_refused() {
    let scratch = Scratch::new();
    let out = format!("{}/", scratch.join("out").display());
    let file = scratch.join("file");
    fs::write(&file, "").unwrap();
    let recording = fixture("demo.nrec");
    let cases: [(&[&str], &str); 9] = [
        (&[], "give a directory"),
        (&["-o", file.to_str().unwrap()], "is not a directory"),
        (&["-o", &out, "--columns", "pid"], "--columns"),
        (&["-o", &out, "--comm", "x"], "--comm"),
        (&["-o", &out, "--by-container"], "--by-container"),
        (&["-o", &out, "--layout", "flat", "--per", "day"], "--per"),
        (&["-o", &out, "--from", "-10s"], "--layout flat"),
        (&["-o", &out, "--tables", "nonsense"], "nonsense"),
        (&["-o", &out, "--node", "0"], "--node"),
    ];
    for (flags, why) in cases {
        let words = ["export", recording.to_str().unwrap(), "--format", "parquet"];
        let output = numatop(&[&words, flags].concat());
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(why), "{flags:?}: {message}");
    }
    assert!(!Path::new(&out).exists());
}
