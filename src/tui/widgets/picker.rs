//! A box with lines to choose from, and a line that is being typed at the bottom of the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Margin, Rect};
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::cursor::Cursor;
use super::layout;
use super::pen::Pen;
use crate::tui::input::Motion;
use crate::tui::theme::{Role, Theme};

/// Something that a line represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pickable {
    /// The id of a metric.
    Metric(&'static str),
    /// A set of events.
    Events(&'static str),
    /// A user id; `None` is all users.
    User(Option<u32>),
}

impl Pickable {
    /// The id, if any.
    fn id(self) -> &'static str {
        match self {
            Pickable::Metric(id) | Pickable::Events(id) => id,
            Pickable::User(_) => "",
        }
    }
}

/// One line of the picker.
pub struct Line {
    /// Whether the column is shown; `None` where one line is chosen.
    pub checked: Option<bool>,
    /// It can be shown here.
    pub is_available: bool,
    pub name: String,
    pub note: String,
    pub what: Pickable,
}

pub struct Picker {
    title: &'static str,
    lines: Vec<Line>,
    /// Typed: only lines that contain it are shown.
    filter: String,
    /// Places of the lines that are shown, those whose name matches first.
    matches: Vec<usize>,
    pub at: usize,
    pub offset: usize,
}

impl Picker {
    /// With the line of `selected` selected, or else the first.
    pub fn new(title: &'static str, lines: Vec<Line>, selected: Option<Pickable>) -> Picker {
        let at = lines.iter().position(|line| Some(line.what) == selected).unwrap_or(0);
        let matches = (0..lines.len()).collect();
        Picker { title, lines, filter: String::new(), matches, at, offset: 0 }
    }

    /// Lines that are shown.
    pub fn len(&self) -> usize {
        self.matches.len()
    }

    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Some lines may be hidden.
    pub fn is_filtered(&self) -> bool {
        !self.filter.is_empty()
    }

    /// Changes the filter. Case does not count.
    pub fn edit(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.filter);
        let wanted = self.filter.to_lowercase();
        let rank = |line: &Line| match () {
            () if line.name.to_lowercase() == wanted => Some(0),
            () if line.name.to_lowercase().starts_with(&wanted) => Some(1),
            () if line.name.to_lowercase().contains(&wanted) || line.what.id().contains(&wanted) => Some(2),
            () => line.note.to_lowercase().contains(&wanted).then_some(3),
        };
        let ranked = self.lines.iter().enumerate().filter_map(|(at, line)| Some((rank(line)?, at)));
        let mut ranked: Vec<(u8, usize)> = ranked.collect();
        if self.is_filtered() {
            ranked.sort_unstable();
        }
        self.matches = ranked.into_iter().map(|(_, at)| at).collect();
        (self.at, self.offset) = (0, 0);
    }

    /// True for a choice of columns, in which more can be done than choosing.
    pub fn is_of_columns(&self) -> bool {
        self.lines.iter().any(|line| line.checked.is_some())
    }

    pub fn line(&self, at: usize) -> Option<&Line> {
        self.lines.get(*self.matches.get(at)?)
    }

    /// The choice on the selected line.
    pub fn chosen(&self) -> Option<Pickable> {
        self.line(self.at).map(|line| line.what)
    }

    /// Ids of the columns that are shown, in order.
    pub fn shown(&self) -> Vec<&'static str> {
        let shown = self.lines.iter().filter(|line| line.checked == Some(true));
        let id = |line: &Line| match line.what {
            Pickable::Metric(id) => Some(id),
            _ => None,
        };
        shown.filter_map(id).collect()
    }

    pub fn go(&mut self, motion: Motion, height: usize) {
        let mut cursor = Cursor::new();
        let keys: Vec<usize> = (0..self.len()).collect();
        cursor.select(self.at, &keys, height.max(1));
        match motion {
            // In a list this short the wheel moves the selection.
            Motion::WheelUp => cursor.go(Motion::Up, &keys, height),
            Motion::WheelDown => cursor.go(Motion::Down, &keys, height),
            motion => cursor.go(motion, &keys, height),
        }
        self.at = cursor.at();
        self.scroll(height);
    }

    /// Selects the line in this row of the view.
    pub fn click(&mut self, row: usize) {
        if self.offset + row < self.len() {
            self.at = self.offset + row;
        }
    }

    /// Keeps the selected line in view.
    pub fn scroll(&mut self, height: usize) {
        self.offset = self.offset.clamp((self.at + 1).saturating_sub(height.max(1)), self.at);
    }

    /// Shows or hides the selected column. False when it is the only one, which has to stay.
    pub fn toggle(&mut self) -> bool {
        let only = self.shown().len() == 1;
        let line = self.matches.get(self.at).and_then(|at| self.lines.get_mut(*at));
        match line.and_then(|line| line.checked.as_mut()) {
            Some(shown) if *shown && only => false,
            Some(shown) => {
                *shown = !*shown;
                true
            }
            None => true,
        }
    }

    /// Moves the selected column one place.
    pub fn shift(&mut self, later: bool) {
        let to = if later { self.at + 1 } else { self.at.wrapping_sub(1) };
        if self.is_of_columns() && !self.is_filtered() && to < self.len() && self.at < self.len() {
            self.lines.swap(self.at, to);
            self.at = to;
        }
    }

    /// The place of the box.
    pub fn frame(&self, body: Rect) -> Rect {
        layout::popup(body, 76, self.lines.len().min(200) as u16 + 2)
    }

    /// The place of its lines: inside the frame.
    pub fn inside(&self, body: Rect) -> Rect {
        inside(self.frame(body))
    }

    /// The box, its title, and the lines in view.
    pub fn draw(&self, theme: &Theme, body: Rect, buf: &mut Buffer) {
        let frame = self.frame(body).intersection(buf.area);
        let glyphs = theme.glyphs;
        for row in 0..frame.height {
            let edge = row == 0 || row + 1 == frame.height;
            let (side, fill) =
                if edge { (glyphs.horizontal, glyphs.horizontal) } else { (glyphs.vertical, ' ') };
            // The view below must not shine through.
            let dim = reset(theme.style(Role::Dim));
            let mut pen = Pen::new(buf, frame, row, glyphs.ellipsis);
            pen.repeat(side, 1, dim).repeat(fill, frame.width.saturating_sub(2), dim).repeat(side, 1, dim);
        }
        let title = format!(" {} ", self.title);
        let mut pen = Pen::new(buf, frame, 0, glyphs.ellipsis);
        pen.gap(2).write(&title, reset(theme.style(Role::Title)));
        match self.is_filtered() {
            true => pen.write(&format!("{} ", self.filter), reset(theme.style(Role::Key))),
            false => pen.write("type to filter ", reset(theme.style(Role::Dim))),
        };
        let inside = inside(frame);
        for row in 0..inside.height {
            let at = self.offset + usize::from(row);
            let Some(line) = self.line(at) else { break };
            let selected = at == self.at;
            let style = |role| {
                let role = if line.is_available { role } else { Role::Dim };
                reset(theme.style(if selected { Role::Selected } else { role }))
            };
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
}

fn inside(frame: Rect) -> Rect {
    frame.inner(Margin::new(1, 1))
}

/// Takes everything away from a cell that `style` does not set.
fn reset(style: Style) -> Style {
    Style::reset().patch(style)
}

/// Characters taken at most.
const MAX: usize = 64;

/// The purpose of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Search,
    Filter,
    Interval,
    /// Where to go in a recording: by this time, or ahead by this long.
    Forward,
    /// The same, but back.
    Backward,
    /// The name of a new file for a report.
    Report,
    /// Whether to keep the choices as defaults. No text is typed.
    Keep,
}

