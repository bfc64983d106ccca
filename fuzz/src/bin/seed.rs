//! Turns a recording into inputs to begin with: `seed RECORDING DIRECTORY [SAMPLES]`.
//!
//! Each input has the head, a keyframe, and so many of the samples after it.

use std::path::Path;

use numatop_ng::record::format::Kind;
use numatop_ng::record::frame::{FrameHead, HEAD_LEN};
use numatop_ng_fuzz::{TWICE, put};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(recording), Some(directory)) = (args.first(), args.get(1)) else {
        return Err("usage: seed RECORDING DIRECTORY [SAMPLES]".into());
    };
    let samples: usize = args.get(2).map_or(Ok(2), |count| count.parse())?;
    let bytes = std::fs::read(recording)?;
    let (mut at, mut payload, mut frames) = (0, Vec::new(), Vec::new());
    while let Some(head) = FrameHead::from_bytes(&bytes[at..]) {
        let end = at + head.len() as usize;
        head.open(&bytes[at + HEAD_LEN..end], &mut payload)?;
        if !head.copy {
            frames.push((head.kind, payload.clone()));
        }
        at = end;
    }
    let Some((_, head)) = frames.iter().find(|(kind, _)| *kind == Kind::Head) else {
        return Err(format!("{recording} has no head").into());
    };
    let keys = frames.iter().enumerate().filter(|(_, (kind, _))| *kind == Kind::Key);
    for (number, (key, _)) in keys.enumerate() {
        let mut input = Vec::new();
        put(&mut input, Kind::Head as u8, head);
        for (kind, payload) in frames[key..].iter().take(1 + samples) {
            let twice = if *kind == Kind::Key { TWICE } else { 0 };
            put(&mut input, *kind as u8 | twice, payload);
        }
        let name = Path::new(recording).file_stem().unwrap_or_default().to_string_lossy();
        std::fs::write(Path::new(directory).join(format!("{name}-{number}")), input)?;
    }
    Ok(())
}
