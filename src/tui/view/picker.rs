//! A box with lines to choose from.

use ratatui::buffer::Buffer;
use ratatui::layout::{Margin, Rect};
use unicode_width::UnicodeWidthStr;

use crate::snapshot::Snapshot;
use crate::tui::app::picker::Picker;
use crate::tui::layout;
use crate::tui::theme::{Role, Theme};
use crate::tui::widget::pen::Pen;

/// Where the box is.
pub fn frame(body: Rect, picker: &Picker) -> Rect {
    layout::popup(body, 76, picker.len().min(200) as u16 + 2)
}

/// Where its lines are: inside the frame.
pub fn inside(frame: Rect) -> Rect {
    frame.inner(Margin::new(1, 1))
}

/// The box, its title, and the lines in view.
pub fn render(snapshot: &Snapshot, picker: &Picker, theme: &Theme, body: Rect, buf: &mut Buffer) {
    let frame = frame(body, picker).intersection(buf.area);
    let glyphs = theme.glyphs;
    for row in 0..frame.height {
        let edge = row == 0 || row + 1 == frame.height;
        let (side, fill) = if edge { (glyphs.horizontal, glyphs.horizontal) } else { (glyphs.vertical, ' ') };
        // What lies below must not shine through.
        let dim = reset(theme.style(Role::Dim));
        let mut pen = Pen::new(buf, frame, row, glyphs.ellipsis);
        pen.repeat(side, 1, dim).repeat(fill, frame.width.saturating_sub(2), dim).repeat(side, 1, dim);
    }
    let title = format!(" {} ", picker.title());
    Pen::new(buf, frame, 0, glyphs.ellipsis).gap(2).write(&title, reset(theme.style(Role::Title)));
    let inside = inside(frame);
    for row in 0..inside.height {
        let at = picker.offset + usize::from(row);
        let Some(line) = picker.line(at, Some(snapshot)) else { break };
        let selected = at == picker.at;
        let style = |role| reset(theme.style(if selected { Role::Selected } else { role }));
        let mut pen = Pen::new(buf, inside, row, glyphs.ellipsis);
        pen.repeat(' ', inside.width, style(Role::Plain)).column(inside.x, 1);
        if let Some(checked) = line.checked {
            pen.write(if checked { "[x] " } else { "[ ] " }, style(Role::Plain));
        }
        pen.write_within(&line.name, 24, style(Role::Key));
        pen.gap(12u16.saturating_sub(line.name.width() as u16) + 1);
        pen.write(&line.note, style(Role::Plain));
    }
}

/// Takes everything away from a cell that `style` does not set.
fn reset(style: ratatui::style::Style) -> ratatui::style::Style {
    ratatui::style::Style::reset().patch(style)
}
