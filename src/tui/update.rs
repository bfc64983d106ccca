//! The screens, what lies on top of what, and the result of each action. Needs no terminal.

mod mouse;
mod order;
mod popups;

use std::time::Duration;

use jiff::tz::TimeZone;
use ratatui::crossterm::event::KeyEvent;
use ratatui::layout::Rect;

use super::action::{Action, Effect, Motion, ScreenId};
use super::history::{Shown, Want};
use super::keymap::{self, context};
use super::screens::tasks::Tasks;
use super::screens::{Answer, Screen, Screens};
use super::state::State;
use super::state::time;
use super::theme::Theme;
use super::widgets::layout::{self, Parts, Wanted};
use super::widgets::picker::Picker;
use super::widgets::prompt::{Prompt, Purpose};
use super::widgets::table::Sort;
use crate::collect::mappings::Mappings;
use crate::filter::RowFilter;
use crate::metric::{Metric, task};
use crate::model::process::{Details, ProcessId};
use crate::model::stacks::News;
use crate::overhead::Statistics;
use crate::pmu::sets::Choice;
use crate::snapshot::Task;
use crate::source::Focus;
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
    pub screen: ScreenId,
    pub filter: RowFilter,
    pub theme: Theme,
    /// In which times of day are shown.
    pub zone: TimeZone,
    /// Sets of events that can be chosen, and what each counts here.
    pub sets: Vec<(&'static str, Choice)>,
}

pub struct App {
    pub state: State,
    pub screens: Screens,
    /// A table, and what was opened on top of it.
    base: ScreenId,
    on_top: Vec<ScreenId>,
    pub picker: Option<Picker>,
    pub prompt: Option<Prompt>,
}

impl App {
    pub fn new(settings: Settings) -> App {
        let natural = (&task::CPU_PCT, false);
        let (metric, reversed) = settings.sort.unwrap_or(natural);
        let sort = Sort { metric, reversed };
        let tasks = Tasks::new(sort, settings.filter, settings.columns, settings.threads);
        App {
            state: State::new(settings.theme, settings.zone, settings.interval, settings.sets),
            screens: Screens { tasks, ..Screens::default() },
            base: settings.screen,
            on_top: Vec::new(),
            picker: None,
            prompt: None,
        }
    }

    /// The table on the screen, or below what is.
    pub fn base(&self) -> ScreenId {
        self.base
    }

    /// The view that keys are for.
    pub fn top(&self) -> ScreenId {
        self.on_top.last().copied().unwrap_or(self.base)
    }

    pub fn is_open(&self, id: ScreenId) -> bool {
        self.stack().any(|open| open == id)
    }

