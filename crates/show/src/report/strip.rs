//! Many rows over time as one picture: a PNG of one byte a point. Levels are one colour with more or less
//! alpha, so that it fits a light and a dark page and paper.

use std::io;

use png::{BitDepth, ColorType, Compression, Encoder};

use super::track::Track;

/// Levels of a strip; 0 is nothing.
const LEVELS: u8 = 64;
/// Alpha of the highest level: text on it stays readable.
const MOST_ALPHA: u32 = 230;

/// A picture with a row for each of `rows`, from 0 (clear) to 1 (full), as a data URL. `None`: not known,
/// which is clear.
///
/// # Errors
/// The encoder refuses it: it has no row, or no point.
pub fn strip(rows: &[Vec<Option<f64>>], colour: [u8; 3]) -> io::Result<String> {
    let width = rows.first().map_or(0, Vec::len);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width as u32, rows.len() as u32);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::High);
    encoder.set_palette((0..LEVELS).flat_map(|_| colour).collect::<Vec<u8>>());
    let alpha = |level: u8| (u32::from(level) * MOST_ALPHA / u32::from(LEVELS - 1)) as u8;
    encoder.set_trns((0..LEVELS).map(alpha).collect::<Vec<u8>>());
    let level = |value: &Option<f64>| {
        value.map_or(0, |value| (value.clamp(0.0, 1.0) * f64::from(LEVELS - 1)).round() as u8)
    };
    let points: Vec<u8> = rows.iter().flatten().map(level).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&points)?;
    writer.finish()?;
    Ok(format!("data:image/png;base64,{}", base64(&bytes)))
}

/// The levels of a track in a strip, on a scale from 0 to `top`. `is_least`: less is stronger.
pub fn levels(track: &Track, gaps: &[bool], top: f64, is_least: bool) -> Vec<Option<f64>> {
    let level = |(at, cell): (usize, &super::track::Cell)| {
        let share =
            cell.value().filter(|_| !gaps.get(at).copied().unwrap_or(false))? / top.max(f64::MIN_POSITIVE);
        Some(if is_least { 1.0 - share } else { share })
    };
    track.cells.iter().enumerate().map(level).collect()
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word =
            three.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let known = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, text) in known {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }

    #[test]
    fn a_strip_is_a_picture_of_its_rows() {
        let strip = strip(&[vec![Some(0.0), Some(1.0), None], vec![Some(0.5); 3]], [1, 2, 3]).unwrap();
        assert!(strip.starts_with("data:image/png;base64,iVBORw0KGgo"), "{strip}");
        assert!(super::strip(&[], [0; 3]).is_err());
    }
}
