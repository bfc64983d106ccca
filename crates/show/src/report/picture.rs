//! Numbers over time as pictures: lines as paths of relative integers in SVG, stretched to their place; and many rows as a PNG
//! of one byte a point, whose levels are one colour with more or less alpha, so that it fits a light and a dark page.

use std::fmt::Write;
use std::io;

use png::{BitDepth, ColorType, Compression, Encoder};

use super::track::{Cell, Track};

/// Height of the picture: values go from 0 (the bottom, at this height) to the top of the scale (0).
pub const HEIGHT: i64 = 400;

/// Width of a bucket; its value is in the middle.
pub const STEP: i64 = 2;

/// A line, the area below it, and the band between the least and the most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    pub line: String,
    pub area: String,
    pub band: String,
    /// Points without a length at the lowest and the highest value; drawn with round caps they are dots.
    pub dots: String,
}

fn height(value: f64, top: f64) -> i64 {
    let share = if top > 0.0 { value / top } else { 0.0 };
    HEIGHT - (share.clamp(0.0, 1.0) * HEIGHT as f64).round() as i64
}

/// The paths of a track on a scale from 0 to `top`. Buckets that are gaps are left out, whatever is in them.
pub fn paths(track: &Track, gaps: &[bool], top: f64) -> Paths {
    let mut paths = Paths::default();
    let is_there = |at: usize| {
        !gaps.get(at).copied().unwrap_or(false)
            && track.cells.get(at).is_some_and(|cell| cell.value().is_some())
    };
    let mut at = 0;
    while at < track.cells.len() {
        if !is_there(at) {
            at += 1;
            continue;
        }
        let end = (at..track.cells.len()).find(|next| !is_there(*next)).unwrap_or(track.cells.len());
        segment(&mut paths, at, &track.cells[at..end], top);
        at = end;
    }
    let value = |at: usize| track.cells[at].value().unwrap_or(0.0);
    let there = || (0..track.cells.len()).filter(|at| is_there(*at));
    // The first of equal ones.
    let lowest = there().reduce(|least, next| if value(next) < value(least) { next } else { least });
    let highest = there().reduce(|most, next| if value(next) > value(most) { next } else { most });
    if let (Some(lowest), Some(highest)) = (lowest, highest)
        && height(value(lowest), top) > height(value(highest), top)
    {
        for at in [lowest, highest] {
            let _ = write!(paths.dots, "M{} {}h0", at as i64 * STEP + STEP / 2, height(value(at), top));
        }
    }
    paths
}

/// A stretch of buckets without a hole. A single bucket keeps its width.
fn segment(paths: &mut Paths, first: usize, cells: &[Cell], top: f64) {
    let x = |at: usize| (first + at) as i64 * STEP + STEP / 2;
    let heights: Vec<i64> = cells.iter().map(|cell| height(cell.value().unwrap_or(0.0), top)).collect();
    let mut line = Line::at(first as i64 * STEP, heights[0]);
    for (at, y) in heights.iter().enumerate() {
        line.to(x(at), *y);
    }
    line.to((first + cells.len()) as i64 * STEP, heights[heights.len() - 1]);
    let text = line.done();
    let _ = write!(paths.area, "{text}V{HEIGHT}H{}z", first as i64 * STEP);
    paths.line += &text;
    let has_band = |cell: &Cell| cell.low < cell.high;
    if cells.len() < 2 || !cells.iter().any(has_band) {
        return;
    }
    let ends = |cell: &Cell, of: fn(&Cell) -> f32| {
        let own = cell.value().unwrap_or(0.0);
        height(if cell.low <= cell.high { f64::from(of(cell)) } else { own }, top)
    };
    let mut band = Line::at(x(0), ends(&cells[0], |cell| cell.high));
    for (at, cell) in cells.iter().enumerate() {
        band.to(x(at), ends(cell, |cell| cell.high));
    }
    for (at, cell) in cells.iter().enumerate().rev() {
        band.to(x(at), ends(cell, |cell| cell.low));
    }
    paths.band += &band.done();
    paths.band.push('z');
}

/// A path in the making: relative, with points on a level line left out.
struct Line {
    text: String,
    at: (i64, i64),
    /// A step along the level that is not written yet.
    level: i64,
}

impl Line {
    fn at(x: i64, y: i64) -> Line {
        Line { text: format!("M{x} {y}l"), at: (x, y), level: 0 }
    }

