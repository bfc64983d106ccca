//! Actions in prompts and pickers.

use super::App;
use crate::model::event::{Event, Tested};
use crate::pmu::sets::Choice;
use crate::text::{clean_str, plural};
use crate::tui::input::{Action, Effect, ScreenId};
use crate::tui::state::time::parse_interval;
use crate::tui::widgets::picker::{Line, Pickable, Picker, Prompt, Purpose};

const COLUMNS: &str = "Columns";

impl App {
    /// Opens the list of sets of events.
    pub(super) fn pick_events(&mut self) {
        let state = &mut self.state;
        if state.sets.is_empty() {
            state.message = Some("a recording has fixed counters".into());
        } else if state.snapshot.is_some() {
            let line = |(set, choice): &(&'static str, Choice)| Line {
                checked: None,
                is_available: !choice.events.is_empty() || choice.absent.is_empty(),
                name: (*set).to_string(),
                note: counts(choice),
                what: Pickable::Events(set),
            };
            self.picker = Some(Picker::new("CPU counters", state.sets.iter().map(line).collect(), None));
        }
    }

    /// Opens the list of metrics to sort by.
    pub(super) fn pick_sort(&mut self) {
        let Some((snapshot, table)) = self.state.snapshot().zip(self.screen().table()) else { return };
        let sorted = Pickable::Metric(table.sorted());
        self.picker = Some(Picker::new("Sort by", table.metrics(snapshot), Some(sorted)));
    }

    /// Opens the list of columns.
    pub(super) fn pick_columns(&mut self) {
        let Some((snapshot, table)) = self.state.snapshot().zip(self.screen().table()) else { return };
        let lines = table.columns(self.state.area.width, snapshot);
        self.picker = Some(Picker::new(COLUMNS, lines, None));
    }

    /// Changes the columns; the table shows it at once.
    pub(super) fn edit_columns(&mut self, action: Action) {
        let top = self.top();
        let (Some(picker), Some(table)) = (&mut self.picker, self.screens.get_mut(top).table_mut()) else {
            return;
        };
        match action {
            Action::Toggle if !picker.toggle() => {
                self.state.message = Some("at least one column must stay".into());
            }
            Action::Toggle => {}
            Action::Earlier | Action::Later if picker.is_filtered() => {
                self.state.message = Some("clear the filter first: Ctrl-U".into());
            }
            Action::Earlier => picker.shift(false),
            Action::Later => picker.shift(true),
            _ => {
                table.set_columns(None);
                self.pick_columns();
                let words = "the width of the screen determines the columns";
                self.state.message = Some(words.into());
                return;
            }
        }
        table.set_columns(Some(picker.shown()));
        let Some(snapshot) = self.state.snapshot.as_deref() else { return };
        let hidden = table.places(self.state.area.width, snapshot).1;
        if hidden > 0 {
            let message = format!("no room for {}: [ moves a column to the left", plural(hidden, "column"));
            self.state.message.get_or_insert(message);
        }
    }

    /// Takes the typed text or the selection.
    pub(super) fn accept(&mut self) -> Option<Effect> {
        let Some(prompt) = self.prompt.take() else { return self.choose() };
        let taken = match prompt.purpose {
            Purpose::Interval => {
                parse_interval(&prompt.text).map(|interval| self.state.set_interval(interval))
            }
            Purpose::Forward | Purpose::Backward => {
                self.state.jump(&prompt.text, prompt.purpose == Purpose::Forward)
            }
            Purpose::Report if prompt.text.trim().is_empty() => Err("a file needs a name".into()),
            Purpose::Report => {
                self.state.report = Some(prompt.text.trim().to_owned());
                self.state.message = Some("creating the report".into());
                Ok(Some(Effect::WritePage))
            }
            Purpose::Keep => Ok(Some(Effect::Keep)),
            // Search and filter took effect while they were typed.
            Purpose::Search | Purpose::Filter => Ok(None),
        };
        taken.unwrap_or_else(|why| {
            self.state.message = Some(why);
            self.prompt = Some(prompt);
            None
        })
    }

