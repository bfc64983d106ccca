//! Turns a recording into inputs to begin with.

use std::error::Error;

use numatop_ng::record::format::FrameKind;
use numatop_ng::record::frame::{FrameHead, HEAD_LEN};
use numatop_ng::record::varint::{self, Bytes};

use super::input::{TWICE, put};

/// An input for each keyframe: the head, the keyframe, and up to `samples` samples after it.
///
/// # Errors
/// `recording` has no head, or a frame that cannot be opened.
pub fn of(recording: &[u8], samples: usize) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let (mut at, mut payload, mut frames) = (0, Vec::new(), Vec::new());
    while let Some(head) = FrameHead::from_bytes(&recording[at..]) {
        let end = at + head.len() as usize;
        let stored = recording.get(at + HEAD_LEN..end).ok_or("its last frame is cut")?;
        head.open(stored, &mut payload)?;
        if !head.copy {
            frames.push((head.kind, payload.clone()));
        }
        at = end;
    }
    let (_, head) = frames.iter().find(|(kind, _)| *kind == FrameKind::Head).ok_or("it has no head")?;
    let keys = frames.iter().enumerate().filter(|(_, (kind, _))| *kind == FrameKind::Key);
    let input = |(key, _)| {
        let mut input = Vec::new();
        put(&mut input, FrameKind::Head as u8, head);
        for (kind, payload) in frames[key..].iter().take(1 + samples) {
            let twice = if *kind == FrameKind::Key { TWICE } else { 0 };
            put(&mut input, *kind as u8 | twice, &without_key_id(payload));
        }
        input
    };
    Ok(keys.map(input).collect())
}

/// A sample without the checksum of its keyframe, which would reject any change of the keyframe. All else is
/// unchanged.
fn without_key_id(payload: &[u8]) -> Vec<u8> {
    const KEY_ID: u8 = 19;
    let (mut input, mut out) = (Bytes(payload), Vec::new());
    while let (Ok(id), Ok(len)) = (input.take(1), input.number()) {
        let Ok(body) = input.take(len as usize) else { return payload.to_vec() };
        if id[0] != KEY_ID {
            out.push(id[0]);
            varint::put(&mut out, len);
            out.extend_from_slice(body);
        }
    }
    if input.0.is_empty() { out } else { payload.to_vec() }
}
