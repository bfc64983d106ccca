//! The result of each action, of answers of the threads behind the screen, and of a click.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyEvent, MouseButton, MouseEvent, MouseEventKind};

use super::App;
use crate::collect::mappings::Mappings;
use crate::model::process::{Details, ProcessId};
use crate::model::stacks::StackBatch;
use crate::overhead::Statistics;
use crate::text::{self, rfc3339};
use crate::tui::history::Shown;
use crate::tui::input::keymap::{self, context};
use crate::tui::input::{Action, Effect, Motion, ScreenId, unbound};
use crate::tui::screens::{Answer, Screens};
use crate::tui::state::time;
use crate::tui::widgets::footer::{self, Keys};
use crate::tui::widgets::list::ListPlace;
use crate::tui::widgets::picker::{Prompt, Purpose};

impl App {
    /// Takes a key.
    pub fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        let contexts = self.contexts();
        let Some(action) = keymap::action(key, contexts) else {
            self.state.message = unbound::message(key, contexts);
            return None;
        };
        self.update(action)
    }

    /// Executes an action; returns effects that others must execute.
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
            Action::Keep => self.prompt = Some(Prompt::new(Purpose::Keep, "")),
            Action::Back => return self.back(),
            Action::Move(motion) => self.go(motion),
            Action::Click(x, y) => self.click(x, y),
            Action::Accept => return self.accept(),
            Action::Toggle | Action::Earlier | Action::Later | Action::Reset => self.edit_columns(action),
            Action::Erase | Action::EraseAll | Action::Type(_) => return self.edit_text(action),
            _ => return self.act_on_top(action),
        }
        None
    }

    /// Offers an action to the view on top, then executes it if it is the same in all views.
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
            Action::Help => {
                let context = self.contexts();
                self.screens.help.about(context);
                return self.open(ScreenId::Help);
            }
            Action::Overhead => return self.open(ScreenId::Overhead),
            Action::Hot => {
                self.screen().subject(&self.state)?;
                return self.open(ScreenId::Hot);
            }
            Action::Open => {
                self.screen().subject(&self.state)?;
                return self.open(self.screen().leads_to()?);
            }
            Action::Findings => return self.open(ScreenId::Findings),
            Action::GoTo => return self.act_anywhere(Action::Open),
            Action::Show(ScreenId::Tasks) if self.top() == ScreenId::Tasks => {
                self.state.message =
                    Some("this view shows the tasks; to see each CPU, press 2 (nodes), then v twice".into());
            }
            Action::Show(id) if self.is_table(id) => return self.show_table(id),
            Action::Show(id) => return self.open(id),
            Action::NextScreen => {
                let tables: Vec<_> = Screens::ALL.iter().copied().filter(|id| self.is_table(*id)).collect();
                let at = tables.iter().position(|id| *id == self.base)?;
                return self.show_table(tables[(at + 1) % tables.len()]);
            }
            Action::Unscope => return self.state.set_scope(None),
            Action::Sampling => self.state.toggle_sampling(),
            Action::Pause => self.state.pause(),
            Action::Rewind => self.state.scrub(-1),
            Action::Latest => {
                self.state.message = Some("this is the newest interval; [ shows the previous".into());
            }
            Action::ScrollLeft => self.scroll(false),
            Action::ScrollRight => self.scroll(true),
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
                self.state.message = Some("the intervals of a recording are fixed".into());
            }
            Action::AskInterval => self.prompt = ask(Purpose::Interval),
            Action::WritePage if self.state.replay.is_some() => {
                self.state.message = Some("for a recording: numatop-ng report FILE -o page.html".into());
            }
            Action::WritePage => {
                let moment = self.state.snapshot()?.wall_ns;
                let moment = rfc3339(moment).get(..19).unwrap_or_default().replace(':', "-");
                self.prompt = Some(Prompt::new(Purpose::Report, &format!("numatop-ng-{moment}.html")));
            }
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

    /// Whether a view is a table, which is below all others.
    fn is_table(&self, id: ScreenId) -> bool {
        self.screens.get(id).context() & context::TABLES != 0
    }

    /// Closes the open views, and shows a table.
    fn show_table(&mut self, id: ScreenId) -> Option<Effect> {
        let mut effect = None;
        for open in std::mem::take(&mut self.on_top) {
            effect = self.screens.get_mut(open).close().or(effect);
        }
        self.base = id;
        effect
    }

    /// Opens a view about the selection.
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

    /// Closes the view on top; on a bare table drops search and filters, then goes back to the row whose
    /// tasks these are.
    fn back(&mut self) -> Option<Effect> {
        if let Some(prompt) = self.prompt.take() {
            let before = if prompt.purpose == Purpose::Search { "" } else { &prompt.before };
            self.typed(prompt.purpose, before);
            return None;
        }
        if self.picker.take().is_some() {
            return None;
        }
        let top = self.top();
        if self.screens.get_mut(top).step_out() {
            return None;
        }
        if let Some(id) = self.on_top.pop() {
            return self.screens.get_mut(id).close();
        }
        let tasks = &mut self.screens.tasks;
        if tasks.drop_filters() {
            self.state.message = Some("search and filters are cleared".into());
        } else if let Some(id) = (self.base == ScreenId::Tasks).then(|| tasks.leave()).flatten() {
            self.base = id;
        } else if self.state.note.take().is_none() {
            self.state.message = Some("nothing to close; q quits".into());
        }
        None
    }
}

impl App {
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

    /// Takes the facts from /proc about the process in the detail view.
    pub fn inspected(&mut self, pid: u32, found: Result<Details, String>) {
        self.screens.detail.inspected(pid, found);
    }

