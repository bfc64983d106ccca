//! An input: frames of a recording without their checksums, so that a changed byte is not stopped
//! by the first of them.
//!
//! An input is a row of pieces: a byte for the kind, the length as u32, and that number of bytes. A frame
//! gets right checksums, a right length and the place of the frame that it depends on. Bytes of any other
//! kind go into the file unchanged.

use numatop_ng::record::format::FrameKind;
use numatop_ng::record::frame::{Extras, FrameHead, HEAD_LEN, Sealer};

/// The frame appears twice.
pub const TWICE: u8 = 0x80;
/// It claims to depend on the beginning of the file.
const ASTRAY: u8 = 0x40;

/// Appends a piece to an input.
pub fn put(input: &mut Vec<u8>, what: u8, bytes: &[u8]) {
    input.push(what);
    input.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    input.extend_from_slice(bytes);
}

/// The file described by an input.
pub fn file(mut input: &[u8]) -> Vec<u8> {
    let mut sealer = Sealer::new(1).expect("zstd can be set up");
    let mut file = Vec::new();
    let (mut head_at, mut key_at, mut seq) = (0, 0, 0);
    while let Some((piece, rest)) = input.split_first_chunk::<5>() {
        let what = piece[0];
        let len = u32::from_le_bytes([piece[1], piece[2], piece[3], piece[4]]) as usize;
        let (payload, rest) = rest.split_at(len.min(rest.len()));
        input = rest;
        let Some(kind) = FrameKind::from_byte(what & !(TWICE | ASTRAY)) else {
            file.extend_from_slice(payload);
            continue;
        };
        let at = file.len() as u64;
        let base = match kind {
            FrameKind::Head => {
                head_at = at;
                at
            }
            FrameKind::Key => {
                key_at = at;
                head_at
            }
            FrameKind::Delta => key_at,
            FrameKind::Gap | FrameKind::End => head_at,
        };
        let head = FrameHead {
            kind,
            compressed: false,
            copy: false,
            carries: false,
            format: 0,
            file: 7,
            stored: 0,
            raw: 0,
            seq,
            mono_ns: seq * 1_000_000_000,
            wall_ns: seq as i64 * 1_000_000_000,
            base: if what & ASTRAY == 0 { base } else { 0 },
            payload_crc: 0,
        };
        sealer.seal(&mut file, head, payload, Extras::default()).expect("zstd has memory");
        if what & TWICE != 0 {
            let frame = file[at as usize..].to_vec();
            let head = FrameHead::from_bytes(&frame).expect("it was sealed just now");
            file.extend_from_slice(&FrameHead { copy: true, ..head }.to_bytes());
            file.extend_from_slice(&frame[HEAD_LEN..]);
        }
        seq += 1;
    }
    file
}
