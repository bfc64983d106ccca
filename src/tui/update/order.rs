//! Sorting of the table on top.

use super::App;
use crate::tui::widgets::tabular::Place;

impl App {
    pub(super) fn sort_by(&mut self, id: &str) {
        let top = self.top();
        if let Some(table) = self.screens.get_mut(top).table_mut() {
            let why = table.sort_by(id, self.state.snapshot());
            self.state.message = why.or(self.state.message.take());
        }
    }

    pub(super) fn invert(&mut self) {
        let top = self.top();
        if let Some(table) = self.screens.get_mut(top).table_mut() {
            table.invert();
        }
    }

    /// The metric that the table is sorted by.
    pub(super) fn sorted(&self) -> Option<&'static str> {
        self.screen().table().map(|table| table.sorted())
    }

    /// The columns of the table.
    pub(super) fn places(&self) -> Vec<Place> {
        let table = self.state.snapshot().zip(self.screen().table());
        table.map_or_else(Vec::new, |(snapshot, table)| table.places(self.state.area.width, snapshot).0)
    }

    /// Scrolls the columns of the table by one.
    pub(super) fn scroll(&mut self, right: bool) {
        let (top, width) = (self.top(), self.state.area.width);
        let Some(snapshot) = self.state.snapshot.as_deref() else { return };
        if let Some(table) = self.screens.get_mut(top).table_mut() {
            self.state.message = table.scroll(right, width, snapshot);
        }
    }

    /// Sorts by the visible column next to the current sort column.
    pub(super) fn sort_beside(&mut self, right: bool) {
        let (columns, sorted) = (self.places(), self.sorted());
        let next = match (columns.iter().position(|column| Some(column.id) == sorted), right) {
            (Some(now), true) => now + 1,
            (Some(now), false) => now.wrapping_sub(1),
            (None, _) => 0,
        };
        match columns.get(next) {
            Some(column) => self.sort_by(column.id),
            None => {
                self.state.message = Some("no column further on; F6 lists every metric".into());
            }
        }
    }
}
