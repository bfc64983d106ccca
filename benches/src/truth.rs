//! The error of CPU times: each task against its schedstat, all of them against /proc/stat. Also a storm of
//! short-lived processes against the kernel's own sum.

pub mod family;
mod machine;
mod storm;
mod tasks;

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Plan;
use crate::report::Report;

/// # Errors
/// numatop-ng or a load did not start, or its output is not what it should be.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Truth: CPU time against the kernel's own");
    tasks::run(plan, &mut report)?;
    storm::run(plan, &mut report)?;
    Ok(report)
}

/// The CPU time that numatop-ng has reported so far, from the lines of its output.
#[derive(Default)]
pub struct Said {
    /// By pid and start time: ns, and the parent.
    live: HashMap<(u64, u64), Row>,
    ended: HashMap<(u64, u64), Row>,
    /// Time of ended tasks without a row.
    lost_ns: u64,
}

#[derive(Clone, Copy)]
struct Row {
    ppid: u64,
    ns: u64,
}

impl Said {
    /// Takes in the next line.
    ///
    /// # Errors
    /// It is not what it should be.
    pub fn hear(&mut self, line: &str) -> Result<()> {
        let line: Value = serde_json::from_str(line).context("reading a line of JSON")?;
        self.live.clear();
        for row in line["tasks"].as_array().context("a line has tasks")? {
            let number = |key: &str| row[key].as_u64().with_context(|| format!("a row has {key}"));
            let id = (number("pid")?, number("start_ns")?);
            let row_ns = Row { ppid: number("ppid")?, ns: number("cpu_ns")? };
            // A process is reported as ended again, with more time, when one of its threads ended late.
            if row["exited"] == true { &mut self.ended } else { &mut self.live }.insert(id, row_ns);
        }
        self.lost_ns = line["lost"]["exits_not_itemised_cpu_ns"].as_u64().unwrap_or(0);
        Ok(())
    }

    /// CPU time of everything that was ever seen, ns.
    fn sum_ns(&self) -> u64 {
        let rows = self.live.values().chain(self.ended.values());
        rows.map(|row| row.ns).sum::<u64>() + self.lost_ns
    }

    /// CPU time of a process and of its children, ns.
    pub fn family_ns(&self, pid: u32) -> u64 {
        let rows = self.live.iter().chain(&self.ended);
        let family = rows.filter(|((id, _), row)| *id == u64::from(pid) || row.ppid == u64::from(pid));
        family.map(|(_, row)| row.ns).sum()
    }

    /// CPU time of a process, ns.
    fn of(&self, pid: u32) -> Option<u64> {
        let mut rows = self.live.iter().chain(&self.ended);
        rows.find(|((id, _), _)| *id == u64::from(pid)).map(|(_, row)| row.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_counts_once_with_its_last_total() {
        let line = |exited: bool, ns: u64| {
            let row = serde_json::json!({"pid": 7, "ppid": 1, "start_ns": 3, "cpu_ns": ns, "exited": exited});
            serde_json::json!({"tasks": [row], "lost": {}}).to_string()
        };
        let mut said = Said::default();
        for line in [line(false, 5), line(true, 8), line(true, 9)] {
            said.hear(&line).unwrap();
        }
        assert_eq!((said.sum_ns(), said.of(7)), (9, Some(9)));
    }
}
