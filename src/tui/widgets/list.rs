//! A list of rows with columns, whatever the rows are: its order, its columns, its tree, and which row is selected.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::columns::{Columns, place, scroll};
use super::cursor::Cursor;
use super::table::{Look, Sort, Table};
use super::tree::{self, Branch};
use crate::analysis::filter;
use crate::metric::Metric;
use crate::metric::event_ages::Held;
use crate::metric::identity::CGROUP;
use crate::snapshot::Snapshot;
use crate::tui::input::action::Motion;
use crate::tui::theme::Theme;

/// A kind of rows.
pub trait Row: Sized + 'static {
    /// The identity of a row, for as long as it lives.
    type Key: Copy + Eq + Hash;
    /// The order of rows that are equal.
    type Tie: Ord;
    /// The metric that names a row: branches of the tree stand before it, and it takes what room is left over.
    const NAME: &'static str;
    /// Metrics that stay on the screen, beside the name, when columns are scrolled.
    const FIXED: &'static [&'static str];

    fn metrics() -> &'static [Metric<Self>];

    /// Rows of this kind.
    fn all(snapshot: &Snapshot) -> &[Self];

    fn key(&self) -> Self::Key;

    fn tie(&self) -> Self::Tie;

    /// The metrics that suit `width`, what rows are sorted by among them.
    fn columns(width: u16, snapshot: &Snapshot, sorted: &str) -> Vec<&'static Metric<Self>>;

    /// The parent of each of the rows of `order` that has one among them, by index.
    fn parents(_snapshot: &Snapshot, _order: &[usize]) -> HashMap<usize, usize> {
        HashMap::new()
    }

    /// Levels of the tree that are drawn before a name of this width; deeper rows are drawn as if they were this deep.
    fn levels(name: u16) -> u16 {
        name / 4
    }
}

/// The state of a list.
pub struct List<R: Row> {
    pub sort: Sort<R>,
    /// Chosen by hand; `None` lets the width decide.
    pub columns: Option<Vec<&'static Metric<R>>>,
    /// Replaces the name; a row without a value of it shows the name.
    pub name: Option<&'static Metric<R>>,
    /// A metric, and its replacement.
    pub instead_of: Option<[&'static Metric<R>; 2]>,
    /// Columns that were scrolled past.
    pub scrolled: usize,
    pub tree: bool,
    pub cursor: Cursor<R::Key>,
    folded: HashSet<R::Key>,
    /// Rows that filters do not hide, also while they are not there.
    tagged: HashSet<R::Key>,
    rows: Vec<Branch>,
    keys: Vec<R::Key>,
    /// Values of events that are not open in this interval.
    held: Held<R::Key>,
}

impl<R: Row> List<R> {
    /// Without rows, which come with [`List::arrange`].
    pub fn new(sort: Sort<R>) -> List<R> {
        List {
            sort,
            columns: None,
            name: None,
            instead_of: None,
            scrolled: 0,
            tree: false,
            cursor: Cursor::new(),
            folded: HashSet::new(),
            tagged: HashSet::new(),
            rows: Vec::new(),
            keys: Vec::new(),
            held: Held::default(),
        }
    }

    /// Rows in the order of the screen.
    pub fn rows(&self) -> &[Branch] {
        &self.rows
    }

    pub fn keys(&self) -> &[R::Key] {
        &self.keys
    }

    /// Arranges the rows that `keeps` keeps of a new snapshot, or of the same one after a choice changed, and shows at
    /// most `top`. `height` is the number of rows in view.
    pub fn arrange(&mut self, snapshot: &Snapshot, height: usize, keeps: impl Fn(&R) -> bool, top: usize) {
        let all = R::all(snapshot);
        let is_tagged = |row: &R| self.tagged.contains(&row.key());
        let keeps = |row: &R| is_tagged(row) || keeps(row);
        let order = filter::order(all, keeps, snapshot, self.sort.metric, self.sort.reversed, R::tie);
        self.rows = if self.tree {
            let parents = R::parents(snapshot, &order);
            tree::forest(&order, &parents, &|at| self.folded.contains(&all[at].key()))
        } else {
            order.into_iter().map(Branch::flat).collect()
        };
        let beyond = self.rows.split_off(top.min(self.rows.len()));
        self.rows.extend(beyond.into_iter().filter(|row| is_tagged(&all[row.at])));
        self.keys = self.rows.iter().map(|row| all[row.at].key()).collect();
        self.cursor.settle(&self.keys, height);
        self.hold(snapshot, height);
    }

    /// Keeps the values of rows in view, and of a page before and after, where events have turns.
    fn hold(&mut self, snapshot: &Snapshot, height: usize) {
        if snapshot.host.event_turns.is_empty() {
            return;
        }
        let metrics = self.columns_at(u16::MAX, snapshot).placed;
        let first = self.cursor.offset().saturating_sub(height);
        for branch in self.rows.iter().skip(first).take(height * 3) {
            let row = &R::all(snapshot)[branch.at];
            for column in &metrics {
                self.held.keep(row.key(), column.metric, row, snapshot);
            }
        }
        self.held.forget(snapshot);
    }

    /// Moves the selection.
    pub fn step(&mut self, motion: Motion, height: usize) {
        self.cursor.go(motion, &self.keys, height);
    }

    /// Selects the row at this place of the whole list.
    pub fn select(&mut self, at: usize, height: usize) {
        self.cursor.select(at, &self.keys, height);
    }

    pub fn selected<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a R> {
        R::all(snapshot).get(self.rows.get(self.cursor.at())?.at)
    }

