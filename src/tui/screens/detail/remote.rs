//! The share of remote accesses of a process, and how far it is known, in one line.

use crate::metric::placement::{REMOTE_HIGH_PCT, REMOTE_LOW_PCT, REMOTE_PCT};
use crate::metric::{Metric, Value, Witness};
use crate::snapshot::{Snapshot, Task};
use crate::text::quantity::percent;

/// The line; `None` where there is one node.
pub(super) fn words(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    let end = |metric: &Metric<Task>| {
        let end = metric.read(task, snapshot).ok().and_then(|value| value.number());
        end.map_or("?".into(), |pct| format!("{pct:.0}"))
    };
    Some(match REMOTE_PCT.read(task, snapshot) {
        Ok(Value::Share { pct, witness, .. }) => match witness {
            Witness::Counted => format!("{}% of its accesses, counted by the CPU", percent(pct)),
            Witness::Estimate => {
                format!(
                    "~{}% of its accesses, {} to {}%",
                    percent(pct),
                    end(&REMOTE_LOW_PCT),
                    end(&REMOTE_HIGH_PCT)
                )
            }
            Witness::Memory => format!(
                "{pct:.0}% of its memory is on other nodes; of its accesses {} to {}%",
                end(&REMOTE_LOW_PCT),
                end(&REMOTE_HIGH_PCT)
            ),
            Witness::Hints => format!("{pct:.0}% of its hinting faults; of its accesses not known"),
        },
        Ok(_) => return None,
        Err(why) => format!("n/a: {}", crate::text::clean_str(&why.to_string())),
    })
}
