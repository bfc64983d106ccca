//! The state behind every view, and the result of each action. Needs no terminal.

pub mod containers;
mod cursor;
pub mod detail;
mod geometry;
pub mod hot;
pub mod maps;
pub mod nodes;
mod order;
pub mod overhead;
pub mod picker;
mod popups;
pub mod prompt;
mod replay;
pub mod tasks;
mod time;
mod timeline;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Rect;

use self::containers::ContainerList;
use self::detail::Detail;
use self::hot::HotView;
use self::nodes::NodeList;
use self::overhead::Overhead;
use self::picker::Picker;
use self::prompt::{Prompt, Purpose};
pub use self::replay::Replay;
use self::tasks::TaskList;
pub use self::time::seconds;
pub use self::timeline::Timeline;
use super::action::{Action, Effect, Screen};
use super::history::process::{Point, ProcessSnapshot};
use super::history::{Kept, Shown, Want};
use super::keymap::{self, context};
use super::theme::Theme;
use super::widget::table::Sort;
use crate::filter::RowFilter;
use crate::marks::Marks;
use crate::metric::Metric;
use crate::metric::task;
use crate::model::process::Details;
use crate::model::units::Nid;
use crate::pmu::sets::Choice;
use crate::record::recorder::Progress;
use crate::snapshot::{Snapshot, Task};
use crate::text;

