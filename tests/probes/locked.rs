//! An ordinary user keeps address spaces locked: neither intervals nor signals nor other processes wait for that.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use numatop_ng::collect::mm_reader::wire::{Job, PlacementTurn, Turn};
use numatop_ng::collect::mm_reader::{Came, MmReader};
use numatop_ng::collect::proc_details;
use numatop_ng::model::process::ProcessId;
use serde_json::Value;

use crate::command::Ours;
use crate::locking::{Locked, NOBODY};
use crate::program;
use crate::until::until;
use crate::workload::Workload;

const INTERVAL_S: f64 = 0.5;
/// No interval is longer than this many times the requested length.
const LONGEST: f64 = 1.6;
const WORDS: [&str; 6] = ["-b", "-d", "0.5", "--json-full", "--columns", "pid,cmdline,huge_pct"];

/// Readers that a process has started and that have not ended, with the letters of their states.
fn readers(parent: u32) -> Vec<(u32, char)> {
    let stats = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let reader = |stat: String| {
        let (head, rest) = stat.split_once(" (nng-pages) ")?;
        let mut words = rest.split(' ');
        let state = words.next()?.chars().next()?;
        (words.next()?.parse() == Ok(parent)).then_some((head.parse().ok()?, state))
    };
    stats.filter_map(reader).collect()
}

fn start(words: &[&str]) -> Result<Ours> {
    let mut command = Command::new(program::path());
    let child = command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    Ok(Ours(child.context("starting numatop-ng")?))
}

fn row(line: &Value, pid: u32) -> Option<&Value> {
    line["tasks"].as_array()?.iter().find(|task| task["pid"] == pid)
}

