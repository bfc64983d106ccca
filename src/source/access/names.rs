//! Names of code that sampled accesses and first touches are of. They come an interval later.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::hot::known_names::KnownNames;
use crate::model::process::ProcessId;
use crate::model::stacks::{Function, Place};
use crate::program::helper::OWN_PROGRAM;
use crate::symbolize::Namer;

/// Names that have come, and the thread that is asked for more.
pub(super) struct Names {
    /// numatop-ng itself, which names code.
    program: PathBuf,
    /// There from the first question on.
    namer: Option<Namer>,
    known: KnownNames,
}

impl Default for Names {
    fn default() -> Names {
        Names::of_program(PathBuf::from(OWN_PROGRAM))
    }
}

impl Names {
    pub(super) fn of_program(program: PathBuf) -> Names {
        Names { program, namer: None, known: KnownNames::default() }
    }

    /// Takes the names that have come, and waits for none: the others come with a later interval.
    pub(super) fn take(&mut self) {
        let answers = self.namer.as_mut().map(|namer| namer.answers(Duration::ZERO));
        self.known.extend(answers.into_iter().flatten());
    }

    /// The function at a place, if its name has come.
    pub(super) fn get(&self, place: &Place) -> Option<Arc<Function>> {
        self.known.get(place).cloned()
    }

    /// Asks for places that were not asked for before. Without a thread for it they have no names.
    pub(super) fn ask(&mut self, places: impl IntoIterator<Item = (Place, ProcessId)>) {
        let mut places = places.into_iter().peekable();
        if places.peek().is_none() {
            return;
        }
        self.namer = self.namer.take().or_else(|| Namer::start(self.program.clone()).ok());
        if let Some(namer) = &mut self.namer {
            namer.ask(places);
        }
    }

    /// Whether anything was asked for.
    #[cfg(test)]
    pub(super) fn has_asked(&self) -> bool {
        self.namer.is_some()
    }

    /// Adds names as if they were answers.
    #[cfg(test)]
    pub(super) fn learn(&mut self, names: impl IntoIterator<Item = (Place, Arc<Function>)>) {
        self.known.extend(names);
    }
}
