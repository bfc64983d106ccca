//! Rows of tasks that differ between two samples, and maps by ids of the kernel: a hash of a few instructions, because an
//! interval looks up each task. Most tasks rest, and a row that did not change is the same allocation.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use crate::model::sample::{Sample, TaskRaw};

/// Calls `each` with the rows of both samples that have the same serial. Both are sorted by it.
pub(super) fn join<'a>(
    previous: &'a [Arc<TaskRaw>],
    current: &'a [Arc<TaskRaw>],
    mut each: impl FnMut(Option<&'a Arc<TaskRaw>>, Option<&'a Arc<TaskRaw>>),
) {
    let (mut old, mut new) = (previous.iter().peekable(), current.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return,
            // Most are unchanged: the pointers tell it without a look at the tasks.
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) || a.serial == b.serial => each(old.next(), new.next()),
            (Some(a), Some(b)) if a.serial < b.serial => each(old.next(), None),
            (Some(_), None) => each(old.next(), None),
            (_, Some(_)) => each(None, new.next()),
        }
    }
}

/// Rows of two samples that are not the same in both, each kind in the order of serials.
#[derive(Default)]
pub(super) struct Changes<'a> {
    /// The row of the earlier sample, and that of the later one.
    pub(super) changed: Vec<(&'a Arc<TaskRaw>, &'a Arc<TaskRaw>)>,
    /// Rows of the later sample only.
    pub(super) came: Vec<&'a Arc<TaskRaw>>,
    /// Rows of the earlier sample only.
    pub(super) went: Vec<&'a Arc<TaskRaw>>,
}

impl<'a> Changes<'a> {
    pub(super) fn between(previous: &'a Sample, current: &'a Sample) -> Changes<'a> {
        let mut changes = Changes::default();
        join(&previous.tasks, &current.tasks, |old, new| match (old, new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
            (Some(old), Some(new)) => changes.changed.push((old, new)),
            (None, Some(new)) => changes.came.push(new),
            (Some(old), None) => changes.went.push(old),
            (None, None) => {}
        });
        changes
    }
}

/// A map by ids.
pub(super) type IdMap<K, V> = HashMap<K, V, IdHash>;

/// An odd number with as many ones as zeros: 2^64 by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes hashers that begin with a random number: a recording may have been made to have ids that meet.
#[derive(Clone, Debug)]
pub struct IdHash(u64);

impl Default for IdHash {
    fn default() -> IdHash {
        IdHash(RandomState::new().hash_one(FACTOR))
    }
}

impl BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher { seed: self.0, hash: self.0 }
    }
}

/// Mixes each number into the hash by a product of 128 bits, using both halves.
#[derive(Clone, Debug)]
pub struct IdHasher {
    seed: u64,
    hash: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.hash ^ number) * u128::from(FACTOR ^ self.seed.rotate_left(32) | 1);
        self.hash = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_a_row_have_hashes_that_differ_in_the_bits_that_a_map_uses() {
        let hash = IdHash::default();
        let mut low = vec![0u32; 256];
        let mut high = vec![0u32; 128];
        for pid in 0..10_000u32 {
            let hashed = hash.hash_one((pid, u64::from(pid) * 4_000_000));
            low[hashed as usize % 256] += 1;
            high[(hashed >> 57) as usize] += 1;
        }
        // 39 and 78 are expected; a chance of less than one in a billion for each to be three times as many.
        assert!(low.iter().all(|count| *count < 117), "{low:?}");
        assert!(high.iter().all(|count| *count < 234), "{high:?}");
    }
}
