//! The mappings of the process in the detail view: asked for, counted page by page on request, scrolled.

use super::App;
use crate::collect::mappings::{Mappings, walk_ns};
use crate::text::quantity::bytes;
use crate::tui::action::{Effect, Motion};

/// A walk that takes less is made without asking.
const AT_ONCE_NS: u64 = 10_000_000;

/// Open beside a process's facts instead of its threads.
#[derive(Default)]
pub struct Maps {
    /// What was found, or why nothing was; `None` while it is waited for.
    pub found: Option<Result<Mappings, String>>,
    /// First mapping in view.
    pub offset: usize,
    /// The cost of counting every page was said: the next time it is done.
    asked: bool,
}

impl Maps {
    /// Moves the view.
    pub fn go(&mut self, motion: Motion, height: usize) {
        let rows = match &self.found {
            Some(Ok(found)) => found.rows.len(),
            _ => 0,
        };
        self.offset = motion.of_view(self.offset, rows, height);
    }
}

impl App {
    /// Shows mappings, or threads again. Small processes are counted at once.
    pub(super) fn toggle_maps(&mut self) -> Option<Effect> {
        if self.replay.is_some() {
            self.message = Some("a recording has no mappings: they are asked of the process".into());
            return None;
        }
        let detail = self.detail.as_mut()?;
        if detail.maps.take().is_some() {
            return None;
        }
        let rss_bytes = detail.task().filter(|task| !task.exited)?.rss_bytes;
        detail.maps = Some(Maps::default());
        let exact = walk_ns(rss_bytes) <= AT_ONCE_NS;
        Some(Effect::Map { process: detail.process, rss_bytes, exact })
    }

    /// Says what counting every page costs; asked again, has it done.
    pub(super) fn walk_maps(&mut self) -> Option<Effect> {
        let detail = self.detail.as_mut()?;
        let rss_bytes = detail.task().filter(|task| !task.exited)?.rss_bytes;
        let Some(maps) = &mut detail.maps else {
            self.message = Some("m shows the mappings first".into());
            return None;
        };
        let ns = walk_ns(rss_bytes);
        if !maps.asked && ns > AT_ONCE_NS {
            maps.asked = true;
            self.message = Some(format!(
                "counting all pages of {} takes up to {} ms and stalls it meanwhile: M again",
                bytes(rss_bytes as f64),
                ns / 1_000_000
            ));
            return None;
        }
        *maps = Maps::default();
        Some(Effect::Map { process: detail.process, rss_bytes, exact: true })
    }

    /// Takes the mappings of a process.
    pub fn mapped(&mut self, process: (u32, u64), found: Result<Mappings, String>) {
        let detail = self.detail.as_mut().filter(|detail| detail.process == process);
        if let Some(maps) = detail.and_then(|detail| detail.maps.as_mut()) {
            maps.found = Some(found);
            maps.offset = 0;
        }
    }
}
