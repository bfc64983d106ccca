//! Threads that read a recording beside the screen. One goes through the minutes before a moment, so that findings at that
//! moment are the same as in the live view. One goes through it once, from front to back, and marks moments worth a look.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Message;
use super::history::process::without_tasks;
use crate::analysis::highlights::{Episodes, Finder};
use crate::finding::Engine;
use crate::source::Source;
use crate::source::recording::Recording;

/// Time before a moment that matters to its findings, ns: the longest that an engine looks back.
const BEFORE_NS: i64 = 360_000_000_000;

/// A moment: wall clock in ns since 1970, and CLOCK_MONOTONIC of the recorded machine in ns.
type Moment = (i64, u64);

/// The way to the thread.
pub(super) struct Folder(Sender<Moment>);

impl Folder {
    /// Starts the thread. It ends with this, or when the receiver is gone.
    ///
    /// # Errors
    /// The recording cannot be opened, or no thread could be started.
    pub(super) fn start(path: &Path, messages: SyncSender<Message>) -> Result<Folder> {
        let mut recording = Recording::open(path)?;
        let (sender, asked) = channel();
        let work = move || {
            let mut next = asked.recv().ok();
            while let Some(moment) = next {
                match fold(&mut recording, moment, &asked) {
                    Folded::To(engine) => {
                        if messages.send(Message::Folded(engine, moment.1)).is_err() {
                            return;
                        }
                        next = asked.recv().ok();
                    }
                    Folded::Asked(another) => next = Some(another),
                    // The screen reports this when it goes there itself.
                    Folded::Unreadable => next = asked.recv().ok(),
                    Folded::Over => return,
                }
            }
        };
        thread::Builder::new().name("fold".into()).spawn(work).context("starting a thread")?;
        Ok(Folder(sender))
    }

    /// Asks for the findings at a moment, in place of any other.
    pub(super) fn ask(&self, moment: Moment) {
        // A thread that has ended has nothing more to tell.
        let _ = self.0.send(moment);
    }
}

enum Folded {
    To(Box<Engine>),
    /// Another moment was asked for meanwhile.
    Asked(Moment),
    Unreadable,
    Over,
}

fn fold(recording: &mut Recording, (wall_ns, mono_ns): Moment, asked: &Receiver<Moment>) -> Folded {
    let mut episodes = Episodes::default();
    if recording.seek(wall_ns.saturating_sub(BEFORE_NS)).is_err() {
        return Folded::Unreadable;
    }
    loop {
        match asked.try_recv() {
            // The last of the queued ones is on the screen.
            Ok(another) => return Folded::Asked(asked.try_iter().last().unwrap_or(another)),
            Err(TryRecvError::Disconnected) => return Folded::Over,
            Err(TryRecvError::Empty) => {}
        }
        let Ok(Some(sample)) = recording.next() else { return Folded::Unreadable };
        if sample.wall_ns > wall_ns {
            return Folded::Unreadable;
        }
        let is_last = sample.mono_ns == mono_ns;
        episodes.take(&recording.host(), sample, recording.continues());
        if is_last {
            return Folded::To(Box::new(episodes.into_engine()));
        }
    }
}

/// Marks found so far are reported this often.
const TELL_EVERY: Duration = Duration::from_millis(300);

/// Starts the thread. It ends with the recording, or when the receiver is gone.
///
/// # Errors
/// No thread could be started.
pub(super) fn spawn(
    mut recording: Recording,
    (first, last): (i64, i64),
    messages: SyncSender<Message>,
) -> Result<()> {
    let work = move || {
        let length = last.saturating_sub(first).max(1) as f64;
        let mut finder = Finder::default();
        let mut episodes = Episodes::default();
        let mut told = Instant::now();
        // If it cannot be read, the screen reports this when the user goes there.
        while let Ok(Some(sample)) = recording.next() {
            let wall_ns = sample.wall_ns;
            let (host, continues) = (recording.host(), recording.continues());
            finder.take(&host, without_tasks(&sample), recording.is_interrupted(), continues);
            episodes.take(&host, sample, continues);
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let share = wall_ns.saturating_sub(first) as f64 / length;
                let found = episodes.added_to(finder.marks());
                let curve = Message::Curve(Box::new(episodes.curve().clone()));
                let found = Message::Marks(Box::new(found), share.clamp(0.0, 0.99));
                if messages.send(curve).is_err() || messages.send(found).is_err() {
                    return;
                }
            }
        }
        let _ = messages.send(Message::Curve(Box::new(episodes.curve().clone())));
        let _ = messages.send(Message::Summary(episodes.summary().rows()));
        let _ = messages.send(Message::Marks(Box::new(episodes.added_to(finder.marks())), 1.0));
    };
    thread::Builder::new().name("marker".into()).spawn(work).map(drop).context("starting a thread")
}
