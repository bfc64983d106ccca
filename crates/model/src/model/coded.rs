//! Values as bytes and back: one trait, and a declaration for each struct. Recordings are made of them.
//!
//! Readers trust no byte: counts are checked before anything is allocated. Memory is taken from a budget
//! ([`Room`]) in proportion to the bytes in the file, so that two kilobytes cannot become two gigabytes. Writing counts
//! the memory that reading takes, so every written sample can be read.

mod values;
pub mod varint;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};

use self::varint::{Bytes, Malformed, put, put_text};
use crate::text::is_clean;

pub use self::values::{
    Copied, Key, change, copied, get_changed, get_since, json, missing, put_changed, put_since,
};

/// Nodes of a machine: twice what Linux can be built for (NODES_SHIFT is at most 10).
pub const MAX_NODES: usize = 2048;

/// Pairs of nodes between which something went: all of 1,024 nodes.
pub const MAX_FLOWS: usize = 1 << 20;

/// Entries of a dictionary or of a list of notes.
pub const MAX_NAMES: usize = 1 << 20;

/// Bytes of a name or of a note. A cgroup path has at most 4,096.
pub const MAX_TEXT: usize = 64 << 10;

/// A sample is beyond what the format can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sample has more {0} than a recording can hold")]
pub struct TooLarge(pub &'static str);

/// Bytes that are written.
#[derive(Debug, Default)]
pub struct Out<'v> {
    /// Everything written so far.
    pub bytes: Vec<u8>,
    /// Memory that a reader takes from its [`Room`] for it.
    pub needed: usize,
    /// The first limit of readers that it is beyond.
    pub beyond: Option<TooLarge>,
    /// Texts that are written by number.
    pub texts: Numbers<Cow<'v, str>>,
}

impl<'v> Out<'v> {
    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        put(&mut self.bytes, number);
    }

    /// Writes the length of a list. Readers refuse more than `most` entries; `many` names them.
    pub fn count(&mut self, len: usize, most: usize, many: &'static str) {
        if len > most {
            self.beyond.get_or_insert(TooLarge(many));
        }
        self.number(len as u64);
    }

    /// Writes a text with its length.
    pub fn text(&mut self, text: &str) {
        if text.len() > MAX_TEXT {
            self.beyond.get_or_insert(TooLarge("bytes in a name"));
        }
        put_text(&mut self.bytes, text);
    }

    /// Adds `count` times `bytes` to the memory that a reader takes, on top of [`PER_BYTE`] for each byte written.
    pub fn take(&mut self, count: usize, bytes: usize) {
        self.needed = self.needed.saturating_add(count.saturating_mul(bytes));
    }

    /// Writes a map, key and value by key and value.
    pub fn map<K, V>(
        &mut self,
        map: &'v BTreeMap<K, V>,
        (most, many): (usize, &'static str),
        mut entry: impl FnMut(&mut Out<'v>, &'v K, &'v V),
    ) {
        self.count(map.len(), most, many);
        self.take(1, of_map(map.len()));
        map.iter().for_each(|(key, value)| entry(self, key, value));
    }
}

/// The bytes to read, and the memory allowed for the result.
#[derive(Debug)]
pub struct In<'b, 'r> {
    /// The rest to read.
    pub bytes: Bytes<'b>,
    /// Memory that is left.
    pub room: &'r mut Room,
    /// Texts that are written by number.
    pub texts: &'r [&'b str],
}

impl<'b> Deref for In<'b, '_> {
    type Target = Bytes<'b>;

    fn deref(&self) -> &Bytes<'b> {
        &self.bytes
    }
}

impl<'b> DerefMut for In<'b, '_> {
    fn deref_mut(&mut self) -> &mut Bytes<'b> {
        &mut self.bytes
    }
}

impl<'b, 'r> In<'b, 'r> {
    /// Reads `bytes` into `room`.
    pub fn new(bytes: Bytes<'b>, room: &'r mut Room) -> In<'b, 'r> {
        In { bytes, room, texts: &[] }
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.0.is_empty()
    }

