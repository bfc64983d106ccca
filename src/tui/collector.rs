//! The thread that owns the source: takes samples on time, and passes on what the screen asks of /proc.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Message;
use super::closeup::{Asked, Closeup};
use super::input::Seek;
use super::mail::{Closed, Mail};
use crate::model::process::ProcessId;
use crate::program::pace::{Cause, Pacing};
use crate::source::live::since;
use crate::source::witness::Watch;
use crate::source::{Focus, Source};

/// The second sample comes after this, so that rates appear soon.
const SOON: Duration = Duration::from_millis(250);

/// Names of functions are waited for at most this time with each sample; later ones come with the next.
const NAMES_PATIENCE: Duration = Duration::from_millis(20);

/// Requests of the screen.
pub(super) enum Command {
    SetInterval(Duration),
    /// Watch the cgroup of this id only, or what the command line asked for.
    SetScope(Option<u64>),
    /// Go elsewhere in a recording.
    Seek(Seek),
    /// Read about this process: id, and start in ns since boot.
    Inspect(u32, u64),
    /// Find out where its mappings are.
    Map {
        process: ProcessId,
        rss_bytes: u64,
        exact: bool,
    },
    /// Count this set of events.
    SetEvents(&'static str),
    /// These processes are looked at, the first most closely.
    Focus(Focus),
    /// Begin to sample stacks, or end it.
    SetHot(bool),
    /// Begin to sample which memory is used, or end it.
    SetAccess(bool),
    /// Begin to keep statistics on our own programs, or end it.
    SetStatistics(bool),
    Quit,
}

/// The screen's end of the collector. Dropped, it ends the thread.
pub(super) struct Collector {
    commands: Sender<Command>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread has done everything.
    done: Receiver<()>,
}

impl Collector {
    /// Starts the thread; `collect` makes the source on it, because sources stay on their thread. The reason why it
    /// fails goes to `mail`.
    ///
    /// # Errors
    /// No pipe or no thread could be made. Later failures come as [`Message::Failed`].
    pub(super) fn spawn(
        mail: Mail,
        collect: impl FnOnce(Receiver<Command>, PipeReader) -> Result<()> + Send + 'static,
    ) -> Result<Collector> {
        let (wake_read, wake) = std::io::pipe().context("making a pipe to the collector")?;
        let (commands, received) = channel();
        let (at_work, done) = channel::<()>();
        let work = move || {
            let _at_work = at_work;
            let collect = AssertUnwindSafe(|| collect(received, wake_read));
            let failed = match catch_unwind(collect) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                // The panic hook has printed where.
                Err(_) => anyhow!("the collector panicked; this is a bug"),
            };
            // The receiver is gone while the screen is being closed.
            let _ = mail.send(Message::Failed(failed));
        };
        let thread =
            std::thread::Builder::new().name("collector".into()).spawn(work).context("starting a thread")?;
        Ok(Collector { commands, wake, thread: Some(thread), done })
    }

    /// Hands over a command. A collector that has ended does not mind.
    pub(super) fn send(&mut self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = self.wake.write_all(&[0]);
        }
    }

    /// Asks the thread to end, after its current work.
    pub(super) fn quit(&mut self) {
        self.send(Command::Quit);
    }

    /// Waits until the thread has ended and its source is closed, at most for `patience`.
    pub(super) fn stop(mut self, patience: Duration) {
        self.quit();
        let ended = self.done.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            let _ = thread.join();
        }
    }
}

