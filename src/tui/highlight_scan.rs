//! The thread that goes through a recording once, from front to back, and marks moments worth a look.

use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Message;
use super::history::process::without_tasks;
use crate::analysis::highlights::{Episodes, Finder};
use crate::source::Source;
use crate::source::recording::Recording;

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
