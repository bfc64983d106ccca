//! Any source, with every sample recorded on the way through.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Focus, Source};
use crate::hot::News;
use crate::overhead::Statistics;
use crate::record::recorder::Recorder;
use crate::sample::{HostFacts, Sample};

/// Hands on the samples of `source` as they are. What there is to say about the recording is added to
/// their notes, after they were recorded.
pub struct Recorded<S> {
    source: S,
    recorder: Recorder,
    /// Set from outside (SIGUSR1) when the next sample is to go into a new file.
    rotate: Arc<AtomicBool>,
}

impl<S: Source> Recorded<S> {
    pub fn new(source: S, recorder: Recorder, rotate: Arc<AtomicBool>) -> Recorded<S> {
        Recorded { source, recorder, rotate }
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// See [`Recorder::finish`].
    pub fn finish(self) -> Result<()> {
        self.recorder.finish()
    }
}

impl<S: Source> Source for Recorded<S> {
    fn host(&self) -> Arc<HostFacts> {
        self.source.host()
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        let Some(mut sample) = self.source.next()? else { return Ok(None) };
        if self.rotate.swap(false, Ordering::Relaxed) {
            self.recorder.rotate();
        }
        let words = self.recorder.record(&self.source.host(), &sample)?;
        sample.notes.extend(words);
        Ok(Some(sample))
    }

    fn focus(&mut self, focus: Focus) {
        self.source.focus(focus);
    }

    fn wait(&mut self, due: Instant, stop: RawFd) -> Result<bool> {
        self.source.wait(due, stop)
    }

    fn set_events(&mut self, set: &str) -> Result<()> {
        self.source.set_events(set)
    }

    fn set_hot(&mut self, on: bool) -> Result<()> {
        self.source.set_hot(on)
    }

    fn hot_news(&mut self, patience: Duration) -> Result<Option<News>> {
        self.source.hot_news(patience)
    }

    fn set_statistics(&mut self, on: bool) -> Result<()> {
        self.source.set_statistics(on)
    }

    fn statistics(&mut self) -> Result<Option<Statistics>> {
        self.source.statistics()
    }

    fn continues(&self) -> bool {
        self.source.continues()
    }
}