/// Takes a sample at each interval, and executes commands meanwhile. Never waits for the screen.
///
/// # Errors
/// The source cannot start or go on.
pub(super) fn collect(
    start: impl FnOnce() -> Result<Box<dyn Source>>,
    interval: Duration,
    mail: &Mail,
    commands: &Receiver<Command>,
    wake: PipeReader,
) -> Result<()> {
    let source = start()?;
    let watch = Watch::new();
    let mut pacing = Pacing::new(Instant::now(), interval, watch.look());
    pacing.hurry(SOON, Instant::now(), "available shortly after the start");
    let at_work = AtWork { source, mail, pacing, watch, ended: false, closeup: None };
    match at_work.run(commands, wake) {
        Ok(()) | Err(Stop::Told) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Why the collector ends.
enum Stop {
    /// The screen ended it, or is gone.
    Told,
    Failed(anyhow::Error),
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Stop {
        Stop::Told
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Failed(error)
    }
}

/// A source at work.
struct AtWork<'a> {
    source: Box<dyn Source>,
    mail: &'a Mail,
    pacing: Pacing,
    watch: Watch,
    /// The source has reached its end.
    ended: bool,
    closeup: Option<Closeup>,
}

impl AtWork<'_> {
    fn run(mut self, commands: &Receiver<Command>, mut wake: PipeReader) -> Result<(), Stop> {
        self.sample()?;
        loop {
            let until = match self.ended {
                true => Instant::now() + Duration::from_secs(3600),
                false => self.pacing.due(),
            };
            if !self.source.wait(until, wake.as_fd())? {
                if !self.ended {
                    self.due()?;
                }
                continue;
            }
            let mut bytes = [0; 64];
            if wake.read(&mut bytes).context("reading commands")? == 0 {
                return Ok(());
            }
            for command in commands.try_iter() {
                self.obey(command)?;
            }
        }
    }

    /// A sample that was waited for.
    fn due(&mut self) -> Result<(), Stop> {
        let due = Instant::now();
        self.source.prepare()?;
        self.pacing.spent(Cause::Preparing, due.elapsed());
        let now = Instant::now();
        let witness = self.watch.look_when(self.pacing.is_late(now), self.pacing.seen());
        for word in self.pacing.taken(now, witness) {
            self.source.note(word);
        }
        self.sample()
    }

    fn sample(&mut self) -> Result<(), Stop> {
        let began = Instant::now();
        let message = match self.source.next()? {
            Some(sample) => {
                self.pacing.sampled(Instant::now() - since(sample.mono_ns).min(began.elapsed()));
                Message::Sample(self.source.host(), Box::new(sample), 1)
            }
            None => Message::SourceEnded,
        };
        self.pacing.spent(Cause::Sampling, began.elapsed());
        self.ended = matches!(message, Message::SourceEnded);
        if let Some(progress) = self.source.recording() {
            self.mail.send(Message::Recording(progress))?;
        }
        self.mail.send(message)?;
        let asked = Instant::now();
        if let Some(news) = self.source.hot_news(NAMES_PATIENCE)? {
            self.mail.send(Message::Hot(Ok(news)))?;
        }
        self.pacing.spent(Cause::Names, asked.elapsed());
        if let Some(now) = self.source.statistics()? {
            self.mail.send(Message::Statistics(Ok(now)))?;
        }
        Ok(())
    }

    fn closeup(&mut self) -> Result<&Closeup> {
        let started = match self.closeup.take() {
            Some(closeup) => closeup,
            None => Closeup::start(self.mail.clone())?,
        };
        Ok(self.closeup.insert(started))
    }

    /// Has the next sample taken soon, because it shows what a key did.
    fn hurry(&mut self, why: &'static str) {
        self.pacing.hurry(SOON, Instant::now(), why);
    }

    fn obey(&mut self, command: Command) -> Result<(), Stop> {
        match command {
            Command::SetInterval(wanted) => self.pacing.set_interval(wanted, Instant::now()),
            Command::Inspect(pid, start_ns) => match self.source.inspect(pid, start_ns) {
                Some(found) => {
                    let found = found.map_err(|error| format!("{error:#}"));
                    self.mail.send(Message::Inspected(pid, found))?;
                }
                None => self.closeup()?.ask(Asked::Inspect((pid, start_ns))),
            },
            Command::Map { process, rss_bytes, exact } => match self.source.mappings(process, exact) {
                Some(found) => self.mail.send(Message::Mapped(process, found))?,
                None => self.closeup()?.ask(Asked::Map { process, rss_bytes, exact }),
            },
            Command::Focus(focus) => {
                let began = Instant::now();
                self.source.focus(focus);
                // The self-check of the sampler takes a tenth of a second, once.
                self.pacing.spent(Cause::Setup, began.elapsed());
            }
            Command::SetScope(scope) => {
                if let Err(error) = self.source.set_scope(scope) {
                    self.mail.send(Message::NotScoped(format!("{error:#}")))?;
                }
                self.hurry("the scope was changed");
            }
            Command::SetEvents(set) => {
                if let Err(error) = self.source.set_events(set) {
                    self.mail.send(Message::NotCounted(format!("{error:#}")))?;
                }
                // The interval in which they were opened is not worth waiting for.
                self.hurry("other events are counted from here on");
            }
            Command::SetHot(on) => {
                let began = Instant::now();
                if let Err(error) = self.source.set_hot(on) {
                    self.mail.send(Message::Hot(Err(format!("{error:#}"))))?;
                }
                self.pacing.spent(Cause::Setup, began.elapsed());
                self.pacing.hurry_from(SOON, Instant::now(), "the sampling of stacks was switched on or off");
            }
            Command::SetAccess(on) => {
                let began = Instant::now();
                if let Err(error) = self.source.set_access(on) {
                    self.mail.send(Message::NotSampled(format!("{error:#}")))?;
                }
                // The self-check takes a tenth of a second.
                self.pacing.spent(Cause::Setup, began.elapsed());
            }
            Command::SetStatistics(on) => {
                let source = &mut self.source;
                let now = source.set_statistics(on).and_then(|()| source.statistics());
                if let Some(now) = now.map_err(|error| format!("{error:#}")).transpose() {
                    self.mail.send(Message::Statistics(now))?;
                }
            }
            // A live source has no other time.
            Command::Seek(_) => {}
            Command::Quit => return Err(Stop::Told),
        }
        Ok(())
    }
}
