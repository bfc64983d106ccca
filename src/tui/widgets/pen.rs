//! Writing on one row of the screen, never outside the row, and pictures of numbers: bars, split bars and lines of levels.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::tui::theme::{Role, Theme};

/// A place on a row that moves right as text is written. Outside its area it writes nothing.
pub struct Pen<'a> {
    buf: &'a mut Buffer,
    x: u16,
    y: u16,
    right: u16,
    ellipsis: char,
}

impl<'a> Pen<'a> {
    /// At the left end of row `row` of `area`.
    pub fn new(buf: &'a mut Buffer, area: Rect, row: u16, ellipsis: char) -> Pen<'a> {
        let area = area.intersection(buf.area);
        let right = if row < area.height { area.right() } else { area.left() };
        Pen { buf, x: area.left(), y: area.y.saturating_add(row), right, ellipsis }
    }

    /// Cells left on the row.
    pub fn room(&self) -> u16 {
        self.right.saturating_sub(self.x)
    }

    /// Writes `text`, cut with an ellipsis where it does not fit.
    pub fn write(&mut self, text: &str, style: Style) -> &mut Self {
        self.write_within(text, self.room(), style)
    }

    /// Writes `text` in at most `width` cells.
    pub fn write_within(&mut self, text: &str, width: u16, style: Style) -> &mut Self {
        let width = usize::from(width.min(self.room()));
        if width > 0 && !text.is_empty() {
            let text = cut(text, width, self.ellipsis);
            self.x = self.buf.set_stringn(self.x, self.y, text, width, style).0.min(self.right);
        }
        self
    }

    /// Writes `text` at the right end of the next `width` cells.
    pub fn write_right(&mut self, text: &str, width: u16, style: Style) -> &mut Self {
        let width = width.min(self.room());
        let end = self.x + width;
        self.gap(width.saturating_sub(text.width().min(usize::from(width)) as u16));
        self.write_within(text, end - self.x, style);
        self.x = end;
        self
    }

    /// Writes one character `count` times.
    pub fn repeat(&mut self, c: char, count: u16, style: Style) -> &mut Self {
        let text: String = std::iter::repeat_n(c, usize::from(count.min(self.room()))).collect();
        self.write(&text, style)
    }

    /// Moves right without writing.
    pub fn gap(&mut self, cells: u16) -> &mut Self {
        self.x = self.x.saturating_add(cells).min(self.right);
        self
    }

    /// Moves to `column` of the row, counted from `left`.
    pub fn column(&mut self, left: u16, column: u16) -> &mut Self {
        self.x = left.saturating_add(column).min(self.right);
        self
    }
}

/// `text` in at most `width` cells; a cut shows as `ellipsis`.
pub fn cut(text: &str, width: usize, ellipsis: char) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        let cells = c.width().unwrap_or(0);
        if used + cells + 1 > width {
            break;
        }
        used += cells;
        out.push(c);
    }
    if width > 0 {
        out.push(ellipsis);
    }
    out
}

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
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;

    use super::*;

    #[test]
    fn wide_characters_are_never_cut_in_half() {
        assert_eq!(cut("数据库", 6, '~'), "数据库");
        assert_eq!(cut("数据库", 5, '~'), "数据~");
        assert_eq!(cut("数据库", 4, '~'), "数~");
        assert_eq!(cut("abc", 0, '~'), "");
    }

    #[test]
    fn nothing_is_written_outside_the_area() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 6, 2));
        let area = Rect::new(1, 0, 4, 1);
        Pen::new(&mut buf, area, 0, '~').write("abc", Style::new()).write("defgh", Style::new());
        Pen::new(&mut buf, area, 1, '~').write("below", Style::new());
        Pen::new(&mut buf, Rect::new(0, 5, 9, 9), 0, '~').write("far", Style::new());
        assert_eq!(buf, Buffer::with_lines([" abc~ ", "      "]));
    }

    #[test]
    fn numbers_stand_at_the_right() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 8, 1));
        let area = buf.area;
        Pen::new(&mut buf, area, 0, '~').write_right("42", 5, Style::new()).write("%", Style::new());
        assert_eq!(buf, Buffer::with_lines(["   42%  "]));
    }

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
