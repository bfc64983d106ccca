//! Findings in the tool's JSON, interval by interval.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cases::Stop;
use crate::tool::Batch;

/// A batch run whose findings are looked at.
pub struct Watch {
    batch: Batch,
    last: Value,
    seen: Vec<Value>,
}

impl Watch {
    pub fn start() -> Result<Watch, Stop> {
        Watch::every("1")
    }

    /// With these further arguments.
    pub fn of(arguments: &[&str]) -> Result<Watch, Stop> {
        let batch = Batch::start(&[&["-d", "1"], arguments].concat())?;
        Ok(Watch { batch, last: Value::Null, seen: Vec::new() })
    }

    /// With intervals of `seconds` seconds: emulated machines are slow, and longer intervals take less of
    /// their time.
    pub fn every(seconds: &str) -> Result<Watch, Stop> {
        let batch = Batch::start(&["-d", seconds])?;
        Ok(Watch { batch, last: Value::Null, seen: Vec::new() })
    }

    /// The first interval for which this is true; `None` after `limit`.
    pub fn until(&mut self, limit: Duration, is: impl Fn(&Value) -> bool) -> Result<Option<Value>, Stop> {
        Ok(self.until_stays(limit, 1, is)?.map(|_| self.last.clone()))
    }

    /// Whether this holds for this many intervals in a row that begin within `limit`, and the time at which
    /// they began.
    pub fn until_stays(
        &mut self,
        limit: Duration,
        intervals: usize,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Option<Instant>, Stop> {
        let began = Instant::now();
        let mut first = None;
        let mut row = 0;
        loop {
            self.next()?;
            (first, row) = match is(&self.last) {
                true => (first.or_else(|| Some(Instant::now())), row + 1),
                false => (None, 0),
            };
            if row >= intervals {
                return Ok(first);
            }
            if row == 0 && began.elapsed() > limit {
                return Ok(None);
            }
        }
    }

    /// Looks at all intervals of this time.
    pub fn follow(&mut self, time: Duration) -> Result<(), Stop> {
        self.until(time, |_| false).map(|_| ())
    }

    /// The next interval.
    pub fn next_interval(&mut self) -> Result<&Value, Stop> {
        self.next()?;
        Ok(&self.last)
    }

    fn next(&mut self) -> Result<(), Stop> {
        self.last = self.batch.next()?;
        for finding in findings(&self.last) {
            let same = |known: &Value| {
                ["key", "severity", "because_of"].iter().all(|part| known[part] == finding[part])
            };
            if !self.seen.iter().any(same) {
                self.seen.push(finding.clone());
            }
        }
        Ok(())
    }

    /// Findings of all intervals until now, each once with its first text, and again where it got another severity or cause.
    pub fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// The last interval.
    pub fn last(&self) -> &Value {
        &self.last
    }

    /// Reasons why a rule may have seen nothing in the last interval.
    pub fn why_not(&self, id: &str) -> String {
        let blind = self.blind().find(|blind| blind["id"] == id).map(Value::to_string);
        let others: Vec<String> = findings(&self.last).map(label).collect();
        format!("blind: {}; findings: {}", blind.unwrap_or_default(), others.join("; "))
    }

    /// Rules that could not look in the last interval.
    pub fn blind(&self) -> impl Iterator<Item = &Value> {
        self.last["findings_blind"].as_array().into_iter().flatten()
    }

    /// The row of a process in the last interval.
    pub fn process(&self, pid: i32) -> Value {
        process(&self.last, pid)
    }

    pub fn stop(self) -> Result<(), Stop> {
        self.batch.stop()
    }
}

/// The row of a process in an interval.
pub fn process(interval: &Value, pid: i32) -> Value {
    row(interval, &format!("{pid}@")).cloned().unwrap_or_default()
}

/// The row of the container at a path in an interval.
pub fn container<'a>(interval: &'a Value, path: &str) -> Option<&'a Value> {
    interval["containers"].as_array().into_iter().flatten().find(|row| row["cgroup"] == path)
}

/// Findings of an interval.
pub fn findings(interval: &Value) -> impl Iterator<Item = &Value> {
    interval["findings"].as_array().into_iter().flatten()
}

/// The finding of a rule in an interval.
pub fn finding<'a>(interval: &'a Value, id: &str) -> Option<&'a Value> {
    findings(interval).find(|finding| finding["id"] == id)
}

/// Whether it is a warning or critical.
pub fn is_loud(finding: &Value) -> bool {
    finding["severity"] != "info"
}

/// Its severity and its sentence.
pub fn label(finding: &Value) -> String {
    let text = |key: &str| finding[key].as_str().unwrap_or_default();
    format!("{} {}: {}", text("severity"), text("id"), text("sentence"))
}

/// Whether the check of a finding is true in an interval; `None` where the interval does not say.
pub fn holds(interval: &Value, check: &Value) -> Option<bool> {
    let row = row(interval, check["of"].as_str()?)?;
    let value = row[check["metric"].as_str()?].as_f64()?;
    let to = check["to"].as_f64()?;
    Some(if check["below"].as_bool()? { value <= to } else { value >= to })
}

/// The row of a subject: `host`, `PID@START` (or `PID@`), `node N`, `socket N`, `cgroup ID`.
pub fn row<'a>(interval: &'a Value, of: &str) -> Option<&'a Value> {
    let rows = |key: &str| interval[key].as_array().into_iter().flatten();
    let is = |row: &Value, key: &str, text: &str| row[key].as_u64().is_some_and(|id| id.to_string() == text);
    if of == "host" {
        return interval.get("host");
    }
    if let Some(node) = of.strip_prefix("node ") {
        return rows("nodes").find(|row| is(row, "node", node));
    }
    if let Some(socket) = of.strip_prefix("socket ") {
        return rows("sockets").find(|row| is(row, "socket", socket));
    }
    if let Some(cgroup) = of.strip_prefix("cgroup ") {
        return rows("containers").find(|row| is(row, "cgroup_id", cgroup));
    }
    let (pid, start) = of.split_once('@')?;
    rows("tasks").find(|row| is(row, "pid", pid) && (start.is_empty() || is(row, "start_ns", start)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_is_of_the_row_that_it_names() {
        let interval = json!({
            "tasks": [{"pid": 7, "start_ns": 1, "remote_pct": 90.0}, {"pid": 7, "start_ns": 2, "remote_pct": 3.0}],
            "nodes": [{"node": 0, "node_reclaim_per_s": 0.0}],
            "host": {"swap_out_pages_per_s": 9.0},
        });
        let check = |of: &str, metric: &str| json!({"of": of, "metric": metric, "to": 5.0, "below": true});
        assert_eq!(holds(&interval, &check("7@1", "remote_pct")), Some(false));
        assert_eq!(holds(&interval, &check("7@2", "remote_pct")), Some(true));
        assert_eq!(holds(&interval, &check("node 0", "node_reclaim_per_s")), Some(true));
        assert_eq!(holds(&interval, &check("host", "swap_out_pages_per_s")), Some(false));
        assert_eq!(holds(&interval, &check("node 1", "node_reclaim_per_s")), None);
        assert_eq!(holds(&interval, &check("7@3", "remote_pct")), None);
    }
}
