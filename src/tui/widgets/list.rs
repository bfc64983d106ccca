//! A list of rows with columns, whatever the rows are: its order, its columns, and which row is selected; as a forest
//! with children below their parent and branches before their names.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::columns::{Columns, Placed, place, scroll};
use super::cursor::Cursor;
use super::picker::{Line, Pickable};
use super::table::{Look, Sort, Table};
use crate::analysis::filter;
use crate::metric::Metric;
use crate::metric::events::Held;
use crate::metric::identity::CGROUP;
use crate::model::sample::Missing;
use crate::snapshot::Snapshot;
use crate::text;
use crate::tui::input::Motion;
use crate::tui::theme::{Glyphs, Theme};

/// A kind of rows.
pub trait ListRow: Sized + 'static {
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
pub struct List<R: ListRow> {
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

impl<R: ListRow> List<R> {
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
            forest(&order, &parents, &|at| self.folded.contains(&all[at].key()))
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
            return Err("only the tree can be folded: F5 or t shows the tree");
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
            return Some("these are the last columns; F2 selects others".into());
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

/// A column on the screen: where it begins, where it ends, and its metric.
pub struct ListPlace {
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
    fn places(&self, width: u16, snapshot: &Snapshot) -> (Vec<ListPlace>, usize);

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

impl<R: ListRow> Tabular for List<R> {
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

    fn places(&self, width: u16, snapshot: &Snapshot) -> (Vec<ListPlace>, usize) {
        let columns = self.columns_at(width, snapshot);
        let place = |column: &Placed<R>| ListPlace {
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

fn by_id<R: ListRow>(id: &str) -> Option<&'static Metric<R>> {
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

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Index among all rows of its kind.
    pub at: usize,
    /// Depth in the tree; 0 for a root, and everywhere without a tree.
    depth: u16,
    /// Bit d is set if the line of depth d continues below this row.
    lines: u64,
    /// Descendants that are folded away.
    pub folded: usize,
}

/// The rows of `order` with children below their parent, siblings in the given order; rows below a folded row
/// are counted. Rows without a parent in `parents` are roots.
pub fn forest(
    order: &[usize],
    parents: &HashMap<usize, usize>,
    is_folded: &dyn Fn(usize) -> bool,
) -> Vec<Branch> {
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for at in order {
        match parents.get(at) {
            Some(parent) => children.entry(*parent).or_default().push(*at),
            None => roots.push(*at),
        }
    }
    let mut rows = Vec::with_capacity(order.len());
    let mut seen = HashSet::with_capacity(order.len());
    grow(&roots, &children, is_folded, &mut rows, &mut seen);
    if seen.len() < order.len() {
        // Ids that were used again can make a circle, which no root leads to.
        for at in order {
            if !seen.contains(at) {
                grow(&[*at], &children, is_folded, &mut rows, &mut seen);
            }
        }
    }
    rows
}

/// Adds `roots` and everything below them, without recursion: the depth may be arbitrary.
fn grow(
    roots: &[usize],
    children: &HashMap<usize, Vec<usize>>,
    is_folded: &dyn Fn(usize) -> bool,
    rows: &mut Vec<Branch>,
    seen: &mut HashSet<usize>,
) {
    // Row, depth, lines to draw, and the row that it is folded into.
    let mut stack: Vec<(usize, u16, u64, Option<usize>)> =
        roots.iter().rev().map(|at| (*at, 0, 0, None)).collect();
    while let Some((at, depth, lines, mut hidden_in)) = stack.pop() {
        if !seen.insert(at) {
            continue;
        }
        if let Some(row) = hidden_in {
            rows[row].folded += 1;
        } else {
            rows.push(Branch { at, depth, lines, folded: 0 });
            if is_folded(at) {
                hidden_in = Some(rows.len() - 1);
            }
        }
        let below = children.get(&at).map_or(&[][..], Vec::as_slice);
        for (i, child) in below.iter().enumerate().rev() {
            let depth = depth.saturating_add(1);
            let goes_on = u64::from(i + 1 < below.len()) << u32::from(depth).min(63);
            stack.push((*child, depth, lines | goes_on, hidden_in));
        }
    }
}

impl Branch {
    /// A row outside of any tree.
    pub fn flat(at: usize) -> Branch {
        Branch { at, depth: 0, lines: 0, folded: 0 }
    }

    /// Depth in the tree.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The branches before the name, of at most `levels` levels.
    pub fn prefix(&self, glyphs: &Glyphs, levels: u16) -> String {
        let [child, last, line, none] = glyphs.branch;
        let goes_on = |depth: u16| self.lines >> u32::from(depth).min(63) & 1 == 1;
        let mut text = String::new();
        let from = self.depth.saturating_sub(levels);
        for depth in (from..self.depth).map(|above| above + 1) {
            text.push_str(match (depth == self.depth, goes_on(depth)) {
                (true, true) => child,
                (true, false) => last,
                (false, true) => line,
                (false, false) => none,
            });
        }
        if self.folded > 0 {
            text.push_str(&format!("[+{}] ", self.folded));
        }
        text
    }
}