    /// All bytes that are left; none is left here.
    pub fn rest(&mut self) -> Bytes<'b> {
        std::mem::replace(&mut self.bytes, Bytes(&[]))
    }

    /// Reads text without control characters.
    ///
    /// # Errors
    /// It is no text, or has control characters.
    pub fn clean(&mut self) -> Result<&'b str, Malformed> {
        let text = self.text(MAX_TEXT)?;
        if is_clean(text) { Ok(text) } else { Err(Malformed("a name cannot be encoded")) }
    }

    /// Reads a map that [`Out::map`] wrote.
    ///
    /// # Errors
    /// It is something else, or memory runs out.
    pub fn map<K: Ord, V>(
        &mut self,
        most: usize,
        mut entry: impl FnMut(&mut In<'b, 'r>) -> Result<(K, V), Malformed>,
    ) -> Result<BTreeMap<K, V>, Malformed> {
        let count = self.count(most)?;
        self.room.take(1, of_map(count))?;
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let (key, value) = entry(self)?;
            map.insert(key, value);
        }
        Ok(map)
    }

    /// Reads a list with its length in front.
    ///
    /// # Errors
    /// It is something else, or longer than `most`.
    pub fn list<T>(
        &mut self,
        most: usize,
        mut entry: impl FnMut(&mut In<'b, 'r>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count(most)?;
        // Each entry takes a byte at least, so that it cannot be longer than its bytes.
        let mut list = Vec::with_capacity(count.min(self.bytes.0.len() / 4 + 1));
        for _ in 0..count {
            list.push(entry(self)?);
        }
        Ok(list)
    }
}

/// Numbers in the order of first use.
#[derive(Debug)]
pub struct Numbers<T> {
    /// The values, by number.
    pub list: Vec<T>,
    known: HashMap<T, u64>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers { list: Vec::new(), known: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Numbers<T> {
    /// The number of a value.
    pub fn of(&mut self, value: T) -> u64 {
        if let Some(number) = self.known.get(&value) {
            return *number;
        }
        let number = self.list.len() as u64;
        self.list.push(value.clone());
        self.known.insert(value, number);
        number
    }
}

/// A value with one form as bytes.
pub trait Coded: Sized {
    /// Entries of a list of them at most, and what they are.
    const MOST: (usize, &'static str) = (MAX_NAMES, "names");

    /// Writes it.
    fn put<'v>(&'v self, out: &mut Out<'v>);

    /// Reads it.
    ///
    /// # Errors
    /// The bytes are something else, or memory runs out.
    fn get(input: &mut In<'_, '_>) -> Result<Self, Malformed>;

    /// Writes one that may be absent.
    fn put_option<'v>(this: Option<&'v Self>, out: &mut Out<'v>) {
        out.number(this.is_some().into());
        this.into_iter().for_each(|this| this.put(out));
    }

    /// Reads one that may be absent.
    ///
    /// # Errors
    /// As [`Coded::get`].
    fn get_option(input: &mut In<'_, '_>) -> Result<Option<Self>, Malformed> {
        (input.count(1)? == 1).then(|| Self::get(input)).transpose()
    }
}

/// The form of a field that is not written as all of its type are.
pub trait Codec<T> {
    /// Writes a value.
    fn put<'v>(value: &'v T, out: &mut Out<'v>);

    /// Reads a value.
    ///
    /// # Errors
    /// As [`Coded::get`].
    fn get(input: &mut In<'_, '_>) -> Result<T, Malformed>;
}

/// As all of the type are written.
pub struct Plain;

impl<T: Coded> Codec<T> for Plain {
    fn put<'v>(value: &'v T, out: &mut Out<'v>) {
        value.put(out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<T, Malformed> {
        T::get(input)
    }
}

/// A text by its number among the texts.
pub struct Numbered;

impl Numbered {
    /// Reads a text.
    ///
    /// # Errors
    /// No text has this number, or memory runs out.
    pub fn read<'b>(input: &mut In<'b, '_>, number: u64) -> Result<&'b str, Malformed> {
        let text = usize::try_from(number).ok().and_then(|at| input.texts.get(at)).copied();
        let text = text.ok_or(Malformed("a string is missing"))?;
        input.room.take(1, text.len())?;
        Ok(text)
    }

    /// Writes a text.
    pub fn write<'v>(text: impl Into<Cow<'v, str>>, first: u64, out: &mut Out<'v>) {
        let text = text.into();
        out.take(1, text.len());
        let number = out.texts.of(text);
        out.number(first + number);
    }
}

impl Codec<String> for Numbered {
    fn put<'v>(value: &'v String, out: &mut Out<'v>) {
        Numbered::write(value, 0, out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<String, Malformed> {
        let number = input.number()?;
        Numbered::read(input, number).map(str::to_string)
    }
}

/// 0 is none.
impl Codec<Option<String>> for Numbered {
    fn put<'v>(value: &'v Option<String>, out: &mut Out<'v>) {
        match value {
            Some(text) => Numbered::write(text, 1, out),
            None => out.number(0),
        }
    }

    fn get(input: &mut In<'_, '_>) -> Result<Option<String>, Malformed> {
        let number = input.number()?.checked_sub(1);
        number.map(|number| Numbered::read(input, number).map(str::to_string)).transpose()
    }
}

/// A count of the last ten seconds: sums of such counts stay in range whatever a file contains.
pub struct Count;

impl Codec<u64> for Count {
    fn put<'v>(value: &'v u64, out: &mut Out<'v>) {
        out.number((*value).min(u32::MAX.into()));
    }

    fn get(input: &mut In<'_, '_>) -> Result<u64, Malformed> {
        Ok(input.count(u32::MAX as usize)? as u64)
    }
}

/// Copies count half a sample for each side.
const PARTS: f64 = 2.0;

impl Codec<f64> for Count {
    fn put<'v>(value: &'v f64, out: &mut Out<'v>) {
        out.number(((value * PARTS).round() as u64).min(u32::MAX.into()));
    }

