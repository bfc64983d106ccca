//! A list to choose from: columns, what to sort by, a user.

use crate::metric::Metric;
use crate::pmu::sets::Choice;
use crate::sample::Missing;
use crate::snapshot::{Container, Node, Snapshot, Task};
use crate::tui::action::Motion;

/// What a choice is about, and what it can be.
pub enum Options {
    /// Columns in order, and whether each is shown.
    Columns(Vec<(&'static Metric<Task>, bool)>),
    TaskSort(Vec<&'static Metric<Task>>),
    NodeSort(Vec<&'static Metric<Node>>),
    ContainerSort(Vec<&'static Metric<Container>>),
    /// Sets of events, and what each counts here.
    Events(Vec<(&'static str, Choice)>),
    /// User ids with their tasks; `None` is everybody.
    User(Vec<(Option<u32>, usize)>),
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
            Options::Columns(_) => "Columns",
            Options::TaskSort(_) | Options::NodeSort(_) | Options::ContainerSort(_) => "Sort by",
            Options::Events(_) => "Count",
            Options::User(_) => "Tasks of",
        }
    }

    pub fn len(&self) -> usize {
        match &self.options {
            Options::Columns(lines) => lines.len(),
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

    /// Shows or hides the selected column.
    pub fn toggle(&mut self) {
        if let Options::Columns(lines) = &mut self.options
            && let Some((_, shown)) = lines.get_mut(self.at)
        {
            *shown = !*shown;
        }
    }

    /// Moves the selected column one place.
    pub fn shift(&mut self, later: bool) {
        if let Options::Columns(lines) = &mut self.options {
            let to = if later { self.at + 1 } else { self.at.wrapping_sub(1) };
            if to < lines.len() && self.at < lines.len() {
                lines.swap(self.at, to);
                self.at = to;
            }
        }
    }

    /// The columns that are shown, in order.
    pub fn columns(&self) -> Option<Vec<&'static Metric<Task>>> {
        match &self.options {
            Options::Columns(lines) => {
                Some(lines.iter().filter(|(_, shown)| *shown).map(|(metric, _)| *metric).collect())
            }
            _ => None,
        }
    }

    /// Line `at`: a metric with its help, or why there is none of it here.
    pub fn line(&self, at: usize, snapshot: Option<&Snapshot>) -> Option<Line> {
        let missing = |id: &str| snapshot.and_then(|snapshot| snapshot.host_missing(id));
        match &self.options {
            Options::Columns(lines) => {
                lines.get(at).map(|(metric, shown)| line(metric, Some(*shown), missing(metric.id)))
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