pub fn no_interval_waits_for_a_locked_process() -> Result<()> {
    let locked = Locked::start(1)?;
    let innocent = Workload::start("hog")?;
    let pids = [locked.pids[0].to_string(), innocent.pid().to_string()];
    let mut child = start(&[&WORDS[..], &["-p", &pids[0], "-p", &pids[1]]].concat())?;
    let output = BufReader::new(child.0.stdout.take().context("stdout")?);
    let (mut reason, mut read, mut lines) = (String::new(), false, 0);
    for line in output.lines() {
        let line: Value = serde_json::from_str(&line?).context("a line is not JSON")?;
        let notes: Vec<&str> =
            line["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let length = line["interval_ns"].as_f64().context("interval_ns")? / 1e9;
        // A machine that is busy has no CPU for us, which is not what waits for a lock look like.
        let had_no_cpu = notes.iter().any(|note| note.contains("other tasks used the CPUs"));
        ensure!(had_no_cpu || length <= INTERVAL_S * LONGEST, "an interval of {length} s: {notes:?}");
        let row_of_locked = row(&line, locked.pids[0]).context("it has no row")?;
        ensure!(
            row_of_locked["cmdline"].is_null() && row_of_locked["huge_pct"].is_null(),
            "it is not locked"
        );
        let of_locked = notes.into_iter().filter(|note| note.contains("locked"));
        reason.extend(of_locked);
        // After the other was found to be locked, which ends the turn of both.
        read = !reason.is_empty() && row(&line, innocent.pid()).is_some_and(|row| row["cmdline"].is_string());
        lines += 1;
        if lines >= 10 && read || lines >= 40 {
            break;
        }
    }
    child.signal(libc::SIGTERM)?;
    ensure!(child.ended()?.success());
    let expected = format!("process {}: its address space is locked", pids[0]);
    ensure!(reason.contains(&expected), "no reason in {lines} intervals: {reason:?}");
    ensure!(read, "the other process was not read in {lines} intervals");
    Ok(())
}

pub fn a_signal_ends_batch_mode_while_a_locked_process_is_read() -> Result<()> {
    let locked = Locked::start(1)?;
    let mut child = start(&[&WORDS[..], &["-p", &locked.pids[0].to_string()]].concat())?;
    let parent = child.0.id();
    until("a reader waits", || Ok(readers(parent).iter().any(|(_, state)| *state == 'D')))?;
    let hung = readers(parent);
    let began = Instant::now();
    child.signal(libc::SIGTERM)?;
    ensure!(child.ended()?.success());
    ensure!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    drop(locked);
    until("the reader has ended", || {
        Ok(hung.iter().all(|(pid, _)| !Path::new(&format!("/proc/{pid}")).exists()))
    })
}

fn process(pid: u32) -> Result<ProcessId> {
    Ok((pid, proc_details::start_ns(pid).with_context(|| format!("process {pid} has ended"))?))
}

/// As the source of samples does once for each: never waits.
fn turn(reader: &mut MmReader, processes: &[(ProcessId, u32)]) -> Result<Came> {
    let began = Instant::now();
    let came = reader.take();
    if reader.is_free() {
        let job = |(process, uid): &(ProcessId, u32)| Job {
            process: *process,
            uid: *uid,
            rss_bytes: 1 << 20,
            careful: false,
        };
        let mut jobs: Vec<Job> = processes.iter().map(job).collect();
        reader.admit(&mut jobs);
        let placement =
            PlacementTurn { jobs, budget: Duration::from_millis(20), iterators: Vec::new(), policies: None };
        reader.ask(Turn { placement: Some(placement), ..Turn::default() }, &[]);
    }
    ensure!(began.elapsed() < Duration::from_millis(300), "a turn of {:?}", began.elapsed());
    Ok(came)
}

pub fn memory_of_others_is_placed_beside_locked_processes() -> Result<()> {
    let locked = Locked::start(6)?;
    let innocent = Workload::start("hog")?;
    // The locked ones first.
    let mut all = Vec::new();
    for pid in &locked.pids {
        all.push((process(*pid)?, NOBODY));
    }
    let other = process(innocent.pid())?;
    all.push((other, 0));
    let mut reader = MmReader::new(PathBuf::from(program::path()));
    let (mut found, mut reasons) = (0, Vec::new());
    // Once one of them is known to be locked, others do not wait for the rest. Each turn has a number for
    // them, and only then the next one that hangs.
    until("all have a reason, and the other process numbers between", || {
        std::thread::sleep(Duration::from_millis(100));
        let came = turn(&mut reader, &all)?;
        for placed in came.answers.iter().flat_map(|answer| &answer.placed) {
            ensure!(placed.process == other, "a locked process was read: {placed:?}");
            ensure!(placed.found.as_ref().is_ok_and(|found| !found.by_node.is_empty()), "{placed:?}");
            found += 1;
        }
        if let Some((process, why)) = came.locked {
            ensure!(process != other && why.to_string().contains("is locked"), "{process:?}: {why}");
            ensure!(reasons.is_empty() || found >= reasons.len(), "{found} numbers after {reasons:?}");
            reasons.push(process);
        }
        Ok(reasons.len() == locked.pids.len() && found > reasons.len())
    })?;
    println!("{found} numbers of the other process meanwhile");
    Ok(())
}

pub fn a_process_that_is_unlocked_has_values_again() -> Result<()> {
    let mut locked = Locked::start(1)?;
    let all = [(process(locked.pids[0])?, NOBODY)];
    let mut reader = MmReader::new(PathBuf::from(program::path()));
    turn(&mut reader, &all)?;
    until("the reader waits", || Ok(readers(std::process::id()).iter().any(|(_, state)| *state == 'D')))?;
    // Before it is given up.
    locked.release()?;
    until("it has answered", || Ok(readers(std::process::id()).iter().all(|(_, state)| *state == 'S')))?;
    let mut came = Came::default();
    until("an answer", || {
        came = turn(&mut reader, &all)?;
        Ok(came.broken || came.answers.iter().any(|answer| !answer.placed.is_empty()))
    })?;
    ensure!(!came.broken, "it was given up: {:?}", came.locked);
    // One that was given up ends, too.
    drop(reader);
    until("all readers have ended", || Ok(readers(std::process::id()).is_empty()))
}