    fn choose(&mut self) -> Option<Effect> {
        let picker = self.picker.take()?;
        match picker.chosen()? {
            // Columns took effect while they were chosen.
            Pickable::Metric(_) if picker.is_of_columns() => None,
            Pickable::Metric(id) => {
                self.sort_by(id);
                None
            }
            Pickable::Events(set) => Some(Effect::SetEvents(set)),
            what @ Pickable::User(_) => {
                let top = self.top();
                self.screens.get_mut(top).picked(what);
                None
            }
        }
    }

    /// Types or erases: in the prompt, or in the filter of the list.
    pub(super) fn edit_text(&mut self, action: Action) -> Option<Effect> {
        // The first letter in the help begins its filter.
        if self.prompt.is_none() && self.picker.is_none() && self.top() == ScreenId::Help {
            self.prompt = Some(Prompt::new(Purpose::Filter, ""));
        }
        let Some(prompt) = &mut self.prompt else {
            let picker = self.picker.as_mut()?;
            picker.edit(|text| match action {
                Action::Type(c) => text.push(c),
                Action::Erase => drop(text.pop()),
                _ => text.clear(),
            });
            return None;
        };
        match (prompt.purpose, action) {
            (Purpose::Keep, Action::Type('y' | 'Y')) => return self.accept(),
            (Purpose::Keep, Action::Type('n' | 'N')) => {
                self.prompt = None;
                return None;
            }
            _ => {}
        }
        match action {
            Action::Type(c) => prompt.push(c),
            Action::Erase => drop(prompt.text.pop()),
            _ => prompt.text.clear(),
        }
        let (purpose, text) = (prompt.purpose, prompt.text.clone());
        self.typed(purpose, &text);
        None
    }

    /// Passes the typed text to the view on top.
    pub(super) fn typed(&mut self, purpose: Purpose, text: &str) {
        let (height, top) = (self.list_height(), self.top());
        self.screens.get_mut(top).typed(purpose, text, height, &mut self.state);
    }
}

/// The events of a set, after the missing ones and the reasons: a narrow screen cuts the end.
fn counts(choice: &Choice) -> String {
    let names: Vec<&str> = choice.events.iter().map(|event| event.name.as_str()).collect();
    let mut text = String::new();
    for (role, why) in &choice.absent {
        text += &format!("no {}: {why}; ", role.id());
    }
    if names.is_empty() && text.is_empty() {
        return "nothing".into();
    }
    clean_str(&(text + &names.join(", ") + &verified(&choice.events)))
}

/// The events that a self-test found right on this machine; empty if no table describes them.
fn verified(events: &[Event]) -> String {
    let said = events.iter().filter(|event| !event.tested.is_unsaid());
    let (here, other): (Vec<&Event>, Vec<&Event>) =
        said.partition(|event| matches!(event.tested, Tested::Here(_)));
    let named =
        |events: &[&Event]| events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ");
    match (here.as_slice(), other.as_slice()) {
        ([], []) => String::new(),
        ([], _) => " (not verified here: numatop-ng selftest)".into(),
        (_, []) => " (verified here)".into(),
        (_, other) => format!(" (verified here, except for {})", named(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_says_which_of_its_events_were_verified_here() {
        let event = |name: &str, tested| Event { name: name.into(), tested, ..Event::default() };
        let here = || Tested::Here("verified here, 2026-11-23, Linux 6.12".into());
        let set = |events: Vec<Event>| counts(&Choice { events, ..Choice::default() });
        assert_eq!(set(vec![event("A", Tested::Unsaid)]), "A");
        assert_eq!(set(vec![event("A", here()), event("B", here())]), "A, B (verified here)");
        assert_eq!(
            set(vec![event("A", here()), event("B", Tested::Nowhere)]),
            "A, B (verified here, except for B)"
        );
        assert_eq!(set(vec![event("A", Tested::Nowhere)]), "A (not verified here: numatop-ng selftest)");
    }
}
