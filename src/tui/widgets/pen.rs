//! Writing on one row of the screen, never outside the row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

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

#[cfg(test)]
mod tests {
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
}