    /// What is open, from the top down.
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
        let mut want = Want { number: self.state.paused_at, ..Want::default() };
        // Rows of the table of tasks are what the header counts.
        self.screens.tasks.want(&mut want);
        self.stack().for_each(|id| self.screens.get(id).want(&mut want));
        want
    }

    /// What is on the screen: groups in the view of containers, else processes, the selected one first.
    pub fn in_view(&self) -> Focus {
        let Some(snapshot) = self.state.snapshot() else { return Focus::default() };
        let height = self.list_height();
        let open = || self.stack().map(|id| self.screens.get(id));
        if let Some(groups) = open().find_map(|screen| screen.groups_in_view(height)) {
            return Focus { groups, ..Focus::default() };
        }
        self.screens.tasks.focus(open().find_map(|screen| screen.process()), snapshot, height)
    }

    /// Takes an interval.
    pub fn show(&mut self, shown: Shown) -> Option<Effect> {
        if shown.moved {
            self.state.elsewhere();
            Screens::ALL.iter().for_each(|id| self.screens.get_mut(*id).elsewhere());
        }
        let (want, is_new) = (self.want(), shown.taken > 0);
        let is_another = self.state.show(shown, want);
        self.arrange();
        if !(is_another && is_new) {
            return None;
        }
        self.stack().find_map(|id| self.screens.get(id).at_interval())
    }

    /// Takes what /proc said about the process in the detail view.
    pub fn inspected(&mut self, pid: u32, found: Result<Details, String>) {
        self.screens.detail.inspected(pid, found);
    }

    /// Takes the mappings of a process.
    pub fn mapped(&mut self, process: ProcessId, found: Result<Mappings, String>) {
        self.screens.detail.mapped(process, found);
    }

    /// Takes what was sampled of stacks, or why nothing can be.
    pub fn hot_news(&mut self, news: Result<News, String>) {
        let height = self.list_height();
        match news {
            Ok(news) if self.is_open(ScreenId::Hot) => {
                self.screens.hot.add(news, self.state.snapshot(), height);
            }
            // It was closed meanwhile.
            Ok(_) => {}
            Err(why) => self.fail(ScreenId::Hot, &why),
        }
    }

    /// Takes statistics of our own programs, or why there are none.
    pub fn statistics(&mut self, now: Result<Statistics, String>) {
        match now {
            Ok(now) if self.is_open(ScreenId::Overhead) => self.screens.overhead.take(now),
            // It was closed meanwhile.
            Ok(_) => {}
            Err(why) => self.fail(ScreenId::Overhead, &why),
        }
    }

    /// A view cannot be shown, for this reason.
    fn fail(&mut self, id: ScreenId, why: &str) {
        self.on_top.retain(|open| *open != id);
        self.state.message = Some(text::clean_str(why));
    }

    /// The source could not change its scope.
    pub fn not_scoped(&mut self, why: &str) {
        self.state.scope = None;
        self.state.message = Some(text::clean_str(why));
    }

    /// The source could not count another set of events.
    pub fn not_counted(&mut self, why: &str) {
        self.state.message = Some(text::clean_str(why));
    }

    /// Takes the size of the screen.
    pub fn resize(&mut self, area: Rect) {
        if self.state.area != area {
            self.state.area = area;
            self.arrange();
        }
    }

    /// The parts of the screen as it is now.
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
            (None, None) => self.screen().context() | time & self.screen().contexts_of_time(),
        }
    }

    /// Takes a key.
    pub fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        let action = keymap::action(key, self.contexts())?;
        self.update(action)
    }

    /// Does what was asked for; what it cannot do itself is the answer.
    pub fn update(&mut self, action: Action) -> Option<Effect> {
        self.state.message = None;
        let effect = self.act(action);
        // Moving leaves the rows where they are.
        if !matches!(action, Action::Move(_)) {
            self.arrange();
        }
        effect
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::Back => return self.back(),
            Action::Move(motion) => self.go(motion),
            Action::Click(x, y) => self.click(x, y),
            Action::Accept => return self.accept(),
            Action::Toggle | Action::Earlier | Action::Later | Action::Reset => self.edit_columns(action),
            Action::Erase | Action::EraseAll | Action::Type(_) => self.edit_prompt(action),
            _ => return self.act_on_top(action),
        }
        None
    }

    /// What the view on top does itself, or else what is the same in all views.
    fn act_on_top(&mut self, action: Action) -> Option<Effect> {
        let (height, top) = (self.list_height(), self.top());
        match self.screens.get_mut(top).act(action, height, &mut self.state) {
            Answer::Ignored => self.act_anywhere(action),
            Answer::Done => None,
            Answer::Effect(effect) => effect,
            Answer::Ask(prompt) => {
                self.prompt = Some(prompt);
                None
            }
            Answer::Pick(picker) => {
                self.picker = Some(picker);
                None
            }
        }
    }

    fn act_anywhere(&mut self, action: Action) -> Option<Effect> {
        let ask = |purpose| Some(Prompt::new(purpose, ""));
        match action {
            Action::Help => return self.open(ScreenId::Help),
            Action::Overhead => return self.open(ScreenId::Overhead),
            Action::Hot => {
                self.screen().subject(&self.state)?;
                return self.open(ScreenId::Hot);
            }
            Action::Open => {
                self.screen().subject(&self.state)?;
                return self.open(self.screen().leads_to()?);
            }
            Action::Show(id) if self.is_table(id) => return self.show_table(id),
            Action::Show(id) => return self.open(id),
            Action::NextScreen => {
                let tables = Screens::ALL.iter().copied().filter(|id| self.is_table(*id)).cycle();
                let next = tables.skip_while(|id| *id != self.base).nth(1)?;
                return self.show_table(next);
            }
            Action::Unscope => return self.state.set_scope(None),
            Action::Pause => self.state.pause(),
            Action::Rewind => self.state.scrub(-1),
            Action::Seek(seek) => return self.state.seek(seek),
            Action::NextMark => return self.state.go_to_mark(true),
            Action::PreviousMark => return self.state.go_to_mark(false),
            Action::PlayPause => return self.state.play_or_stand(),
            Action::Slower if self.state.replay.is_some() => return self.state.speed(false),
            Action::Faster if self.state.replay.is_some() => return self.state.speed(true),
            Action::Slower => return self.state.set_interval(time::step(self.state.interval, true)),
            Action::Faster => return self.state.set_interval(time::step(self.state.interval, false)),
            Action::AskForward => self.prompt = ask(Purpose::Forward),
            Action::AskBackward => self.prompt = ask(Purpose::Backward),
            Action::AskInterval if self.state.replay.is_some() => {
                self.state.message = Some("the intervals of a recording are as they were recorded".into());
            }
            Action::AskInterval => self.prompt = ask(Purpose::Interval),
            Action::PickEvents => self.pick_events(),
            Action::PickColumns => self.pick_columns(),
            Action::PickSort => self.pick_sort(),
            Action::SortBy(id) => self.sort_by(id),
            Action::SortLeft => self.sort_beside(false),
            Action::SortRight => self.sort_beside(true),
            Action::Invert => self.invert(),
            // Of a view that is not on top.
            _ => {}
        }
        None
    }

    /// Whether a view is a table, which lies below all others.
    fn is_table(&self, id: ScreenId) -> bool {
        self.screens.get(id).context() & context::TABLES != 0
    }

    /// Closes what is open, and shows a table.
    fn show_table(&mut self, id: ScreenId) -> Option<Effect> {
        let mut effect = None;
        for open in std::mem::take(&mut self.on_top) {
            effect = self.screens.get_mut(open).close().or(effect);
        }
        self.base = id;
        effect
    }

    /// Opens a view about what is selected.
    fn open(&mut self, id: ScreenId) -> Option<Effect> {
        let subject = self.screen().subject(&self.state);
        match self.screens.get_mut(id).open(subject, &self.state) {
            Ok(effect) if self.is_table(id) => self.show_table(id).or(effect),
            Ok(effect) => {
                self.on_top.push(id);
                effect
            }
            Err(why) => {
                self.state.message = Some(why);
                None
            }
        }
    }

    fn go(&mut self, motion: Motion) {
        let (height, top) = (self.list_height(), self.top());
        match &mut self.picker {
            Some(picker) => picker.go(motion, height),
            None => self.screens.get_mut(top).go(motion, height, &self.state),
        }
    }

    /// Closes what is on top; on a bare table drops search and filters, then goes back to the row whose tasks
    /// these are.
    fn back(&mut self) -> Option<Effect> {
        if let Some(prompt) = self.prompt.take() {
            let before = if prompt.purpose == Purpose::Search { "" } else { &prompt.before };
            self.typed(prompt.purpose, before);
            return None;
        }
        if self.picker.take().is_some() {
            return None;
        }
        if let Some(id) = self.on_top.pop() {
            return self.screens.get_mut(id).close();
        }
        let tasks = &mut self.screens.tasks;
        if tasks.drop_filters() {
            self.state.message = Some("search and filters are dropped".into());
        } else if let Some(id) = (self.base == ScreenId::Tasks).then(|| tasks.leave()).flatten() {
            self.base = id;
        } else if self.state.note.take().is_none() {
            self.state.message = Some("nothing to close; q quits".into());
        }
        None
    }

    /// Puts rows in order and keeps selections in place: of the tasks, whose rows the header counts, and of what is open.
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
