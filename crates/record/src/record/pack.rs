//! Samples of the recent past as bytes in memory: a tenth of their rows where there are many.
//!
//! A pack is a keyframe and samples encoded against it, without heads and copies of frames: memory is never
//! damaged. Each sample is read with the keyframe alone.

use std::io;
use std::sync::Arc;

use zstd::bulk::Decompressor;

use super::payload::{self, Base, Delta, KnownRows, Layouts, Room};
use super::rows::Changes;
use crate::model::access::MemoryUses;
use crate::model::process::ProcFieldsOf;
use crate::model::sample::Sample;

pub use super::rows::share;
pub use super::varint::Malformed;

/// zstd's level, as in a recording.
const LEVEL: i32 = 1;

/// A keyframe, and samples after it.
#[derive(Clone, Debug)]
pub struct Pack {
    /// The keyframe's checksum.
    key_id: u32,
    samples: Vec<Packed>,
    bytes: usize,
}

/// One sample.
#[derive(Clone, Debug)]
struct Packed {
    /// Its payload, compressed.
    stored: Arc<[u8]>,
    /// Bytes of the payload.
    raw: usize,
    /// Parts that recordings do not keep, or not whole.
    about: Arc<ProcFieldsOf>,
    memory_use: Option<Arc<MemoryUses>>,
}

impl Pack {
    /// The number of its samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// True before the first.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Bytes of memory, without parts of its samples that are not packed.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of [`Pack::bytes`] that its keyframe has.
    pub fn key_bytes(&self) -> usize {
        self.samples.first().map_or(0, |key| key.stored.len())
    }

    fn push(&mut self, payload: &[u8], sample: &Sample) -> io::Result<()> {
        let stored = Arc::<[u8]>::from(zstd::bulk::compress(payload, LEVEL)?);
        self.bytes += stored.len() + size_of::<Packed>();
        let (about, memory_use) = (Arc::clone(&sample.about), sample.memory_use.clone());
        self.samples.push(Packed { stored, raw: payload.len(), about, memory_use });
        Ok(())
    }
}

/// Fills a pack.
pub struct Packer {
    key: Sample,
}

impl Packer {
    /// Begins a pack with its keyframe.
    ///
    /// # Errors
    /// zstd failed (out of memory).
    pub fn begin(sample: &Sample) -> io::Result<(Packer, Pack)> {
        let key = packed_parts(sample);
        let mut payload = Vec::new();
        payload::encode_unchecked(&mut payload, None, &key);
        let mut pack = Pack { key_id: payload::id_of(&payload), samples: Vec::new(), bytes: 0 };
        pack.push(&payload, sample)?;
        // No sample is encoded against these.
        let key = Sample { exited: Vec::new(), hot: None, notes: Vec::new(), ..key };
        Ok((Packer { key }, pack))
    }

    /// Adds a sample to the current pack. False if its tasks are not in the order of their serials.
    ///
    /// # Errors
    /// As [`Packer::begin`].
    pub fn push(&mut self, pack: &mut Pack, sample: &Sample) -> io::Result<bool> {
        let Some(changes) = Changes::since(&self.key).after(sample) else { return Ok(false) };
        let changes = changes.of_the_last(1);
        let mut payload = Vec::new();
        let delta = Delta { key: &self.key, key_id: pack.key_id, changes };
        payload::encode_unchecked(&mut payload, Some(delta), &packed_parts(sample));
        pack.push(&payload, sample)?;
        Ok(true)
    }

    /// The keyframe, which stays in memory while the pack is filled.
    pub fn key(&self) -> &Sample {
        &self.key
    }
}

/// The parts that become bytes.
fn packed_parts(sample: &Sample) -> Sample {
    Sample { about: Arc::default(), memory_use: None, ..sample.clone() }
}

/// Rows that an [`Unpacker`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    All,
    /// No rows of live tasks, which takes a fraction of the time.
    NoTasks,
}

/// Reads the samples of a pack.
pub struct Unpacker {
    rows: Rows,
    layouts: Layouts,
    key: Sample,
    known: KnownRows,
    zstd: Decompressor<'static>,
    /// The payload read last.
    raw: Vec<u8>,
}

impl Unpacker {
    /// Reads the keyframe.
    ///
    /// # Errors
    /// Memory runs out, the pack is empty, or its keyframe is beyond the limits of a recording.
    pub fn open(pack: &Pack, rows: Rows) -> Result<Unpacker, Malformed> {
        let mut opened = Unpacker {
            rows,
            layouts: Layouts::own(),
            key: Sample::default(),
            known: KnownRows::default(),
            zstd: Decompressor::new().map_err(|_| Malformed("zstd could not be initialised"))?,
            raw: Vec::new(),
        };
        opened.key = opened.read(pack, 0, None)?;
        Ok(opened)
    }

    /// Sample `at` of the pack that was opened.
    ///
    /// # Errors
    /// Memory runs out, the pack has fewer samples, or one is beyond the limits of a recording.
    pub fn sample(&mut self, pack: &Pack, at: usize) -> Result<Sample, Malformed> {
        let key = std::mem::take(&mut self.key);
        let read = if at == 0 { Ok(key.clone()) } else { self.read(pack, at, Some(&key)) };
        self.key = key;
        let (sample, packed) = (read?, &pack.samples[at]);
        Ok(Sample { about: Arc::clone(&packed.about), memory_use: packed.memory_use.clone(), ..sample })
    }

    fn read(&mut self, pack: &Pack, at: usize, key: Option<&Sample>) -> Result<Sample, Malformed> {
        let packed = pack.samples.get(at).ok_or(Malformed("the pack has fewer samples than stated"))?;
        self.raw.resize(packed.raw, 0);
        let decompressed = self.zstd.decompress_to_buffer(&packed.stored[..], &mut self.raw);
        decompressed.map_err(|_| Malformed("the frame cannot be decompressed"))?;
        let (bytes, room) = (&self.raw, Room::endless());
        if self.rows == Rows::NoTasks {
            return payload::decode_without_tasks(bytes, &self.layouts, key, room);
        }
        let base = key.map(|key| Base { key, key_id: pack.key_id, tick: 0, tasks: &key.tasks });
        Ok(payload::decode_with(bytes, &self.layouts, base, room, &mut self.known)?.0)
    }
}
