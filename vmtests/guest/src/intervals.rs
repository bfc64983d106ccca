//! The tool's output over several intervals, added up: totals that can be compared with a truth.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cases::Stop;

/// A row that lasts: pid (or tid) and start time.
type Key = (u64, u64, u64);

/// Totals of one row over all intervals added so far.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub comm: String,
    /// On-CPU time the tool gave to this row in these intervals.
    pub cpu_ns: f64,
    pub cpu_ns_by_node: BTreeMap<u32, f64>,
    pub switches: f64,
    pub cpu_moves: f64,
    pub node_moves: f64,
    pub exited: bool,
    /// The last object the tool printed for it.
    pub last: Value,
}

/// All rows of all intervals of a run.
#[derive(Debug, Default)]
pub struct Totals {
    pub rows: BTreeMap<Key, Row>,
    pub seconds: f64,
    /// CPU time of everything that ran, by the tool's own account per CPU.
    pub busy_ns: f64,
    pub lost: BTreeMap<String, f64>,
    /// The sums, the mark excepted.
    pub intervals: Vec<Value>,
    marked: bool,
}

impl Totals {
    /// Adds an interval. The first one given only sets the marks that later ones are measured from.
    pub fn add(&mut self, interval: Value) -> Result<(), Stop> {
        let seconds = number(&interval, "interval_ns")? / 1e9;
        let first = !self.marked;
        self.marked = true;
        let tasks = interval["tasks"].as_array().ok_or_else(|| Stop::fail("an interval has no tasks"))?;
        if !first {
            self.seconds += seconds;
            self.busy_ns += interval["host"]["busy_pct"].as_f64().unwrap_or(f64::NAN) / 100.0 * seconds * 1e9;
        }
        let lost = interval["lost"]
            .as_object()
            .ok_or_else(|| Stop::fail("an interval does not say what was lost"))?;
        for (cause, count) in lost {
            // Counts of causes are per interval or cumulative; either way more than zero is a loss.
            let count = count
                .as_f64()
                .ok_or_else(|| Stop::fail(format!("lost.{cause} is {count} and not a number")))?;
            let sum = self.lost.entry(cause.clone()).or_default();
            *sum = sum.max(count);
        }
        for task in tasks {
            let key = (
                task["pid"].as_u64().unwrap_or(0),
                task["tid"].as_u64().unwrap_or(0),
                task["start_ns"].as_u64().unwrap_or(0),
            );
            if first {
                continue;
            }
            let row = self.rows.entry(key).or_default();
            // Not the difference of two cpu_ns: with --threads the row of an ended process takes over
            // the sum of all its threads.
            let gained = number(task, "cpu_pct")? / 100.0 * seconds * 1e9;
            row.cpu_ns += gained;
            for (node, share) in task["run_pct_by_node"].as_object().into_iter().flatten() {
                let node: u32 =
                    node.parse().map_err(|_| Stop::fail(format!("run_pct_by_node has a node {node:?}")))?;
                *row.cpu_ns_by_node.entry(node).or_default() +=
                    gained * share.as_f64().unwrap_or(0.0) / 100.0;
            }
            let events = |id: &str| task[id].as_f64().unwrap_or(0.0) * seconds;
            row.switches += events("switches_per_s");
            row.cpu_moves += events("cpu_migrations_per_s");
            row.node_moves += events("node_migrations_per_s");
            row.exited |= task["exited"].as_bool().unwrap_or(false);
            row.comm = task["comm"].as_str().unwrap_or_default().to_owned();
            row.last = task.clone();
        }
        if !first {
            self.intervals.push(interval);
        }
        Ok(())
    }

    /// Whether a mark to measure from is set.
    pub fn marked(&self) -> bool {
        self.marked
    }

    /// All rows of all intervals.
    pub fn tasks(&self) -> impl Iterator<Item = &Value> {
        self.intervals.iter().flat_map(|interval| interval["tasks"].as_array().into_iter().flatten())
    }

    /// Whether this process was shown as ended. With threads that is the row of its first; a row with tid 0 is of
    /// threads that ended, and others may live.
    pub fn has_ended(&self, pid: i32) -> bool {
        let is_whole = |row: &Row| row.last["tid"].is_null() || row.last["tid"] == pid;
        self.rows.iter().any(|((row, ..), shown)| *row == pid as u64 && shown.exited && is_whole(shown))
    }

    /// Rows of ended children of this process, and how many different processes they are.
    pub fn ended_children(&self, parent: i32) -> (Vec<&Value>, usize) {
        let rows: Vec<&Value> =
            self.tasks().filter(|task| task["exited"] == true && task["ppid"] == parent).collect();
        let different: BTreeSet<_> =
            rows.iter().map(|row| (row["pid"].as_u64(), row["start_ns"].as_u64())).collect();
        let count = different.len();
        (rows, count)
    }

