//! Actions in prompts and pickers.

use std::collections::BTreeMap;

use super::App;
use super::picker::{ColumnList, Options, Picker};
use super::prompt::{Purpose, parse_interval};
use crate::metric::Metric;
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::node::NODE_METRICS;
use crate::metric::task::TASK_METRICS;
use crate::snapshot::Snapshot;
use crate::text::plural;
use crate::tui::action::{Action, Effect, Screen};
use crate::tui::columns::Columns;

/// The columns that were chosen by hand, or those that the width decides on.
fn chosen<R>(
    by_hand: &Option<Vec<&'static Metric<R>>>,
    by_width: impl FnOnce() -> Columns<R>,
) -> Vec<&'static Metric<R>> {
    let placed = || by_width().placed.iter().map(|column| column.metric).collect();
    by_hand.clone().unwrap_or_else(placed)
}

impl App {
    /// Opens a picker.
    pub(super) fn pick(&mut self, action: Action) {
        let Some(snapshot) = &self.snapshot else { return };
        let picker = match (action, self.screen) {
            (Action::PickUser, _) => self.users(snapshot),
            (Action::PickEvents, _) => Picker::new(Options::Events(self.sets.clone()), 0),
            (Action::PickColumns, _) => self.column_picker(snapshot),
            (_, Screen::Tasks) => {
                let metrics: Vec<_> = TASK_METRICS.iter().collect();
                let sorted = self.tasks.choice.sort.metric.id;
                let at = metrics.iter().position(|metric| metric.id == sorted).unwrap_or(0);
                Picker::new(Options::TaskSort(metrics), at)
            }
            (_, Screen::Nodes) => {
                let metrics: Vec<_> = NODE_METRICS.iter().collect();
                let sorted = self.nodes.sort.metric.id;
                let at = metrics.iter().position(|metric| metric.id == sorted).unwrap_or(0);
                Picker::new(Options::NodeSort(metrics), at)
            }
            (_, Screen::Containers) => {
                let metrics: Vec<_> = CONTAINER_METRICS.iter().collect();
                let sorted = self.containers.sort.metric.id;
                let at = metrics.iter().position(|metric| metric.id == sorted).unwrap_or(0);
                Picker::new(Options::ContainerSort(metrics), at)
            }
        };
        self.picker = Some(picker);
    }

    /// Users with rows, by name of who has most.
    fn users(&self, snapshot: &Snapshot) -> Picker {
        let mut rows: BTreeMap<u32, usize> = BTreeMap::new();
        for task in &snapshot.tasks {
            *rows.entry(task.raw.uid).or_default() += 1;
        }
        let mut lines: Vec<(Option<u32>, usize)> =
            rows.into_iter().map(|(uid, rows)| (Some(uid), rows)).collect();
        lines.sort_by_key(|(uid, rows)| (std::cmp::Reverse(*rows), *uid));
        lines.insert(0, (None, snapshot.tasks.len()));
        let at = lines.iter().position(|(uid, _)| *uid == self.tasks.choice.uid).unwrap_or(0);
        Picker::new(Options::User(lines), at)
    }

    /// The columns on the screen in their order, then all others.
    fn column_picker(&self, snapshot: &Snapshot) -> Picker {
        let width = self.area.width;
        let options = if self.screen == Screen::Nodes {
            let shown = chosen(&self.nodes.columns, || self.nodes.columns_at(width, snapshot));
            Options::NodeColumns(ColumnList::new(&shown, NODE_METRICS))
        } else {
            let shown = chosen(&self.tasks.columns, || self.tasks.columns_at(width, snapshot));
            Options::TaskColumns(ColumnList::new(&shown, TASK_METRICS))
        };
        Picker::new(options, 0)
    }

    /// Changes the columns; the table shows it at once.
    pub(super) fn edit_columns(&mut self, action: Action) {
        let Some(picker) = &mut self.picker else { return };
        match action {
            Action::Toggle if !picker.toggle() => self.message = Some("one column has to stay".into()),
            Action::Toggle => {}
            Action::Earlier => picker.shift(false),
            Action::Later => picker.shift(true),
            _ => {
                match self.screen {
                    Screen::Nodes => self.nodes.columns = None,
                    _ => self.tasks.columns = None,
                }
                let Some(snapshot) = &self.snapshot else { return };
                self.picker = Some(self.column_picker(snapshot));
                self.message = Some("the width of the screen decides which columns are shown".into());
                return;
            }
        }
        match &picker.options {
            Options::TaskColumns(list) => self.tasks.columns = Some(list.shown()),
            Options::NodeColumns(list) => self.nodes.columns = Some(list.shown()),
            _ => {}
        }
        let (Some(snapshot), width) = (&self.snapshot, self.area.width) else { return };
        let hidden = match self.screen {
            Screen::Nodes => self.nodes.columns_at(width, snapshot).hidden,
            _ => self.tasks.columns_at(width, snapshot).hidden,
        };
        if hidden > 0 {
            let message = format!("no room for {}: [ moves a column to the left", plural(hidden, "column"));
            self.message.get_or_insert(message);
        }
    }

    /// Takes what was typed or selected.
    pub(super) fn accept(&mut self) -> Option<Effect> {
        let effect = match (self.prompt.take(), self.picker.take()) {
            (Some(prompt), _) if prompt.purpose == Purpose::Interval => match parse_interval(&prompt.text) {
                Ok(interval) => self.set_interval(interval),
                Err(why) => {
                    self.message = Some(why);
                    self.prompt = Some(prompt);
                    None
                }
            },
            (Some(prompt), _) if matches!(prompt.purpose, Purpose::Forward | Purpose::Backward) => {
                self.jump(prompt)
            }
            // Search and filter took effect while they were typed.
            (Some(_), _) => None,
            (None, Some(picker)) => self.choose(picker),
            (None, None) => None,
        };
        self.arrange();
        effect
    }

    fn choose(&mut self, picker: Picker) -> Option<Effect> {
        match picker.options {
            Options::TaskColumns(_) | Options::NodeColumns(_) => {}
            Options::Events(sets) => return sets.get(picker.at).map(|(set, _)| Effect::SetEvents(set)),
            Options::TaskSort(metrics) => {
                if let Some(metric) = metrics.get(picker.at) {
                    self.sort_by(metric.id);
                }
            }
            Options::NodeSort(metrics) => {
                if let Some(metric) = metrics.get(picker.at) {
                    self.sort_by(metric.id);
                }
            }
            Options::ContainerSort(metrics) => {
                if let Some(metric) = metrics.get(picker.at) {
                    self.sort_by(metric.id);
                }
            }
            Options::User(lines) => {
                if let Some((uid, _)) = lines.get(picker.at) {
                    self.tasks.choice.uid = *uid;
                }
            }
        }
        None
    }

    /// Types or erases; searching and filtering happen with every character.
    pub(super) fn edit_prompt(&mut self, action: Action) {
        let Some(prompt) = &mut self.prompt else { return };
        match action {
            Action::Type(c) => prompt.push(c),
            Action::Erase => drop(prompt.text.pop()),
            _ => prompt.text.clear(),
        }
        match prompt.purpose {
            Purpose::Filter => self.tasks.choice.text = prompt.text.clone(),
            Purpose::Search => {
                self.tasks.search = prompt.text.clone();
                if !self.tasks.search.is_empty() {
                    self.find(0);
                }
            }
            Purpose::Interval | Purpose::Forward | Purpose::Backward => {}
        }
    }
}
