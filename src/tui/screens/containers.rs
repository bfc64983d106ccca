//! The table of containers: flat, or as the tree of cgroups with totals.

use std::collections::HashMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Answer, Screen, Subject, untagged};
use crate::finding;
use crate::metric::container::{CONTAINER, CONTAINER_METRICS, by_id};
use crate::metric::{Metric, task};
use crate::model::group::GroupKind;
use crate::snapshot::{Container, Snapshot};
use crate::tui::history::Want;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, ScreenId};
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::columns;
use crate::tui::widgets::layout::below;
use crate::tui::widgets::list::{List, ListRow, Tabular};
use crate::tui::widgets::pen::Pen;
use crate::tui::widgets::table::{Look, Sort};

/// Levels of the tree whose branches are drawn.
const TREE_LEVELS: u16 = 8;

impl ListRow for Container {
    type Key = u64;
    type Tie = u64;
    const NAME: &'static str = CONTAINER.id;
    const FIXED: &'static [&'static str] = &[];

    fn metrics() -> &'static [Metric<Container>] {
        CONTAINER_METRICS
    }

    fn all(snapshot: &Snapshot) -> &[Container] {
        &snapshot.containers
    }

    fn key(&self) -> u64 {
        self.id
    }

    fn tie(&self) -> u64 {
        self.id
    }

    fn columns(width: u16, snapshot: &Snapshot, sorted: &str) -> Vec<&'static Metric<Container>> {
        columns::containers_for(width, &snapshot.host, sorted)
    }

    fn parents(snapshot: &Snapshot, order: &[usize]) -> HashMap<usize, usize> {
        order.iter().filter_map(|at| Some((*at, snapshot.containers[*at].parent?))).collect()
    }

    fn levels(_name: u16) -> u16 {
        TREE_LEVELS
    }
}

pub struct Containers {
    pub list: List<Container>,
}

impl Default for Containers {
    /// Flat, the busiest first.
    fn default() -> Containers {
        let metric: &'static Metric<Container> = by_id(task::CPU_PCT.id).expect("containers have it, too");
        Containers { list: List::new(Sort { metric, reversed: false }) }
    }
}

/// A flat list leaves out what only holds other rows; of pods both are of interest.
fn is_listed(row: &Container) -> bool {
    row.own_tasks || row.kind() == GroupKind::Pod
}

impl Screen for Containers {
    fn context(&self) -> u16 {
        context::CONTAINERS
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        let (Some(snapshot), theme) = (state.snapshot(), &state.theme) else { return };
        self.list.draw(snapshot, theme, area, buf, |row| {
            let severity = state.marks.get(&finding::Subject::Container(row.id)).copied();
            Look { severity, ..Look::default() }
        });
        if self.list.rows().is_empty() {
            let text = "no task is in scope: C clears the scope";
            Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(text, theme.style(Role::Dim));
        }
    }

    fn list(&self, body: Rect, _state: &State) -> Rect {
        below(body, 1)
    }

    fn want(&self, want: &mut Want) {
        want.containers = true;
    }

    fn arrange(&mut self, state: &State, height: usize) {
        // A snapshot for other screens has none: the list stays as it was.
        if let Some(snapshot) = state.snapshot().filter(|_| state.has_containers) {
            let tree = self.list.tree;
            self.list.arrange(snapshot, height, |row| tree || is_listed(row), usize::MAX);
        }
    }

    fn subject(&self, state: &State) -> Option<Subject> {
        let row = self.list.selected(state.snapshot()?)?;
        let name = row.group.as_ref().map_or_else(|| row.id.to_string(), |group| group.name.clone());
        Some(Subject::Container(row.id, name))
    }

    fn leads_to(&self) -> Option<ScreenId> {
        Some(ScreenId::Tasks)
    }

    fn groups_in_view(&self, height: usize) -> Option<Vec<u64>> {
        Some(self.list.in_view(height).collect())
    }

    fn table(&self) -> Option<&dyn Tabular> {
        Some(&self.list)
    }

    fn table_mut(&mut self) -> Option<&mut dyn Tabular> {
        Some(&mut self.list)
    }

    fn act(&mut self, action: Action, height: usize, state: &mut State) -> Answer {
        match action {
            Action::Tree => self.list.tree = !self.list.tree,
            Action::Fold => state.message = self.list.fold().err().map(String::from),
            Action::Tag => self.list.tag(height),
            Action::Untag => state.message = Some(untagged(self.list.untag())),
            // The selected container, or no scope when it is that already.
            Action::Scope => {
                let selected = state.snapshot().and_then(|snapshot| self.list.selected(snapshot));
                let Some(id) = selected.map(|row| row.id) else { return Answer::Done };
                return Answer::Effect(state.set_scope((state.scope != Some(id)).then_some(id)));
            }
            _ => return Answer::Ignored,
        }
        Answer::Done
    }
}
