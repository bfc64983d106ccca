//! The terminal as a place of a known size. Serial consoles have none, and a wrong ioctl can make any.

use std::io::{self, Write};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

/// The size of a terminal that does not know its own, unless `COLUMNS` and `LINES` say (as in ncurses).
const USUAL: Size = Size { width: 80, height: 24 };

/// The largest screen that is drawn: a wall of displays with a small font has less.
const LARGEST: Size = Size { width: 1000, height: 400 };

/// The size to draw for a terminal that reports the size `told`, with the values of `COLUMNS` and `LINES`.
pub(super) fn drawn(told: Size, columns: Option<&str>, lines: Option<&str>) -> Size {
    let of = |told: u16, variable: Option<&str>, usual: u16, largest: u16| {
        let wanted = variable.and_then(|text| text.parse().ok()).filter(|number: &u16| *number > 0);
        if told > 0 { told.min(largest) } else { wanted.unwrap_or(usual).min(largest) }
    };
    Size {
        width: of(told.width, columns, USUAL.width, LARGEST.width),
        height: of(told.height, lines, USUAL.height, LARGEST.height),
    }
}

/// A terminal whose size is always one that can be drawn.
pub(super) struct Sized<W: Write>(pub CrosstermBackend<W>);

impl<W: Write> Backend for Sized<W> {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.0.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.0.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        let variable = |name| std::env::var(name).ok();
        // Where the terminal cannot say, the variables do.
        let told = self.0.size().unwrap_or_default();
        Ok(drawn(told, variable("COLUMNS").as_deref(), variable("LINES").as_deref()))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let pixels = self.0.window_size().map(|size| size.pixels).unwrap_or_default();
        Ok(WindowSize { columns_rows: self.size()?, pixels })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_size_has_that_of_the_variables_or_the_usual_one() {
        let size = |width, height| Size { width, height };
        assert_eq!(drawn(size(0, 0), None, None), USUAL);
        assert_eq!(drawn(size(0, 0), Some("132"), Some("43")), size(132, 43));
        assert_eq!(drawn(size(0, 0), Some("nonsense"), Some("0")), USUAL);
        assert_eq!(drawn(size(120, 35), Some("80"), Some("24")), size(120, 35));
        assert_eq!(drawn(size(0, 50), None, None), size(80, 50));
    }

    #[test]
    fn a_size_that_no_screen_has_is_cut() {
        assert_eq!(drawn(Size { width: 65535, height: 65535 }, None, None), LARGEST);
        assert_eq!(drawn(Size { width: 0, height: 0 }, Some("65535"), Some("65535")), LARGEST);
    }
}