    /// The row of a process; with threads, the first of its rows. No guest lives long enough to use an id again, so one that
    /// was shown under two start times was not shown right.
    pub fn process(&self, pid: i32) -> Result<&Row, Stop> {
        let mut rows = self.rows.iter().filter(|((row_pid, ..), _)| *row_pid == pid as u64);
        let Some((key, row)) = rows.next() else {
            return Err(Stop::fail(format!("the tool never showed process {pid}")));
        };
        match rows.find(|(other, _)| other.1 == key.1) {
            None => Ok(row),
            Some((other, also)) => Err(Stop::fail(format!(
                "process {pid} is shown as {} {key:?} of {} s, and as {} {other:?} of {} s",
                row.comm,
                row.cpu_ns / 1e9,
                also.comm,
                also.cpu_ns / 1e9
            ))),
        }
    }

    /// The row of a thread; needs a run with --threads.
    pub fn thread(&self, tid: i64) -> Result<&Row, Stop> {
        self.rows
            .iter()
            .find(|((_, row_tid, _), _)| *row_tid as i64 == tid)
            .map(|(_, row)| row)
            .ok_or_else(|| Stop::fail(format!("the tool never showed thread {tid}")))
    }

    /// The sum of a rate over what `of` finds in each interval, to the next whole number.
    pub fn sum_of_rates(&self, of: impl Fn(&Value) -> f64) -> u64 {
        let seconds = |interval: &Value| interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
        self.intervals.iter().map(|interval| of(interval) * seconds(interval)).sum::<f64>().round() as u64
    }

    /// The same of a metric from one node to another.
    pub fn between(&self, metric: &str, from: usize, to: usize) -> u64 {
        let (from, to) = (from.to_string(), to.to_string());
        self.sum_of_rates(|interval| interval["matrix"][metric][&from][&to].as_f64().unwrap_or(0.0))
    }

    /// CPU time of all rows.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu_ns_without(&[])
    }

    /// CPU time of all rows but those of these processes.
    pub fn cpu_ns_without(&self, pids: &[i32]) -> f64 {
        let others = self.rows.iter().filter(|((pid, ..), _)| !pids.iter().any(|&out| *pid == out as u64));
        others.map(|(_, row)| row.cpu_ns).sum()
    }
}

/// A number that must be there.
pub fn number(object: &Value, key: &str) -> Result<f64, Stop> {
    object[key].as_f64().ok_or_else(|| Stop::fail(format!("{key} is {} and not a number", object[key])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn interval(cpu_pct: f64, exited: bool) -> Value {
        json!({"interval_ns": 500_000_000, "host": {"busy_pct": 50.0}, "lost": {"exits": 0}, "tasks": [
            {"pid": 7, "start_ns": 1, "comm": "x", "cpu_pct": cpu_pct, "run_pct_by_node": {"0": 25.0, "1": 75.0},
             "switches_per_s": 20.0, "exited": exited}
        ]})
    }

    #[test]
    fn the_first_interval_is_the_mark_and_the_rest_adds_up() {
        let mut totals = Totals::default();
        for interval in [interval(90.0, false), interval(20.0, false), interval(60.0, true)] {
            totals.add(interval).unwrap();
        }
        let row = totals.process(7).unwrap();
        assert_eq!(row.cpu_ns, 4e8);
        assert_eq!(row.cpu_ns_by_node[&1], 3e8);
        assert_eq!(row.switches, 20.0);
        assert!(row.exited);
        assert_eq!(totals.seconds, 1.0);
        assert_eq!(totals.busy_ns, 0.5e9);
        assert!(totals.process(8).is_err());
    }

    #[test]
    fn a_process_with_two_start_times_is_a_mistake() {
        let mut totals = Totals::default();
        let mut renamed = interval(20.0, false);
        renamed["tasks"][0]["start_ns"] = json!(2);
        for next in [interval(90.0, false), interval(20.0, false), renamed] {
            totals.add(next).unwrap();
        }
        assert!(totals.process(7).is_err());
    }

    #[test]
    fn a_process_some_of_whose_threads_ended_has_not() {
        let with_threads = |tid: u32| {
            let mut interval = interval(20.0, true);
            interval["tasks"][0]["tid"] = json!(tid);
            interval
        };
        let mut totals = Totals::default();
        for next in [interval(90.0, false), with_threads(8), with_threads(0)] {
            totals.add(next).unwrap();
        }
        assert!(!totals.has_ended(7));
        totals.add(with_threads(7)).unwrap();
        assert!(totals.has_ended(7));
        let mut processes = Totals::default();
        for next in [interval(90.0, false), interval(20.0, true)] {
            processes.add(next).unwrap();
        }
        assert!(processes.has_ended(7) && !processes.has_ended(8));
    }
}
