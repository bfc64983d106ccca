//! Sorting of rows, and searches among them.

use super::App;
use crate::metric::{Metric, container, node, task};
use crate::snapshot::Snapshot;
use crate::text;
use crate::tui::action::Screen;
use crate::tui::columns::Columns;
use crate::tui::widget::table::Sort;

/// A column on the screen: where it begins, where it ends, and its metric.
pub(super) struct Place {
    pub left: u16,
    pub right: u16,
    pub id: &'static str,
}

fn places<R>(columns: Columns<R>) -> Vec<Place> {
    let place = |column: &crate::tui::columns::Placed<R>| Place {
        left: column.x,
        right: column.x + column.width,
        id: column.metric.id,
    };
    columns.placed.iter().map(place).collect()
}

impl App {
    pub(super) fn find(&mut self, step: isize) {
        let height = self.list_height();
        let Some(snapshot) = &self.snapshot else { return };
        if self.tasks.search.is_empty() {
            self.message = Some("no search yet: / starts one".into());
        } else if !self.tasks.find(snapshot, step, height) {
            self.message = Some(format!("nothing matches '{}'", self.tasks.search));
        }
    }

    pub(super) fn sort_by(&mut self, id: &str) {
        if self.screen == Screen::Nodes {
            if let Some(metric) = node::by_id(id) {
                self.nodes.sort = Sort { metric, reversed: false };
                self.explain_absent(metric, |app, snapshot| app.nodes.selected(snapshot));
            }
        } else if self.screen == Screen::Containers {
            if let Some(metric) = container::by_id(id) {
                self.containers.sort = Sort { metric, reversed: false };
                self.explain_absent(metric, |app, snapshot| app.containers.selected(snapshot));
            }
        } else if let Some(metric) = task::by_id(id) {
            self.tasks.choice.sort = Sort { metric, reversed: false };
            self.explain_absent(metric, |app, snapshot| app.tasks.selected(snapshot));
        }
    }

    pub(super) fn invert(&mut self) {
        match self.screen {
            Screen::Tasks => self.tasks.choice.sort.reversed ^= true,
            Screen::Nodes => self.nodes.sort.reversed ^= true,
            Screen::Containers => self.containers.sort.reversed ^= true,
        }
    }

    /// The metric that the list on the screen is sorted by.
    pub(super) fn sorted(&self) -> &'static str {
        match self.screen {
            Screen::Tasks => self.tasks.choice.sort.metric.id,
            Screen::Nodes => self.nodes.sort.metric.id,
            Screen::Containers => self.containers.sort.metric.id,
        }
    }

    /// The columns of the list on the screen.
    pub(super) fn places(&self) -> Vec<Place> {
        match (&self.snapshot, self.screen) {
            (None, _) => Vec::new(),
            (_, Screen::Nodes) if self.nodes.matrix().is_some() => Vec::new(),
            (Some(snapshot), Screen::Tasks) => places(self.tasks.columns_at(self.area.width, snapshot)),
            (Some(snapshot), Screen::Nodes) => places(self.nodes.columns_at(self.area.width, snapshot)),
            (Some(snapshot), Screen::Containers) => {
                places(self.containers.columns_at(self.area.width, snapshot))
            }
        }
    }

    /// Sorts by the visible column beside the one that rows are sorted by now.
    pub(super) fn sort_beside(&mut self, right: bool) {
        if self.screen == Screen::Nodes && self.nodes.matrix().is_some() {
            self.nodes.shift_columns(right);
            return;
        }
        let (columns, sorted) = (self.places(), self.sorted());
        let next = match (columns.iter().position(|column| column.id == sorted), right) {
            (Some(now), true) => now + 1,
            (Some(now), false) => now.wrapping_sub(1),
            (None, _) => 0,
        };
        match columns.get(next) {
            Some(column) => self.sort_by(column.id),
            None => self.message = Some("there is no column further on; F6 lists every metric".into()),
        }
    }

    /// Says why the selected row has no value of `metric`, if it has none.
    fn explain_absent<R>(
        &mut self,
        metric: &Metric<R>,
        selected: for<'a> fn(&App, &'a Snapshot) -> Option<&'a R>,
    ) {
        let Some(snapshot) = &self.snapshot else { return };
        if let Some(Err(why)) = selected(self, snapshot).map(|row| metric.read(row, snapshot)) {
            self.message = Some(format!("{} is -: {}", metric.title, text::clean_str(&why.to_string())));
        }
    }
}
