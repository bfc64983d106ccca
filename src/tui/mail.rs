//! Messages on their way from the collector to the deriver, and from there to the screen. Sending never
//! waits, and messages do not pile up. A waiting sample is merged with the ones after it, and a later
//! interval replaces an earlier one.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Message;
use crate::source::merge::Merger;

/// Samples that wait one by one. Later ones become one interval, until the screen takes some.
const WAITING: usize = 8;

/// The reader is gone, and nothing needs to be sent to it.
#[derive(Debug)]
pub(super) struct Closed;

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    samples: usize,
    merger: Merger,
}

/// The senders' end; clones are of the same box.
#[derive(Clone)]
pub(super) struct Mail {
    waiting: Arc<Mutex<Waiting>>,
    /// Wakes the reader.
    wake: SyncSender<Message>,
}

impl Mail {
    pub(super) fn new(wake: SyncSender<Message>) -> Mail {
        Mail { waiting: Arc::default(), wake }
    }

    /// Puts a message there and wakes the reader.
    ///
    /// # Errors
    /// The reader is gone.
    pub(super) fn send(&self, message: Message) -> Result<(), Closed> {
        lock(&self.waiting).put(message);
        // A full channel wakes it as well: it looks here after whatever it gets from there.
        match self.wake.try_send(Message::Mail) {
            Err(TrySendError::Disconnected(_)) => Err(Closed),
            _ => Ok(()),
        }
    }

    /// The reader's end.
    pub(super) fn inbox(&self) -> Inbox {
        Inbox(Arc::clone(&self.waiting))
    }
}

/// The reader's end. It keeps no channel open.
pub(super) struct Inbox(Arc<Mutex<Waiting>>);

