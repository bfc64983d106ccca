//! The last line: what is being typed, what has to be said, or which keys there are.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::app::App;
use crate::tui::keymap::{self, KEYS};
use crate::tui::theme::Role;
use crate::tui::widget::pen::Pen;

pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let mut pen = Pen::new(buf, area, 0, theme.glyphs.ellipsis);
    if let Some(prompt) = &app.prompt {
        pen.write(prompt.question(), theme.style(Role::Title)).write(&prompt.text, theme.style(Role::Plain));
        pen.write(" ", theme.style(Role::Selected)).gap(1);
        let hint = app.message.as_deref().unwrap_or("Enter takes it, Esc drops it");
        pen.write(hint, theme.style(if app.message.is_some() { Role::Warn } else { Role::Dim }));
        return;
    }
    if let Some(message) = &app.message {
        pen.write(message, theme.style(Role::Warn));
        return;
    }
    let context = app.contexts() & !keymap::context::PAUSED;
    let labelled = KEYS.iter().filter(|line| line.contexts & context != 0 && !line.label.is_empty());
    for line in labelled {
        let key = line.keys[0].name();
        if usize::from(pen.room()) < key.len() + line.label.len() + 1 {
            return;
        }
        pen.write(&key, theme.style(Role::Key)).gap(1).write(line.label, theme.style(Role::Plain)).gap(2);
    }
}
