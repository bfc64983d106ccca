//! The tree of cgroups for the sampling thread. Another thread reads it, and is given only a moment.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::cgroup_walk::{Budget, Walk, find_ids, walk};
use crate::host::cgroups::Hierarchy;

/// The stack of the thread: the usual one would count 2 MiB against a limit on data.
const STACK_BYTES: usize = 512 << 10;

/// Cgroups that are looked up by id, in one reading.
const IDS_MAX: usize = 4096;

/// A reading of the tree.
pub(super) struct Reading {
    pub walk: Walk,
    /// The kernel's count of changes before it.
    pub changes: u32,
    pub took: Duration,
}

struct Wanted {
    changes: u32,
    ids: Vec<u64>,
}

/// Reads the tree of one hierarchy. Dropped, it ends the thread.
pub(super) struct TreeReader {
    mount: Option<PathBuf>,
    thread: Option<(Sender<Wanted>, Receiver<Reading>)>,
    is_reading: bool,
}

impl TreeReader {
    pub(super) fn new(hierarchy: &Hierarchy) -> TreeReader {
        TreeReader { mount: hierarchy.mount.clone(), thread: None, is_reading: false }
    }

    /// Whether a reading is on the way.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Begins a reading, unless one is running. `ids`: cgroups of tasks without a name.
    pub(super) fn begin(&mut self, changes: u32, ids: &[u64]) {
        if self.is_reading {
            return;
        }
        if self.thread.is_none() {
            let (wanted, questions) = channel::<Wanted>();
            let (sender, readings) = channel();
            let mount = self.mount.clone();
            let work = move || {
                let mut by_id = BTreeSet::new();
                for wanted in questions {
                    if sender.send(read(mount.as_ref(), &wanted, &mut by_id)).is_err() {
                        return;
                    }
                }
            };
            let started = thread::Builder::new().name("cgroups".into()).stack_size(STACK_BYTES).spawn(work);
            self.thread = started.is_ok().then_some((wanted, readings));
        }
        let ids = ids.iter().copied().take(IDS_MAX).collect();
        let thread = self.thread.as_ref();
        self.is_reading = thread.is_some_and(|(wanted, _)| wanted.send(Wanted { changes, ids }).is_ok());
    }

    /// The reading that is on the way, if it comes within `patience`.
    pub(super) fn take(&mut self, patience: Duration) -> Option<Reading> {
        let (_, readings) = self.thread.as_ref().filter(|_| self.is_reading)?;
        match readings.recv_timeout(patience) {
            Ok(reading) => {
                self.is_reading = false;
                Some(reading)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                (self.thread, self.is_reading) = (None, false);
                None
            }
        }
    }
}

/// `by_id`: cgroups that were left out before and found by their ids.
fn read(mount: Option<&PathBuf>, wanted: &Wanted, by_id: &mut BTreeSet<u64>) -> Reading {
    let began = Instant::now();
    let mut found = Walk::default();
    if let Some(mount) = mount {
        found = walk(mount, Budget::default());
        by_id.extend(&wanted.ids);
        by_id.retain(|id| !found.paths.contains_key(id));
        if !by_id.is_empty() && !found.notes.is_empty() {
            let unknown: Vec<u64> = by_id.iter().copied().collect();
            find_ids(mount, &unknown, &mut found);
        }
        by_id.retain(|id| found.paths.contains_key(id));
        while by_id.len() > IDS_MAX {
            by_id.pop_first();
        }
    }
    Reading { walk: found, changes: wanted.changes, took: began.elapsed() }
}
