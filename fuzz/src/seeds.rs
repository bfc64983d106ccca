//! Turns a recording into inputs to begin with.

use std::error::Error;

use numatop_ng::record::format::Kind;
use numatop_ng::record::frame::{FrameHead, HEAD_LEN};

use super::input::{TWICE, put};

/// An input for each keyframe: the head, the keyframe, and so many of the `samples` after it.
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
    let (_, head) = frames.iter().find(|(kind, _)| *kind == Kind::Head).ok_or("it has no head")?;
    let keys = frames.iter().enumerate().filter(|(_, (kind, _))| *kind == Kind::Key);
    let input = |(key, _)| {
        let mut input = Vec::new();
        put(&mut input, Kind::Head as u8, head);
        for (kind, payload) in frames[key..].iter().take(1 + samples) {
            let twice = if *kind == Kind::Key { TWICE } else { 0 };
            put(&mut input, *kind as u8 | twice, payload);
        }
        input
    };
    Ok(keys.map(input).collect())
}