impl Inbox {
    /// All messages, in the order of their arrival.
    pub(super) fn take(&self) -> VecDeque<Message> {
        let mut waiting = lock(&self.0);
        waiting.samples = 0;
        let Waiting { messages, merger, .. } = &mut *waiting;
        for message in messages.iter_mut() {
            match message {
                Message::Sample(_, sample, _) => merger.count_losses(sample),
                Message::Hot(Ok(news)) => merger.count_lost_stacks(news),
                _ => {}
            }
        }
        std::mem::take(messages)
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    fn put(&mut self, message: Message) {
        let Waiting { messages, samples, merger } = self;
        match message {
            Message::Sample(host, later, taken) => {
                *samples += 1;
                if *samples > WAITING
                    && let Some(Message::Sample(known, sample, before)) =
                        messages.iter_mut().rev().find(|message| matches!(message, Message::Sample(..)))
                {
                    let earlier = std::mem::replace(sample, later);
                    merger.merge(*earlier, sample);
                    (*known, *before) = (host, *before + taken);
                    note(&mut sample.notes, *before);
                    return;
                }
                messages.push_back(Message::Sample(host, later, taken));
            }
            Message::Hot(Ok(later)) => {
                let waiting = messages.iter_mut().rev().find_map(|message| match message {
                    Message::Hot(found) => Some(found),
                    _ => None,
                });
                match waiting {
                    Some(Ok(news)) => merger.merge_news(news, later),
                    _ => messages.push_back(Message::Hot(Ok(later))),
                }
            }
            Message::Shown(mut later) => {
                if later.moved {
                    // Intervals and stacks are of the time before.
                    messages.retain(|message| !matches!(message, Message::Shown(_) | Message::Hot(Ok(_))));
                }
                let waiting = messages.iter_mut().find_map(|message| match message {
                    Message::Shown(shown) => Some(shown),
                    _ => None,
                });
                match waiting {
                    Some(waiting) => {
                        std::mem::swap(waiting, &mut later);
                        waiting.follow(*later);
                    }
                    None => messages.push_back(Message::Shown(later)),
                }
            }
            // Only the newest of these means anything.
            Message::Recording(_) | Message::Statistics(Ok(_)) | Message::Want(_) => {
                let same =
                    |other: &Message| std::mem::discriminant(other) == std::mem::discriminant(&message);
                match messages.iter_mut().rev().find(|other| same(other)) {
                    Some(other) if !matches!(other, Message::Statistics(Err(_))) => *other = message,
                    _ => messages.push_back(message),
                }
            }
            // Answers to questions, and the end: each comes once.
            _ => messages.push_back(message),
        }
    }
}

/// Adds a note on the number of samples in one interval.
fn note(notes: &mut Vec<String>, samples: u64) {
    const WORDS: &str = "an interval is longer than requested: the terminal was too slow";
    notes.retain(|note| !note.starts_with(WORDS));
    notes.push(format!("{WORDS}; {samples} samples were merged into one interval"));
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;
    use crate::model::sample::{HostFacts, Sample};
    use crate::record::recorder::Progress;
    use crate::source::merge::tests::{news, sample};
    use crate::tui::history::{History, Want};

    pub(crate) fn host() -> Arc<HostFacts> {
        let root = crate::fixture::tree("hosts/cxl");
        Arc::new(HostFacts::of(crate::host::topology::read(&root).unwrap()))
    }

    fn mail() -> (Mail, Receiver<Message>) {
        let (wake, woken) = sync_channel(1);
        (Mail::new(wake), woken)
    }

    /// A screen that takes nothing for `intervals`; in each, the process of that number ends.
    fn unread(mail: &Mail, intervals: u32) {
        let host = host();
        for at in 1..=intervals {
            let progress = Progress { file: None, bytes: u64::from(at), waiting: 0 };
            mail.send(Message::Recording(progress)).unwrap();
            let sample = Box::new(sample(&[], &[at], &[]));
            mail.send(Message::Sample(Arc::clone(&host), sample, 1)).unwrap();
            mail.send(Message::Hot(Ok(news(at..at + 1, 1)))).unwrap();
        }
    }

    #[test]
    fn what_is_not_taken_becomes_one_interval_and_nothing_is_lost() {
        const INTERVALS: u32 = 100;
        let (mail, _woken) = mail();
        let inbox = mail.inbox();
        unread(&mail, INTERVALS);
        mail.send(Message::NotScoped("no".into())).unwrap();
        mail.send(Message::Failed(anyhow::anyhow!("the end"))).unwrap();
        let (mut ends, mut samples, mut stacks, mut progress, mut others) =
            (vec![], vec![], 0, vec![], vec![]);
        for message in inbox.take() {
            match message {
                Message::Sample(_, sample, taken) => {
                    ends.extend(sample.exited.iter().map(|task| task.pid));
                    samples.push((taken, sample.notes));
                }
                Message::Hot(Ok(news)) => stacks += news.stacks.len(),
                Message::Recording(now) => progress.push(now.bytes),
                Message::NotScoped(_) => others.push("not scoped"),
                Message::Failed(_) => others.push("failed"),
                _ => panic!("an unexpected message"),
            }
        }
        assert_eq!(ends, (1..=INTERVALS).collect::<Vec<_>>());
        assert_eq!(samples.len(), WAITING);
        assert_eq!(samples.iter().map(|(taken, _)| taken).sum::<u64>(), u64::from(INTERVALS));
        let (taken, notes) = samples.pop().unwrap();
        assert_eq!(taken, u64::from(INTERVALS) - WAITING as u64 + 1);
        assert!(
            notes.len() == 1 && notes[0].ends_with("93 samples were merged into one interval"),
            "{notes:?}"
        );
        assert!(samples.iter().all(|(_, notes)| notes.is_empty()), "{samples:?}");
        assert_eq!(stacks, INTERVALS as usize);
        assert_eq!(progress, [u64::from(INTERVALS)]);
        assert_eq!(others, ["not scoped", "failed"]);
        unread(&mail, 1);
        assert_eq!(inbox.take().len(), 3, "taking messages makes room for new ones");
    }

    #[test]
    fn an_interval_that_is_not_taken_gives_its_place_to_the_next() {
        let (mail, _woken) = mail();
        let mut history = History::new(Want::default());
        for (at, note) in [(1, "held up"), (2, "")] {
            let notes: &[&str] = if note.is_empty() { &[] } else { &[note] };
            history.sample(host(), Sample { mono_ns: at, ..sample(&[], &[], notes) }, 3);
            mail.send(Message::Shown(Box::new(history.show().unwrap()))).unwrap();
        }
        let waiting = mail.inbox().take();
        let [Message::Shown(shown)] = waiting.as_slices().0 else { panic!("one interval waits") };
        assert_eq!((shown.snapshot.mono_ns, shown.taken, shown.note.as_deref()), (2, 6, Some("held up")));
    }

    #[test]
    fn it_says_when_the_reader_is_gone() {
        let (mail, woken) = mail();
        drop(woken);
        assert!(mail.send(Message::SourceEnded).is_err());
    }
}
