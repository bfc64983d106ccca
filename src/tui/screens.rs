//! All views, in one list. Views do not know each other: each returns its selection, and what that opens.

pub mod containers;
pub mod detail;
pub mod findings;
pub mod help;
pub mod hot;
pub mod nodes;
pub mod overhead;
pub mod summary;
pub mod tasks;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::history::Want;
use super::input::keymap::context;
use super::input::{Action, Effect, Motion, ScreenId};
use super::state::State;
use super::widgets::list::Tabular;
use super::widgets::picker::{Pickable, Picker, Prompt, Purpose};
use crate::model::process::ProcessId;
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;
use crate::text::plural;

/// Something that is selected, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Process(ProcessId, String),
    /// A thread of a process: that, its own id, and its start in ns since boot.
    Thread(ProcessId, (u32, u64), String),
    /// A cgroup and those below it.
    Container(u64, String),
    Node(NodeId),
    /// A socket, by its number.
    Socket(u32),
}

/// The answer of a view to an action.
pub enum Answer {
    /// The action belongs to another part.
    Ignored,
    Done,
    Effect(Option<Effect>),
    /// A line is to be typed, or one of a list to be chosen.
    Ask(Prompt),
    Pick(Picker),
}

/// A view. `height` is the number of lines of its list, wherever it is asked for.
pub trait Screen {
    /// The bit of [`context`] in which its keys are.
    fn context(&self) -> u16;

    /// Bits of [`context`] about time that hold here, too, while they hold at all.
    fn contexts_of_time(&self) -> u16 {
        context::TIMELINE
    }

    /// Draws `area`, from the interval on the screen.
    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer);

    /// Whether it can be drawn: otherwise the view below is.
    fn is_ready(&self, _state: &State) -> bool {
        true
    }

    /// Whether the header leaves out the nodes, for room.
    fn is_compact(&self) -> bool {
        false
    }

    /// The place of the list in `body`, without titles.
    fn list(&self, body: Rect, _state: &State) -> Rect {
        body
    }

    /// Adds what it needs of the interval.
    fn want(&self, _want: &mut Want) {}

    /// Puts rows in order and keeps selections in place, for a new interval or after a choice changed.
    fn arrange(&mut self, _state: &State, _height: usize) {}

    /// Puts it on the screen, about the selection below it.
    ///
    /// # Errors
    /// Why it cannot be shown.
    fn open(&mut self, _subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        Ok(None)
    }

    /// Takes it off the screen.
    fn close(&mut self) -> Option<Effect> {
        None
    }

    /// Closes the open part within the view. False without one.
    fn step_out(&mut self) -> bool {
        false
    }

    /// The selection, and the view that Enter on it leads to.
    fn subject(&self, _state: &State) -> Option<Subject> {
        None
    }
    fn leads_to(&self) -> Option<ScreenId> {
        None
    }

    /// Cgroups in view, if these are its rows.
    fn groups_in_view(&self, _height: usize) -> Option<Vec<u64>> {
        None
    }

    /// The process that is looked at most closely.
    fn process(&self) -> Option<ProcessId> {
        None
    }

    /// Called with each new interval.
    fn at_interval(&self) -> Option<Effect> {
        None
    }

    /// The recording was moved: samples before are those of another time.
    fn elsewhere(&mut self) {}

    /// Its table, if it is one that can be sorted.
    fn table(&self) -> Option<&dyn Tabular> {
        None
    }
    fn table_mut(&mut self) -> Option<&mut dyn Tabular> {
        None
    }

    fn go(&mut self, motion: Motion, height: usize, _state: &State) {
        if let Some(table) = self.table_mut() {
            table.go(motion, height);
        }
    }

    /// A click on this line of its list.
    fn select(&mut self, line: usize, height: usize) {
        if let Some(table) = self.table_mut() {
            table.click(line, height);
        }
    }

    /// Does what only this view can.
    fn act(&mut self, _action: Action, _height: usize, _state: &mut State) -> Answer {
        Answer::Ignored
    }

    /// Takes the typed text, each time it changes.
    fn typed(&mut self, _purpose: Purpose, _text: &str, _height: usize, _state: &mut State) {}

    /// Takes the choice from a list of this screen.
    fn picked(&mut self, _what: Pickable) {}
}

/// The message when this many tags were removed.
fn untagged(tags: usize) -> String {
    format!("{} removed", plural(tags, "tag"))
}

/// Whether a cgroup is `top` or below it.
pub fn is_below(cgroup: u64, top: u64, snapshot: &Snapshot) -> bool {
    snapshot.names.upwards(cgroup).any(|id| id == top)
}

/// A field for each view, which is reached by its id, too.
macro_rules! screens {
    ($($id:ident => $field:ident: $view:ty,)*) => {
        /// The state of all views.
        #[derive(Default)]
        pub struct Screens { $(pub $field: $view,)* }

        impl Screens {
            /// In the order of Tab.
            pub const ALL: &[ScreenId] = &[$(ScreenId::$id,)*];

            pub fn get(&self, id: ScreenId) -> &dyn Screen {
                match id { $(ScreenId::$id => &self.$field,)* }
            }

            pub fn get_mut(&mut self, id: ScreenId) -> &mut dyn Screen {
                match id { $(ScreenId::$id => &mut self.$field,)* }
            }
        }
    };
}

screens! {
    Tasks => tasks: tasks::Tasks,
    Nodes => nodes: nodes::Nodes,
    Containers => containers: containers::Containers,
    Findings => findings: findings::Findings,
    Detail => detail: detail::Detail,
    Hot => hot: hot::Hot,
    Overhead => overhead: overhead::Overhead,
    Summary => summary: summary::Summary,
    Help => help: help::Help,
}
