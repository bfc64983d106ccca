//! The last line: the text being typed, a message, or the keys.

use std::collections::HashSet;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::picker::Prompt;
use crate::tui::input::Action;
use crate::tui::input::keymap::context::TIMELINE;
use crate::tui::input::keymap::{self, Binding, KEYS};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// The keys that there are.
pub struct Keys<'a> {
    /// Bits of [`keymap::context`].
    pub context: u16,
    /// Whether the source has what an action is for.
    pub offers: &'a dyn Fn(Action) -> bool,
}

/// The line that is typed into `prompt`, the `message`, or the keys.
pub fn render(
    prompt: Option<&Prompt>,
    message: Option<&str>,
    keys: &Keys<'_>,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    if let Some(prompt) = prompt {
        pen.write(prompt.question(), theme.style(Role::Title)).write(&prompt.text, theme.style(Role::Plain));
        pen.write(" ", theme.style(Role::Selected)).gap(1);
        let hint = message.unwrap_or(prompt.answers());
        pen.write(hint, theme.style(if message.is_some() { Role::Warn } else { Role::Dim }));
        return;
    }
    if let Some(message) = message {
        pen.write(message, theme.style(Role::Warn));
        return;
    }
    for word in fitting(keys, pen.room()) {
        pen.write(&word.key, theme.style(Role::Key))
            .gap(1)
            .write(word.label, theme.style(Role::Plain))
            .gap(2);
    }
}

/// The action of the key at this cell of a line of this width.
pub fn hit(keys: &Keys<'_>, width: u16, x: u16) -> Option<Action> {
    let mut left = 0;
    for word in fitting(keys, width) {
        let right = left + word.cells();
        // The gap behind a word is part of none.
        if (left..right.saturating_sub(2)).contains(&x) {
            return Some(word.action);
        }
        left = right;
    }
    None
}

/// A key with its word.
struct Word {
    key: String,
    label: &'static str,
    action: Action,
}

impl Word {
    /// Cells of both, with a gap between them and behind.
    fn cells(&self) -> u16 {
        (self.key.width() + self.label.len() + 3) as u16
    }
}

/// The keys that have room, the way out last.
fn fitting(keys: &Keys<'_>, width: u16) -> Vec<Word> {
    let context = keys.context;
    // With a time bar, its keys come first.
    let along_time = |line: &&Binding| line.contexts & context & TIMELINE != 0;
    let (first, then) = (KEYS.iter().filter(along_time), KEYS.iter().filter(|line| !along_time(line)));
    let mut words: Vec<Word> = first
        .chain(then)
        .filter(|line| line.contexts & context != 0 && !line.label.is_empty() && (keys.offers)(line.action))
        // The meaning that a key has here counts: for some it is another in a recording.
        .filter(|line| {
            let key = &line.keys[0];
            keymap::action(KeyEvent::new(key.0, key.1), context) == Some(line.action)
        })
        .map(|line| Word { key: line.keys[0].name(), label: line.label, action: line.action })
        .collect();
    // A key that has one name while paused and another at all times has the first.
    let mut named = HashSet::new();
    words.retain(|word| named.insert(word.key.clone()));
    let Some(way_out) = words.pop() else { return words };
    // The way out is worth more than any other key.
    let mut room = width.saturating_sub(way_out.cells());
    let fits = words.iter().take_while(|word| {
        let left = room.checked_sub(word.cells());
        room = left.unwrap_or(room);
        left.is_some()
    });
    let count = fits.count();
    words.truncate(count);
    words.push(way_out);
    words
}
