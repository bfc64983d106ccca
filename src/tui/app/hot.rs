//! Hot spots of one process, one container or everything: which shape they have, what is folded, what is selected.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::App;
use super::cursor::Cursor;
use crate::hot::profile::{Process, Profile, Spot};
use crate::hot::tree::{Direction, Tree};
use crate::model::process::ProcessId;
use crate::model::stacks::News;
use crate::snapshot::Snapshot;
use crate::text;
use crate::tui::action::{Action, Effect, Motion, Screen};
use crate::tui::rows;

/// A path of the tree is unfolded by itself when it has at least this share of the samples, in per cent.
const UNFOLD_PCT: u64 = 5;

/// The tasks whose hot spots are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Process(ProcessId),
    /// A cgroup and those below it.
    Container(u64),
    /// All that is in scope.
    Everything,
}

/// How they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
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

pub struct HotView {
    pub target: Target,
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

impl HotView {
    fn new(target: Target, title: String) -> HotView {
        HotView {
            target,
            title,
            shape: Shape::Functions,
            profile: Profile::default(),
            samples: 0,
            spots: Vec::new(),
            tree: Tree::default(),
            rows: Vec::new(),
            cursor: Cursor::new(),
            keys: Vec::new(),
            toggled: HashSet::new(),
        }
    }

    /// Works out the rows from the profile; `groups` says which cgroup is below which.
    fn arrange(&mut self, snapshot: Option<&Snapshot>, height: usize) {
        let target = self.target.clone();
        let wanted = |id: ProcessId, process: &Process| match target {
            Target::Process(wanted) => id == wanted,
            Target::Container(top) => {
                snapshot.is_some_and(|snapshot| rows::is_below(process.cgroup_id, top, snapshot))
            }
            Target::Everything => true,
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

    pub fn go(&mut self, motion: Motion, height: usize) {
        self.cursor.go(motion, &self.keys, height);
    }

    pub fn select(&mut self, row: usize, height: usize) {
        self.cursor.select(self.cursor.offset() + row, &self.keys, height);
    }

    pub fn settle(&mut self, height: usize) {
        self.cursor.settle(&self.keys, height);
    }
}

/// Identifies a function below a path.
fn hash(above: u64, function: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (above, function).hash(&mut hasher);
    hasher.finish()
}

impl App {
    /// Shows the hot spots of the selected row, and has stacks sampled.
    pub(super) fn open_hot(&mut self) -> Option<Effect> {
        let snapshot = self.snapshot.as_ref()?;
        let process = match &self.detail {
            Some(detail) => detail.task(),
            None => self.tasks.selected(snapshot),
        };
        let (target, title) = match (self.detail.is_some(), self.screen) {
            (true, _) | (false, Screen::Tasks) => {
                let raw = &process?.raw;
                (Target::Process(raw.process()), format!("{} {}", raw.pid, text::clean(raw.comm.bytes())))
            }
            (false, Screen::Containers) => {
                let row = self.containers.selected(snapshot)?;
                let name = row.group.as_ref().map_or_else(|| row.id.to_string(), |group| group.name.clone());
                (Target::Container(row.id), name)
            }
            (false, Screen::Nodes) => (Target::Everything, "everything in scope".into()),
        };
        self.hot = Some(HotView::new(target, title));
        Some(Effect::SetHot(true))
    }

    /// Back to what was there before; nothing is sampled any more.
    pub(super) fn close_hot(&mut self) -> Option<Effect> {
        self.hot = None;
        self.arrange();
        Some(Effect::SetHot(false))
    }

    pub(super) fn change_hot(&mut self, action: Action) {
        let Some(hot) = &mut self.hot else { return };
        if action == Action::HotRestart {
            hot.profile.restart();
        } else {
            hot.shape = match hot.shape {
                Shape::Functions => Shape::Tree(Direction::Callees),
                Shape::Tree(Direction::Callees) => Shape::Tree(Direction::Callers),
                Shape::Tree(Direction::Callers) => Shape::Functions,
            };
            hot.cursor = Cursor::new();
        }
        self.arrange_hot();
    }

    /// Takes what was sampled, or why nothing can be.
    pub fn hot_news(&mut self, news: Result<News, String>) {
        match (news, &mut self.hot) {
            (Ok(news), Some(hot)) => {
                hot.profile.add(news);
                self.arrange_hot();
            }
            (Err(why), _) => {
                self.hot = None;
                self.message = Some(text::clean_str(&why));
            }
            // It was closed meanwhile.
            (Ok(_), None) => {}
        }
    }

    fn arrange_hot(&mut self) {
        let height = self.list_height();
        if let Some(hot) = &mut self.hot {
            hot.arrange(self.snapshot.as_deref(), height);
        }
    }
}
