//! The last line: what is being typed, what has to be said, or which keys there are.

use std::collections::HashSet;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::prompt::Prompt;
use crate::tui::input::action::Action;
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
    let context = keys.context;
    // Where there is a time bar, its keys come first.
    let along_time = |line: &&Binding| line.contexts & context & TIMELINE != 0;
    let (first, then) = (KEYS.iter().filter(along_time), KEYS.iter().filter(|line| !along_time(line)));
    let mut words: Vec<(String, &str)> = first
        .chain(then)
        .filter(|line| line.contexts & context != 0 && !line.label.is_empty() && (keys.offers)(line.action))
        // The meaning that a key has here counts: for some it is another in a recording.
        .filter(|line| {
            let key = &line.keys[0];
            keymap::action(KeyEvent::new(key.0, key.1), context) == Some(line.action)
        })
        .map(|line| (line.keys[0].name(), line.label))
        .collect();
    // A key that has one name while paused and another at all times has the first.
    let mut named = HashSet::new();
    words.retain(|(key, _)| named.insert(key.clone()));
    let Some((way_out, others)) = words.split_last() else { return };
    let cells = |(key, label): &(String, &str)| (key.width() + label.len() + 3) as u16;
    // The way out is worth more than any other key.
    let fitting = others.iter().scan(pen.room().saturating_sub(cells(way_out)), |room, word| {
        *room = room.checked_sub(cells(word))?;
        Some(word)
    });
    for (key, label) in fitting.chain([way_out]) {
        pen.write(key, theme.style(Role::Key)).gap(1).write(label, theme.style(Role::Plain)).gap(2);
    }
}
