//! The envelope of every piece of a recording: what it is, how long, whether it is whole.
//!
//! Little endian on every machine:
//!
//! ```text
//!  0 magic[4]   4 kind u8   5 flags u8   6 format u16   8 file u32     12 stored u32   16 raw u32
//! 20 seq u64   28 mono_ns u64   36 wall_ns i64   44 base u64   52 payload crc u32   56 head crc u32
//! 60 payload, `stored` bytes
//! ```
//!
//! A compressed payload may have zstd frames that decoders skip on both sides (RFC 8878, 3.1.2): before it
//! copies of frames that others depend on, after it only padding.

use std::io;

use super::format::{FORMAT, FrameKind, MAX_PAYLOAD, least_stored, raw_limit};

/// The first bytes of a frame: never valid as text, never the start of a zstd frame.
pub const MAGIC: [u8; 4] = [0x8e, b'N', b'R', 0xf3];

/// Bytes in front of a payload.
pub const HEAD_LEN: usize = 60;

/// The payload is compressed with zstd.
const COMPRESSED: u8 = 1;
/// It is the second copy of the frame right before it.
const COPY: u8 = 2;
/// Copies of other frames stand in front of its payload.
const CARRIES: u8 = 4;

/// The first bytes of skippable frames of zstd: those with copies of our frames, and padding.
const CARRIED: [u8; 4] = 0x184d_2a51_u32.to_le_bytes();
const ROOM: [u8; 4] = 0x184d_2a50_u32.to_le_bytes();
/// Bytes of such a frame before its content: magic and length.
const SKIPPABLE_HEAD: usize = 8;

/// The head of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    pub kind: FrameKind,
    pub compressed: bool,
    /// True for the second copy of a frame, which follows the first.
    pub copy: bool,
    /// True where copies of other frames are in front of the payload ([`copy_of`]).
    pub carries: bool,
    pub format: u16,
    /// The same in all frames of a file, and different in each file. So a frame of a deleted recording that
    /// turns up on the disk is not mistaken for one of this file.
    pub file: u32,
    /// Bytes of the payload in the file, and when it is decompressed.
    pub stored: u32,
    pub raw: u32,
    /// Counts frames from zero; the second copy of a frame has the number of the first.
    pub seq: u64,
    /// CLOCK_MONOTONIC and wall clock of the sample; of the last sample in a frame without one.
    pub mono_ns: u64,
    pub wall_ns: i64,
    /// The place in the file of the first copy of the frame that this one needs: the keyframe for a delta,
    /// itself for a head, and the head for anything else.
    pub base: u64,
    pub payload_crc: u32,
}

impl FrameHead {
    pub fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        let flags = [(self.compressed, COMPRESSED), (self.copy, COPY), (self.carries, CARRIES)];
        bytes[5] = flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
        bytes[6..8].copy_from_slice(&self.format.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.file.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.seq.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.mono_ns.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.wall_ns.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.base.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..56]);
        bytes[56..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head in `bytes`, or `None` when they are not one, are damaged, or name impossible lengths.
    pub fn from_bytes(bytes: &[u8]) -> Option<FrameHead> {
        let bytes: &[u8; HEAD_LEN] = bytes.get(..HEAD_LEN)?.try_into().ok()?;
        if bytes[..4] != MAGIC {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if crc32fast::hash(&bytes[..56]) != u32_at(56) {
            return None;
        }
        let head = FrameHead {
            kind: FrameKind::from_byte(bytes[4])?,
            compressed: bytes[5] & COMPRESSED != 0,
            copy: bytes[5] & COPY != 0,
            carries: bytes[5] & CARRIES != 0,
            format: u16::from_le_bytes([bytes[6], bytes[7]]),
            file: u32_at(8),
            stored: u32_at(12),
            raw: u32_at(16),
            seq: u64_at(20),
            mono_ns: u64_at(28),
            wall_ns: u64_at(36) as i64,
            base: u64_at(44),
            payload_crc: u32_at(52),
        };
        let possible = head.stored as usize <= MAX_PAYLOAD && head.raw as usize <= MAX_PAYLOAD;
        possible.then_some(head)
    }

    /// Bytes of the whole frame in the file: never zero.
    #[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
    pub fn len(&self) -> u64 {
        HEAD_LEN as u64 + u64::from(self.stored)
    }

    /// Whether `stored` are the bytes that were written after the head.
    pub fn is_whole(&self, stored: &[u8]) -> bool {
        stored.len() == self.stored as usize && crc32fast::hash(stored) == self.payload_crc
    }

    /// The payload as it was before it was compressed. `stored` are the bytes after the head.
    ///
    /// # Errors
    /// They are damaged: the checksum, the length or the compression is wrong, or it would become larger than
    /// [`raw_limit`] allows.
    pub fn open(&self, stored: &[u8], buffer: &mut Vec<u8>) -> Result<(), &'static str> {
        Opener::default().open(self, stored, buffer)
    }
}

