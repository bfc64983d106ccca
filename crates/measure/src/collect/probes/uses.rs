//! Counts by sender in a hash table of the kernel, which drops senders that rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use libbpf_rs::{MapCore, MapFlags};

use crate::model::inputs::shared_with;
use crate::model::traffic::{Routes, Used};

/// Entries of a sender that was idle for so long are dropped, ns: its process has ended or rests.
const RESTS_NS: u64 = 60_000_000_000;

/// Above this part of the kernel's table, senders that were idle for an interval are dropped.
const CROWDED: usize = 8;

/// Entries that one call reads at least. It reads all: `lookup_batch` of libbpf-rs 0.27 takes a short batch for the last
/// one, and the kernel cuts a batch before a bucket of the hash table that does not fit.
const BATCH: usize = 4096;

/// The key of an entry.
pub(super) trait Sender: Pod + Ord {
    /// The value of an entry.
    type Sent: Pod + PartialEq + Default;
    /// Length of the kernel's table.
    const MOST: usize;

    /// Id and start of the process; what the probe counts for others has an id that no process has.
    fn sender(&self) -> (u32, u64);
}

/// The entries of the kernel's table, each with a label that it got when it was first seen.
pub(super) struct Uses<K: Sender, L, U> {
    entries: BTreeMap<K, Entry<K::Sent, L, U>>,
}

struct Entry<S, L, U> {
    label: L,
    /// The value in the kernel's table.
    sent: S,
    /// Sent until the kernel's entry was dropped.
    carried: U,
    changed_ns: u64,
    /// It is in the kernel's table.
    is_listed: bool,
}

impl<K: Sender, L, U> Default for Uses<K, L, U> {
    fn default() -> Uses<K, L, U> {
        Uses { entries: BTreeMap::new() }
    }
}

impl<K: Sender, L, U: Used + PartialEq + From<K::Sent>> Uses<K, L, U> {
    /// Reads all entries, and drops those of idle senders. `what` names them in errors.
    pub(super) fn read(
        &mut self,
        map: &impl MapCore,
        now_ns: u64,
        what: &'static str,
        label: impl Fn(&K) -> L,
    ) -> Result<()> {
        // After a burst that is larger, the rest is read with the next sample.
        let batch = (2 * self.entries.len()).clamp(BATCH, K::MOST) as u32;
        let all = map.lookup_batch(batch, MapFlags::ANY, MapFlags::ANY).context(what)?;
        let mut listed = 0;
        for (key, sent) in all {
            self.set(pod_read_unaligned(&key), pod_read_unaligned(&sent), now_ns, &label);
            listed += 1;
        }
        let rests_ns = if listed > K::MOST / CROWDED { 1 } else { RESTS_NS };
        self.drop_idle(now_ns.saturating_sub(rests_ns), now_ns, |key, sent| {
            let last = map.lookup_and_delete(bytes_of(key)).ok()?;
            Some(last.map_or(sent, |last| pod_read_unaligned(&last)))
        });
        Ok(())
    }