    fn push(&mut self, dx: i64, dy: i64) {
        if !self.text.ends_with('l') && dx >= 0 {
            self.text.push(' ');
        }
        let between = if dy < 0 { "" } else { " " };
        let _ = write!(self.text, "{dx}{between}{dy}");
    }

    fn to(&mut self, x: i64, y: i64) {
        let (dx, dy) = (x - self.at.0, y - self.at.1);
        self.at = (x, y);
        if dy == 0 && dx >= 0 && self.level >= 0 {
            self.level += dx;
            return;
        }
        self.flush();
        self.push(dx, dy);
    }

    fn flush(&mut self) {
        if self.level != 0 {
            let level = std::mem::take(&mut self.level);
            self.push(level, 0);
        }
    }

    fn done(mut self) -> String {
        self.flush();
        if self.text.ends_with('l') {
            self.push(0, 0);
        }
        self.text
    }
}

/// The least of 1, 2, 3, 5 × 10ⁿ that is not below a value; 1 for 0.
pub fn nice(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 3.0, 5.0, 10.0].into_iter().find(|step| step * power >= value * 0.999_999);
    step.unwrap_or(10.0) * power
}

/// Values of a sparkline: the means of at most `points` pieces of a track, and `None` for a piece without a
/// measurement.
pub fn thinned(track: &Track, gaps: &[bool], points: usize) -> Vec<Option<f64>> {
    let each = track.cells.len().div_ceil(points.max(1)).max(1);
    let piece = |start: usize| {
        let end = (start + each).min(track.cells.len());
        let measured = (start..end).filter(|at| !gaps.get(*at).copied().unwrap_or(false));
        let sums = track.sums(measured);
        (sums.den > 0.0).then(|| sums.value())
    };
    (0..track.cells.len()).step_by(each).map(piece).collect()
}

/// The path of a sparkline, as an area and a line, on a scale from 0 to an eighth more than the largest value.
pub fn spark(values: &[Option<f64>]) -> Paths {
    let top = values.iter().flatten().copied().fold(0.0, f64::max) * 1.125;
    let cell = |value: &Option<f64>| match value {
        Some(value) => Cell { num: *value, den: 1.0, low: 1.0, high: 0.0 },
        None => Cell::default(),
    };
    let track = Track { cells: values.iter().map(cell).collect() };
    paths(&track, &[], top)
}

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

    fn track(values: &[Option<f64>]) -> Track {
        let cell = |value: &Option<f64>| {
            value.map_or(Cell::default(), |value| Cell {
                num: value,
                den: 1.0,
                low: value as f32 - 1.0,
                high: value as f32 + 1.0,
            })
        };
        Track { cells: values.iter().map(cell).collect() }
    }

    #[test]
    fn a_line_is_of_relative_integers() {
        let paths = paths(&track(&[Some(0.0), Some(5.0), Some(5.0), Some(10.0)]), &[], 10.0);
        assert_eq!(paths.line, "M0 400l1 0 2-200 2 0 2-200 1 0");
        assert_eq!(paths.area, "M0 400l1 0 2-200 2 0 2-200 1 0V400H0z");
        assert!(paths.band.ends_with('z'), "{}", paths.band);
    }

    #[test]
    fn dots_are_at_the_lowest_and_the_highest_value() {
        let values = [Some(5.0), Some(2.0), None, Some(8.0), Some(2.0)];
        assert_eq!(paths(&track(&values), &[], 10.0).dots, "M3 320h0M7 80h0");
        assert_eq!(paths(&track(&[Some(5.0), Some(5.0)]), &[], 10.0).dots, "");
        assert_eq!(spark(&[Some(8.0), Some(8.0)]).line, "M0 44l4 0");
    }

    #[test]
    fn a_hole_is_no_line() {
        let holed = track(&[Some(1.0), None, Some(1.0), Some(1.0)]);
        let hole = paths(&holed, &[], 10.0);
        assert_eq!(hole.line.matches('M').count(), 2);
        let gap = paths(&track(&[Some(1.0), Some(9.0), Some(1.0)]), &[false, true, false], 10.0);
        assert_eq!(gap.line, "M0 360l2 0M4 360l2 0");
    }

    #[test]
    fn scales_end_at_round_numbers() {
        assert_eq!([0.0, 0.7, 1.0, 1.4, 2.1, 42.0, 101.0].map(nice), [1.0, 1.0, 1.0, 2.0, 3.0, 50.0, 200.0]);
    }

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
