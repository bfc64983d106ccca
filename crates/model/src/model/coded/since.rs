//! Maps as differences from a keyframe: removed keys, then new or changed entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::room::ENTRY;
use super::varint::{Malformed, difference, undo_difference};
use super::{Coded, In, MAX_NAMES, Out};
use crate::model::units::NodeId;

/// A key or a value of a map that is copied from sample to sample.
pub trait Copied: PartialEq {
    /// Bytes that a copy takes beside itself.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// Whether it is as it was.
    fn is_as(&self, before: &Self) -> bool {
        self == before
    }
}

impl Copied for u32 {}
impl Copied for u64 {}
impl Copied for NodeId {}
impl Copied for (u32, u64) {}
impl<T: PartialEq + ?Sized> Copied for Arc<T> {
    fn is_as(&self, before: &Arc<T>) -> bool {
        // Most are shared: the pointers tell it without a look at them.
        Arc::ptr_eq(self, before) || self == before
    }
}
impl Copied for String {
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

/// A key. Ids are written as differences, since they ascend.
pub trait Key: Coded + Ord + Clone + Copied {
    /// Writes it after the key before it.
    fn put_after<'v>(&'v self, _last: &mut u64, out: &mut Out<'v>) {
        self.put(out);
    }

    /// Reads it after the key before it.
    ///
    /// # Errors
    /// As [`Coded::get`].
    fn get_after(_last: &mut u64, input: &mut In<'_, '_>) -> Result<Self, Malformed> {
        Self::get(input)
    }
}

macro_rules! ids {
    ($($id:ty),*) => {
        $(impl Key for $id {
            fn put_after<'v>(&'v self, last: &mut u64, out: &mut Out<'v>) {
                out.number(difference((*self).into(), *last));
                *last = (*self).into();
            }

            fn get_after(last: &mut u64, input: &mut In<'_, '_>) -> Result<$id, Malformed> {
                *last = undo_difference(input.number()?, *last);
                <$id>::try_from(*last).map_err(|_| Malformed("an id is out of range"))
            }
        })*
    };
}

ids!(u32, u64);
impl Key for NodeId {}
impl Key for (u32, u64) {}
impl Key for String {}

/// The memory that a copy of a map takes.
pub fn copied<K: Copied, V: Copied>(base: &BTreeMap<K, V>) -> usize {
    base.iter().map(|(key, value)| ENTRY + key.heap_bytes() + value.heap_bytes()).sum()
}

/// Writes the differences from `base`; `put` writes a value. A reader takes `most` entries. Returns the
/// number of differences.
pub fn put_since<'v, K: Key, V: Copied>(
    out: &mut Out<'v>,
    base: Option<&'v BTreeMap<K, V>>,
    now: &'v BTreeMap<K, V>,
    most: (usize, &'static str),
    mut put: impl FnMut(&mut Out<'v>, &'v V),
) -> usize {
    out.take(1, base.map_or(0, copied));
    let gone: Vec<&K> =
        base.iter().flat_map(|base| base.keys()).filter(|key| !now.contains_key(*key)).collect();
    let is_new =
        |key: &K, value: &V| !base.and_then(|base| base.get(key)).is_some_and(|old| value.is_as(old));
    let new: Vec<(&K, &V)> = now.iter().filter(|(key, value)| is_new(key, value)).collect();
    let differences = gone.len() + new.len();
    out.count(gone.len(), most.0, most.1);
    gone.into_iter().for_each(|key| key.put(out));
    out.count(new.len(), most.0, most.1);
    let mut last = 0;
    for (key, value) in new {
        key.put_after(&mut last, out);
        put(out, value);
    }
    differences
}

/// A map that is `base`, with the changes that [`put_since`] wrote.
///
/// # Errors
/// The bytes are something else, or memory runs out.
pub fn get_since<'b, 'r, K: Key, V: Copied + Clone>(
    input: &mut In<'b, 'r>,
    base: Option<&BTreeMap<K, V>>,
    most: usize,
    get: impl FnMut(&mut In<'b, 'r>) -> Result<V, Malformed>,
) -> Result<BTreeMap<K, V>, Malformed> {
    input.room.take(1, base.map_or(0, copied))?;
    let mut map = base.cloned().unwrap_or_default();
    change(input, &mut map, most, get)?;
    Ok(map)
}

/// Applies the changes that [`put_since`] wrote to a copy of the base.
///
/// # Errors
/// As [`get_since`].
pub fn change<'b, 'r, K: Key, V>(
    input: &mut In<'b, 'r>,
    map: &mut BTreeMap<K, V>,
    most: usize,
    mut get: impl FnMut(&mut In<'b, 'r>) -> Result<V, Malformed>,
) -> Result<(), Malformed> {
    for _ in 0..input.count(most)? {
        map.remove(&K::get(input)?);
    }
    let mut last = 0;
    for _ in 0..input.count(most)? {
        let key = K::get_after(&mut last, input)?;
        map.insert(key, get(input)?);
    }
    // A hostile file may add some with every delta, each on the same keyframe: never more than a sample may have.
    if map.len() > most {
        return Err(Malformed("a map has more entries than a sample can have"));
    }
    Ok(())
}

/// Maximum entries of a map in a separate section.
const MOST: (usize, &str) = (MAX_NAMES, "names");

/// Writes the differences from `base`, or nothing without any.
pub fn put_changed<'v, K: Key, V: Coded + Copied>(
    out: &mut Out<'v>,
    base: Option<&'v Arc<BTreeMap<K, V>>>,
    now: &'v Arc<BTreeMap<K, V>>,
) {
    if base.is_some_and(|base| Arc::ptr_eq(base, now)) {
        return;
    }
    let begin = out.bytes.len();
    if put_since(out, base.map(|base| &**base), now, MOST, |out, value| value.put(out)) == 0 {
        out.bytes.truncate(begin);
    }
}

/// A map that [`put_changed`] wrote with the same base.
///
/// # Errors
/// As [`get_since`].
pub fn get_changed<K: Key, V: Coded + Copied + Clone>(
    input: &mut In<'_, '_>,
    base: Option<&Arc<BTreeMap<K, V>>>,
) -> Result<Arc<BTreeMap<K, V>>, Malformed> {
    if input.is_empty() {
        return Ok(base.cloned().unwrap_or_default());
    }
    get_since(input, base.map(|base| &**base), MOST.0, V::get).map(Arc::new)
}
