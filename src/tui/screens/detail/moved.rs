//! Pages that were moved for a process, and the reasons, in one line.

use crate::metric::format::short;
use crate::metric::page_migrations::OTHER;
use crate::metric::pages::PAGES_MIGRATED;
use crate::model::counters::Counter;
use crate::snapshot::{Snapshot, Task};
use crate::text::quantity::count;

/// The line; `None` where pages have nowhere to go.
pub(super) fn words(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(why) = snapshot.host_missing(PAGES_MIGRATED.id) {
        return Some(format!("n/a: {}", crate::text::clean_str(&why.to_string())));
    }
    let now = PAGES_MIGRATED.read(task, snapshot).ok();
    let now = now.map(|rate| format!(" ({}/s)", short(&rate, PAGES_MIGRATED.unit)));
    let total = &task.total;
    let mut words = format!("{} pages{}", written(total[Counter::MigratedPages]), now.unwrap_or_default());
    // Recordings may be older than the reasons.
    if snapshot.host_missing(OTHER.id).is_none() && total[Counter::MigratedPages] > 0 {
        let known = total[Counter::BalancedPages].saturating_add(total[Counter::AskedPages]);
        words += &format!(
            ": balancing {}, asked {}, other {}",
            written(total[Counter::BalancedPages]),
            written(total[Counter::AskedPages]),
            written(total[Counter::MigratedPages].saturating_sub(known)),
        );
    }
    if total[Counter::MigrateFailedPages] > 0 {
        words += &format!("; failed {}", written(total[Counter::MigrateFailedPages]));
    }
    Some(words)
}

fn written(pages: u64) -> String {
    count(pages as f64)
}
