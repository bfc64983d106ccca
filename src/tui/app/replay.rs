//! Where in a recording we are, and how to go elsewhere in it.

use std::sync::Arc;

use super::prompt::{Prompt, Purpose};
use super::{App, Detail};
use crate::record::time;
use crate::sample::{HostFacts, Sample};
use crate::tui::action::{Effect, Seek};

/// Speeds of playing, in times that of the recording.
const SPEEDS: [u32; 6] = [1, 2, 5, 10, 30, 60];

/// The recording on the screen.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// Wall clock of its first and last sample, ns since 1970.
    span: (i64, i64),
    pub speed: u32,
    pub playing: bool,
}

impl Replay {
    /// How far into the recording a moment is, 0 to 1.
    pub fn share(&self, wall_ns: i64) -> f64 {
        let length = self.span.1.saturating_sub(self.span.0).max(1);
        (wall_ns.saturating_sub(self.span.0) as f64 / length as f64).clamp(0.0, 1.0)
    }
}

impl App {
    /// What is shown is a recording from the first to the second of `span`.
    pub fn replay(&mut self, span: (i64, i64)) {
        self.replay = Some(Replay { span, speed: SPEEDS[0], playing: false });
    }

    /// Takes the sample that was gone to, and the one before it.
    pub fn moved(
        &mut self,
        host: Arc<HostFacts>,
        previous: Option<Sample>,
        sample: Sample,
    ) -> Option<Effect> {
        self.ring.clear();
        self.paused_at = None;
        self.note = None;
        if let Some(previous) = previous {
            self.ring.push(previous);
        }
        let process = self.detail.take().map(|detail| detail.process);
        let effect = self.sample(Arc::clone(&host), sample);
        if let (Some(process), Some(shown)) = (process, self.shown()) {
            // Its history is that of another time.
            self.detail = Some(Detail::open(process, &host, &self.ring, shown));
            self.arrange();
            return self.inspect();
        }
        effect
    }

    pub(super) fn seek(&mut self, seek: Seek) -> Option<Effect> {
        if let Some(replay) = &mut self.replay {
            replay.playing = false;
        }
        Some(Effect::Seek(seek))
    }

    pub(super) fn play_or_stand(&mut self) -> Option<Effect> {
        let replay = self.replay.as_mut()?;
        replay.playing = !replay.playing;
        Some(Effect::Seek(Seek::Play(replay.playing.then_some(replay.speed))))
    }

    pub(super) fn speed(&mut self, faster: bool) -> Option<Effect> {
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

    /// Goes where the prompt says; what it says wrong stays in it.
    pub(super) fn jump(&mut self, prompt: Prompt) -> Option<Effect> {
        let (replay, shown) = (self.replay?, self.snapshot.as_ref()?.wall_ns);
        let text = prompt.text.trim();
        let ahead = prompt.purpose == Purpose::Forward;
        let wanted = match time::duration(text.trim_start_matches(['+', '-'])) {
            Some(ns) if text.starts_with('-') || (!ahead && !text.starts_with('+')) => {
                Ok(shown.saturating_sub(ns))
            }
            Some(ns) => Ok(shown.saturating_add(ns)),
            None => time::parse(text, replay.span, &self.zone),
        };
        match wanted {
            Ok(wall_ns) => self.seek(Seek::To(wall_ns)),
            Err(why) => {
                self.message = Some(why);
                self.prompt = Some(prompt);
                None
            }
        }
    }
}
