//! How many pages were moved for a process, and what for, in one line.

use crate::metric::format::{count, short};
use crate::metric::moved::OTHER;
use crate::metric::pages::PAGES_MIGRATED;
use crate::snapshot::{Snapshot, Task};

/// The line; `None` where pages have nowhere to go.
pub fn words(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(why) = snapshot.host_missing(PAGES_MIGRATED.id) {
        return Some(format!("n/a: {}", crate::text::clean_str(&why.to_string())));
    }
    let now = PAGES_MIGRATED.read(task, snapshot).ok();
    let now = now.map(|rate| format!(" ({}/s)", short(&rate, PAGES_MIGRATED.unit)));
    let total = &task.total;
    let mut words = format!("{} pages{}", written(total.migrated_pages), now.unwrap_or_default());
    // Recordings may be older than the reasons.
    if snapshot.host_missing(OTHER.id).is_none() && total.migrated_pages > 0 {
        let known = total.balanced_pages.saturating_add(total.asked_pages);
        words += &format!(
            ": balancing {}, asked {}, other {}",
            written(total.balanced_pages),
            written(total.asked_pages),
            written(total.migrated_pages.saturating_sub(known)),
        );
    }
    if total.migrate_failed_pages > 0 {
        words += &format!("; failed {}", written(total.migrate_failed_pages));
    }
    Some(words)
}

fn written(pages: u64) -> String {
    count(pages as f64)
}
