//! Pictures of numbers: bars, split bars and lines of levels.

use super::pen::Pen;
use crate::tui::theme::{Role, Theme};

/// A bar of `width` cells: shares of the whole with their role, first at the left, the rest empty. Shares are
/// 0.0..=1.0; the excess over the whole is cut.
pub fn bar(pen: &mut Pen<'_>, width: u16, shares: &[(f64, Role)], theme: &Theme) {
    let width = width.min(pen.room());
    let (mut sum, mut drawn) = (0.0, 0);
    for (share, role) in shares {
        sum += if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let end = ((sum.min(1.0) * f64::from(width)).round() as u16).max(drawn);
        let glyph =
            if matches!(role, Role::Remote | Role::Cache) { theme.glyphs.remote } else { theme.glyphs.local };
        pen.repeat(glyph, end - drawn, theme.style(*role));
        drawn = end;
    }
    pen.repeat(theme.glyphs.empty, width - drawn, theme.style(Role::Dim));
}

/// The level of `share` (0.0..=1.0): anything above nothing is at least the lowest.
pub fn level(share: f64, theme: &Theme) -> char {
    let levels = theme.glyphs.levels;
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
    levels[((share * levels.len() as f64) as usize).min(levels.len() - 1)]
}

/// The shade of `share` (0.0..=1.0): anything above nothing has at least the lightest.
pub fn shade(share: f64, theme: &Theme) -> char {
    let shades = theme.glyphs.shades;
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
    shades[((share * (shades.len() - 1) as f64).ceil() as usize).min(shades.len() - 1)]
}

/// Shares (0.0..=1.0) as levels, each in one cell; a gap for a missing one.
pub fn curve(pen: &mut Pen<'_>, shares: &[Option<f64>], role: Role, theme: &Theme) {
    for share in shares {
        match share {
            None => pen.gap(1),
            Some(share) if *share > 0.0 => pen.repeat(level(*share, theme), 1, theme.style(role)),
            Some(_) => pen.repeat(theme.glyphs.levels[0], 1, theme.style(Role::Dim)),
        };
    }
}

/// The last values as levels of their largest, newest at the right; a gap where there was no value.
pub fn sparkline(pen: &mut Pen<'_>, width: u16, values: &[Option<f64>], theme: &Theme) {
    let width = width.min(pen.room());
    let shown = &values[values.len().saturating_sub(usize::from(width))..];
    let top = shown.iter().flatten().copied().fold(0.0, f64::max);
    pen.gap(width - shown.len() as u16);
    for value in shown {
        match value {
            None => pen.gap(1),
            Some(value) if top > 0.0 && *value > 0.0 => {
                pen.repeat(level(value / top, theme), 1, theme.style(Role::Local))
            }
            Some(_) => pen.repeat(theme.glyphs.levels[0], 1, theme.style(Role::Dim)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;

    fn drawn(width: u16, draw: impl Fn(&mut Pen<'_>, &Theme)) -> String {
        let mut buf = Buffer::empty(Rect::new(0, 0, width, 1));
        let area = buf.area;
        draw(&mut Pen::new(&mut buf, area, 0, '~'), &Theme::new(false, true));
        buf.content().iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn shares_fill_a_bar_from_the_left() {
        let shares = [(0.5, Role::Local), (0.25, Role::Remote)];
        assert_eq!(drawn(8, |pen, theme| bar(pen, 8, &shares, theme)), "####==..");
    }

    #[test]
    fn impossible_shares_stay_inside() {
        let shares = [(f64::NAN, Role::Local), (7.0, Role::Remote), (-1.0, Role::Local)];
        assert_eq!(drawn(4, |pen, theme| bar(pen, 4, &shares, theme)), "====");
    }

    #[test]
    fn the_newest_value_is_at_the_right() {
        let values = [Some(9.0), Some(0.0), None, Some(1.0), Some(2.0)];
        assert_eq!(drawn(6, |pen, theme| sparkline(pen, 6, &values, theme)), " #_ _.");
        assert_eq!(drawn(2, |pen, theme| sparkline(pen, 2, &values, theme)), "=#");
    }
}
