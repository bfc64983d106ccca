//! The target of a click.

use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::App;
use crate::tui::input::action::{Action, Effect, Motion};
use crate::tui::widgets::footer::{self, Keys};

impl App {
    /// Takes the mouse.
    pub fn mouse(&mut self, event: MouseEvent) -> Option<Effect> {
        let action = match event.kind {
            MouseEventKind::Down(MouseButton::Left) => {
                self.footer_hit(event.column, event.row).unwrap_or(Action::Click(event.column, event.row))
            }
            MouseEventKind::ScrollUp => Action::Move(Motion::WheelUp),
            MouseEventKind::ScrollDown => Action::Move(Motion::WheelDown),
            _ => return None,
        };
        self.update(action)
    }

    /// The key in the last line under the mouse, where keys are shown there.
    fn footer_hit(&self, x: u16, y: u16) -> Option<Action> {
        let footer = self.parts().footer;
        let is_there =
            self.prompt.is_none() && self.state.message.is_none() && footer.contains((x, y).into());
        let keys = Keys { context: self.contexts(), offers: &|action| self.offers(action) };
        is_there.then(|| footer::hit(&keys, footer.width, x - footer.x)).flatten()
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