/// Opens payloads one after the other. Setting zstd up takes longer than a small payload does.
#[derive(Default)]
pub struct Opener(Option<zstd::bulk::Decompressor<'static>>);

impl Opener {
    /// See [`FrameHead::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(
        &mut self,
        head: &FrameHead,
        stored: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        if !head.is_whole(stored) {
            return Err("the frame's checksum is wrong");
        }
        if head.raw as usize > raw_limit(stored.len()) {
            return Err("the frame would become too large");
        }
        buffer.clear();
        if !head.compressed {
            buffer.extend_from_slice(stored);
            return Ok(());
        }
        // Room for exactly the size in the head: a payload that grows further fails.
        buffer.resize(head.raw as usize, 0);
        let zstd = match &mut self.0 {
            Some(zstd) => zstd,
            none => {
                none.insert(zstd::bulk::Decompressor::new().map_err(|_| "zstd could not be initialised")?)
            }
        };
        match zstd.decompress_to_buffer(stored, &mut buffer[..]) {
            Ok(len) if len == head.raw as usize => Ok(()),
            _ => Err("the frame cannot be decompressed"),
        }
    }
}

/// Compresses payloads and puts heads in front of them.
pub struct Sealer {
    zstd: zstd::bulk::Compressor<'static>,
    compressed: Vec<u8>,
    stored: Vec<u8>,
}

impl Sealer {
    /// # Errors
    /// zstd could not set itself up (out of memory).
    pub fn new(level: i32) -> io::Result<Sealer> {
        Ok(Sealer { zstd: zstd::bulk::Compressor::new(level)?, compressed: Vec::new(), stored: Vec::new() })
    }

    /// Bytes that its buffers have room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.compressed.capacity() + self.stored.capacity()
    }

    /// Appends a whole frame to `out`, with `beside` around its payload. Lengths and checksum in `head` are filled in
    /// here.
    ///
    /// # Errors
    /// zstd failed (out of memory).
    pub fn seal(
        &mut self,
        out: &mut Vec<u8>,
        mut head: FrameHead,
        payload: &[u8],
        beside: Extras<'_>,
    ) -> io::Result<()> {
        self.stored.clear();
        for copy in beside.copies {
            let bytes = [&copy.at.to_le_bytes()[..], copy.frame.strip_prefix(&MAGIC).unwrap_or(copy.frame)];
            put_skippable(&mut self.stored, CARRIED, &bytes);
        }
        self.compressed.clear();
        self.compressed.reserve(zstd::zstd_safe::compress_bound(payload.len()));
        self.zstd.compress_to_buffer(payload, &mut self.compressed)?;
        let least = beside.least.max(HEAD_LEN + least_stored(payload.len()));
        let shortest = self.compressed.len().min(payload.len());
        let around = !self.stored.is_empty() || HEAD_LEN + shortest < least;
        head.compressed = around || self.compressed.len() < payload.len();
        self.stored.extend_from_slice(if head.compressed { &self.compressed } else { payload });
        if around && HEAD_LEN + self.stored.len() < least {
            let room = least.saturating_sub(HEAD_LEN + self.stored.len() + SKIPPABLE_HEAD);
            put_skippable(&mut self.stored, ROOM, &[&vec![0; room]]);
        }
        head.carries = !beside.copies.is_empty();
        head.format = FORMAT;
        head.stored = self.stored.len() as u32;
        head.raw = payload.len() as u32;
        head.payload_crc = crc32fast::hash(&self.stored);
        out.extend_from_slice(&head.to_bytes());
        out.extend_from_slice(&self.stored);
        Ok(())
    }
}

/// Bytes of a frame beside its payload.
#[derive(Clone, Copy, Default)]
pub struct Extras<'a> {
    /// Frames that others depend on.
    pub copies: &'a [Carried<'a>],
    /// Bytes that the whole frame takes at least.
    pub least: usize,
}

/// The copy of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// Where in the file the frame itself is.
    pub at: u64,
    /// The whole frame, head included.
    pub frame: &'a [u8],
}

