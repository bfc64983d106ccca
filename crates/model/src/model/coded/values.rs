//! Forms of numbers, texts, lists, maps and reasons as bytes; and maps as differences from a keyframe: removed keys, then new
//! or changed entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::varint::{Malformed, difference, undo_difference};
use super::{Coded, ENTRY, In, MAX_NAMES, MAX_NODES, MAX_TEXT, Out};
use crate::model::sample::Missing;
use crate::model::units::NodeId;
use crate::text::is_clean;

macro_rules! numbers {
    ($($number:ty),*) => {
        $(/// Lists of bare numbers have one for each node. An absent one is 0, others are one more.
        impl Coded for $number {
            const MOST: (usize, &'static str) = (MAX_NODES, "nodes");

            fn put<'v>(&'v self, out: &mut Out<'v>) {
                out.number((*self).into());
            }

            fn get(input: &mut In<'_, '_>) -> Result<$number, Malformed> {
                <$number>::try_from(input.number()?).map_err(|_| Malformed("a number is out of range"))
            }

            fn put_option<'v>(this: Option<&'v $number>, out: &mut Out<'v>) {
                out.number(this.map_or(0, |number| u64::from(*number).wrapping_add(1)));
            }

            fn get_option(input: &mut In<'_, '_>) -> Result<Option<$number>, Malformed> {
                let number = input.number()?.checked_sub(1).map(<$number>::try_from).transpose();
                number.map_err(|_| Malformed("a number is out of range"))
            }
        })*
    };
}

numbers!(u64, u32, u16, u8);

impl Coded for i64 {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number(*self as u64);
    }

    fn get(input: &mut In<'_, '_>) -> Result<i64, Malformed> {
        Ok(input.number()? as i64)
    }
}

impl Coded for bool {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number((*self).into());
    }

    fn get(input: &mut In<'_, '_>) -> Result<bool, Malformed> {
        Ok(input.count(1)? == 1)
    }
}

impl Coded for NodeId {
    const MOST: (usize, &'static str) = (MAX_NODES, "nodes");

    fn put<'v>(&'v self, out: &mut Out<'v>) {
        self.0.put(out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<NodeId, Malformed> {
        u32::get(input).map(NodeId)
    }

    fn put_option<'v>(this: Option<&'v NodeId>, out: &mut Out<'v>) {
        u32::put_option(this.map(|node| &node.0), out);
    }

    fn get_option(input: &mut In<'_, '_>) -> Result<Option<NodeId>, Malformed> {
        Ok(input.count(MAX_NODES)?.checked_sub(1).map(|node| NodeId(node as u32)))
    }
}

/// Text without control characters.
impl Coded for String {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.text(self);
    }

    fn get(input: &mut In<'_, '_>) -> Result<String, Malformed> {
        input.clean().map(str::to_string)
    }
}

/// The same, shared.
impl Coded for Arc<str> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.text(self);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Arc<str>, Malformed> {
        input.clean().map(Arc::from)
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        T::put_option(self.as_ref(), out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Option<T>, Malformed> {
        T::get_option(input)
    }
}

impl<T: Coded> Coded for Arc<T> {
    const MOST: (usize, &'static str) = T::MOST;

    fn put<'v>(&'v self, out: &mut Out<'v>) {
        T::put(self, out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Arc<T>, Malformed> {
        T::get(input).map(Arc::new)
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.count(self.len(), T::MOST.0, T::MOST.1);
        self.iter().for_each(|entry| entry.put(out));
    }

    fn get(input: &mut In<'_, '_>) -> Result<Vec<T>, Malformed> {
        input.list(T::MOST.0, T::get)
    }
}

impl<K: Coded + Ord, V: Coded> Coded for BTreeMap<K, V> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.map(self, K::MOST, |out, key, value| {
            key.put(out);
            value.put(out);
        });
    }

    fn get(input: &mut In<'_, '_>) -> Result<BTreeMap<K, V>, Malformed> {
        input.map(K::MOST.0, <(K, V)>::get)
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<(A, B), Malformed> {
        Ok((A::get(input)?, B::get(input)?))
    }
}

impl<T: Coded + Copy + Default, const N: usize> Coded for [T; N] {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        self.iter().for_each(|entry| entry.put(out));
    }

    fn get(input: &mut In<'_, '_>) -> Result<[T; N], Malformed> {
        let mut all = [T::default(); N];
        for entry in &mut all {
            *entry = T::get(input)?;
        }
        Ok(all)
    }
}

/// 1 and the value, or 0 and the reason as JSON.
impl<T: Coded> Coded for Result<T, Missing> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number(self.is_ok().into());
        match self {
            Ok(value) => value.put(out),
            Err(missing) => missing.put(out),
        }
    }

    fn get(input: &mut In<'_, '_>) -> Result<Result<T, Missing>, Malformed> {
        match input.count(1)? {
            1 => T::get(input).map(Ok),
            _ => Missing::get(input).map(Err),
        }
    }
}

/// As JSON.
impl Coded for Missing {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.text(&json(self));
    }

    fn get(input: &mut In<'_, '_>) -> Result<Missing, Malformed> {
        missing(input.text(MAX_TEXT)?)
    }
}

/// A reason as JSON.
pub fn json(missing: &Missing) -> String {
    serde_json::to_string(missing).expect("plain data becomes JSON")
}

/// A reason that was written as JSON.
///
/// # Errors
/// It is something else, or no terminal should see it.
pub fn missing(text: &str) -> Result<Missing, Malformed> {
    let missing: Missing = serde_json::from_str(text)
        .map_err(|_| Malformed("the reason for a missing value cannot be parsed"))?;
    if is_clean(&missing.to_string()) {
        Ok(missing)
    } else {
        Err(Malformed("the reason for a missing value cannot be encoded"))
    }
}

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
