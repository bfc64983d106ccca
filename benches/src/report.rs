//! Reports of results: tables and verdicts, as markdown and as JSON.

use std::fmt::Write;
use std::fs;

use serde::Serialize;

use crate::numbers::Spread;

/// One field of a table.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Cell {
    Text(String),
    /// A number and the count of its meaningful decimals.
    Number(f64, usize),
    Spread(f64, f64, f64, usize),
    /// Not measured.
    Nothing,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Median and quartiles.
    pub fn spread(spread: Spread, decimals: usize) -> Cell {
        Cell::Spread(spread.median, spread.low, spread.high, decimals)
    }

    fn markdown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(value, decimals) => format!("{value:.decimals$}"),
            Cell::Spread(median, low, high, decimals) => {
                format!("{median:.decimals$} ({low:.decimals$}–{high:.decimals$})")
            }
            Cell::Nothing => "–".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|name| (*name).to_string()).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }
}

/// A limit and the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub limit: String,
    pub bound: f64,
    pub measured: f64,
    pub met: bool,
    #[serde(skip)]
    decimals: usize,
}

/// Everything one benchmark has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub name: String,
    pub machine: String,
    /// Load average of one minute, before and after.
    pub load: (f64, f64),
    pub tables: Vec<Table>,
    pub verdicts: Vec<Verdict>,
    pub notes: Vec<String>,
}

impl Report {
    /// Begins a report; call [`Report::finish`] when everything is measured.
    pub fn begin(name: &str) -> Report {
        Report {
            name: name.to_string(),
            machine: machine(),
            load: (load_average(), 0.0),
            tables: Vec::new(),
            verdicts: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The measured value must not be above `bound`.
    pub fn at_most(&mut self, limit: impl Into<String>, bound: f64, measured: f64, decimals: usize) {
        let met = measured <= bound;
        self.verdicts.push(Verdict { limit: limit.into(), bound, measured, met, decimals });
    }

    /// The measured value must not be below `bound`.
    pub fn at_least(&mut self, limit: impl Into<String>, bound: f64, measured: f64, decimals: usize) {
        let met = measured >= bound;
        self.verdicts.push(Verdict { limit: limit.into(), bound, measured, met, decimals });
    }

    pub fn finish(mut self) -> Report {
        self.load.1 = load_average();
        self
    }

    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let (before, after) = self.load;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "## {}\n", self.name);
        let _ = writeln!(out, "{}; load average {before:.2} before, {after:.2} after.\n", self.machine);
        for table in &self.tables {
            let _ = writeln!(out, "{}\n", table.title);
            let _ = writeln!(out, "| {} |", table.columns.join(" | "));
            let _ = writeln!(out, "|{}", "---|".repeat(table.columns.len()));
            for row in &table.rows {
                let cells: Vec<String> = row.iter().map(Cell::markdown).collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
            out.push('\n');
        }
        if !self.verdicts.is_empty() {
            let _ = writeln!(out, "| limit | bound | measured | verdict |\n|---|---|---|---|");
            for verdict in &self.verdicts {
                let Verdict { limit, bound, measured, met, decimals } = verdict;
                let word = if *met { "met" } else { "**not met**" };
                let _ = writeln!(out, "| {limit} | {bound:.decimals$} | {measured:.decimals$} | {word} |");
            }
            out.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(out, "- {note}");
        }
        out
    }
}

fn machine() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    format!("Linux {}, {cpus} CPUs ({})", kernel.trim(), model.map_or("unknown model", |(_, model)| model))
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_the_number_on_both_sides() {
        let mut report = Report::begin("x");
        report.at_most("ns above empty", 60.0, 61.26, 1);
        assert!(!report.verdicts[0].met);
        assert!(report.markdown().contains("| ns above empty | 60.0 | 61.3 | **not met** |"));
    }
}
