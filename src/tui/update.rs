//! The screens and their stack; actions and answers change it. Needs no terminal.

mod actions;
mod popups;

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use ratatui::layout::Rect;

use super::history::Want;
use super::input::keymap::context;
use super::input::{Action, ScreenId};
use super::screens::nodes::Nodes;
use super::screens::tasks::Tasks;
use super::screens::{Screen, Screens};
use super::state::State;
use super::theme::Theme;
use super::widgets::layout::{self, Parts, Wanted};
use super::widgets::picker::{Picker, Prompt};
use super::widgets::table::Sort;
use crate::analysis::filter::{self, RowFilter};
use crate::metric::{Metric, task};
use crate::pmu::sets::Choice;
use crate::settings::Value;
use crate::snapshot::{Node, Task};
use crate::source::Focus;

/// Choices of the command line.
pub struct Settings {
    pub interval: Duration,
    /// `None` lets the width of the screen decide.
    pub columns: Option<Vec<&'static Metric<Task>>>,
    /// Metric, and whether against its natural order.
    pub sort: Option<(&'static Metric<Task>, bool)>,
    /// Columns of the table of nodes.
    pub node_columns: Option<Vec<&'static Metric<Node>>>,
    pub threads: bool,
    /// The screen to begin with.
    pub screen: ScreenId,
    pub filter: RowFilter,
    /// Sets of events that can be chosen, and what each counts here; none for a recording.
    pub sets: Vec<(&'static str, Choice)>,
    /// The machine is made up: the header shows it.
    pub demo: bool,
    /// Memory use is sampled from the start to the end.
    pub access: bool,
    /// Accesses of processes that matter on the screen are sampled, within a hundredth of a CPU.
    pub sampling: bool,
    /// Findings are looked for.
    pub findings: bool,
}

impl Default for Settings {
    /// All processes, once a second.
    fn default() -> Settings {
        Settings {
            interval: Duration::from_secs(1),
            columns: None,
            sort: None,
            node_columns: None,
            threads: false,
            screen: ScreenId::Tasks,
            filter: RowFilter::default(),
            sets: Vec::new(),
            demo: false,
            access: false,
            sampling: false,
            findings: true,
        }
    }
}

pub struct App {
    pub state: State,
    pub screens: Screens,
    /// A table, and the views opened on top of it.
    base: ScreenId,
    on_top: Vec<ScreenId>,
    pub picker: Option<Picker>,
    pub prompt: Option<Prompt>,
    /// When a row was clicked, and its line on the screen.
    clicked: Option<(Instant, u16)>,
}

impl App {
    /// Without samples; times of day are shown in `zone`.
    pub fn new(settings: Settings, theme: Theme, zone: TimeZone) -> App {
        let natural = (&task::CPU_PCT, false);
        let (metric, reversed) = settings.sort.unwrap_or(natural);
        let sort = Sort { metric, reversed };
        let mut nodes = Nodes::default();
        nodes.list.columns = settings.node_columns;
        let tasks = Tasks::new(sort, settings.filter, settings.columns, settings.threads);
        App {
            state: State {
                sets: settings.sets,
                demo: settings.demo,
                access: settings.access,
                sampling: settings.sampling,
                findings: settings.findings,
                ..State::new(theme, zone, settings.interval)
            },
            screens: Screens { tasks, nodes, ..Screens::default() },
            base: settings.screen,
            on_top: Vec::new(),
            picker: None,
            prompt: None,
            clicked: None,
        }
    }

    /// The table on the screen, or below the open views.
    pub fn base(&self) -> ScreenId {
        self.base
    }

    /// The view that keys are for.
    pub fn top(&self) -> ScreenId {
        self.on_top.last().copied().unwrap_or(self.base)
    }

    /// The choices that settings keep, by flag; without a value: as without the flag. The intervals of a recording are no choice.
    pub fn choices(&self) -> Vec<(&'static str, Option<Value>)> {
        fn ids<R>(columns: Option<&Vec<&'static Metric<R>>>) -> Option<Value> {
            columns.map(|columns| Value::List(columns.iter().map(|metric| metric.id.to_string()).collect()))
        }
        let (tasks, containers) = (&self.screens.tasks, self.base == ScreenId::Containers);
        let Sort { metric, reversed } = &tasks.list.sort;
        let sort = format!("{}{}", if *reversed { "-" } else { "" }, metric.id);
        let usual = Settings::default();
        let mut choices = vec![
            ("columns", ids(tasks.list.columns.as_ref())),
            ("node-columns", ids(self.screens.nodes.list.columns.as_ref())),
            ("sort", (sort != task::CPU_PCT.id).then_some(Value::Word(sort))),
            // Rows of containers and of threads are not beside each other.
            ("threads", (tasks.threads && !containers).then_some(Value::Switch(true))),
            ("by-container", containers.then_some(Value::Switch(true))),
        ];
        if self.state.replay.is_none() {
            let (interval, is_usual) = (self.state.interval, self.state.interval == usual.interval);
            choices.push(("delay", (!is_usual).then(|| Value::Number(interval.as_secs_f64().to_string()))));
        }
        choices
    }

    pub fn is_open(&self, id: ScreenId) -> bool {
        self.stack().any(|open| open == id)
    }

    /// Open views, from the top down.
    fn stack(&self) -> impl Iterator<Item = ScreenId> + '_ {
        self.on_top.iter().rev().copied().chain([self.base])
    }

    fn screen(&self) -> &dyn Screen {
        self.screens.get(self.top())
    }

    /// The view to draw: the topmost that can be.
    pub fn visible(&self) -> &dyn Screen {
        let mut open = self.stack().map(|id| self.screens.get(id));
        open.find(|screen| screen.is_ready(&self.state)).unwrap_or(&self.screens.tasks)
    }

    /// The interval to derive.
    pub fn want(&self) -> Want {
        let mut want =
            Want { number: self.state.paused_at, without_findings: !self.state.findings, ..Want::default() };
        // Rows of the table of tasks are what the header counts.
        self.screens.tasks.want(&mut want);
        self.stack().for_each(|id| self.screens.get(id).want(&mut want));
        want
    }

    /// Rows on the screen, the processes among them whose accesses are worth sampling, and suspects.
    pub fn in_view(&self) -> Focus {
        let focus = Focus { suspects: self.state.conclusions.suspects.clone(), ..self.rows_in_view() };
        let Some(snapshot) = self.state.snapshot().filter(|_| self.state.sampling) else { return focus };
        let details = self.is_open(ScreenId::Detail).then(|| self.screens.get(ScreenId::Detail).process());
        let processes = focus.processes.as_deref().unwrap_or_default();
        let asks = &self.state.conclusions.asks;
        let accesses = Some(filter::worth_sampling(snapshot, details.flatten(), asks, processes));
        Focus { accesses, ..focus }
    }

    /// Rows on the screen: groups in the view of containers, else processes, the selected one first.
    fn rows_in_view(&self) -> Focus {
        let Some(snapshot) = self.state.snapshot() else { return Focus::default() };
        let height = self.list_height();
        let open = || self.stack().map(|id| self.screens.get(id));
        if let Some(groups) = open().find_map(|screen| screen.groups_in_view(height)) {
            return Focus { groups, ..Focus::default() };
        }
        self.screens.tasks.focus(open().find_map(|screen| screen.process()), snapshot, height)
    }

    /// Takes the size of the screen.
    pub fn resize(&mut self, area: Rect) {
        if self.state.area != area {
            self.state.area = area;
            self.arrange();
        }
    }

    /// The current parts of the screen.
    pub fn parts(&self) -> Parts {
        let topology = self.state.snapshot().map(|snapshot| &snapshot.host.topology);
        let wanted = Wanted {
            compact: self.screen().is_compact(),
            notice: self.state.notice().is_some(),
            time: self.state.timeline().is_some(),
        };
        layout::parts(self.state.area, topology, wanted)
    }

    /// The place of the list that keys move in, without its titles or frame.
    pub fn list(&self) -> Rect {
        let body = self.parts().body;
        match &self.picker {
            Some(picker) => picker.inside(body),
            None => self.screen().list(body, &self.state),
        }
    }

    fn list_height(&self) -> usize {
        usize::from(self.list().height)
    }

    /// The meaning of keys now.
    pub fn contexts(&self) -> u16 {
        let paused = if self.state.paused_at.is_some() { context::PAUSED } else { 0 };
        let time = paused | if self.state.replay.is_some() { context::REPLAY } else { 0 };
        match (&self.prompt, &self.picker) {
            (Some(_), _) => context::PROMPT,
            (None, Some(picker)) if picker.is_of_columns() => context::PICKER | context::COLUMNS,
            (None, Some(_)) => context::PICKER,
            (None, None) => {
                let has_tags = self.screen().table().is_some_and(|table| table.tags() > 0);
                let tagged = if has_tags { context::TAGGED } else { 0 };
                self.screen().context() | tagged | time & self.screen().contexts_of_time()
            }
        }
    }

    /// Whether this source supports an action: a recording has only the data measured at its time.
    pub fn offers(&self, action: Action) -> bool {
        let is_recording = self.state.replay.is_some();
        match action {
            Action::Scope => !is_recording,
            Action::MemoryUse => !is_recording && !self.state.access,
            Action::Mappings if is_recording => {
                let tasks = self.state.snapshot().map_or(&[][..], |snapshot| &snapshot.tasks);
                tasks.iter().any(|task| task.memory_use().is_some())
            }
            _ => true,
        }
    }

    /// Puts rows in order and keeps selections in place: of the tasks, whose rows the header counts, and of
    /// the open view.
    fn arrange(&mut self) {
        let height = self.list_height();
        self.screens.tasks.arrange(&self.state, height);
        let open: Vec<ScreenId> = self.stack().filter(|id| *id != ScreenId::Tasks).collect();
        for id in open {
            self.screens.get_mut(id).arrange(&self.state, height);
        }
        if let Some(picker) = &mut self.picker {
            picker.scroll(height);
        }
    }
}
