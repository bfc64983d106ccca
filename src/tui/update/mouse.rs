//! The target of a click.

use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::App;
use crate::tui::input::action::{Action, Effect, Motion};

impl App {
    /// Takes the mouse.
    pub fn mouse(&mut self, event: MouseEvent) -> Option<Effect> {
        let action = match event.kind {
            MouseEventKind::Down(MouseButton::Left) => Action::Click(event.column, event.row),
            MouseEventKind::ScrollUp => Action::Move(Motion::WheelUp),
            MouseEventKind::ScrollDown => Action::Move(Motion::WheelDown),
            _ => return None,
        };
        self.update(action)
    }

    /// A row is selected, a title sorted by; the title that is sorted by already turns the order.
    pub(super) fn click(&mut self, x: u16, y: u16) {
        let (list, top) = (self.list(), self.top());
        let inside = list.contains((x, y).into());
        let line = usize::from(y.saturating_sub(list.y));
        match &mut self.picker {
            Some(picker) if inside => picker.click(line),
            Some(_) => {}
            None if inside => self.screens.get_mut(top).select(line, usize::from(list.height)),
            None if y + 1 == list.y => self.click_title(x.saturating_sub(list.x)),
            None => {}
        }
    }

    fn click_title(&mut self, x: u16) {
        // The gap to the right of a column is part of it.
        let hit = self.places().into_iter().find(|column| (column.left..=column.right).contains(&x));
        match hit {
            Some(column) if Some(column.id) == self.sorted() => self.invert(),
            Some(column) => self.sort_by(column.id),
            None => {}
        }
    }
}