    /// Takes the mappings of a process.
    pub fn mapped(&mut self, process: ProcessId, found: Result<Mappings, String>) {
        self.screens.detail.mapped(process, found);
    }

    /// Takes the sampled stacks, or the reason why they are missing.
    pub fn hot_news(&mut self, news: Result<StackBatch, String>) {
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

    /// Takes statistics of our own programs, or the reason why they are missing.
    pub fn statistics(&mut self, now: Result<Statistics, String>) {
        match now {
            Ok(now) if self.is_open(ScreenId::Overhead) => self.screens.overhead.take(now),
            // It was closed meanwhile.
            Ok(_) => {}
            Err(why) => self.fail(ScreenId::Overhead, &why),
        }
    }

    /// Shows the place of the report, or the reason why it was not written.
    pub fn page_written(&mut self, written: &Result<String, String>) {
        self.state.message = Some(match written {
            Ok(name) => format!("report saved: {}", text::clean_str(name)),
            Err(why) => format!("report not saved: {}", text::clean_str(why)),
        });
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
}

impl App {
    pub(super) fn sort_by(&mut self, id: &str) {
        let top = self.top();
        if let Some(table) = self.screens.get_mut(top).table_mut() {
            let why = table.sort_by(id, self.state.snapshot());
            self.state.message = why.or(self.state.message.take());
        }
    }

    pub(super) fn invert(&mut self) {
        let top = self.top();
        if let Some(table) = self.screens.get_mut(top).table_mut() {
            table.invert();
        }
    }

    /// The metric that the table is sorted by.
    pub(super) fn sorted(&self) -> Option<&'static str> {
        self.screen().table().map(|table| table.sorted())
    }

    /// The columns of the table.
    pub(super) fn places(&self) -> Vec<ListPlace> {
        let table = self.state.snapshot().zip(self.screen().table());
        table.map_or_else(Vec::new, |(snapshot, table)| table.places(self.state.area.width, snapshot).0)
    }

    /// Scrolls the columns of the table by one.
    pub(super) fn scroll(&mut self, right: bool) {
        let (top, width) = (self.top(), self.state.area.width);
        let Some(snapshot) = self.state.snapshot.as_deref() else { return };
        if let Some(table) = self.screens.get_mut(top).table_mut() {
            self.state.message = table.scroll(right, width, snapshot);
        }
    }

    /// Sorts by the visible column next to the current sort column.
    pub(super) fn sort_beside(&mut self, right: bool) {
        let (columns, sorted) = (self.places(), self.sorted());
        let next = match (columns.iter().position(|column| Some(column.id) == sorted), right) {
            (Some(now), true) => now + 1,
            (Some(now), false) => now.wrapping_sub(1),
            (None, _) => 0,
        };
        match columns.get(next) {
            Some(column) => self.sort_by(column.id),
            None => {
                self.state.message = Some("no further column; F6 lists every metric".into());
            }
        }
    }
}

/// Two clicks on a row within this time are a double click.
const DOUBLE: Duration = Duration::from_millis(400);

impl App {
    /// Takes the mouse.
    pub fn mouse(&mut self, event: MouseEvent) -> Option<Effect> {
        let action = match event.kind {
            MouseEventKind::Down(MouseButton::Left) if self.is_second(event) => Action::Open,
            MouseEventKind::Down(MouseButton::Left) => {
                self.footer_hit(event.column, event.row).unwrap_or(Action::Click(event.column, event.row))
            }
            MouseEventKind::ScrollUp => Action::Move(Motion::WheelUp),
            MouseEventKind::ScrollDown => Action::Move(Motion::WheelDown),
            _ => return None,
        };
        self.update(action)
    }

    /// Whether a click is the second one on a row of the table on top. A third one counts as a first one.
    fn is_second(&mut self, event: MouseEvent) -> bool {
        let list = self.list();
        let is_row = self.picker.is_none() && self.prompt.is_none() && self.on_top.is_empty();
        let here = (is_row && list.contains((event.column, event.row).into())).then(Instant::now);
        let before = self.clicked.take();
        let is_second =
            before.zip(here).is_some_and(|((then, row), now)| row == event.row && now - then < DOUBLE);
        self.clicked = here.filter(|_| !is_second).map(|now| (now, event.row));
        is_second
    }

    /// The key in the last line under the mouse, where keys are shown there.
    fn footer_hit(&self, x: u16, y: u16) -> Option<Action> {
        let footer = self.parts().footer;
        let is_there =
            self.prompt.is_none() && self.state.message.is_none() && footer.contains((x, y).into());
        let keys = Keys { context: self.contexts(), offers: &|action| self.offers(action) };
        is_there.then(|| footer::hit(&keys, footer.width, x - footer.x)).flatten()
    }

    /// A row is selected, a title sorted by; the title that is sorted by already turns the order.
    pub(super) fn click(&mut self, x: u16, y: u16) {
        let (list, top) = (self.list(), self.top());
        let inside = list.contains((x, y).into());
        let line = usize::from(y.saturating_sub(list.y));
        match &mut self.picker {
            Some(picker) if inside => picker.click(line),
            Some(_) => {}
            None if inside => self.screens.get_mut(top).select(line, usize::from(list.height)),
            None if y + 1 == list.y => self.click_title(x.saturating_sub(list.x)),
            None => {}
        }
    }

    fn click_title(&mut self, x: u16) {
        // The gap to the right of a column belongs to it.
        let hit = self.places().into_iter().find(|column| (column.left..=column.right).contains(&x));
        match hit {
            Some(column) if Some(column.id) == self.sorted() => self.invert(),
            Some(column) => self.sort_by(column.id),
            None => {}
        }
    }
}
