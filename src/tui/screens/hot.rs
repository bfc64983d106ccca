//! Hot spots of one process, one container or everything: their view, folded lines and selection.

mod draw;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Answer, Screen, Subject, is_below};
use crate::hot::profile::{Process, Profile, Spot};
use crate::hot::tree::{Direction, Tree};
use crate::model::process::ProcessId;
use crate::model::stacks::StackBatch;
use crate::snapshot::Snapshot;
use crate::tui::input::action::{Action, Effect, Motion};
use crate::tui::input::keymap::context;
use crate::tui::state::State;
use crate::tui::widgets::cursor::Cursor;
use crate::tui::widgets::layout::below;

/// A path of the tree is unfolded by itself when it has at least this share of the samples, in per cent.
const UNFOLD_PCT: u64 = 5;

/// Functions, or a tree of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    #[default]
    Functions,
    Tree(Direction),
}

/// One line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index into the nodes of the tree.
    pub node: usize,
    pub depth: usize,
    /// `None`: nothing hangs below it.
    pub open: Option<bool>,
}

#[derive(Default)]
pub struct Hot {
    /// `None`: everything in scope.
    target: Option<Subject>,
    /// The name of the target.
    pub title: String,
    pub shape: Shape,
    pub profile: Profile,
    /// Samples of the target.
    pub samples: u64,
    pub spots: Vec<Spot>,
    pub tree: Tree,
    pub rows: Vec<Row>,
    pub cursor: Cursor<u64>,
    keys: Vec<u64>,
    /// Paths that are folded or unfolded against what would be.
    toggled: HashSet<u64>,
}

impl Hot {
    /// Computes the rows from the profile; `groups` has the tree of cgroups.
    fn work_out(&mut self, snapshot: Option<&Snapshot>, height: usize) {
        let target = self.target.clone();
        let wanted = |id: ProcessId, process: &Process| match target {
            Some(Subject::Process(wanted, _) | Subject::Thread(wanted, ..)) => id == wanted,
            Some(Subject::Container(top, _)) => {
                snapshot.is_some_and(|snapshot| is_below(process.cgroup_id, top, snapshot))
            }
            Some(Subject::Node(_)) | None => true,
        };
        let chosen = self.profile.processes().filter(|(id, process)| wanted(*id, process));
        self.samples = chosen.map(|(_, process)| process.samples).sum();
        match self.shape {
            Shape::Functions => {
                self.spots = self.profile.spots(&wanted);
                self.keys = self.spots.iter().map(|spot| hash(0, &spot.function)).collect();
            }
            Shape::Tree(direction) => {
                self.tree = Tree::build(self.profile.stacks(&wanted), direction);
                self.unfold();
            }
        }
        self.cursor.settle(&self.keys, height);
    }

    /// The rows of the tree that are not folded away.
    fn unfold(&mut self) {
        (self.rows, self.keys) = (Vec::new(), Vec::new());
        let mut left: Vec<(usize, usize, u64)> =
            self.tree.roots.iter().rev().map(|root| (*root, 0, 0)).collect();
        while let Some((at, depth, above)) = left.pop() {
            let node = &self.tree.nodes[at];
            let key = hash(above, &node.function);
            let much = node.samples * 100 >= self.samples * UNFOLD_PCT;
            let open = (!node.children.is_empty()).then(|| much != self.toggled.contains(&key));
            self.rows.push(Row { node: at, depth, open });
            self.keys.push(key);
            if open == Some(true) {
                left.extend(node.children.iter().rev().map(|child| (*child, depth + 1, key)));
            }
        }
    }

    /// Folds or unfolds the selected row; false when nothing is below it.
    pub fn toggle_fold(&mut self) -> bool {
        let at = self.cursor.at();
        let Shape::Tree(_) = self.shape else { return false };
        let (Some(row), Some(key)) = (self.rows.get(at), self.keys.get(at).copied()) else { return false };
        if row.open.is_none() {
            return false;
        }
        if !self.toggled.remove(&key) {
            self.toggled.insert(key);
        }
        self.unfold();
        true
    }

    /// Takes the samples.
    pub fn add(&mut self, news: StackBatch, snapshot: Option<&Snapshot>, height: usize) {
        self.profile.add(news);
        self.work_out(snapshot, height);
    }

    /// The next way to show them.
    fn next_shape(&mut self) {
        self.shape = match self.shape {
            Shape::Functions => Shape::Tree(Direction::Callees),
            Shape::Tree(Direction::Callees) => Shape::Tree(Direction::Callers),
            Shape::Tree(Direction::Callers) => Shape::Functions,
        };
        self.cursor = Cursor::new();
    }
}

/// Identifies a function below a path.
fn hash(above: u64, function: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (above, function).hash(&mut hasher);
    hasher.finish()
}

impl Screen for Hot {
    fn context(&self) -> u16 {
        context::HOT
    }

    fn contexts_of_time(&self) -> u16 {
        context::REPLAY
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        draw::render(self, &state.theme, area, buf);
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn list(&self, body: Rect, _state: &State) -> Rect {
        below(body, draw::HEAD)
    }

    fn arrange(&mut self, _state: &State, height: usize) {
        self.cursor.settle(&self.keys, height);
    }

    /// Shows the hot spots of the selection, and starts sampling stacks.
    fn open(&mut self, subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        let title = match &subject {
            Some(Subject::Process(_, name) | Subject::Thread(_, _, name) | Subject::Container(_, name)) => {
                name.clone()
            }
            Some(Subject::Node(_)) | None => "everything in scope".into(),
        };
        *self = Hot { target: subject, title, ..Hot::default() };
        Ok(Some(Effect::SetHot(true)))
    }

    /// Sampling ends.
    fn close(&mut self) -> Option<Effect> {
        *self = Hot::default();
        Some(Effect::SetHot(false))
    }

    fn elsewhere(&mut self) {
        self.profile.restart();
    }

    fn go(&mut self, motion: Motion, height: usize, _state: &State) {
        self.cursor.go(motion, &self.keys, height);
    }

    fn select(&mut self, line: usize, height: usize) {
        self.cursor.select(self.cursor.offset() + line, &self.keys, height);
    }

    fn act(&mut self, action: Action, height: usize, state: &mut State) -> Answer {
        match action {
            Action::HotShape => self.next_shape(),
            Action::HotRestart => self.profile.restart(),
            Action::Fold => {
                if !self.toggle_fold() {
                    state.message = Some("no callees: Tab shows callers".into());
                }
                return Answer::Done;
            }
            _ => return Answer::Ignored,
        }
        self.work_out(state.snapshot(), height);
        Answer::Done
    }
}