/// Choices of the command line.
pub struct Settings {
    pub interval: Duration,
    /// `None` lets the width of the screen decide.
    pub columns: Option<Vec<&'static Metric<Task>>>,
    /// Metric, and whether against its natural order.
    pub sort: Option<(&'static Metric<Task>, bool)>,
    pub threads: bool,
    /// The screen to begin with.
    pub screen: Screen,
    pub filter: RowFilter,
    pub theme: Theme,
    /// In which times of day are shown.
    pub zone: TimeZone,
    /// Sets of events that can be chosen, and what each counts here.
    pub sets: Vec<(&'static str, Choice)>,
}

pub struct App {
    pub theme: Theme,
    pub zone: TimeZone,
    pub interval: Duration,
    pub screen: Screen,
    pub tasks: TaskList,
    pub nodes: NodeList,
    pub containers: ContainerList,
    /// Cgroup id of the container that was made the scope here.
    pub scope: Option<u64>,
    pub detail: Option<Detail>,
    /// Hot spots, on top of the screen they were asked for on.
    pub hot: Option<HotView>,
    /// What we cost ourselves, on top of the screen it was asked for on.
    pub overhead: Option<Overhead>,
    /// First line of the help in view, while it is open.
    pub help: Option<usize>,
    pub picker: Option<Picker>,
    pub prompt: Option<Prompt>,
    /// Said once, until the next key.
    pub message: Option<String>,
    /// The last event worth a word, until Esc.
    pub note: Option<String>,
    /// Properties that make this machine's numbers misleading.
    pub warnings: Vec<String>,
    /// Sets of events that can be chosen, and what each counts here.
    sets: Vec<(&'static str, Choice)>,
    snapshot: Option<Arc<Snapshot>>,
    /// Whether its rows of containers were derived.
    has_containers: bool,
    /// Number of the sample that ends it.
    number: Option<u64>,
    kept: Kept,
    /// Number of the sample that ends the interval to show; `None` follows the newest.
    paused_at: Option<u64>,
    /// What is worth a look among what was kept when it was paused, and how much was looked through, 0 or 1.
    kept_marks: Marks,
    kept_looked: f64,
    /// How far the recording of what is measured here is; `None` when nothing is recorded.
    pub recording: Option<Progress>,
    /// The machine is made up: the header says so.
    pub demo: bool,
    /// Where in which recording we are; `None` when this is now.
    pub replay: Option<Replay>,
    area: Rect,
}

impl App {
    pub fn new(settings: Settings) -> App {
        let natural = (&task::CPU_PCT, false);
        let (metric, reversed) = settings.sort.unwrap_or(natural);
        App {
            theme: settings.theme,
            zone: settings.zone,
            interval: settings.interval,
            screen: settings.screen,
            tasks: TaskList::new(
                Sort { metric, reversed },
                settings.filter,
                settings.columns,
                settings.threads,
            ),
            nodes: NodeList::default(),
            containers: ContainerList::default(),
            scope: None,
            detail: None,
            hot: None,
            overhead: None,
            help: None,
            picker: None,
            prompt: None,
            message: None,
            note: None,
            warnings: Vec::new(),
            sets: settings.sets,
            snapshot: None,
            has_containers: false,
            number: None,
            kept: Kept::default(),
            paused_at: None,
            kept_marks: Marks::default(),
            kept_looked: 0.0,
            demo: false,
            recording: None,
            replay: None,
            area: Rect::new(0, 0, 80, 24),
        }
    }

    /// The interval on the screen; `None` before the first sample.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_deref()
    }

    /// What the process in the detail view did, up to the interval shown.
    pub fn history(&self) -> &[Point] {
        self.process().map_or(&[], |process| &process.history)
    }

    /// The process in the detail view, once it is derived.
    pub fn process(&self) -> Option<&ProcessSnapshot> {
        self.detail.as_ref()?.seen.as_deref()
    }

    /// The interval to derive.
    pub fn want(&self) -> Want {
        Want {
            number: self.paused_at,
            threads: self.tasks.threads,
            containers: self.screen == Screen::Containers,
            process: self.detail.as_ref().map(|detail| detail.process),
        }
    }

    /// Takes an interval. One that was derived for something else, before a key, is not shown: the answer to what the
    /// key asked for is on its way.
    pub fn show(&mut self, shown: Shown) -> Option<Effect> {
        if shown.moved {
            self.elsewhere();
        }
        if let Some(note) = shown.note {
            self.note = Some(note);
        }
        if let (Some(replay), Some((_, newest))) = (&mut self.replay, shown.kept.span()) {
            replay.span.1 = replay.span.1.max(newest);
        }
        self.kept = shown.kept;
        if shown.want != self.want() {
            return None;
        }
        let host = &shown.snapshot.host;
        if !self.snapshot().is_some_and(|known| Arc::ptr_eq(&known.host, host)) {
            self.warnings = host.topology.warnings().iter().map(|text| text::clean_str(text)).collect();
        }
        // What was wanted may not be kept any more.
        self.paused_at = self.paused_at.map(|_| shown.number);
        let is_another = self.number.replace(shown.number) != Some(shown.number);
        self.has_containers = shown.want.containers;
        self.snapshot = Some(shown.snapshot);
        if let Some(detail) = &mut self.detail {
            detail.seen = shown.process;
        }
        self.arrange();
        if is_another && shown.taken > 0 { self.inspect() } else { None }
    }

    /// Takes what /proc said about the process in the detail view.
    pub fn inspected(&mut self, pid: u32, found: Result<Details, String>) {
        if let Some(detail) = self.detail.as_mut().filter(|detail| detail.process.0 == pid) {
            detail.details = Some(found);
        }
    }

    /// The source could not change its scope.
    pub fn not_scoped(&mut self, why: &str) {
        self.scope = None;
        self.message = Some(text::clean_str(why));
    }

    /// The source could not count another set of events.
    pub fn not_counted(&mut self, why: &str) {
        self.message = Some(text::clean_str(why));
    }

    /// No more samples will come; what is known stays on the screen.
    pub fn source_ended(&mut self) {
        self.note = Some("the recording ends here".into());
        if let Some(replay) = &mut self.replay {
            replay.playing = false;
        }
    }

    /// Takes the size of the screen.
    pub fn resize(&mut self, area: Rect) {
        if self.area != area {
            self.area = area;
            self.arrange();
        }
    }

    /// The meaning of keys now.
    pub fn contexts(&self) -> u16 {
        let paused = if self.paused_at.is_some() { context::PAUSED } else { 0 };
        let paused = paused | if self.replay.is_some() { context::REPLAY } else { 0 };
        match self {
            App { prompt: Some(_), .. } => context::PROMPT,
            App { picker: Some(picker), .. } if picker.is_of_columns() => context::PICKER | context::COLUMNS,
            App { picker: Some(_), .. } => context::PICKER,
            App { help: Some(_), .. } => context::HELP,
            App { overhead: Some(_), .. } => context::OVERHEAD,
            App { hot: Some(_), .. } => context::HOT | paused & context::REPLAY,
            App { detail: Some(_), .. } => context::DETAIL | paused,
            App { screen: Screen::Tasks, .. } => context::TASKS | paused,
            App { screen: Screen::Nodes, .. } => context::NODES | paused,
            App { screen: Screen::Containers, .. } => context::CONTAINERS | paused,
        }
    }

    /// Takes a key.
    pub fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        let action = keymap::action(key, self.contexts())?;
        self.update(action)
    }

    /// Does what was asked for; what it cannot do itself is the answer.
    pub fn update(&mut self, action: Action) -> Option<Effect> {
        self.message = None;
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::Help => self.help = Some(0),
            Action::Overhead => return self.open_overhead(),
            Action::Back if self.contexts() == context::OVERHEAD => return self.close_overhead(),
            Action::Back if self.contexts() & context::HOT != 0 => return self.close_hot(),
            Action::Back => self.back(),
            Action::Hot => return self.open_hot(),
            Action::HotShape | Action::HotRestart => self.change_hot(action),
            Action::Move(motion) => self.go(motion),
            Action::Click(x, y) => self.click(x, y),
            Action::Show(screen) => {
                self.screen = screen;
                self.detail = None;
            }
            Action::NextScreen => {
                self.screen = match self.screen {
                    Screen::Tasks => Screen::Nodes,
                    Screen::Nodes => Screen::Containers,
                    Screen::Containers => Screen::Tasks,
                };
            }
            Action::Open => return self.open(),
            Action::Threads => self.tasks.threads = !self.tasks.threads,
            Action::Mappings => return self.toggle_maps(),
            Action::WalkMappings => return self.walk_maps(),
            Action::Matrix => self.nodes.next_matrix(),
            Action::Tree if self.screen == Screen::Containers => self.containers.tree ^= true,
            Action::Tree => self.tasks.choice.tree = !self.tasks.choice.tree,
            Action::Scope => return self.toggle_scope(),
            Action::Unscope => return self.set_scope(None),
            Action::Fold => self.fold(),
            Action::Follow => self.tasks.toggle_follow(self.list_height()),
            Action::Pause => self.pause(),
            Action::Rewind => self.scrub(-1),
            Action::Seek(seek) => return self.seek(seek),
            Action::NextMark => return self.go_to_mark(true),
            Action::PreviousMark => return self.go_to_mark(false),
            Action::PlayPause => return self.play_or_stand(),
            Action::Slower if self.replay.is_some() => return self.speed(false),
            Action::Faster if self.replay.is_some() => return self.speed(true),
            Action::AskForward => self.prompt = Some(Prompt::new(Purpose::Forward, "")),
            Action::AskBackward => self.prompt = Some(Prompt::new(Purpose::Backward, "")),
            Action::Slower => return self.set_interval(prompt::step(self.interval, true)),
            Action::Faster => return self.set_interval(prompt::step(self.interval, false)),
            Action::AskInterval if self.replay.is_some() => {
                self.message = Some("the intervals of a recording are as they were recorded".into());
            }
            Action::AskInterval => self.prompt = Some(Prompt::new(Purpose::Interval, "")),
            Action::Search => self.prompt = Some(Prompt::new(Purpose::Search, "")),
            Action::Filter => {
                self.prompt = Some(Prompt::new(Purpose::Filter, &self.tasks.choice.text));
            }
            Action::SearchNext => self.find(1),
            Action::SearchPrevious => self.find(-1),
            Action::PickEvents if self.demo => {
                self.message = Some("what the demo machine counts cannot be chosen".into());
            }
            Action::PickEvents if self.sets.is_empty() => {
                self.message = Some("what is counted in a recording was chosen when it was made".into());
            }
            Action::PickUser | Action::PickColumns | Action::PickSort | Action::PickEvents => {
                self.pick(action);
            }
            Action::SortBy(id) => self.sort_by(id),
            Action::SortLeft => self.sort_beside(false),
            Action::SortRight => self.sort_beside(true),
            Action::Invert => self.invert(),
            Action::Accept => return self.accept(),
            Action::Toggle | Action::Earlier | Action::Later | Action::Reset => self.edit_columns(action),
            Action::Erase | Action::EraseAll | Action::Type(_) => self.edit_prompt(action),
        }
        // Moving leaves the rows where they are.
        if !matches!(action, Action::Move(_)) {
            self.arrange();
        }
        None
    }

