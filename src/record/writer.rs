//! One file of a recording while it is written: frames go on at the end, or not at all.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::changes::Changes;
use super::format::{End, FORMAT, Gap, Head, KEY_EVERY, Kind};
use super::frame::{FrameHead, Sealer};
use super::payload::{self, TooLarge};
use crate::sample::Sample;

/// zstd's level: 3 and 9 are within 3 % of it and cost more.
const LEVEL: i32 = 1;

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file is as it was before.
    #[error("{0}")]
    NotWritten(io::Error),
    /// What was written of the frame could not be taken back: nothing may be written after it.
    #[error("{write}, and what was written of it cannot be taken back: {undo}")]
    Damaged { write: io::Error, undo: io::Error },
    #[error("{0}")]
    TooLarge(#[from] TooLarge),
}

/// Writes frames to a file that belongs to it.
pub struct Writer {
    file: File,
    /// Tells this file's frames from those of others.
    id: u32,
    /// End of the last whole frame.
    end: u64,
    next_seq: u64,
    /// Where the head in force is.
    head_at: u64,
    /// The keyframe in force and where it is.
    key: Option<(Sample, u64)>,
    /// What changed of late, as of the last sample.
    changes: Changes,
    /// Times of the last sample.
    mono_ns: u64,
    wall_ns: i64,
    sealer: Sealer,
    payload: Vec<u8>,
    /// Frames to be written, and how many; the copy of a frame is not one of its own.
    frames: Vec<u8>,
    sealed: u64,
}

impl Writer {
    /// Takes over an empty file. Nothing is written before the first [`Writer::head`].
    ///
    /// # Errors
    /// zstd could not set itself up (out of memory).
    pub fn new(file: File, id: u32) -> io::Result<Writer> {
        Ok(Writer {
            file,
            id,
            end: 0,
            next_seq: 0,
            head_at: 0,
            key: None,
            changes: Changes::default(),
            mono_ns: 0,
            wall_ns: 0,
            sealer: Sealer::new(LEVEL)?,
            payload: Vec::new(),
            frames: Vec::new(),
            sealed: 0,
        })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.end
    }

    /// True before the first head.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Explains what follows; the next sample is a keyframe.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn head(&mut self, head: &Head) -> Result<(), WriteError> {
        self.json(head);
        let at = self.end;
        self.seal(Kind::Head, at, true)?;
        self.write()?;
        self.head_at = at;
        self.key = None;
        Ok(())
    }

    /// Writes a sample: whole if it is time for a keyframe, as differences otherwise. In front of it, and
    /// only together with it, that there is a gap before it.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn sample(&mut self, sample: &Sample, gap: Option<&Gap>) -> Result<(), WriteError> {
        if let Some(gap) = gap {
            self.json(gap);
            self.seal(Kind::Gap, self.head_at, false)?;
        }
        (self.mono_ns, self.wall_ns) = (sample.mono_ns, sample.wall_ns);
        self.payload.clear();
        let changes = self.changes.after(sample);
        match (&self.key, changes) {
            (Some((key, key_at)), Some(changes)) if changes.tick() < KEY_EVERY => {
                let key_at = *key_at;
                let encoded = payload::encode(&mut self.payload, Some((key, &changes)), sample);
                encoded.map_err(|error| self.refuse(error.into()))?;
                self.seal(Kind::Delta, key_at, false)?;
                self.write()?;
                self.changes = changes;
            }
            _ => {
                let encoded = payload::encode(&mut self.payload, None, sample);
                encoded.map_err(|error| self.refuse(error.into()))?;
                let at = self.end + self.frames.len() as u64;
                self.seal(Kind::Key, self.head_at, true)?;
                self.write()?;
                self.key = Some((sample.clone(), at));
                self.changes = Changes::since(sample);
            }
        }
        Ok(())
    }

    /// Says that nothing follows, and has the disk take in everything.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn end(mut self, end: End) -> Result<(), WriteError> {
        self.json(&end);
        self.seal(Kind::End, self.head_at, false)?;
        self.write()?;
        self.file.sync_data().map_err(WriteError::NotWritten)
    }

    fn json<T: serde::Serialize>(&mut self, value: &T) {
        self.payload.clear();
        serde_json::to_writer(&mut self.payload, value)
            .expect("these types become JSON, and memory takes it");
    }

    /// Makes a frame of `self.payload`, to be written with the others in `self.frames`.
    fn seal(&mut self, kind: Kind, base: u64, twice: bool) -> Result<(), WriteError> {
        let head = FrameHead {
            kind,
            compressed: false,
            copy: false,
            format: FORMAT,
            file: self.id,
            stored: 0,
            raw: 0,
            seq: self.next_seq + self.sealed,
            mono_ns: self.mono_ns,
            wall_ns: self.wall_ns,
            base,
            payload_crc: 0,
        };
        let sealed = self.sealer.seal(&mut self.frames, head, &self.payload, twice);
        sealed.map_err(|error| self.refuse(WriteError::NotWritten(error)))?;
        self.sealed += 1;
        Ok(())
    }

    /// Forgets the frames that are sealed and not written.
    fn refuse(&mut self, error: WriteError) -> WriteError {
        self.frames.clear();
        self.sealed = 0;
        error
    }

    /// Puts the sealed frames at the end of the file: all of them, or nothing.
    fn write(&mut self) -> Result<(), WriteError> {
        if let Err(write) = self.file.write_all_at(&self.frames, self.end) {
            let undone = self.file.set_len(self.end);
            return Err(self.refuse(match undone {
                Ok(()) => WriteError::NotWritten(write),
                Err(undo) => WriteError::Damaged { write, undo },
            }));
        }
        self.end += self.frames.len() as u64;
        self.next_seq += self.sealed;
        self.frames.clear();
        self.sealed = 0;
        Ok(())
    }
}
