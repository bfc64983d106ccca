//! A watcher whose sums of CPU time are held against those of the kernel, storm after storm.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::report::{Cell, Report, Table};
use crate::truth::Said;
use crate::truth::family::Family;

/// fork, exec and exit a second.
const PER_SECOND: u64 = 300;

/// With thousands of threads a refresh of JSON takes a while.
const PATIENCE: Duration = Duration::from_secs(60);

/// Intervals until the last exit is reported.
const SETTLED: usize = 4;

/// One storm: CPU time by numatop-ng and by the kernel, ns.
struct Storm {
    said_ns: u64,
    kernel_ns: u64,
}

/// numatop-ng with JSON output, and its totals of storms.
pub(super) struct Sums {
    tool: Frames<()>,
    storms: Vec<Storm>,
}

impl Sums {
    pub(super) fn start(plan: &Plan) -> Result<Sums> {
        let mut tool = Command::new(&plan.binary);
        tool.args(["-b", "-d", "0.5", "--json-full"]);
        let mut tool = Frames::start(&mut tool, any_line, |_| ())?;
        tool.next(PATIENCE)?;
        Ok(Sums { tool, storms: Vec::new() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.tool.process.pid()
    }

    /// Makes a family of processes fork for `seconds` seconds, and adds up the reported numbers.
    pub(super) fn storm(&mut self, seconds: u64) -> Result<()> {
        let family = Family::start(PER_SECOND, seconds)?;
        let pid = family.pid();
        let mut said = Said::default();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) {
            said.hear(&self.tool.next(PATIENCE)?.line)?;
        }
        let counted = family.ended()?;
        // Lines of before its end may wait to be read.
        let ended = Instant::now();
        let mut settled = 0;
        while settled < SETTLED {
            let frame = self.tool.next(PATIENCE)?;
            said.hear(&frame.line)?;
            settled += usize::from(frame.at > ended);
        }
        self.storms.push(Storm { said_ns: said.family_ns(pid), kernel_ns: counted.whole_ns()? });
        Ok(())
    }

    /// Reads the output for this time.
    pub(super) fn rest(&mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.tool.next(PATIENCE)?;
        }
        Ok(())
    }

    pub(super) fn judge(&self, report: &mut Report) {
        let title = format!("Storms of {PER_SECOND} fork+exec+exit a second: CPU time of the family, s");
        let mut table = Table::new(title, &["storm", "numatop-ng", "kernel (its cgroup)", "off, %"]);
        let off = |storm: &Storm| (storm.said_ns as f64 / storm.kernel_ns as f64 - 1.0) * 100.0;
        for (at, storm) in self.storms.iter().enumerate() {
            table.rows.push(vec![
                Cell::Number(at as f64 + 1.0, 0),
                Cell::Number(storm.said_ns as f64 / 1e9, 3),
                Cell::Number(storm.kernel_ns as f64 / 1e9, 3),
                Cell::Number(off(storm), 3),
            ]);
        }
        report.tables.push(table);
        let worst = self.storms.iter().map(|storm| off(storm).abs()).fold(0.0, f64::max);
        report.at_most("CPU time of a storm, the worst, % off", 0.1, worst, 3);
    }
}
