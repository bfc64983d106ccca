//! The thread that derives intervals from samples: between the source and the screen, so that neither waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result, anyhow};
use jiff::tz::TimeZone;

use super::history::{History, KeptSamples, Want, page};
use super::mail::{Closed, Inbox, Mail};
use super::{Message, QUEUE};
use crate::record::dir::Dir;

/// Both ways to the thread.
pub(super) struct Deriver {
    /// For threads that may wait until a message has room.
    pub messages: SyncSender<Message>,
    /// For threads that may not.
    pub mail: Mail,
}

impl Deriver {
    /// Starts the thread: samples sent to it become intervals on their way to `screen`. Other messages pass
    /// unchanged and in the same order. It ends when all senders are gone, or the screen is.
    ///
    /// # Errors
    /// No thread could be made.
    pub(super) fn start(want: Want, screen: Mail) -> Result<Deriver> {
        let (messages, received) = sync_channel(QUEUE);
        let mail = Mail::new(messages.clone());
        let inbox = mail.inbox();
        let work = move || {
            let derive = AssertUnwindSafe(|| pass_on(&received, &inbox, want, &screen));
            if catch_unwind(derive).is_err() {
                // The panic hook has printed where. A screen that is gone needs no reason.
                let _ = screen.send(Message::Failed(anyhow!("deriving an interval panicked; this is a bug")));
            }
        };
        thread::Builder::new().name("deriver".into()).spawn(work).context("starting a thread")?;
        Ok(Deriver { messages, mail })
    }
}

fn pass_on(received: &Receiver<Message>, inbox: &Inbox, want: Want, screen: &Mail) -> Result<(), Closed> {
    let mut history = History::new(want);
    while let Ok(first) = received.recv() {
        let (mut is_due, mut has_moved, mut pauses) = (false, false, false);
        // Samples that have come meanwhile are kept, and the last interval is derived. The mailbox is emptied after its
        // wake-ups are: a message whose wake-up is gone would wait for the next one.
        let woken: Vec<Message> = std::iter::once(first).chain(received.try_iter()).collect();
        for message in woken.into_iter().chain(inbox.take()) {
            match message {
                Message::Mail => {}
                Message::Want(want) => {
                    pauses |= history.want(want);
                    is_due = true;
                }
                Message::Sample(host, sample, taken) => {
                    history.sample(host, *sample, taken);
                    is_due = true;
                }
                Message::Moved(host, previous, sample) => {
                    history.moved(host, previous.map(|sample| *sample), *sample);
                    (is_due, has_moved) = (true, true);
                }
                Message::WritePage(name) => write_page(&history, name, screen.clone()),
                Message::Folded(engine, mono_ns) => is_due |= history.concluded(*engine, mono_ns),
                other => {
                    // Stacks of the other time must not come before it.
                    if std::mem::take(&mut has_moved) {
                        is_due = false;
                        show(&mut history, screen)?;
                    }
                    screen.send(other)?;
                }
            }
        }
        if is_due {
            show(&mut history, screen)?;
        }
        if pauses {
            screen.send(Message::KeptMarks(Box::new(history.marks())))?;
        }
        history.tidy();
    }
    Ok(())
}

fn show(history: &mut History, screen: &Mail) -> Result<(), Closed> {
    match history.show() {
        Some(shown) => screen.send(Message::Shown(Box::new(shown))),
        None => Ok(()),
    }
}

/// Starts a thread that writes a report of the kept samples, so that intervals do not wait for it.
fn write_page(history: &History, name: String, screen: Mail) {
    let kept = history.kept();
    // A screen that is gone needs no page.
    let told = screen.clone();
    let work = move || {
        let _ = screen.send(Message::PageWritten(written(kept, name)));
    };
    if let Err(error) = thread::Builder::new().name("page".into()).spawn(work) {
        let _ = told.send(Message::PageWritten(Err(error.to_string())));
    }
}

/// Writes the report to a new file of this name. Returns the name.
fn written(kept: Option<KeptSamples>, name: String) -> Result<String, String> {
    let none = || "there is no interval yet".to_owned();
    let kept = kept.ok_or_else(none)?;
    let text = page(kept, TimeZone::system()).ok_or_else(none)?;
    let path = Path::new(&name);
    let file = path.file_name().ok_or_else(|| format!("{name} is not a file name"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let made = Dir::for_file(folder).and_then(|dir| Ok(dir.publish(Path::new(file), text.as_bytes())?));
    made.map(|()| name.clone()).map_err(|error| format!("{name}: {error:#}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::model::sample::Sample;
    use crate::model::stacks::StackBatch;
    use crate::tui::mail::tests::host;

    const WANT: Want = Want {
        number: None,
        threads: false,
        containers: false,
        process: None,
        summary: false,
        without_findings: false,
    };

    fn sample(at: u64) -> Box<Sample> {
        Box::new(Sample { mono_ns: at, ..crate::source::merge::tests::sample(&[1], &[], &[]) })
    }

    /// Messages to the screen until `is_last` comes.
    fn until(woken: &Receiver<Message>, inbox: &Inbox, is_last: impl Fn(&Message) -> bool) -> Vec<Message> {
        let mut came = Vec::new();
        while !came.iter().any(&is_last) {
            woken.recv_timeout(Duration::from_secs(60)).expect("a message comes");
            came.extend(inbox.take());
        }
        came
    }

    #[test]
    fn a_wanted_interval_of_the_past_comes_and_then_the_newest_again() {
        let (wake, woken) = sync_channel(1);
        let screen = Mail::new(wake);
        let inbox = screen.inbox();
        let deriver = Deriver::start(WANT, screen).unwrap();
        for at in 1..=4 {
            deriver.messages.send(Message::Sample(host(), sample(at), 1)).unwrap();
        }
        let shows =
            |at| move |message: &Message| matches!(message, Message::Shown(shown) if shown.number == at);
        until(&woken, &inbox, shows(3));
        deriver.mail.send(Message::Want(Want { number: Some(1), ..WANT })).unwrap();
        let came = until(&woken, &inbox, |message| matches!(message, Message::KeptMarks(_)));
        assert!(came.iter().any(shows(1)));
        deriver.mail.send(Message::Sample(host(), sample(5), 1)).unwrap();
        deriver.mail.send(Message::Want(WANT)).unwrap();
        until(&woken, &inbox, shows(4));
    }

    #[test]
    fn stacks_of_a_moment_come_after_it() {
        let (wake, woken) = sync_channel(1);
        let screen = Mail::new(wake);
        let inbox = screen.inbox();
        let deriver = Deriver::start(WANT, screen).unwrap();
        for at in [10, 20] {
            deriver.messages.send(Message::Moved(Arc::clone(&host()), None, sample(at))).unwrap();
            let news = StackBatch { event: at.to_string(), ..StackBatch::default() };
            deriver.messages.send(Message::Hot(Ok(news))).unwrap();
        }
        let is_second = |message: &Message| matches!(message, Message::Hot(Ok(news)) if news.event == "20");
        let came = until(&woken, &inbox, is_second);
        let before_last = came.len() - 2;
        assert!(matches!(&came[before_last], Message::Shown(shown) if shown.snapshot.mono_ns == 20));
    }
}