    /// Puts rows in order and keeps selections in place.
    fn arrange(&mut self) {
        let height = self.list_height();
        if let Some(snapshot) = &self.snapshot {
            self.tasks.arrange(snapshot, height);
            self.nodes.arrange(snapshot, height);
            // A snapshot for other screens has none: the list stays as it was.
            if self.has_containers {
                self.containers.arrange(snapshot, height);
            }
        }
        if let Some(detail) = &mut self.detail {
            detail.settle(height);
        }
        if let Some(hot) = &mut self.hot {
            hot.settle(height);
        }
        if let Some(picker) = &mut self.picker {
            picker.scroll(height);
        }
    }

    fn inspect(&self) -> Option<Effect> {
        self.detail.as_ref().map(|detail| Effect::Inspect(detail.process.0, detail.process.1))
    }

    fn open(&mut self) -> Option<Effect> {
        let snapshot = self.snapshot.as_ref()?;
        match self.screen {
            Screen::Tasks => {}
            Screen::Nodes => {
                self.tasks.choice.node = self.nodes.selected(snapshot).map(|node| Nid(node.raw.id));
                self.screen = Screen::Tasks;
                self.arrange();
                return None;
            }
            Screen::Containers => {
                self.tasks.choice.container = self.containers.selected(snapshot).map(|row| row.id);
                self.screen = Screen::Tasks;
                self.arrange();
                return None;
            }
        }
        let process = self.tasks.selected(snapshot)?.raw.process();
        self.detail = Some(Detail::new(process));
        self.inspect()
    }

