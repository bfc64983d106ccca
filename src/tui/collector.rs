//! The thread that owns the source: takes samples on time, and does what the screen asks of /proc.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Message;
use super::action::Seek;
use crate::collect::inspect;
use crate::source::{Focus, Source};

/// The second sample comes after this, so that rates appear soon.
const SOON: Duration = Duration::from_millis(250);

/// Names of functions are waited for so long with each sample; later ones come with the next.
const NAMES_PATIENCE: Duration = Duration::from_millis(20);

/// What the screen asks for.
pub enum Command {
    SetInterval(Duration),
    /// Watch the cgroup of this id only, or what the command line asked for.
    SetScope(Option<u64>),
    /// Go elsewhere in a recording.
    Seek(Seek),
    /// Read about this process: id, and start in ns since boot.
    Inspect(u32, u64),
    /// Count this set of events.
    SetEvents(&'static str),
    /// These processes are looked at, the first most closely.
    Focus(Focus),
    /// Begin to sample stacks, or end it.
    SetHot(bool),
    /// Begin to keep statistics on our own programs, or end it.
    SetStatistics(bool),
    Quit,
}

/// The screen's end of the collector. Dropped, it ends the thread and waits for it.
pub struct Collector {
    commands: Sender<Command>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts the thread; `collect` makes the source on it, because sources stay on their thread.
    ///
    /// # Errors
    /// No pipe or no thread could be made. What goes wrong later comes as [`Message::Failed`].
    pub fn spawn(
        messages: SyncSender<Message>,
        collect: impl FnOnce(&SyncSender<Message>, Receiver<Command>, PipeReader) -> Result<()> + Send + 'static,
    ) -> Result<Collector> {
        let (wake_read, wake) = std::io::pipe().context("making a pipe to the collector")?;
        let (commands, received) = channel();
        let work = move || {
            let collect = AssertUnwindSafe(|| collect(&messages, received, wake_read));
            let failed = match catch_unwind(collect) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                // The panic hook has printed where.
                Err(_) => anyhow!("the collector panicked; this is a bug"),
            };
            // Nobody listens any more when the screen is being closed.
            let _ = messages.send(Message::Failed(failed));
        };
        let thread =
            std::thread::Builder::new().name("collector".into()).spawn(work).context("starting a thread")?;
        Ok(Collector { commands, wake, thread: Some(thread) })
    }

    /// Hands over a command. A collector that has ended does not mind.
    pub fn send(&mut self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = self.wake.write_all(&[0]);
        }
    }

    /// Ends the thread and waits until the source is closed. `messages` must be dropped or drained before.
    pub fn stop(mut self) {
        self.send(Command::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes a sample at each interval, and does what it is told meanwhile.
///
/// # Errors
/// The source cannot start or go on.
pub fn collect(
    start: impl FnOnce() -> Result<Box<dyn Source>>,
    mut interval: Duration,
    messages: &SyncSender<Message>,
    commands: Receiver<Command>,
    mut wake: PipeReader,
) -> Result<()> {
    let mut source = start()?;
    let mut due = Instant::now();
    let mut first = true;
    let mut ended = false;
    loop {
        let began = Instant::now();
        if !ended {
            let message = match source.next()? {
                Some(sample) => Message::Sample(source.host(), Box::new(sample)),
                None => Message::SourceEnded,
            };
            ended = matches!(message, Message::SourceEnded);
            if let Some(progress) = source.recording()
                && messages.send(Message::Recording(progress)).is_err()
            {
                return Ok(());
            }
            if messages.send(message).is_err() {
                return Ok(());
            }
            if let Some(news) = source.hot_news(NAMES_PATIENCE)?
                && messages.send(Message::Hot(Ok(news))).is_err()
            {
                return Ok(());
            }
            if let Some(now) = source.statistics()?
                && messages.send(Message::Statistics(Ok(now))).is_err()
            {
                return Ok(());
            }
            let wait = if std::mem::take(&mut first) { SOON.min(interval) } else { interval };
            // Intervals lie on a grid, so that they do not drift; one that was missed is not made up for.
            due = (due + wait).max(Instant::now());
        }
        loop {
            let until = if ended { Instant::now() + Duration::from_secs(3600) } else { due };
            if !source.wait(until, wake.as_raw_fd())? {
                break;
            }
            let mut bytes = [0; 64];
            if wake.read(&mut bytes).context("reading commands")? == 0 {
                return Ok(());
            }
            for command in commands.try_iter() {
                match command {
                    Command::SetInterval(wanted) => {
                        interval = wanted;
                        due = (began + interval).max(Instant::now());
                    }
                    Command::Inspect(pid, start_ns) => {
                        let found = inspect::read(Path::new("/"), pid, start_ns);
                        let found = found.map_err(|error| format!("{error:#}"));
                        if messages.send(Message::Inspected(pid, found)).is_err() {
                            return Ok(());
                        }
                    }
                    Command::Focus(focus) => source.focus(focus),
                    Command::SetScope(scope) => {
                        if let Err(error) = source.set_scope(scope)
                            && messages.send(Message::NotScoped(format!("{error:#}"))).is_err()
                        {
                            return Ok(());
                        }
                        // What is in scope now is shown at once.
                        due = Instant::now();
                    }
                    Command::SetEvents(set) => {
                        if let Err(error) = source.set_events(set)
                            && messages.send(Message::NotCounted(format!("{error:#}"))).is_err()
                        {
                            return Ok(());
                        }
                        // The interval in which they were opened is not worth waiting for.
                        due = Instant::now();
                    }
                    Command::SetHot(on) => {
                        if let Err(error) = source.set_hot(on)
                            && messages.send(Message::Hot(Err(format!("{error:#}")))).is_err()
                        {
                            return Ok(());
                        }
                        // The first samples are shown soon.
                        due = due.min(Instant::now() + SOON);
                    }
                    Command::SetStatistics(on) => {
                        let now = source.set_statistics(on).and_then(|()| source.statistics());
                        let now = now.map_err(|error| format!("{error:#}")).transpose();
                        if now.is_some_and(|now| messages.send(Message::Statistics(now)).is_err()) {
                            return Ok(());
                        }
                    }
                    // What is measured now has no other time.
                    Command::Seek(_) => {}
                    Command::Quit => return Ok(()),
                }
            }
        }
    }
}
