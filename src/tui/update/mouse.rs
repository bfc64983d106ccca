//! The target of a click.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::App;
use crate::tui::input::action::{Action, Effect, Motion};
use crate::tui::widgets::footer::{self, Keys};

/// Two clicks on a row within this time are a double click.
const DOUBLE: Duration = Duration::from_millis(400);

impl App {
    /// Takes the mouse.
    pub fn mouse(&mut self, event: MouseEvent) -> Option<Effect> {
        let action = match event.kind {
            MouseEventKind::Down(MouseButton::Left) if self.is_second(event) => Action::Open,
            MouseEventKind::Down(MouseButton::Left) => {
                self.footer_hit(event.column, event.row).unwrap_or(Action::Click(event.column, event.row))
            }
            MouseEventKind::ScrollUp => Action::Move(Motion::WheelUp),
            MouseEventKind::ScrollDown => Action::Move(Motion::WheelDown),
            _ => return None,
        };
        self.update(action)
    }

    /// Whether a click is the second one on a row of the table on top. A third one counts as a first one.
    fn is_second(&mut self, event: MouseEvent) -> bool {
        let list = self.list();
        let is_row = self.picker.is_none() && self.prompt.is_none() && self.on_top.is_empty();
        let here = (is_row && list.contains((event.column, event.row).into())).then(Instant::now);
        let before = self.clicked.take();
        let is_second =
            before.zip(here).is_some_and(|((then, row), now)| row == event.row && now - then < DOUBLE);
        self.clicked = here.filter(|_| !is_second).map(|now| (now, event.row));
        is_second
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
        // The gap to the right of a column belongs to it.
        let hit = self.places().into_iter().find(|column| (column.left..=column.right).contains(&x));
        match hit {
            Some(column) if Some(column.id) == self.sorted() => self.invert(),
            Some(column) => self.sort_by(column.id),
            None => {}
        }
    }
}
