//! A recording on the screen: which, and whether it plays.

use super::State;
use crate::analysis::highlights::Highlights;
use crate::text;
use crate::tui::input::action::{Effect, Seek};

/// Speeds of playing, in times that of the recording.
const SPEEDS: [u32; 6] = [1, 2, 5, 10, 30, 60];

/// The recording on the screen.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Wall clock of its first and last sample, ns since 1970.
    pub span: (i64, i64),
    pub speed: u32,
    pub playing: bool,
    /// It grows; at its end, added samples are shown.
    pub follow: bool,
    pub following: bool,
    /// Moments worth a look, and the part of the recording that was looked through for them, 0 to 1.
    pub marks: Highlights,
    pub looked: f64,
}

impl State {
    /// Shows a recording from the first to the second of `span`; with `follow` it grows.
    pub fn replay(&mut self, span: (i64, i64), follow: bool) {
        let (marks, speed) = (Highlights::default(), SPEEDS[0]);
        let (playing, following) = (false, follow);
        self.replay = Some(Replay { span, speed, playing, follow, following, marks, looked: 0.0 });
    }

    /// Takes the state of the followed file, if it has trouble, and whether `more` can come.
    pub fn outlook(&mut self, what: Option<&str>, more: bool) {
        self.note = what.map(text::clean_str);
        if let Some(replay) = &mut self.replay {
            replay.following &= more;
        }
    }

    /// Takes moments worth a look, found in this part of the recording, 0 to 1.
    pub fn marked(&mut self, marks: Highlights, looked: f64) {
        if let Some(replay) = &mut self.replay {
            (replay.marks, replay.looked) = (marks, looked);
        }
    }

    /// No further samples will come; known data stays on the screen.
    pub fn source_ended(&mut self) {
        self.note = Some("the recording ends here".into());
        if let Some(replay) = &mut self.replay {
            replay.playing = false;
        }
    }

    /// The recording was moved: earlier data is of another time.
    pub fn elsewhere(&mut self) {
        (self.paused_at, self.note) = (None, None);
    }

    /// Has the recording play, or stand still.
    pub fn play_or_stand(&mut self) -> Option<Effect> {
        let replay = self.replay.as_mut()?;
        replay.playing = !replay.playing;
        replay.following = false;
        Some(Effect::Seek(Seek::Play(replay.playing.then_some(replay.speed))))
    }

    /// The next faster or slower of the speeds.
    pub fn speed(&mut self, faster: bool) -> Option<Effect> {
        let replay = self.replay.as_mut()?;
        let next = if faster {
            SPEEDS.iter().find(|speed| **speed > replay.speed)
        } else {
            SPEEDS.iter().rev().find(|speed| **speed < replay.speed)
        };
        replay.speed = next.copied().unwrap_or(replay.speed);
        self.message = Some(format!("plays at {} times its speed", replay.speed));
        replay.playing.then_some(Effect::Seek(Seek::Play(Some(replay.speed))))
    }
}
