//! Time, memory and size of a report, by the number of nodes and the length of the recording.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use numatop_ng::record::aggregate::Keep;
use numatop_ng::record::recorder::{RecordOptions, Recorder};

use crate::Plan;
use crate::findings::wide;
use crate::process::resident;
use crate::record::Scratch;
use crate::report::{Cell, Report, Table};

/// Nodes of the machine.
const NODES: [u32; 4] = [1, 4, 16, 64];

/// Processes of the machine: each runs, and has memory, on all nodes.
const PROCESSES: u32 = 40;

/// A stretch: its name, its intervals, and the length of one in s.
const STRETCHES: [(&str, usize, u64); 3] = [("1 min", 60, 1), ("1 h", 720, 5), ("24 h", 17_280, 5)];

/// The most that a page of a day may have, bytes: up to 8 nodes, and above.
const LIMITS: [f64; 2] = [1e6, 1.5e6];

fn record(path: &Path, nodes: u32, (_, intervals, seconds): (&str, usize, u64)) -> Result<()> {
    let options = RecordOptions {
        interval: Duration::from_secs(seconds),
        max_bytes: 64 << 30,
        max_age: None,
        keep: Keep::default(),
    };
    let mut machine = wide(nodes, PROCESSES);
    let mut recorder = Recorder::open(path, options)?;
    for _ in 0..=intervals {
        let sample = machine.step(seconds * 1_000_000_000);
        recorder.record(&machine.host, &sample)?;
    }
    recorder.finish()
}

/// Measures pages of made-up machines.
///
/// # Errors
/// A recording or a page cannot be written.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("pages");
    let columns = ["nodes", "recording", "recorded, MB", "report, s", "memory at most, MB", "page, kB"];
    let mut table = Table::new("A report of a made-up machine of 40 processes", &columns);
    for nodes in NODES {
        for stretch in STRETCHES {
            let is_day = stretch.1 > 1000;
            if plan.quick && is_day {
                continue;
            }
            let scratch = Scratch::make()?;
            let (from, to) = (scratch.join("made-up.nrec"), scratch.join("page.html"));
            record(&from, nodes, stretch).context("recording a made-up machine")?;
            let begin = Instant::now();
            let mut child = Command::new(&plan.binary).arg("report").arg(&from).arg("-o").arg(&to).spawn()?;
            let mut peak = 0;
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                peak = peak.max(resident(child.id()).map_or(0, |(_, highest)| highest));
                std::thread::sleep(Duration::from_millis(5));
            };
            let took = begin.elapsed();
            if !status.success() {
                bail!("the report of {nodes} nodes and {} failed: {status}", stretch.0);
            }
            let page = fs::read(&to)?;
            if is_day {
                let limit = LIMITS[usize::from(nodes > 8)];
                report.at_most(
                    format!("page of a day of {nodes} nodes, MB"),
                    limit / 1e6,
                    page.len() as f64 / 1e6,
                    2,
                );
            }
            table.rows.push(vec![
                Cell::Number(f64::from(nodes), 0),
                Cell::text(stretch.0),
                Cell::Number(fs::metadata(&from)?.len() as f64 / 1e6, 1),
                Cell::Number(took.as_secs_f64(), 2),
                Cell::Number(peak as f64 / 1e6, 0),
                Cell::Number(page.len() as f64 / 1e3, 0),
            ]);
        }
    }
    report.tables.push(table);
    Ok(report)
}