    fn get(input: &mut In<'_, '_>) -> Result<f64, Malformed> {
        Ok(input.count(u32::MAX as usize)? as f64 / PARTS)
    }
}

/// A map whose values are [`Count`].
pub struct Counted;

impl<K: Coded + Ord, V> Codec<BTreeMap<K, V>> for Counted
where
    Count: Codec<V>,
{
    fn put<'v>(value: &'v BTreeMap<K, V>, out: &mut Out<'v>) {
        out.map(value, K::MOST, |out, key, count| {
            key.put(out);
            Count::put(count, out);
        });
    }

    fn get(input: &mut In<'_, '_>) -> Result<BTreeMap<K, V>, Malformed> {
        input.map(K::MOST.0, |input| Ok((K::get(input)?, Count::get(input)?)))
    }
}

/// Memory that a struct with this many fields takes beyond what the bytes of its fields stand for: each is a byte at least.
pub const fn beyond_bytes<T>(fields: usize) -> usize {
    // Shared ones have two counters.
    (size_of::<T>() + 2 * size_of::<usize>()).saturating_sub(fields * PER_BYTE)
}

/// A value at the end of a section or a struct: without bytes it is absent.
pub struct Tail;

impl<T: Coded> Codec<Option<T>> for Tail {
    fn put<'v>(value: &'v Option<T>, out: &mut Out<'v>) {
        value.iter().for_each(|value| value.put(out));
    }

    fn get(input: &mut In<'_, '_>) -> Result<Option<T>, Malformed> {
        (!input.is_empty()).then(|| T::get(input)).transpose()
    }
}

