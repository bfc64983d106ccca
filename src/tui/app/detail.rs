//! One process looked at closely: its threads, what it did lately, and what /proc says about it.

use std::sync::Arc;

use super::maps::Maps;
use crate::model::process::{Details, ProcessId};
use crate::snapshot::Task;
use crate::tui::action::Motion;
use crate::tui::history::process::ProcessSnapshot;

pub struct Detail {
    /// Process id and start of its leader.
    pub process: ProcessId,
    /// The interval shown; `None` until it is derived.
    pub seen: Option<Arc<ProcessSnapshot>>,
    /// First thread in view.
    pub offset: usize,
    /// The last details from /proc, or why there are none.
    pub details: Option<Result<Details, String>>,
    /// Its mappings, while they are shown.
    pub maps: Option<Maps>,
}

impl Detail {
    pub fn new(process: ProcessId) -> Detail {
        Detail { process, seen: None, offset: 0, details: None, maps: None }
    }

    /// Its row in the interval shown.
    pub fn task(&self) -> Option<&Task> {
        self.seen.as_ref()?.task.as_ref()
    }

    fn threads(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.order.len())
    }

    /// Moves the view over the threads, or the mappings.
    pub fn go(&mut self, motion: Motion, height: usize) {
        let threads = self.threads();
        match &mut self.maps {
            Some(maps) => maps.go(motion, height),
            None => self.offset = motion.of_view(self.offset, threads, height),
        }
    }

    /// Keeps the view inside the list.
    pub fn settle(&mut self, height: usize) {
        self.offset = self.offset.min(self.threads().saturating_sub(height.max(1)));
    }
}
