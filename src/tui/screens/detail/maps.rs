//! The mappings of the process in the detail view: asked for, counted page by page on request, scrolled.

use super::Detail;
use crate::collect::mappings::{Mappings, walk_ns};
use crate::text::quantity::bytes;
use crate::tui::input::{Effect, Motion};
use crate::tui::state::State;

/// A walk that takes less is made without asking.
const AT_ONCE_NS: u64 = 10_000_000;

/// Open beside a process's facts instead of its threads.
#[derive(Default)]
pub(super) struct Maps {
    /// In a replay: the mappings in use that were recorded, and no others.
    pub recorded: bool,
    /// The mappings, or the reason why they are missing; `None` while they are waited for.
    pub found: Option<Result<Mappings, String>>,
    /// First mapping in view.
    pub offset: usize,
    /// The cost of counting every page was shown: the next request does it.
    asked: bool,
}

impl Maps {
    /// Takes the mappings, or the reason why they are missing.
    pub(super) fn take(&mut self, found: Result<Mappings, String>) {
        self.found = Some(found);
        self.offset = 0;
    }

    /// Mappings in use, which are in the sample: nothing is waited for.
    fn of_recording() -> Maps {
        let none = Mappings { error_points: None, rows: Vec::new(), count: 0 };
        Maps { recorded: true, found: Some(Ok(none)), ..Maps::default() }
    }

    /// Moves the view over `rows` rows.
    pub(super) fn go(&mut self, motion: Motion, rows: usize, height: usize) {
        self.offset = motion.of_view(self.offset, rows, height);
    }
}

impl Detail {
    /// Shows mappings, or threads again. Small processes are counted at once.
    pub(super) fn toggle_maps(&mut self, state: &mut State) -> Option<Effect> {
        if self.maps.take().is_some() {
            return None;
        }
        if state.replay.is_some() {
            let task = self.seen(state).and_then(|seen| seen.task.as_ref());
            if task.is_some_and(|task| task.memory_use().is_some()) {
                self.maps = Some(Maps::of_recording());
            } else {
                state.message =
                    Some("a recording has only the mappings in use, if recorded with --access".into());
            }
            return None;
        }
        let rss_bytes = self.live_bytes(state)?;
        self.maps = Some(Maps::default());
        let exact = walk_ns(rss_bytes) <= AT_ONCE_NS;
        Some(Effect::Map { process: self.process, rss_bytes, exact })
    }

    /// Begins to sample which memory is used, with the mappings in view, or ends it.
    pub(super) fn toggle_samples(&mut self, state: &mut State) -> Option<Effect> {
        if state.replay.is_some() {
            state.message = Some("memory use can be sampled only on the running machine".into());
            return None;
        }
        if state.access {
            state.message = Some("memory use is always sampled (--access); m shows use by mapping".into());
            return None;
        }
        self.samples = !self.samples;
        state.message = Some(match self.samples {
            true => "sampling memory use until this view is closed; m shows use by mapping".into(),
            false => "sampling off (u turns it on)".into(),
        });
        Some(Effect::SetAccess(self.samples))
    }

    /// Shows the cost of counting every page; the second request does it.
    pub(super) fn walk_maps(&mut self, state: &mut State) -> Option<Effect> {
        let rss_bytes = self.live_bytes(state)?;
        let Some(maps) = self.maps.as_mut().filter(|maps| !maps.recorded) else {
            state.message = Some(match state.replay {
                Some(_) => "pages can be counted only on the running machine".into(),
                None => "press m first to show the mappings".into(),
            });
            return None;
        };
        let ns = walk_ns(rss_bytes);
        if !maps.asked && ns > AT_ONCE_NS {
            maps.asked = true;
            state.message = Some(format!(
                "counting all pages of {} stalls the process for up to {} ms: press M again to start",
                bytes(rss_bytes as f64),
                ns / 1_000_000
            ));
            return None;
        }
        *maps = Maps::default();
        Some(Effect::Map { process: self.process, rss_bytes, exact: true })
    }

    /// Memory of the process while it lives, bytes.
    fn live_bytes(&self, state: &State) -> Option<u64> {
        let task = self.seen(state)?.task.as_ref();
        task.filter(|task| !task.exited).map(|task| task.rss_bytes)
    }
}
