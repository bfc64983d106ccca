//! The result of each action.

use ratatui::crossterm::event::KeyEvent;

use super::App;
use crate::text::rfc3339;
use crate::tui::input::action::{Action, Effect, Motion, ScreenId};
use crate::tui::input::keymap::{self, context};
use crate::tui::input::unbound;
use crate::tui::screens::{Answer, Screens};
use crate::tui::state::time;
use crate::tui::widgets::prompt::{Prompt, Purpose};

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
                self.state.message = Some("these are the tasks; each CPU: 2 for the nodes, then v v".into());
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
