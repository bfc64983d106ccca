//! Hot spots of one process, one container or everything: their view, folded lines and selection.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::{Answer, Screen, Subject, is_below};
use crate::hot::profile::{Direction, Process, Profile, Spot, Tree, share};
use crate::model::process::ProcessId;
use crate::model::stacks::{Function, StackBatch};
use crate::snapshot::Snapshot;
use crate::text::quantity::percent;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, Effect, Motion};
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::cursor::Cursor;
use crate::tui::widgets::layout::below;
use crate::tui::widgets::pen::Pen;

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
pub struct HotRow {
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
    pub rows: Vec<HotRow>,
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
            Some(Subject::Node(_) | Subject::Socket(_)) | None => true,
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
            self.rows.push(HotRow { node: at, depth, open });
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
        render(self, &state.theme, area, buf);
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn list(&self, body: Rect, _state: &State) -> Rect {
        below(body, HEAD)
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
            Some(Subject::Node(_) | Subject::Socket(_)) | None => "all tasks in scope".into(),
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

/// Lines above the list: its subject, the number of samples, titles.
const HEAD: u16 = 3;

/// Cells of a share, of its error, and of the next column.
const SHARE: u16 = 7;

const ERROR: u16 = 6;

const KIND: u16 = 7;

const MODULE: u16 = 18;

/// Below this width the function is worth more than where it is from, and than what else it is a part of.
const WIDE: u16 = 60;

/// Levels of the tree that are drawn indented; deeper ones are drawn as if they were this deep.
const LEVELS: usize = 24;

fn render(view: &Hot, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let ellipsis = theme.glyphs.ellipsis;
    let (plain, dim) = (theme.style(Role::Plain), theme.style(Role::Dim));
    let mut pen = Pen::new(buf, area, 0, ellipsis);
    pen.gap(1).write("Hot spots of ", dim).write(&view.title, theme.style(Role::Title));
    let shape = match view.shape {
        Shape::Functions => "functions",
        Shape::Tree(Direction::Callees) => "callees, from the outermost function",
        Shape::Tree(Direction::Callers) => "callers, from the innermost function",
    };
    pen.write(": ", dim).write(shape, plain);
    sampled(view, theme, &mut Pen::new(buf, area, 1, ellipsis));
    let is_tree = view.shape != Shape::Functions;
    let titles = theme.style(Role::Header);
    let mut pen = Pen::new(buf, area, 2, ellipsis);
    pen.write_right(if is_tree { "SHARE%" } else { "OWN%" }, SHARE, titles).write_right("+-", ERROR, titles);
    let wide = area.width >= WIDE;
    if wide && !is_tree {
        pen.write_right("TOTAL%", SHARE, titles);
    }
    pen.gap(1);
    if wide {
        pen.write_right("IN", KIND - 1, titles).gap(1);
        pen.write(&format!("{:width$}", "MODULE", width = usize::from(MODULE)), titles);
    }
    pen.write("FUNCTION", titles);
    for (line, at) in (HEAD..area.height).zip(view.cursor.offset()..) {
        let mut pen = Pen::new(buf, area, line, ellipsis);
        let row = match view.shape {
            Shape::Functions => {
                view.spots.get(at).map(|spot| (&spot.function, [spot.own, spot.total], String::new()))
            }
            Shape::Tree(_) => view.rows.get(at).map(|row| {
                let node = &view.tree.nodes[row.node];
                let mark = match row.open {
                    Some(true) => "- ",
                    Some(false) => "+ ",
                    None => "  ",
                };
                (&node.function, [node.samples; 2], " ".repeat(row.depth.min(LEVELS)) + mark)
            }),
        };
        let Some((function, [own, total], indent)) = row else { break };
        let selected = at == view.cursor.at();
        let style = |role| if selected { theme.style(Role::Selected) } else { theme.style(role) };
        let (own, error) = share(own, view.samples).unwrap_or_default();
        pen.write_right(&percent(own), SHARE, style(Role::Plain)).write_right(
            &percent(error),
            ERROR,
            style(Role::Dim),
        );
        if wide && !is_tree {
            let total = share(total, view.samples).unwrap_or_default().0;
            pen.write_right(&percent(total), SHARE, style(Role::Plain));
        }
        pen.gap(1);
        if wide {
            origin(&mut pen, function, &style);
        }
        describe(&mut pen, function, &indent, selected, &style);
    }
    if view.samples == 0 {
        let text = "no sample yet: a task is sampled only while it runs on a CPU";
        Pen::new(buf, area, HEAD, ellipsis).gap(1).write(text, dim);
    }
}

/// Its process, and its file.
fn origin(pen: &mut Pen<'_>, function: &Function, style: &dyn Fn(Role) -> Style) {
    let (kind, role) = if function.kernel { ("kernel", Role::Remote) } else { ("user", Role::Plain) };
    pen.write_right(kind, KIND - 1, style(role)).gap(1);
    let module = pen.room().min(MODULE);
    let left = pen.room();
    pen.write_within(&function.module, module.saturating_sub(1), style(Role::Dim));
    pen.gap((module + pen.room()).saturating_sub(left));
}

fn describe(
    pen: &mut Pen<'_>,
    function: &Function,
    indent: &str,
    selected: bool,
    style: &dyn Fn(Role) -> Style,
) {
    let (name, role) = match &function.name {
        Some(name) => (name.as_str(), Role::Plain),
        None => ("?", Role::Dim),
    };
    pen.write(indent, style(Role::Dim)).write(name, style(role));
    if selected {
        let room = pen.room();
        pen.repeat(' ', room, style(Role::Plain));
    }
}

/// The number of samples, and of missing ones.
fn sampled(view: &Hot, theme: &Theme, pen: &mut Pen<'_>) {
    let profile = &view.profile;
    if profile.event.is_empty() {
        pen.gap(1).write("loading the sampler", theme.style(Role::Dim));
        return;
    }
    let text = format!("{} samples of {}, {} per second and CPU", view.samples, profile.event, profile.hz);
    pen.gap(1).write(&text, theme.style(Role::Dim));
    for (cause, count) in profile.lost.iter().filter(|(_, count)| **count > 0) {
        pen.gap(2).write(&format!("{cause} {count}"), theme.style(Role::Alert));
    }
}
