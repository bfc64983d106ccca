//! Sorting and columns of a list, whatever its rows are.

use super::columns::Placed;
use super::list::{List, Row};
use super::picker::{Line, Pickable};
use super::table::Sort;
use crate::metric::Metric;
use crate::model::sample::Missing;
use crate::snapshot::Snapshot;
use crate::text;
use crate::tui::input::action::Motion;

/// A column on the screen: where it begins, where it ends, and its metric.
pub struct Place {
    pub left: u16,
    pub right: u16,
    pub id: &'static str,
}

/// A list that can be sorted and has columns, whatever its rows are.
pub trait Tabular {
    /// The metric that rows are sorted by.
    fn sorted(&self) -> &'static str;

    /// Sorts by a metric, in its natural order. If the selected row has no value of it, returns the reason.
    fn sort_by(&mut self, id: &str, snapshot: Option<&Snapshot>) -> Option<String>;

    fn invert(&mut self);

    /// The columns on the screen, and how many have no room.
    fn places(&self, width: u16, snapshot: &Snapshot) -> (Vec<Place>, usize);

    /// All metrics, to sort by.
    fn metrics(&self, snapshot: &Snapshot) -> Vec<Line>;

    /// The columns on the screen in their order, then all others.
    fn columns(&self, width: u16, snapshot: &Snapshot) -> Vec<Line>;

    /// Shows these columns; `None` lets the width decide.
    fn set_columns(&mut self, ids: Option<Vec<&'static str>>);

    /// Scrolls columns by one. Returns the message if no further column exists.
    fn scroll(&mut self, right: bool, width: u16, snapshot: &Snapshot) -> Option<String>;

    /// Number of tagged rows.
    fn tags(&self) -> usize;

    /// Moves the selection; `height` is the number of rows in view.
    fn go(&mut self, motion: Motion, height: usize);

    /// Selects the row in this line of those in view.
    fn click(&mut self, line: usize, height: usize);
}

impl<R: Row> Tabular for List<R> {
    fn sorted(&self) -> &'static str {
        self.sort.metric.id
    }

    fn sort_by(&mut self, id: &str, snapshot: Option<&Snapshot>) -> Option<String> {
        let metric = by_id::<R>(id)?;
        self.sort = Sort { metric, reversed: false };
        let snapshot = snapshot?;
        let why = metric.read(self.selected(snapshot)?, snapshot).err()?;
        Some(format!("{} is -: {}", metric.title, text::clean_str(&why.to_string())))
    }

    fn invert(&mut self) {
        self.sort.reversed ^= true;
    }

    fn places(&self, width: u16, snapshot: &Snapshot) -> (Vec<Place>, usize) {
        let columns = self.columns_at(width, snapshot);
        let place = |column: &Placed<R>| Place {
            left: column.x,
            right: column.x + column.width,
            id: column.metric.id,
        };
        (columns.placed.iter().map(place).collect(), columns.hidden)
    }

    fn metrics(&self, snapshot: &Snapshot) -> Vec<Line> {
        let lines =
            R::metrics().iter().map(|metric| line(metric, None, snapshot.host_missing(metric.missing_as())));
        unavailable_last(lines.collect())
    }

    fn columns(&self, width: u16, snapshot: &Snapshot) -> Vec<Line> {
        let placed = || self.columns_at(width, snapshot).placed.iter().map(|column| column.metric).collect();
        let shown: Vec<&'static Metric<R>> = self.columns.clone().unwrap_or_else(placed);
        let others = R::metrics().iter().filter(|metric| !shown.iter().any(|other| other.id == metric.id));
        let line =
            |metric: &Metric<R>, shown| line(metric, Some(shown), snapshot.host_missing(metric.missing_as()));
        let mut all: Vec<Line> = shown.iter().map(|metric| line(metric, true)).collect();
        all.extend(unavailable_last(others.map(|metric| line(metric, false)).collect()));
        all
    }

    fn set_columns(&mut self, ids: Option<Vec<&'static str>>) {
        self.columns = ids.map(|ids| ids.into_iter().filter_map(by_id::<R>).collect());
        self.scrolled = 0;
    }

    fn scroll(&mut self, right: bool, width: u16, snapshot: &Snapshot) -> Option<String> {
        List::scroll(self, right, width, snapshot)
    }

    fn tags(&self) -> usize {
        List::tags(self)
    }

    fn go(&mut self, motion: Motion, height: usize) {
        self.step(motion, height);
    }

    fn click(&mut self, line: usize, height: usize) {
        self.select(self.cursor.offset() + line, height);
    }
}

fn by_id<R: Row>(id: &str) -> Option<&'static Metric<R>> {
    R::metrics().iter().find(|metric| metric.id == id)
}

fn unavailable_last(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| !line.is_available);
    lines
}

/// A metric with its help, or the reason why it is missing here.
fn line<R>(metric: &Metric<R>, checked: Option<bool>, missing: Option<&Missing>) -> Line {
    let note = match missing {
        Some(why) => format!("unavailable: {}", text::clean_str(&why.to_string())),
        None => metric.help.to_string(),
    };
    let (name, what) = (metric.title.to_string(), Pickable::Metric(metric.id));
    Line { checked, is_available: missing.is_none(), name, note, what }
}
