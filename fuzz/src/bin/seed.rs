//! Writes inputs made of a recording: `seed RECORDING DIRECTORY [SAMPLES]`. Each has the head, a keyframe,
//! and this number of samples after it.

use std::path::Path;

use numatop_ng_fuzz::seeds;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(recording), Some(directory)) = (args.first(), args.get(1)) else {
        return Err("usage: seed RECORDING DIRECTORY [SAMPLES]".into());
    };
    let samples: usize = args.get(2).map_or(Ok(2), |count| count.parse())?;
    let name = Path::new(recording).file_stem().unwrap_or_default().to_string_lossy();
    for (number, input) in seeds::of(&std::fs::read(recording)?, samples)?.iter().enumerate() {
        std::fs::write(Path::new(directory).join(format!("{name}-{number}")), input)?;
    }
    Ok(())
}