pub struct Prompt {
    pub purpose: Purpose,
    pub text: String,
    /// The text that Esc brings back.
    pub before: String,
}

impl Prompt {
    /// Starts with `text`, which Esc brings back.
    pub fn new(purpose: Purpose, text: &str) -> Prompt {
        Prompt { purpose, text: text.to_string(), before: text.to_string() }
    }

    /// The question.
    pub fn question(&self) -> &'static str {
        match self.purpose {
            Purpose::Search => "Search: ",
            Purpose::Filter => "Show only: ",
            Purpose::Interval => "Interval in seconds (0.1 to 60): ",
            Purpose::Forward => "Go to a time, or ahead by a duration (03:12, 90s, 5m): ",
            Purpose::Backward => "Go to a time, or back by a duration (03:12, 90s, 5m): ",
            Purpose::Report => "Save an HTML report of the last 10 min as: ",
            Purpose::Keep => "Save columns, order, rows, interval and screen as defaults?",
        }
    }

    /// The keys that answer it.
    pub fn answers(&self) -> &'static str {
        match self.purpose {
            Purpose::Report => "Enter saves, Esc cancels",
            Purpose::Keep => "Enter or y saves, Esc or n cancels",
            _ => "Enter confirms, Esc cancels",
        }
    }

    /// Takes a character that can be shown.
    pub fn push(&mut self, c: char) {
        let mut bytes = [0; 4];
        let text: &str = c.encode_utf8(&mut bytes);
        // A backslash is harmless here: nothing of this line is an escape.
        let harmless = c == '\\' || crate::text::clean_str(text) == text;
        if harmless && self.purpose != Purpose::Keep && self.text.chars().count() < MAX {
            self.text.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_can_be_typed() {
        let mut prompt = Prompt::new(Purpose::Search, "");
        for c in ['a', '\u{1b}', '\u{202e}', '\\', '界', '\u{200d}'] {
            prompt.push(c);
        }
        assert_eq!(prompt.text, "a\\界");
    }
}
