//! The envelope of every piece of a recording: what it is, how long, whether it is whole.
//!
//! Little endian on every machine:
//!
//! ```text
//!  0 magic[4]   4 kind u8   5 flags u8   6 format u16   8 file u32     12 stored u32   16 raw u32
//! 20 seq u64   28 mono_ns u64   36 wall_ns i64   44 base u64   52 payload crc u32   56 head crc u32
//! 60 payload, `stored` bytes
//! ```

use std::io;

use super::format::{FORMAT, Kind, MAX_PAYLOAD};

/// What a frame begins with: never valid as text, never the start of a zstd frame.
pub const MAGIC: [u8; 4] = [0x8e, b'N', b'R', 0xf3];

/// Bytes in front of a payload.
pub const HEAD_LEN: usize = 60;

/// The payload is compressed with zstd.
const COMPRESSED: u8 = 1;
/// It is the second copy of the frame right before it.
const COPY: u8 = 2;

/// What is in front of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    pub kind: Kind,
    pub compressed: bool,
    /// True for the second copy of a frame, which follows the first.
    pub copy: bool,
    pub format: u16,
    /// The same in all frames of a file, and another in each file: no frame of a deleted recording that
    /// turns up on the disk is taken for one of this.
    pub file: u32,
    /// Bytes of the payload in the file, and when it is decompressed.
    pub stored: u32,
    pub raw: u32,
    /// Counts frames from zero; the second copy of a frame has the number of the first.
    pub seq: u64,
    /// CLOCK_MONOTONIC and wall clock of the sample; of the last sample in a frame without one.
    pub mono_ns: u64,
    pub wall_ns: i64,
    /// Where in the file the first copy of the frame is that this one needs: the keyframe of a delta, the
    /// head of anything else, itself of a head.
    pub base: u64,
    pub payload_crc: u32,
}

impl FrameHead {
    pub fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = if self.compressed { COMPRESSED } else { 0 } | if self.copy { COPY } else { 0 };
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
            kind: Kind::from_byte(bytes[4])?,
            compressed: bytes[5] & COMPRESSED != 0,
            copy: bytes[5] & COPY != 0,
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

    /// The payload as it was before it was compressed. `stored` are the bytes after the head.
    ///
    /// # Errors
    /// They are not what was written: the checksum, the length or the compression is wrong.
    pub fn open(&self, stored: &[u8], buffer: &mut Vec<u8>) -> Result<(), &'static str> {
        if stored.len() != self.stored as usize || crc32fast::hash(stored) != self.payload_crc {
            return Err("its checksum is wrong");
        }
        buffer.clear();
        if !self.compressed {
            buffer.extend_from_slice(stored);
            return Ok(());
        }
        // Room for what it says it is, and no more: a payload that grows further fails.
        buffer.resize(self.raw as usize, 0);
        match zstd::bulk::decompress_to_buffer(stored, &mut buffer[..]) {
            Ok(len) if len == self.raw as usize => Ok(()),
            _ => Err("it cannot be decompressed"),
        }
    }
}

/// Compresses payloads and puts heads in front of them.
pub struct Sealer {
    zstd: zstd::bulk::Compressor<'static>,
    stored: Vec<u8>,
}

impl Sealer {
    /// # Errors
    /// zstd could not set itself up (out of memory).
    pub fn new(level: i32) -> io::Result<Sealer> {
        Ok(Sealer { zstd: zstd::bulk::Compressor::new(level)?, stored: Vec::new() })
    }

    /// Appends a whole frame to `out`, and a second copy of it if `twice`. Lengths and checksum in `head`
    /// are filled in here.
    ///
    /// # Errors
    /// zstd failed (out of memory).
    pub fn seal(
        &mut self,
        out: &mut Vec<u8>,
        mut head: FrameHead,
        payload: &[u8],
        twice: bool,
    ) -> io::Result<()> {
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(payload.len()));
        self.zstd.compress_to_buffer(payload, &mut self.stored)?;
        head.compressed = self.stored.len() < payload.len();
        let stored = if head.compressed { &self.stored[..] } else { payload };
        head.format = FORMAT;
        head.stored = stored.len() as u32;
        head.raw = payload.len() as u32;
        head.payload_crc = crc32fast::hash(stored);
        for copy in [false, true].into_iter().take(1 + usize::from(twice)) {
            out.extend_from_slice(&FrameHead { copy, ..head }.to_bytes());
            out.extend_from_slice(stored);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> FrameHead {
        FrameHead {
            kind: Kind::Delta,
            compressed: false,
            copy: false,
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
        Sealer::new(1).unwrap().seal(&mut frame, head(), &payload, false).unwrap();
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
        Sealer::new(1).unwrap().seal(&mut frame, head(), b"a small payload", false).unwrap();
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
        Sealer::new(1).unwrap().seal(&mut frame, head(), &vec![0; 1 << 20], false).unwrap();
        let mut read = FrameHead::from_bytes(&frame).unwrap();
        read.raw = 10;
        assert!(read.open(&frame[HEAD_LEN..], &mut Vec::new()).is_err());
    }

    #[test]
    fn impossible_lengths_are_no_head() {
        let bytes = FrameHead { raw: u32::MAX, ..head() }.to_bytes();
        assert_eq!(FrameHead::from_bytes(&bytes), None);
    }
}
