//! A list to choose from: columns, what to sort by, a user.

use crate::metric::Metric;
use crate::model::sample::Missing;
use crate::pmu::sets::Choice;
use crate::snapshot::{Container, Node, Snapshot, Task};
use crate::tui::action::Motion;

/// The subject of a choice, and its values.
pub enum Options {
    TaskColumns(ColumnList<Task>),
    NodeColumns(ColumnList<Node>),
    TaskSort(Vec<&'static Metric<Task>>),
    NodeSort(Vec<&'static Metric<Node>>),
    ContainerSort(Vec<&'static Metric<Container>>),
    /// Sets of events, and what each counts here.
    Events(Vec<(&'static str, Choice)>),
    /// User ids with their tasks; `None` is everybody.
    User(Vec<(Option<u32>, usize)>),
}

/// Columns in order, and whether each is shown.
pub struct ColumnList<R: 'static>(Vec<(&'static Metric<R>, bool)>);

impl<R> ColumnList<R> {
    /// Metrics that are shown, then the others of `all`.
    pub fn new(shown: &[&'static Metric<R>], all: &'static [Metric<R>]) -> ColumnList<R> {
        let others = all.iter().filter(|metric| !shown.iter().any(|other| other.id == metric.id));
        let shown = shown.iter().map(|metric| (*metric, true));
        ColumnList(shown.chain(others.map(|metric| (metric, false))).collect())
    }

    /// The columns that are shown, in order.
    pub fn shown(&self) -> Vec<&'static Metric<R>> {
        self.0.iter().filter(|(_, shown)| *shown).map(|(metric, _)| *metric).collect()
    }

    /// Shows or hides a column. False when it is the only one, which has to stay.
    fn toggle(&mut self, at: usize) -> bool {
        let only = self.shown().len() == 1;
        match self.0.get_mut(at) {
            Some((_, shown)) if *shown && only => false,
            Some((_, shown)) => {
                *shown = !*shown;
                true
            }
            None => true,
        }
    }

    /// Moves a column one place; where it is then.
    fn shift(&mut self, at: usize, later: bool) -> usize {
        let to = if later { at + 1 } else { at.wrapping_sub(1) };
        if to >= self.0.len() || at >= self.0.len() {
            return at;
        }
        self.0.swap(at, to);
        to
    }
}

/// One line as it is drawn.
pub struct Line {
    pub checked: Option<bool>,
    pub name: String,
    pub note: String,
}

pub struct Picker {
    pub options: Options,
    pub at: usize,
    pub offset: usize,
}

impl Picker {
    /// With the line `at` selected.
    pub fn new(options: Options, at: usize) -> Picker {
        Picker { options, at, offset: 0 }
    }

    pub fn title(&self) -> &'static str {
        match self.options {
            Options::TaskColumns(_) | Options::NodeColumns(_) => "Columns",
            Options::TaskSort(_) | Options::NodeSort(_) | Options::ContainerSort(_) => "Sort by",
            Options::Events(_) => "Count",
            Options::User(_) => "Tasks of",
        }
    }

    pub fn len(&self) -> usize {
        match &self.options {
            Options::TaskColumns(list) => list.0.len(),
            Options::NodeColumns(list) => list.0.len(),
            Options::TaskSort(lines) => lines.len(),
            Options::NodeSort(lines) => lines.len(),
            Options::ContainerSort(lines) => lines.len(),
            Options::Events(lines) => lines.len(),
            Options::User(lines) => lines.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn go(&mut self, motion: Motion, height: usize) {
        let mut cursor = super::cursor::Cursor::new();
        let keys: Vec<usize> = (0..self.len()).collect();
        cursor.select(self.at, &keys, height.max(1));
        match motion {
            // In a list this short the wheel moves the selection.
            Motion::WheelUp => cursor.go(Motion::Up, &keys, height),
            Motion::WheelDown => cursor.go(Motion::Down, &keys, height),
            motion => cursor.go(motion, &keys, height),
        }
        self.at = cursor.at();
        self.scroll(height);
    }

    /// Keeps the selected line in view.
    pub fn scroll(&mut self, height: usize) {
        self.offset = self.offset.clamp((self.at + 1).saturating_sub(height.max(1)), self.at);
    }

    /// True for a choice of columns, in which more can be done than choosing.
    pub fn is_of_columns(&self) -> bool {
        matches!(self.options, Options::TaskColumns(_) | Options::NodeColumns(_))
    }

    /// Shows or hides the selected column. False when it is the only one, which has to stay.
    pub fn toggle(&mut self) -> bool {
        match &mut self.options {
            Options::TaskColumns(list) => list.toggle(self.at),
            Options::NodeColumns(list) => list.toggle(self.at),
            _ => true,
        }
    }

    /// Moves the selected column one place.
    pub fn shift(&mut self, later: bool) {
        self.at = match &mut self.options {
            Options::TaskColumns(list) => list.shift(self.at, later),
            Options::NodeColumns(list) => list.shift(self.at, later),
            _ => self.at,
        };
    }

    /// Line `at`: a metric with its help, or why there is none of it here.
    pub fn line(&self, at: usize, snapshot: Option<&Snapshot>) -> Option<Line> {
        let missing = |id: &str| snapshot.and_then(|snapshot| snapshot.host_missing(id));
        match &self.options {
            Options::TaskColumns(list) => {
                list.0.get(at).map(|(metric, shown)| line(metric, Some(*shown), missing(metric.id)))
            }
            Options::NodeColumns(list) => {
                list.0.get(at).map(|(metric, shown)| line(metric, Some(*shown), missing(metric.id)))
            }
            Options::TaskSort(lines) => lines.get(at).map(|metric| line(metric, None, missing(metric.id))),
            Options::NodeSort(lines) => lines.get(at).map(|metric| line(metric, None, missing(metric.id))),
            Options::ContainerSort(lines) => {
                lines.get(at).map(|metric| line(metric, None, missing(metric.id)))
            }
            Options::Events(lines) => lines.get(at).map(|(set, choice)| Line {
                checked: None,
                name: (*set).to_string(),
                note: counts(choice),
            }),
            Options::User(lines) => lines.get(at).map(|(uid, tasks)| Line {
                checked: None,
                name: match (uid, snapshot) {
                    (None, _) => "everybody".into(),
                    (Some(uid), Some(snapshot)) => crate::metric::identity::user(*uid, snapshot),
                    (Some(uid), None) => uid.to_string(),
                },
                note: format!("{tasks} {}", if *tasks == 1 { "row" } else { "rows" }),
            }),
        }
    }
}

/// The events of a set, after those that it is without and why: a narrow screen cuts the end.
fn counts(choice: &Choice) -> String {
    let names: Vec<&str> = choice.events.iter().map(|event| event.name.as_str()).collect();
    let mut text = String::new();
    for (role, why) in &choice.absent {
        text += &format!("no {}: {why}; ", role.id());
    }
    if names.is_empty() && text.is_empty() {
        return "nothing".into();
    }
    crate::text::clean_str(&(text + &names.join(", ")))
}

fn line<R>(metric: &Metric<R>, checked: Option<bool>, missing: Option<&Missing>) -> Line {
    let note = match missing {
        Some(why) => format!("not here: {}", crate::text::clean_str(&why.to_string())),
        None => metric.help.to_string(),
    };
    Line { checked, name: metric.title.to_string(), note }
}
