//! Sizes and places on the screen: rows of a list, the target of a click.

use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

use super::App;
use crate::metric::on_demand;
use crate::source::Focus;
use crate::tui::action::{Action, Effect, Motion, Screen};
use crate::tui::layout::{self, Parts, Wanted};
use crate::tui::view;

impl App {
    /// The parts of the screen as it is now.
    pub fn parts(&self) -> Parts {
        let topology = self.snapshot().map(|snapshot| &snapshot.host.topology);
        let on_top = self.help.is_some() || self.hot.is_some() || self.overhead.is_some();
        let wanted = Wanted {
            compact: on_top || self.detail.is_some(),
            notice: self.notice().is_some(),
            time: self.timeline().is_some(),
        };
        layout::parts(self.area, topology, wanted)
    }

    /// The line below the header.
    pub fn notice(&self) -> Option<&str> {
        self.note.as_deref().or(self.warnings.first().map(String::as_str))
    }

    /// Where the list is that keys move in, without its titles or frame.
    pub fn list(&self) -> Rect {
        let body = self.parts().body;
        let below = |area: Rect, rows: u16| Rect {
            y: area.y + rows.min(area.height),
            height: area.height.saturating_sub(rows),
            ..area
        };
        if let Some(picker) = &self.picker {
            return view::picker::inside(view::picker::frame(body, picker));
        }
        if self.help.is_none() && self.hot.is_some() {
            return below(body, view::hot::HEAD);
        }
        match (&self.help, &self.detail, self.screen) {
            (Some(_), _, _) => body,
            (None, Some(detail), _) => {
                let head = if detail.maps.is_some() { view::maps::HEAD } else { 1 };
                below(view::detail::split(body, self.snapshot()).1, head)
            }
            (None, None, Screen::Tasks | Screen::Containers) => below(body, 1),
            (None, None, Screen::Nodes) => below(view::nodes::split(body, self.snapshot()).0, 1),
        }
    }

    pub(super) fn list_height(&self) -> usize {
        usize::from(self.list().height)
    }

    pub(super) fn go(&mut self, motion: Motion) {
        let height = self.list_height();
        if let Some(picker) = &mut self.picker {
            picker.go(motion, height);
        } else if let Some(first) = self.help {
            let lines = view::help::length(self.area.width, self.snapshot());
            let last = lines.saturating_sub(height.max(1));
            let page = height.saturating_sub(1).max(1);
            let moved = match motion {
                Motion::Up => first.saturating_sub(1),
                Motion::Down => first + 1,
                Motion::PageUp => first.saturating_sub(page),
                Motion::PageDown => first + page,
                Motion::First => 0,
                Motion::Last => last,
                Motion::WheelUp => first.saturating_sub(3),
                Motion::WheelDown => first + 3,
            };
            self.help = Some(moved.min(last));
        } else if let Some(hot) = &mut self.hot {
            hot.go(motion, height);
        } else if let Some(detail) = &mut self.detail {
            detail.go(motion, height);
        } else if self.screen == Screen::Tasks {
            self.tasks.go(motion, height);
        } else if self.screen == Screen::Containers {
            self.containers.go(motion, height);
        } else {
            self.nodes.go(motion, height);
        }
    }

    /// What is on the screen: groups in the view of containers, else processes, the selected one first.
    pub fn in_view(&self) -> Focus {
        let Some(snapshot) = &self.snapshot else { return Focus::default() };
        if self.screen == Screen::Containers {
            return Focus { groups: self.containers.in_view(self.list_height()), ..Focus::default() };
        }
        let selected = self.detail.as_ref().map(|detail| detail.process);
        let selected = selected.or_else(|| self.tasks.selected(snapshot).map(|task| task.raw.process()));
        let rows = self.tasks.rows().iter().skip(self.tasks.cursor.offset()).take(self.list_height());
        let mut list: Vec<(u32, u64)> = selected.into_iter().collect();
        for process in rows.map(|row| snapshot.tasks[row.task].raw.process()) {
            if !list.contains(&process) {
                list.push(process);
            }
        }
        let columns = self.tasks.columns.iter().flatten().chain([&self.tasks.choice.sort.metric]);
        Focus { processes: Some(list), asked: on_demand::asked(columns), ..Focus::default() }
    }

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
        let list = self.list();
        let height = usize::from(list.height);
        let inside = list.contains((x, y).into());
        let row = usize::from(y.saturating_sub(list.y));
        if let Some(picker) = &mut self.picker {
            let at = picker.offset + row;
            if inside && at < picker.len() {
                picker.at = at;
            }
            return;
        }
        if let (None, Some(hot)) = (self.help, &mut self.hot) {
            if inside {
                hot.select(row, height);
            }
            return;
        }
        if self.help.is_some() || self.detail.is_some() {
            return;
        }
        if inside {
            match self.screen {
                Screen::Tasks => self.tasks.select(self.tasks.cursor.offset() + row, height),
                Screen::Nodes => self.nodes.select(self.nodes.cursor.offset() + row, height),
                Screen::Containers => {
                    self.containers.select(self.containers.cursor.offset() + row, height);
                }
            }
        } else if y + 1 == list.y {
            self.click_title(x.saturating_sub(list.x));
        }
    }

    fn click_title(&mut self, x: u16) {
        // The gap to the right of a column is part of it.
        let hit = self.places().into_iter().find(|column| (column.left..=column.right).contains(&x));
        match hit {
            Some(column) if column.id == self.sorted() => self.invert(),
            Some(column) => self.sort_by(column.id),
            None => {}
        }
    }
}
