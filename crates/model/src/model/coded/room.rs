//! Memory that a payload takes while it is read, in proportion to its bytes in the file. So two kilobytes
//! cannot become two gigabytes.

use super::varint::Malformed;

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
        self.0 = left.ok_or(Malformed("it would take more memory than its size allows"))?;
        Ok(())
    }
}

/// Whether readers accept a sample of `raw` bytes that needs `needed` bytes of memory.
pub fn fits(needed: usize, raw: usize) -> bool {
    needed - raw * PER_BYTE <= MEMORY_MAX
}

/// A map with `entries` small entries.
pub(super) const fn of_map(entries: usize) -> usize {
    if entries == 0 { 0 } else { MAP + entries * ENTRY }
}