    /// Closes what is on top; on a bare table drops search and filters, then goes back to the row whose tasks
    /// these are.
    fn back(&mut self) {
        if let Some(prompt) = self.prompt.take() {
            match prompt.purpose {
                Purpose::Search => self.tasks.search.clear(),
                Purpose::Filter => self.tasks.choice.text = prompt.before,
                Purpose::Interval | Purpose::Forward | Purpose::Backward => {}
            }
            return;
        }
        let closed =
            self.picker.take().is_some() || self.help.take().is_some() || self.detail.take().is_some();
        if closed {
            return;
        }
        self.message = if self.tasks.drop_filters() {
            Some("search and filters are dropped".into())
        } else if self.screen == Screen::Tasks
            && let Some(screen) = self.tasks.leave()
        {
            self.screen = screen;
            None
        } else if self.note.take().is_some() {
            None
        } else {
            Some("nothing to close; q quits".into())
        };
    }

    fn fold(&mut self) {
        if let Some(hot) = &mut self.hot {
            if !hot.toggle_fold() {
                self.message = Some("nothing is below it: Tab shows who calls whom".into());
            }
            return;
        }
        let folded = match self.screen {
            Screen::Containers if self.containers.tree => {
                self.containers.toggle_fold();
                true
            }
            Screen::Tasks if self.tasks.choice.tree => self.tasks.toggle_fold(),
            _ => {
                self.message = Some("only the tree folds: F5 or e shows it".into());
                return;
            }
        };
        if !folded {
            self.message = Some("nothing hangs below this row".into());
        }
    }

    /// Makes the selected container the scope, or clears the scope when it is that already.
    fn toggle_scope(&mut self) -> Option<Effect> {
        let selected = self.containers.selected(self.snapshot.as_ref()?)?.id;
        self.set_scope(if self.scope == Some(selected) { None } else { Some(selected) })
    }

    fn set_scope(&mut self, scope: Option<u64>) -> Option<Effect> {
        if self.replay.is_some() {
            self.message = Some("the scope of a recording is what was recorded".into());
            return None;
        }
        if self.scope == scope {
            self.message = Some("no scope was chosen here: c on a container does".into());
            return None;
        }
        self.scope = scope;
        Some(Effect::SetScope(scope))
    }
}
