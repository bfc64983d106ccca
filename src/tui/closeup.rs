//! The thread that asks about one process for the detail view: it may wait, and neither samples nor the screen do.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result};

use super::Message;
use super::mail::Mail;
use crate::collect::mm_reader::Closer;
use crate::model::process::ProcessId;
use crate::program::helper::OWN_PROGRAM;

/// A question about a process.
pub(super) enum Asked {
    Inspect(ProcessId),
    Map { process: ProcessId, rss_bytes: u64, exact: bool },
}

/// Asks the thread. Dropped, it ends it when it has its answer.
pub(super) struct Closeup(Sender<Asked>);

impl Closeup {
    /// Starts the thread; answers go to `mail`.
    ///
    /// # Errors
    /// No thread could be made.
    pub(super) fn start(mail: Mail) -> Result<Closeup> {
        let (asks, asked) = channel();
        let work = move || answer(&asked, &mail);
        thread::Builder::new().name("closeup".into()).spawn(work).context("starting a thread")?;
        Ok(Closeup(asks))
    }

    /// Queues this question after the earlier ones.
    pub(super) fn ask(&self, asked: Asked) {
        // It ends before us only when the screen is gone.
        let _ = self.0.send(asked);
    }
}

fn answer(asked: &Receiver<Asked>, mail: &Mail) {
    let mut closer = Closer::new(PathBuf::from(OWN_PROGRAM));
    while let Ok(first) = asked.recv() {
        for asked in newest(std::iter::once(first).chain(asked.try_iter())) {
            let message = match asked {
                Asked::Inspect(process) => Message::Inspected(process.0, closer.inspect(process)),
                Asked::Map { process, rss_bytes, exact } => {
                    Message::Mapped(process, closer.map(process, rss_bytes, exact))
                }
            };
            if mail.send(message).is_err() {
                return;
            }
        }
    }
}

/// The last one of each kind: earlier requests are not on the screen.
fn newest(asked: impl Iterator<Item = Asked>) -> impl Iterator<Item = Asked> {
    let (mut inspect, mut map) = (None, None);
    for one in asked {
        let kind = if matches!(one, Asked::Inspect(_)) { &mut inspect } else { &mut map };
        *kind = Some(one);
    }
    inspect.into_iter().chain(map)
}
