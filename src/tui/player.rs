//! The thread that owns a recording: takes the screen to any of its samples, and plays it.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Message;
use super::collector::Command;
use super::input::Seek;
use super::scan::Folder;
use crate::model::sample::Sample;
use crate::model::stacks::StackBatch;
use crate::source::recording::{Outlook, Recording};
use crate::source::{Source, poll};

/// Pauses of the recorder and missing files are not waited out.
const LONGEST: Duration = Duration::from_secs(2);

/// Time between two looks for more in a recording that is being written, while it is followed.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The message when hot spots are requested and the recording has none.
const NO_STACKS: &str = "no stacks were recorded here: numatop-ng record --hot records stacks";

/// Whether the recording moves by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Motion {
    Still,
    /// At this many times the speed of the recording.
    Playing(u32),
    /// At the end, where more may come.
    Following,
}

struct Player {
    recording: Recording,
    span: (i64, i64),
    /// Time of the sample on the screen, CLOCK_MONOTONIC of the recorded machine.
    shown_mono_ns: u64,
    /// Stacks of the interval on the screen, and whether the screen shows them.
    hot: Option<Arc<StackBatch>>,
    shows_hot: bool,
    /// Findings at the sample on the screen.
    folder: Folder,
    /// The last word on the file that is followed.
    said: Option<String>,
    messages: SyncSender<Message>,
}

/// Shows the sample at `at`, then executes commands until the one to quit.
///
/// # Errors
/// The recording cannot be read.
pub(super) fn play(
    recording: Recording,
    span: (i64, i64),
    at: i64,
    follow: bool,
    messages: &SyncSender<Message>,
    commands: &Receiver<Command>,
    mut wake: PipeReader,
) -> Result<()> {
    super::scan::spawn(Recording::open(recording.path())?, span, messages.clone())?;
    let folder = Folder::start(recording.path(), messages.clone())?;
    let mut player = Player {
        recording,
        span,
        shown_mono_ns: 0,
        hot: None,
        shows_hot: false,
        folder,
        said: None,
        messages: messages.clone(),
    };
    let mut motion = if follow { Motion::Following } else { Motion::Still };
    let mut due = Instant::now();
    player.recording.seek(at)?;
    player.show_next()?;
    loop {
        let until = match motion {
            Motion::Still => Instant::now() + Duration::from_secs(3600),
            Motion::Playing(_) | Motion::Following => due,
        };
        if poll(&[wake.as_fd()], until).context("waiting for a key")?.is_none() {
            let passed = match motion {
                Motion::Still => continue,
                _ => player.forward(motion != Motion::Following)?,
            };
            due = Instant::now()
                + match (motion, passed) {
                    (Motion::Playing(speed), Some(passed)) => passed.min(LONGEST) / speed,
                    // Samples written meanwhile are shown at once.
                    (Motion::Following, Some(_)) => Duration::ZERO,
                    _ => FOLLOW_EVERY,
                };
            let more = passed.is_some() || (motion == Motion::Following && player.look_ahead());
            if !more {
                motion = Motion::Still;
            }
            continue;
        }
        if wake.read(&mut [0; 64]).context("reading commands")? == 0 {
            return Ok(());
        }
        for command in commands.try_iter() {
            match command {
                Command::Quit => return Ok(()),
                Command::SetInterval(_)
                | Command::SetScope(_)
                | Command::SetEvents(_)
                | Command::Focus(_)
                | Command::Map { .. }
                | Command::SetAccess(_)
                | Command::SetStatistics(_) => {}
                Command::SetHot(on) => {
                    player.shows_hot = on;
                    if on && player.hot.is_none() {
                        player.tell(Message::Hot(Err(NO_STACKS.into())));
                    }
                    player.tell_hot();
                }
                Command::Inspect(pid, _) => {
                    let why = "not in this recording (record --record-cmdline)".to_string();
                    player.tell(Message::Inspected(pid, Err(why)));
                }
                Command::Seek(Seek::Play(speed)) => {
                    motion = speed.map_or(Motion::Still, |speed| Motion::Playing(speed.max(1)));
                    due = Instant::now();
                }
                Command::Seek(seek) => {
                    player.said = None;
                    motion = if follow && seek == Seek::End { Motion::Following } else { Motion::Still };
                    due = Instant::now();
                    player.seek(seek)?;
                }
            }
        }
    }
}

impl Player {
    fn seek(&mut self, seek: Seek) -> Result<()> {
        match seek {
            Seek::Next => {
                self.forward(true)?;
                return Ok(());
            }
            Seek::Previous => self.recording.step_back()?,
            Seek::To(wall_ns) => self.recording.seek(wall_ns)?,
            Seek::Start => self.recording.seek(self.span.0)?,
            Seek::End => {
                let last = self.recording.span().map_or(self.span.1, |span| span.1);
                self.recording.seek(last)?;
            }
            Seek::Play(_) => {}
        }
        self.show_next()
    }

    /// The next sample, with the one before it: the recording has been moved. The first sample of all begins
    /// an interval and ends none, so the second one is shown for it.
    fn show_next(&mut self) -> Result<()> {
        let Some((mut previous, mut current)) = self.recording.next_interval()? else { return Ok(()) };
        if previous.is_none()
            && current.wall_ns == self.span.0
            && let Some(second) = self.recording.next()?
        {
            if self.recording.continues() {
                previous = Some(std::mem::replace(&mut current, second));
            } else {
                // Another run of the recorder begins there; stay at the first sample.
                self.recording.step_back()?;
                self.recording.next()?;
            }
        }
        self.shown_mono_ns = current.mono_ns;
        self.folder.ask((current.wall_ns, current.mono_ns));
        self.hot = current.hot.take();
        self.tell(Message::Moved(self.recording.host(), previous.map(Box::new), Box::new(current)));
        self.tell_hot();
        Ok(())
    }

    /// Stacks of the interval that was just shown.
    fn tell_hot(&self) {
        if let Some(hot) = self.hot.as_ref().filter(|_| self.shows_hot) {
            self.tell(Message::Hot(Ok(StackBatch::clone(hot))));
        }
    }

    /// Moves to the next sample. Returns the time between the two, or `None` at the end.
    fn forward(&mut self, say_end: bool) -> Result<Option<Duration>> {
        let Some(mut sample) = self.recording.next()? else {
            if say_end {
                self.tell(Message::SourceEnded);
            }
            return Ok(None);
        };
        let passed = Duration::from_nanos(sample.mono_ns.saturating_sub(self.shown_mono_ns));
        self.shown_mono_ns = sample.mono_ns;
        self.hot = sample.hot.take();
        let message = if self.recording.continues() {
            Message::Sample(self.recording.host(), Box::<Sample>::new(sample), 1)
        } else {
            Message::Moved(self.recording.host(), None, Box::new(sample))
        };
        self.tell(message);
        self.tell_hot();
        Ok(Some(passed))
    }

    /// Reports trouble with the followed file, once. False when no more of it can come.
    fn look_ahead(&mut self) -> bool {
        let (what, more) = match self.recording.outlook() {
            Outlook::More => (None, true),
            Outlook::Perhaps(what) => (Some(what), true),
            Outlook::Nothing(why) => (Some(why), false),
        };
        if what != self.said {
            self.said.clone_from(&what);
            self.tell(Message::Outlook { what, more });
        }
        more
    }

    /// The receiver is gone while the screen is being closed; a command to quit follows.
    fn tell(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}
