//! Any source, with every sample recorded on the way through.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Focus, Source, Trees};
use crate::collect::mappings::Mappings;
use crate::hot::frame_names::{FRAMES_MAX, FrameNames};
use crate::model::process::{Asked, Details, ProcessId};
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::overhead::Statistics;
use crate::record::recorder::{Progress, Recorder};

/// Maximum time for looking up functions before an interval is recorded, or half of an interval if that is
/// less. Slower names are in the next one.
const NAMES_PATIENCE: Duration = Duration::from_millis(500);

/// Hands on the samples of `source` as they are. Words about the recording are added to
/// their notes, after they were recorded.
pub struct Recorded<S> {
    source: S,
    recorder: Recorder,
    /// Set from outside (SIGUSR1) when the next sample is to go into a new file.
    rotate: Arc<AtomicBool>,
    book: FrameNames,
    /// The stacks up to the last sample, from the source.
    news: Option<StackBatch>,
    /// When the last sample was asked for.
    last: Instant,
}

impl<S: Source> Recorded<S> {
    pub fn new(mut source: S, recorder: Recorder, rotate: Arc<AtomicBool>) -> Recorded<S> {
        if recorder.wants_lines() {
            source.focus(with_lines(Focus::default()));
        }
        Recorded { source, recorder, rotate, book: FrameNames::default(), news: None, last: Instant::now() }
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// See [`Recorder::finish`].
    pub fn finish(self) -> Result<()> {
        self.recorder.finish()
    }
}

/// The same focus, with texts of all processes.
fn with_lines(focus: Focus) -> Focus {
    let processes = focus.processes.filter(|processes| !processes.is_empty());
    Focus { processes, asked: Asked { texts: true, ..focus.asked }, ..focus }
}

impl<S: Source> Source for Recorded<S> {
    fn host(&self) -> Arc<HostFacts> {
        self.source.host()
    }

    fn prepare(&mut self) -> Result<()> {
        self.source.prepare()
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        let patience = NAMES_PATIENCE.min(self.last.elapsed() / 2);
        self.last = Instant::now();
        let Some(mut sample) = self.source.next()? else { return Ok(None) };
        if self.rotate.swap(false, Ordering::Relaxed) {
            self.recorder.rotate();
        }
        self.news = self.source.hot_news(patience)?;
        sample.hot = self.news.as_ref().map(|news| Arc::new(self.book.complete(news, FRAMES_MAX)));
        let words = self.recorder.record(&self.source.host(), &sample)?;
        sample.notes.extend(words);
        // A view that shows it asks for it, and a history of samples need not keep it.
        sample.hot = None;
        Ok(Some(sample))
    }

    fn inspect(&mut self, pid: u32, start_ns: u64) -> Option<Result<Details>> {
        self.source.inspect(pid, start_ns)
    }

    fn mappings(&mut self, process: ProcessId, exact: bool) -> Option<Result<Mappings, String>> {
        self.source.mappings(process, exact)
    }

    fn note(&mut self, word: String) {
        self.source.note(word);
    }

    fn focus(&mut self, focus: Focus) {
        self.source.focus(if self.recorder.wants_lines() { with_lines(focus) } else { focus });
    }

    fn wait(&mut self, due: Instant, stop: BorrowedFd<'_>) -> Result<bool> {
        self.source.wait(due, stop)
    }

    fn set_events(&mut self, set: &str) -> Result<()> {
        self.source.set_events(set)
    }

    fn set_scope(&mut self, cgroup: Option<u64>) -> Result<()> {
        self.source.set_scope(cgroup)
    }

    fn set_access(&mut self, on: bool) -> Result<()> {
        self.source.set_access(on)
    }

    fn set_hot(&mut self, on: bool) -> Result<()> {
        self.source.set_hot(on)
    }

    fn hot_news(&mut self, _: Duration) -> Result<Option<StackBatch>> {
        Ok(self.news.take())
    }

    fn set_statistics(&mut self, on: bool) -> Result<()> {
        self.source.set_statistics(on)
    }

    fn statistics(&mut self) -> Result<Option<Statistics>> {
        self.source.statistics()
    }

    fn trees(&self) -> Trees {
        self.source.trees()
    }

    fn recording(&self) -> Option<Progress> {
        Some(self.recorder.progress())
    }

    fn continues(&self) -> bool {
        self.source.continues()
    }
}
