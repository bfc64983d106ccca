//! Questions of batch output to its source.

use std::io::{PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use anyhow::Result;
use common::{World, all_rows};
use numatop_ng::analysis::filter::RowFilter;
use numatop_ng::export::Selection;
use numatop_ng::export::json::JsonLines;
use numatop_ng::model::process::ProcessId;
use numatop_ng::model::sample::{HostFacts, Sample, TaskRaw};
use numatop_ng::run::batch::{Counted, Pace, run};
use numatop_ng::snapshot::RowKind;
use numatop_ng::source::{Focus, Source};
use serde_json::Value;

/// A world that remembers what it was asked to look at.
struct Asked {
    world: World,
    processes: Option<Vec<ProcessId>>,
    suspects: Vec<ProcessId>,
}

impl Source for Asked {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.world.host)
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        Ok(Some(self.world.tick()))
    }

    fn focus(&mut self, focus: Focus) {
        (self.processes, self.suspects) = (focus.processes, focus.suspects);
    }

    fn wait(&mut self, _due: Instant, _stop: BorrowedFd<'_>) -> Result<bool> {
        Ok(false)
    }
}

/// A reader that takes nothing until this many samples were taken after the first line reached it.
struct Slow<'a> {
    taken: &'a AtomicU32,
    until: Option<u32>,
    lines: Vec<u8>,
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let until = *self.until.get_or_insert(self.taken.load(Ordering::SeqCst) + BEHIND);
        while self.taken.load(Ordering::SeqCst) < until {
            std::thread::yield_now();
        }
        self.lines.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Samples that the slow reader misses.
const BEHIND: u32 = 20;

/// A world whose samples are counted.
struct Counting<'a> {
    world: World,
    taken: &'a AtomicU32,
}

impl Source for Counting<'_> {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.world.host)
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        let taken = self.taken.fetch_add(1, Ordering::SeqCst);
        let mut sample = self.world.tick();
        // In each interval a process ends that no other sample has.
        let mut ended = TaskRaw::clone(&sample.tasks[0]);
        (ended.serial, ended.pid, ended.tid) =
            (1_000_000 + u64::from(taken), 1_000_000 + taken, 1_000_000 + taken);
        sample.exited.push(Arc::new(ended));
        Ok(Some(sample))
    }

    fn wait(&mut self, _due: Instant, _stop: BorrowedFd<'_>) -> Result<bool> {
        // A reader in time has the time to be that.
        std::thread::sleep(Duration::from_millis(1));
        Ok(false)
    }
}

#[test]
fn a_slow_reader_delays_no_sample_and_loses_nothing() {
    let (never, _keep): (PipeReader, _) = std::io::pipe().unwrap();
    let taken = AtomicU32::new(0);
    let mut source = Counting { world: World::intel(), taken: &taken };
    let mut out = Slow { taken: &taken, until: None, lines: Vec::new() };
    let selection = all_rows();
    let pace = Pace {
        findings: true,
        interval: Duration::from_millis(1),
        iterations: Some(8),
        counted: Counted::Written,
        grain: RowKind::Processes,
        hot: false,
        access: false,
        overhead: false,
        progress: false,
    };
    run(&mut source, &mut JsonLines::new(selection), &mut out, pace, never.as_fd()).unwrap();
    let intervals: Vec<Value> = out
        .lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(intervals.len(), 8);
    let mut ended: Vec<u64> = Vec::new();
    let mut longest = 0;
    for interval in &intervals {
        let tasks = interval["tasks"].as_array().unwrap();
        let before = ended.len();
        ended.extend(tasks.iter().filter_map(|task| task["pid"].as_u64()).filter(|pid| *pid > 1_000_000));
        ended[before..].sort_unstable();
        let samples = ended.len() - before;
        longest = longest.max(samples);
        let told =
            format!("the reader of the output was too slow; {samples} samples were merged into one interval");
        let notes = interval["notes"].to_string();
        assert_eq!(notes.contains(&told), samples > 1, "{samples} samples, {notes}");
    }
    // All but the first sample, in order: those of the last interval may be followed by more that nothing waits for.
    let expected: Vec<u64> = (1_000_001..).take(ended.len()).collect();
    assert_eq!(ended, expected);
    assert!(longest > 10, "the longest of the intervals has {longest} samples");
}

/// A reader that continues when this many samples were taken, or when the deadline of the test is over.
struct Stuck<'a> {
    taken: &'a AtomicU32,
    until: u32,
    deadline: Instant,
}

impl Write for Stuck<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        while self.taken.load(Ordering::SeqCst) < self.until && Instant::now() < self.deadline {
            std::thread::yield_now();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn as_many_samples_as_were_asked_for_are_recorded_also_while_notes_have_no_reader() {
    const ASKED: u32 = 30;
    let (never, _keep): (PipeReader, _) = std::io::pipe().unwrap();
    let taken = AtomicU32::new(0);
    let mut source = Counting { world: World::intel(), taken: &taken };
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut out = Stuck { taken: &taken, until: ASKED + 1, deadline };
    let pace = Pace {
        findings: true,
        interval: Duration::from_millis(1),
        iterations: Some(ASKED.into()),
        counted: Counted::Taken,
        grain: RowKind::Processes,
        hot: false,
        access: false,
        overhead: false,
        progress: false,
    };
    run(&mut source, &mut JsonLines::new(all_rows()), &mut out, pace, never.as_fd()).unwrap();
    // An interval needs two samples.
    assert_eq!(taken.load(Ordering::SeqCst), ASKED + 1);
}

/// The processes in focus, and the suspects, by output with such rows.
fn asked(filter: RowFilter) -> (Option<Vec<u32>>, Vec<u32>) {
    let (never, _keep): (PipeReader, _) = std::io::pipe().unwrap();
    let mut source = Asked { world: World::intel(), processes: None, suspects: Vec::new() };
    let mut export = JsonLines::new(Selection { filter, ..all_rows() });
    let pace = Pace {
        findings: true,
        interval: Duration::from_millis(1),
        iterations: Some(2),
        counted: Counted::Written,
        grain: RowKind::Processes,
        hot: false,
        access: false,
        overhead: false,
        progress: false,
    };
    run(&mut source, &mut export, &mut std::io::sink(), pace, never.as_fd()).unwrap();
    let pids = |processes: Vec<ProcessId>| processes.iter().map(|(pid, _)| *pid).collect();
    (source.processes.map(pids), pids(source.suspects))
}

#[test]
fn memory_of_the_rows_that_are_written_is_looked_at_first() {
    let filter = RowFilter { top: Some(2), ..RowFilter::default() };
    assert_eq!(asked(filter).0, Some(vec![4242, 9002]));
}

#[test]
fn output_of_all_rows_leaves_the_order_to_what_changed() {
    assert_eq!(asked(RowFilter::default()).0, None);
}

#[test]
fn output_without_rows_asks_for_nobody_instead_of_all() {
    let filter =
        RowFilter { comm: Some(regex_lite::Regex::new("^nobody$").unwrap()), ..RowFilter::default() };
    let (rows, suspects) = asked(filter);
    assert_eq!(rows, Some(Vec::new()));
    assert_eq!(suspects, [4242], "a finding is about it, whether or not it is written");
}