/// Makes a struct [`Coded`]: its fields one after the other, in this order. `field: Codec` writes a field in
/// another form. `rest`: fields that are not listed have their defaults. `most`: the maximum length of a list
/// field. `check`: whether a value read is valid.
macro_rules! coded {
    ($row:ty { $($field:ident $(: $codec:ty)?),+ $(,)? }
        $(, rest $rest:expr)? $(, most $most:expr, $many:literal)? $(, check $check:expr)?) => {
        impl $crate::model::coded::Coded for $row {
            $(const MOST: (usize, &'static str) = ($most, $many);)?

            fn put<'v>(&'v self, out: &mut $crate::model::coded::Out<'v>) {
                out.take(1, $crate::model::coded::beyond_bytes::<$row>([$(stringify!($field)),+].len()));
                $(<$crate::model::coded::coded!(@codec $($codec)?) as $crate::model::coded::Codec<_>>::put(&self.$field, out);)+
            }

            fn get(
                input: &mut $crate::model::coded::In<'_, '_>,
            ) -> Result<$row, $crate::model::coded::varint::Malformed> {
                input.room.take(1, $crate::model::coded::beyond_bytes::<$row>([$(stringify!($field)),+].len()))?;
                type Row = $row;
                let row = Row {
                    $($field: <$crate::model::coded::coded!(@codec $($codec)?) as $crate::model::coded::Codec<_>>::get(input)?,)+
                    $(..$rest)?
                };
                $($check(&row)?;)?
                Ok(row)
            }
        }
    };
    (@codec) => { $crate::model::coded::Plain };
    (@codec $codec:ty) => { $codec };
}

pub(crate) use coded;

/// Bytes of memory for the content of one payload, whatever its size in the file: padding could claim any
/// amount. 100,000 tasks on 256 nodes take 244 MiB.
const MEMORY_MAX: usize = 256 << 20;

/// Bytes of memory that every payload may have, and beyond that for each byte in the file. Samples of real machines take some sixty.
const MEMORY_FREE: usize = 1 << 20;

/// See [`MEMORY_FREE`].
const MEMORY_PER_BYTE: usize = 1024;

/// Bytes of memory that a sample in `stored` bytes of a file may take, with its copies from the keyframe.
const fn memory_limit(stored: usize) -> usize {
    MEMORY_FREE + MEMORY_PER_BYTE * stored
}

/// Bytes that must be stored, so that `memory` is within [`memory_limit`].
pub const fn least_stored_for(memory: usize) -> usize {
    memory.saturating_sub(MEMORY_FREE).div_ceil(MEMORY_PER_BYTE)
}

/// Memory for each byte of a payload: an empty text is one byte, and becomes an entry of a list.
pub const PER_BYTE: usize = 24;

/// Memory that readers allow beyond the writers' reserve: versions differ a little in their counts.
const SLACK: usize = 1 << 20;

/// An entry of a map or a list beside the text in it, and a row that is shared with another sample.
pub const ENTRY: usize = 64;

/// A map with an entry: it has room for eleven at once.
const MAP: usize = 512;

/// Bytes that a sample may yet take.
#[derive(Debug)]
pub struct Room(usize);

impl Room {
    /// Memory for a payload of `raw` bytes that takes `stored` bytes in the file.
    ///
    /// # Errors
    /// The payload alone takes more.
    pub fn new(stored: usize, raw: usize) -> Result<Room, Malformed> {
        let mut room = Room(memory_limit(stored));
        room.take(raw, PER_BYTE)?;
        room.0 = room.0.min(MEMORY_MAX) + SLACK;
        Ok(room)
    }

    /// No limit: for payloads that are not from a file.
    pub fn endless() -> Room {
        Room(usize::MAX)
    }

    /// Takes `count` times `bytes`.
    ///
    /// # Errors
    /// Too little is left.
    pub fn take(&mut self, count: usize, bytes: usize) -> Result<(), Malformed> {
        let left = self.0.checked_sub(count.saturating_mul(bytes));
        self.0 =
            left.ok_or(Malformed("decoding would take more memory than allowed for data of this size"))?;
        Ok(())
    }
}

/// Whether readers accept a sample of `raw` bytes that needs `needed` bytes of memory.
pub fn fits(needed: usize, raw: usize) -> bool {
    needed - raw * PER_BYTE <= MEMORY_MAX
}

/// A map with `entries` small entries.
const fn of_map(entries: usize) -> usize {
    if entries == 0 { 0 } else { MAP + entries * ENTRY }
}