    /// Keys of the rows in view.
    pub fn in_view(&self, height: usize) -> impl Iterator<Item = R::Key> + '_ {
        self.keys.iter().skip(self.cursor.offset()).take(height).copied()
    }

    /// Tags the selected row, or removes its tag, and selects the next row.
    pub fn tag(&mut self, height: usize) {
        let Some(key) = self.keys.get(self.cursor.at()) else { return };
        if !self.tagged.remove(key) {
            self.tagged.insert(*key);
        }
        self.step(Motion::Down, height);
    }

    /// Removes all tags. Returns how many there were.
    pub fn untag(&mut self) -> usize {
        std::mem::take(&mut self.tagged).len()
    }

    /// Number of tags, also of rows that are not there.
    pub fn tags(&self) -> usize {
        self.tagged.len()
    }

    /// Folds or unfolds the rows below the selected one.
    ///
    /// # Errors
    /// In words for the reader: the list is no tree, or the row has none below it.
    pub fn fold(&mut self) -> Result<(), &'static str> {
        if !self.tree {
            return Err("only the tree folds: F5 or t shows it");
        }
        let at = self.cursor.at();
        let Some(key) = self.keys.get(at) else { return Ok(()) };
        if self.folded.remove(key) {
            return Ok(());
        }
        if self.rows.get(at + 1).is_none_or(|next| next.depth() <= self.rows[at].depth()) {
            return Err("no rows below this one");
        }
        self.folded.insert(*key);
        Ok(())
    }

    /// The columns at this width.
    pub fn columns_at(&self, width: u16, snapshot: &Snapshot) -> Columns<R> {
        let sorted = self.sort.metric.id;
        let mut metrics = match (&self.columns, self.scrolled) {
            (Some(chosen), 0) => chosen.clone(),
            // A third of the screen is for command lines.
            (None, 0) if self.name.is_some() => R::columns(width - width / 3, snapshot, sorted),
            (None, 0) => R::columns(width, snapshot, sorted),
            (chosen, scrolled) => {
                let all = chosen.clone().unwrap_or_else(|| R::columns(u16::MAX, snapshot, sorted));
                scroll(&all, &Self::fixed(), scrolled, width)
            }
        };
        if let Some([from, to]) = self.instead_of
            && let Some(at) = metrics.iter().position(|metric| metric.id == from.id)
        {
            metrics[at] = to;
        }
        if let (Some(name), Some(at)) = (self.name, metrics.iter().position(|metric| metric.id == R::NAME)) {
            metrics.retain(|metric| metric.id != name.id);
            let at = at.min(metrics.len() - 1);
            metrics[at] = name;
            // Command lines have more use for the room of a path.
            metrics.retain(|metric| metric.id != CGROUP.id || self.columns.is_some());
        }
        place(&metrics, width, self.name_id())
    }

    /// The metric in the column of names.
    fn name_id(&self) -> &'static str {
        self.name.map_or(R::NAME, |metric| metric.id)
    }

    fn fixed() -> Vec<&'static str> {
        R::FIXED.iter().copied().chain([R::NAME]).collect()
    }

    /// Scrolls columns by one. Returns the message if no further column exists.
    pub fn scroll(&mut self, right: bool, width: u16, snapshot: &Snapshot) -> Option<String> {
        if !right {
            let none = self.scrolled == 0;
            self.scrolled = self.scrolled.saturating_sub(1);
            return none.then(|| "these are the first columns".into());
        }
        let all = self.columns.clone().unwrap_or_else(|| R::columns(u16::MAX, snapshot, self.sort.metric.id));
        let last = scroll(&all, &Self::fixed(), self.scrolled, width);
        let is_fixed = |metric: &&&'static Metric<R>| Self::fixed().contains(&metric.id);
        let ends = all.iter().rfind(|metric| !is_fixed(metric)).map(|metric| metric.id);
        // Scrolling past the last column would leave less and less on the screen.
        if last.iter().any(|metric| Some(metric.id) == ends) {
            return Some("these are the last columns; F2 chooses others".into());
        }
        self.scrolled += 1;
        None
    }

    /// Titles and the rows in view; `dress` returns the look of a row beside its selection and its place in
    /// the tree.
    pub fn draw(
        &self,
        snapshot: &Snapshot,
        theme: &Theme,
        area: Rect,
        buf: &mut Buffer,
        dress: impl Fn(&R) -> Look,
    ) {
        let columns = self.columns_at(area.width, snapshot);
        let (name, sort) = (self.name_id(), Some(self.sort));
        let instead = R::metrics().iter().find(|metric| metric.id == R::NAME);
        let table = Table { columns: &columns, sort, snapshot, theme, name, instead, held: Some(&self.held) };
        table.titles(area, 0, buf);
        let name = columns.placed.iter().find(|column| column.metric.id == name);
        let levels = R::levels(name.map_or(0, |column| column.width));
        let offset = self.cursor.offset();
        for (line, branch) in (1..area.height).zip(self.rows.iter().skip(offset)) {
            // A snapshot for another screen may be without rows of this kind; the next one has them.
            let Some(row) = R::all(snapshot).get(branch.at) else { break };
            let selected = offset + usize::from(line) - 1 == self.cursor.at();
            let (tagged, prefix) = (self.tagged.contains(&row.key()), branch.prefix(theme.glyphs, levels));
            let look = Look { selected, tagged, prefix, ..dress(row) };
            table.row(row, &look, area, line, buf);
        }
    }
}