fn put_skippable(out: &mut Vec<u8>, magic: [u8; 4], parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&magic);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A copy of the frame that is at `at`, among those before a payload; `stored` are its bytes. Copies lack the
/// magic, so that they are not mistaken for frames when the head of their frame is damaged.
pub fn copy_of(at: u64, mut stored: &[u8]) -> Option<(FrameHead, &[u8])> {
    loop {
        let (len, rest) = stored.strip_prefix(&CARRIED)?.split_first_chunk()?;
        let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        stored = rest;
        let (place, frame) = content.split_first_chunk()?;
        if u64::from_le_bytes(*place) == at {
            let (head, stored) = frame.split_at_checked(HEAD_LEN - MAGIC.len())?;
            return Some((FrameHead::from_bytes(&[&MAGIC, head].concat())?, stored));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> FrameHead {
        FrameHead {
            kind: FrameKind::Delta,
            compressed: false,
            copy: false,
            carries: false,
            format: FORMAT,
            file: 0xdead_beef,
            stored: 0,
            raw: 0,
            seq: 7,
            mono_ns: 8,
            wall_ns: -9,
            base: 10,
            payload_crc: 0,
        }
    }

    #[test]
    fn a_frame_comes_back() {
        let payload = b"numbers numbers numbers numbers numbers numbers".repeat(9);
        let mut frame = Vec::new();
        Sealer::new(1).unwrap().seal(&mut frame, head(), &payload, Extras::default()).unwrap();
        let read = FrameHead::from_bytes(&frame).unwrap();
        assert_eq!((read.seq, read.wall_ns, read.len()), (7, -9, frame.len() as u64));
        assert!(read.compressed && frame.len() < payload.len());
        let mut back = Vec::new();
        read.open(&frame[HEAD_LEN..], &mut back).unwrap();
        assert_eq!(back, payload);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut frame = Vec::new();
        Sealer::new(1).unwrap().seal(&mut frame, head(), b"a small payload", Extras::default()).unwrap();
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let whole = FrameHead::from_bytes(&damaged)
                .is_some_and(|head| head.open(&damaged[HEAD_LEN..], &mut Vec::new()).is_ok());
            assert!(!whole, "bit {bit}");
        }
    }

    #[test]
    fn a_payload_that_grows_beyond_its_word_is_refused() {
        let mut frame = Vec::new();
        Sealer::new(1).unwrap().seal(&mut frame, head(), &vec![0; 1 << 20], Extras::default()).unwrap();
        let mut read = FrameHead::from_bytes(&frame).unwrap();
        read.raw = 10;
        assert!(read.open(&frame[HEAD_LEN..], &mut Vec::new()).is_err());
    }

    #[test]
    fn impossible_lengths_are_no_head() {
        let bytes = FrameHead { raw: u32::MAX, ..head() }.to_bytes();
        assert_eq!(FrameHead::from_bytes(&bytes), None);
    }

    #[test]
    fn copies_and_room_stand_around_a_payload() {
        let mut other = Vec::new();
        let own = FrameHead { seq: 3, ..head() };
        Sealer::new(1).unwrap().seal(&mut other, own, b"another payload", Extras::default()).unwrap();
        for (payload, least) in [(b"x".repeat(500), 0), (b"small".to_vec(), 400), (vec![], 69), (vec![], 73)]
        {
            let mut frame = Vec::new();
            let beside = Extras { copies: &[Carried { at: 77, frame: &other }], least };
            Sealer::new(1).unwrap().seal(&mut frame, head(), &payload, beside).unwrap();
            let read = FrameHead::from_bytes(&frame).unwrap();
            assert!(read.carries && frame.len() >= least, "{} bytes", frame.len());
            let (copied, stored) = copy_of(77, &frame[HEAD_LEN..]).unwrap();
            assert_eq!((copied.seq, stored), (3, &other[HEAD_LEN..]));
            assert_eq!(copy_of(78, &frame[HEAD_LEN..]), None);
            assert_eq!(frame.windows(4).filter(|bytes| *bytes == MAGIC).count(), 1);
            let mut back = Vec::new();
            read.open(&frame[HEAD_LEN..], &mut back).unwrap();
            assert_eq!(back, payload);
        }
    }

    #[test]
    fn a_frame_is_as_long_as_was_asked_for() {
        for least in 0..200 {
            let mut frame = Vec::new();
            Sealer::new(1)
                .unwrap()
                .seal(&mut frame, head(), b"small", Extras { copies: &[], least })
                .unwrap();
            assert!(
                frame.len() >= least && frame.len() <= least.max(HEAD_LEN + 30),
                "{least}: {}",
                frame.len()
            );
            let mut back = Vec::new();
            FrameHead::from_bytes(&frame).unwrap().open(&frame[HEAD_LEN..], &mut back).unwrap();
            assert_eq!(back, b"small");
        }
    }

    #[test]
    fn a_payload_of_zeros_that_would_fill_the_memory_is_refused() {
        let zeros = vec![0; 48 << 20];
        let stored = zstd::bulk::compress(&zeros, 1).unwrap();
        let (len, raw, payload_crc) = (stored.len() as u32, zeros.len() as u32, crc32fast::hash(&stored));
        let read = FrameHead { compressed: true, stored: len, raw, payload_crc, ..head() };
        let mut buffer = Vec::new();
        assert_eq!(read.open(&stored, &mut buffer), Err("the frame would become too large"));
        assert_eq!(buffer.capacity(), 0);
        // A writer makes it long enough.
        let mut frame = Vec::new();
        Sealer::new(1).unwrap().seal(&mut frame, head(), &zeros, Extras::default()).unwrap();
        FrameHead::from_bytes(&frame).unwrap().open(&frame[HEAD_LEN..], &mut buffer).unwrap();
    }
}