    fn set(&mut self, key: K, sent: K::Sent, now_ns: u64, label: impl Fn(&K) -> L) {
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            label: label(&key),
            sent: K::Sent::default(),
            carried: U::default(),
            changed_ns: now_ns,
            is_listed: false,
        });
        if entry.sent != sent || !entry.is_listed {
            entry.changed_ns = now_ns;
        }
        (entry.sent, entry.is_listed) = (sent, true);
    }

    /// Drops entries of senders that have sent nothing after `since_ns`: from the kernel's table, and when that is
    /// done, here. All of a sender's go at once: those with one route are one sum, which must not fall.
    /// `delete` deletes an entry, and returns its last value.
    fn drop_idle(&mut self, since_ns: u64, now_ns: u64, delete: impl Fn(&K, K::Sent) -> Option<K::Sent>) {
        let (mut busy, mut listed) = (BTreeSet::new(), BTreeSet::new());
        for (key, entry) in &self.entries {
            if entry.changed_ns > since_ns {
                busy.insert(key.sender());
            }
            if entry.is_listed {
                listed.insert(key.sender());
            }
        }
        self.entries.retain(|key, entry| {
            if busy.contains(&key.sender()) {
                return true;
            }
            if !entry.is_listed {
                return listed.contains(&key.sender());
            }
            if let Some(last) = delete(key, entry.sent) {
                // It was used again just now.
                if last != entry.sent {
                    entry.changed_ns = now_ns;
                }
                entry.carried.add(&last.into());
                (entry.sent, entry.is_listed) = (K::Sent::default(), false);
            }
            true
        });
    }

    /// Counts by sender; a sender that sent nothing new shares its entry with the sample before.
    pub(super) fn by_sender<S: Ord, R: Ord>(
        &self,
        before: &BTreeMap<S, Arc<Routes<R, U>>>,
        route: impl Fn(&K, &L) -> (S, R),
    ) -> BTreeMap<S, Arc<Routes<R, U>>> {
        let mut senders: BTreeMap<S, Routes<R, U>> = BTreeMap::new();
        for (key, entry) in &self.entries {
            let (sender, route) = route(key, &entry.label);
            let sum = senders.entry(sender).or_default().entry(route).or_default();
            sum.add(&entry.sent.into());
            sum.add(&entry.carried);
        }
        shared_with(before, senders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::disks::DiskUse;
    use crate::model::wire::{DiskKey, DiskSent};

    type Table = Uses<DiskKey, (), DiskUse>;

    fn key(pid: u32, disk: u32) -> DiskKey {
        DiskKey { id: 1, pid, disk, node: 0, pad: 0 }
    }

    fn entry(bytes: u64, changed_ns: u64) -> Entry<DiskSent, (), DiskUse> {
        let (label, carried) = ((), DiskUse::default());
        Entry { label, sent: DiskSent { bytes, requests: 1 }, carried, changed_ns, is_listed: true }
    }

    fn holding<const N: usize>(entries: [(DiskKey, Entry<DiskSent, (), DiskUse>); N]) -> Table {
        Uses { entries: entries.into() }
    }

    /// Disks without an address are one route.
    fn by_pid(
        table: &Table,
        before: &BTreeMap<u32, Arc<Routes<(), DiskUse>>>,
    ) -> BTreeMap<u32, Arc<Routes<(), DiskUse>>> {
        table.by_sender(before, |key, ()| (key.pid, ()))
    }

    fn sum(table: &Table, pid: u32) -> u64 {
        by_pid(table, &BTreeMap::new()).get(&pid).map_or(0, |routes| routes[&()].bytes)
    }

    #[test]
    fn the_sum_of_a_sender_does_not_fall_while_it_is_busy() {
        let mut table = holding([(key(7, 1), entry(100, 10)), (key(7, 2), entry(5, 50))]);
        table.drop_idle(40, 60, |_, _| panic!("it is busy"));
        assert_eq!(sum(&table, 7), 105);
    }

    #[test]
    fn the_sum_of_a_sender_that_returned_does_not_fall_before_all_of_it_is_dropped() {
        let returned = Entry { is_listed: false, ..entry(100, 10) };
        let mut table = holding([(key(7, 1), returned), (key(7, 2), entry(5, 20))]);
        table.drop_idle(40, 60, |_, sent| Some(sent));
        assert_eq!(sum(&table, 7), 105);
        table.drop_idle(50, 70, |_, _| panic!("all are dropped"));
        assert!(table.entries.is_empty());
    }

    #[test]
    fn a_sender_that_rests_shares_its_traffic_with_the_sample_before() {
        let mut table = holding([(key(7, 1), entry(100, 10)), (key(8, 1), entry(5, 10))]);
        let before = by_pid(&table, &BTreeMap::new());
        table.set(key(8, 1), DiskSent { bytes: 6, requests: 1 }, 20, |_| ());
        let now = by_pid(&table, &before);
        assert!(Arc::ptr_eq(&before[&7], &now[&7]));
        assert!(!Arc::ptr_eq(&before[&8], &now[&8]));
    }

    #[test]
    fn traffic_while_an_entry_is_dropped_is_carried() {
        let mut table =
            holding([(key(7, 1), entry(100, 10)), (key(7, 2), entry(5, 10)), (key(8, 1), entry(3, 10))]);
        let now = |key: &DiskKey| DiskSent { bytes: [0, 100, 9][key.disk as usize], requests: 1 };
        table.drop_idle(40, 60, |key, _| Some(now(key)));
        assert_eq!(sum(&table, 7), 109);
        // The second disk was used meanwhile: all of the sender stays.
        table.drop_idle(50, 70, |_, _| panic!("all are dropped"));
        assert_eq!(sum(&table, 7), 109);
        table.drop_idle(60, 80, |_, _| panic!("all are dropped"));
        assert!(table.entries.is_empty());
    }
}
