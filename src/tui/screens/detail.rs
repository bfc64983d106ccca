//! One process or one of its threads in detail: threads, mappings, contended lines or objects, recent
//! history, and the facts from /proc.

mod draw;
mod lines;
mod mappings;
mod maps;
mod notes;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::maps::Maps;
use super::{Answer, Screen, Subject};
use crate::collect::mappings::Mappings;
use crate::finding::{self, Finding};
use crate::model::process::{Details, ProcessId};
use crate::snapshot::Task;
use crate::text::clean;
use crate::tui::history::Want;
use crate::tui::history::process::ProcessSnapshot;
use crate::tui::input::keymap::context;
use crate::tui::input::{Action, Effect, Motion};
use crate::tui::state::State;
use crate::tui::widgets::layout::below;

/// Findings about the process that have a line.
const FINDINGS_MAX: usize = 2;

/// A list of samples, in place of threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// Contended lines, with the code of both sides.
    Lines,
    /// Memory by the code that touched it first.
    Objects,
}

impl List {
    fn rows(self, task: Option<&Task>) -> usize {
        match self {
            List::Lines => lines::rows(task),
            List::Objects => lines::object_rows(task),
        }
    }
}

#[derive(Default)]
pub struct Detail {
    /// The process; meaningless while the view is closed.
    process: ProcessId,
    /// The thread that is looked at, and its start in ns since boot; `None` for the process as a whole.
    thread: Option<(u32, u64)>,
    /// First thread in view.
    offset: usize,
    /// The last details from /proc, or the reason why they are missing.
    details: Option<Result<Details, String>>,
    /// Its mappings, while they are shown.
    maps: Option<Maps>,
    /// Another list in their place, and its first row in view.
    list: Option<(List, usize)>,
    /// Memory use is sampled for this view.
    samples: bool,
}

impl Detail {
    /// The process in the interval shown; `None` until it is derived.
    fn seen<'a>(&self, state: &'a State) -> Option<&'a ProcessSnapshot> {
        state.process.as_deref().filter(|seen| seen.process == self.process)
    }

    /// The id that /proc is asked about, and its start.
    fn asked(&self) -> (u32, u64) {
        self.thread.unwrap_or(self.process)
    }

    /// Takes the facts of a process or a thread from /proc.
    pub fn inspected(&mut self, id: u32, found: Result<Details, String>) {
        if self.asked().0 == id {
            self.details = Some(found);
        }
    }

    /// Findings about the process, the worst first, as many as have a line.
    fn findings<'a>(&self, state: &'a State) -> Vec<&'a Finding> {
        let subject = finding::Subject::Process(self.process.0, self.process.1);
        let about = state.conclusions.findings.iter().filter(|finding| finding.key.subject == subject);
        about.take(FINDINGS_MAX).collect()
    }

    /// Shows a list, or threads again.
    fn toggle(&mut self, list: List) -> Option<Effect> {
        let is_shown = self.list.is_some_and(|(shown, _)| shown == list);
        self.list = (!is_shown).then_some((list, 0));
        self.maps = None;
        None
    }

    /// Takes the mappings of a process.
    pub fn mapped(&mut self, process: ProcessId, found: Result<Mappings, String>) {
        if let Some(maps) = self.maps.as_mut().filter(|_| self.process == process) {
            maps.take(found);
        }
    }
}

impl Screen for Detail {
    fn context(&self) -> u16 {
        context::DETAIL
    }

    fn draw(&self, state: &State, area: Rect, buf: &mut Buffer) {
        if let (Some(snapshot), Some(seen)) = (state.snapshot(), self.seen(state)) {
            let findings = &self.findings(state);
            draw::render(snapshot, self, seen, findings, &state.theme, area, buf);
        }
    }

    fn is_ready(&self, state: &State) -> bool {
        self.seen(state).is_some()
    }

    fn is_compact(&self) -> bool {
        true
    }

    fn list(&self, body: Rect, state: &State) -> Rect {
        let head = if self.maps.is_some() || self.list.is_some() { mappings::HEAD } else { 1 };
        below(draw::split(body, state.snapshot(), self.findings(state).len()).1, head)
    }

    fn want(&self, want: &mut Want) {
        want.process = Some(self.process);
    }

    fn arrange(&mut self, state: &State, height: usize) {
        let threads = self.seen(state).map_or(0, |seen| seen.order.len());
        self.offset = self.offset.min(threads.saturating_sub(height.max(1)));
    }

    fn open(&mut self, subject: Option<Subject>, _state: &State) -> Result<Option<Effect>, String> {
        let (process, thread) = match subject {
            Some(Subject::Process(process, _)) => (process, None),
            Some(Subject::Thread(process, thread, _)) => (process, Some(thread)),
            _ => return Ok(self.at_interval()),
        };
        *self = Detail { process, thread, samples: self.samples, ..Detail::default() };
        Ok(self.at_interval())
    }

    fn close(&mut self) -> Option<Effect> {
        let samples = self.samples;
        *self = Detail::default();
        samples.then_some(Effect::SetAccess(false))
    }

    fn subject(&self, state: &State) -> Option<Subject> {
        let raw = &self.seen(state)?.task.as_ref()?.raw;
        Some(Subject::Process(raw.process(), format!("{} {}", raw.pid, clean(raw.comm.bytes()))))
    }

    fn process(&self) -> Option<ProcessId> {
        Some(self.process)
    }

    fn at_interval(&self) -> Option<Effect> {
        let (id, start_ns) = self.asked();
        Some(Effect::Inspect(id, start_ns))
    }

    fn elsewhere(&mut self) {
        let (process, thread, samples) = (self.process, self.thread, self.samples);
        *self = Detail { process, thread, samples, ..Detail::default() };
    }

    /// Moves the view over the threads, or the mappings.
    fn go(&mut self, motion: Motion, height: usize, state: &State) {
        let seen = self.seen(state);
        let threads = seen.map_or(0, |seen| seen.order.len());
        let task = seen.and_then(|seen| seen.task.as_ref());
        let rows = self.maps.as_ref().map_or(0, |maps| mappings::rows(maps, task));
        match (&mut self.list, &mut self.maps) {
            (Some((list, first)), _) => *first = motion.of_view(*first, list.rows(task), height),
            (None, Some(maps)) => maps.go(motion, rows, height),
            (None, None) => self.offset = motion.of_view(self.offset, threads, height),
        }
    }

    fn act(&mut self, action: Action, _height: usize, state: &mut State) -> Answer {
        Answer::Effect(match action {
            Action::Mappings => {
                self.list = None;
                self.toggle_maps(state)
            }
            Action::ContendedLines => self.toggle(List::Lines),
            Action::Objects => self.toggle(List::Objects),
            Action::WalkMappings => self.walk_maps(state),
            Action::MemoryUse => self.toggle_samples(state),
            _ => return Answer::Ignored,
        })
    }
}
