//! The stretch of time that can be gone through, a recording or what is kept while paused, and how.

use super::App;
use super::prompt::{Prompt, Purpose};
use crate::analysis::highlights::{Finder, Highlight, Highlights, Kind};
use crate::record::time;
use crate::text::clean_str;
use crate::text::quantity::count;
use crate::tui::action::{Effect, Seek};

/// From when to when, where in it the screen is, and what is worth a look; wall clock, ns since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Timeline<'a> {
    pub span: (i64, i64),
    pub at: i64,
    pub marks: &'a Highlights,
    /// How much was looked through for marks, 0 to 1.
    pub looked: f64,
}

impl Timeline<'_> {
    /// How far along a moment is, 0 to 1.
    pub fn share(&self, wall_ns: i64) -> f64 {
        let length = self.span.1.saturating_sub(self.span.0).max(1);
        (wall_ns.saturating_sub(self.span.0) as f64 / length as f64).clamp(0.0, 1.0)
    }
}

impl App {
    /// `None` while now is shown.
    pub fn timeline(&self) -> Option<Timeline<'_>> {
        let at = self.snapshot.as_ref()?.wall_ns;
        if let Some(replay) = &self.replay {
            return Some(Timeline { span: replay.span, at, marks: &replay.marks, looked: replay.looked });
        }
        self.paused_at?;
        let wall = |number| self.ring.pair(number).map(|(_, sample)| sample.wall_ns);
        let span = (wall(self.ring.oldest()?)?, wall(self.ring.newest()?)?);
        Some(Timeline { span, at, marks: &self.kept_marks, looked: 1.0 })
    }

    /// Goes elsewhere: by itself among what is kept, or it asks for it.
    pub(super) fn seek(&mut self, seek: Seek) -> Option<Effect> {
        if let Some(replay) = &mut self.replay {
            replay.playing = false;
            replay.following = replay.follow && seek == Seek::End;
            return Some(Effect::Seek(seek));
        }
        match seek {
            Seek::Next => self.scrub(1),
            Seek::Previous => self.scrub(-1),
            Seek::Start => self.show_kept(self.ring.oldest()),
            Seek::End => self.show_kept(self.ring.newest()),
            Seek::To(wall_ns) => {
                let kept = self.ring.oldest().zip(self.ring.newest());
                let mut numbers = kept.into_iter().flat_map(|(oldest, newest)| (oldest..=newest).rev());
                let at_or_before = |number: &u64| {
                    self.ring.pair(*number).is_some_and(|(_, sample)| sample.wall_ns <= wall_ns)
                };
                let found = numbers.find(at_or_before).or(self.ring.oldest());
                self.show_kept(found);
            }
            Seek::Play(_) => {}
        }
        None
    }

    fn show_kept(&mut self, number: Option<u64>) {
        self.paused_at = number;
        self.derive();
    }

    /// Looks through what is kept.
    pub(super) fn mark_kept(&mut self) {
        let mut finder = Finder::default();
        if let (Some(host), Some(oldest), Some(newest)) = (&self.host, self.ring.oldest(), self.ring.newest())
        {
            for number in oldest..=newest {
                let Some((previous, current)) = self.ring.pair(number) else { continue };
                // The first interval has its beginning kept, too.
                if number == oldest
                    && let Some(previous) = previous
                {
                    finder.take(host, previous.clone(), false, false);
                }
                finder.take(host, current.clone(), false, true);
            }
        }
        self.kept_marks = finder.marks().clone();
    }

    /// To the next mark, or to the one before.
    pub(super) fn go_to_mark(&mut self, ahead: bool) -> Option<Effect> {
        let timeline = self.timeline()?;
        let (at, marks) = (timeline.at, timeline.marks.all());
        let found = if ahead {
            marks.iter().find(|mark| mark.wall_ns > at)
        } else {
            marks.iter().rev().find(|mark| mark.wall_ns < at)
        };
        let Some(mark) = found.copied() else {
            self.message = Some(format!("no mark {} here", if ahead { "after" } else { "before" }));
            return None;
        };
        let words = describe(mark, timeline.marks);
        let effect = self.seek(Seek::To(mark.wall_ns));
        self.message = Some(words);
        effect
    }

    /// Goes where the prompt says; what it says wrong stays in it.
    pub(super) fn jump(&mut self, prompt: Prompt) -> Option<Effect> {
        let timeline = self.timeline()?;
        let text = prompt.text.trim();
        let ahead = prompt.purpose == Purpose::Forward;
        let wanted = match time::duration(text.trim_start_matches(['+', '-'])) {
            Some(ns) if text.starts_with('-') || (!ahead && !text.starts_with('+')) => {
                Ok(timeline.at.saturating_sub(ns))
            }
            Some(ns) => Ok(timeline.at.saturating_add(ns)),
            None => time::parse(text, timeline.span, &self.zone),
        };
        match wanted {
            Ok(wall_ns) => self.seek(Seek::To(wall_ns)),
            // The prompt says what would do, and has no room for all of it.
            Err(_) => {
                self.message = Some(format!("'{}' is no time", clean_str(text)));
                self.prompt = Some(prompt);
                None
            }
        }
    }
}

fn describe(mark: Highlight, marks: &Highlights) -> String {
    let value = marks.value(mark.kind).unwrap_or(0.0);
    match mark.kind {
        Kind::Gap => "samples are missing before this one".into(),
        Kind::Loss => "something was measured and lost in this interval: see LOST above".into(),
        Kind::Remote => format!("the most remote accesses: {}/s", count(value)),
        Kind::Ipc => format!("the fewest instructions per cycle: {value:.2}"),
    }
}
