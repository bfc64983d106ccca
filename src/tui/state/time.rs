//! Time on the screen: the interval that is shown and the length of intervals, the stretch of time of a recording or of the
//! kept samples while paused, and the recording that is shown and whether it plays.

use std::time::Duration;

use super::State;
use crate::analysis::curve::Level;
use crate::analysis::highlights::{Highlight, HighlightKind, Highlights};
use crate::record::time;
use crate::text::quantity::count;
use crate::text::{self, clean_str};
use crate::tui::input::{Effect, Seek};

/// Intervals that can be set, in seconds.
const SHORTEST: f64 = 0.1;

const LONGEST: f64 = 60.0;

/// The steps of `+` and `-`, in milliseconds.
const STEPS: &[u64] = &[100, 200, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000];

impl State {
    /// Time from the interval shown to the newest, ns; `None` when not paused.
    pub fn behind_ns(&self) -> Option<u64> {
        let (newest, shown) = (self.kept.newest_mono_ns()?, self.snapshot()?.mono_ns);
        self.paused_at.map(|_| newest.saturating_sub(shown))
    }

    /// Pauses at the newest interval, or follows it again.
    pub fn pause(&mut self) {
        let newest = self.kept.numbers().map(|(_, newest)| newest);
        self.pause_at(if self.paused_at.is_some() { None } else { newest });
        self.message = self.paused_at.map(|_| "paused: [ and ] move in history, Z ends the pause".into());
    }

    /// Shows the interval that sample `number` ends from now on; `None` follows the newest.
    pub fn pause_at(&mut self, number: Option<u64>) {
        if self.paused_at.is_none() {
            (self.kept_marks, self.kept_looked) = (Highlights::default(), 0.0);
        }
        self.paused_at = number;
    }

    /// Pauses this many kept intervals later, or earlier.
    pub fn scrub(&mut self, step: i32) {
        let Some((oldest, newest)) = self.kept.numbers() else { return };
        let shown = self.paused_at.unwrap_or(newest);
        let wanted = shown.saturating_add_signed(step.into());
        if wanted < oldest {
            self.message = Some("older intervals are not kept".into());
        } else if wanted > newest {
            self.message = Some("this is the newest interval; Z: back to now".into());
        }
        self.pause_at(Some(wanted.clamp(oldest, newest)));
    }

    /// Has samples taken this often.
    pub fn set_interval(&mut self, interval: Duration) -> Option<Effect> {
        if interval == self.interval {
            self.message = Some(format!(
                "the interval stays at {}; it can be {} to {} s",
                seconds(interval),
                SHORTEST,
                LONGEST
            ));
            return None;
        }
        self.interval = interval;
        Some(Effect::SetInterval(interval))
    }
}

/// `1 s`, `0.5 s`.
pub fn seconds(interval: Duration) -> String {
    format!("{} s", interval.as_millis() as f64 / 1e3)
}

/// The interval that `text` names.
///
/// # Errors
/// Not a number of seconds within the limits.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let number = text.trim_end_matches('s').trim_end().replace(',', ".");
    match number.parse::<f64>() {
        Ok(seconds) if (SHORTEST..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(format!("{text} is outside {SHORTEST} to {LONGEST} seconds")),
        Err(_) => Err(format!("'{text}' is not a number of seconds")),
    }
}

/// The next longer or shorter step; the longest and the shortest stay.
pub fn step(interval: Duration, longer: bool) -> Duration {
    let now = interval.as_millis() as u64;
    let next = if longer {
        STEPS.iter().find(|step| **step > now)
    } else {
        STEPS.iter().rev().find(|step| **step < now)
    };
    next.map_or(interval, |ms| Duration::from_millis(*ms))
}

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

/// Its begin and end, the place of the screen in it, and moments worth a look; wall clock, ns since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Timeline<'a> {
    pub span: (i64, i64),
    pub at: i64,
    pub marks: &'a Highlights,
    /// The part that was looked through for marks, 0 to 1.
    pub looked: f64,
}

impl Timeline<'_> {
    /// The place of a moment along the bar, 0 to 1.
    pub fn share(&self, wall_ns: i64) -> f64 {
        let length = self.span.1.saturating_sub(self.span.0).max(1);
        (wall_ns.saturating_sub(self.span.0) as f64 / length as f64).clamp(0.0, 1.0)
    }
}

impl State {
    /// `None` while now is shown.
    pub fn timeline(&self) -> Option<Timeline<'_>> {
        let at = self.snapshot.as_ref()?.wall_ns;
        if let Some(replay) = &self.replay {
            return Some(Timeline { span: replay.span, at, marks: &replay.marks, looked: replay.looked });
        }
        self.paused_at?;
        Some(Timeline { span: self.kept.span()?, at, marks: &self.kept_marks, looked: self.kept_looked })
    }

    /// Goes elsewhere: directly within the kept samples, else by asking for it.
    pub fn seek(&mut self, seek: Seek) -> Option<Effect> {
        if let Some(replay) = &mut self.replay {
            replay.playing = false;
            replay.following = replay.follow && seek == Seek::End;
            return Some(Effect::Seek(seek));
        }
        match seek {
            Seek::Next => self.scrub(1),
            Seek::Previous => self.scrub(-1),
            Seek::Start => self.pause_at(self.kept.numbers().map(|(oldest, _)| oldest)),
            Seek::End => self.pause_at(self.kept.numbers().map(|(_, newest)| newest)),
            Seek::To(wall_ns) => self.pause_at(self.kept.at_or_before(wall_ns)),
            Seek::Play(_) => {}
        }
        None
    }

    /// Takes the moments worth a look in the kept samples.
    pub fn kept_marked(&mut self, marks: Highlights) {
        (self.kept_marks, self.kept_looked) = (marks, 1.0);
    }

    /// To the next mark, or to the one before.
    pub fn go_to_mark(&mut self, ahead: bool) -> Option<Effect> {
        let timeline = self.timeline()?;
        let at = timeline.at;
        let is_there = |wall_ns: i64| if ahead { wall_ns > at } else { wall_ns < at };
        let marks =
            timeline.marks.all().into_iter().map(|mark| (mark.wall_ns, describe(mark, timeline.marks)));
        let levels =
            self.curve.beginnings().into_iter().map(|(wall_ns, level)| (wall_ns, of_level(level).into()));
        let found = marks.chain(levels).filter(|(wall_ns, _)| is_there(*wall_ns));
        // Of marks of the same interval the first one: it weighs more.
        let Some((wall_ns, words)) = found.min_by_key(|(wall_ns, _)| wall_ns.abs_diff(at)) else {
            self.message = Some(format!("no mark {} here", if ahead { "after" } else { "before" }));
            return None;
        };
        let effect = self.seek(Seek::To(wall_ns));
        self.message = Some(words);
        effect
    }

    /// Goes to the place that `text` names: to a time, or ahead (`ahead`) or back by a length of time.
    ///
    /// # Errors
    /// It is neither a time nor a length of time; what would do is in the question.
    pub fn jump(&mut self, text: &str, ahead: bool) -> Result<Option<Effect>, String> {
        let Some(timeline) = self.timeline() else { return Ok(None) };
        let text = text.trim();
        let wanted = match time::duration(text.trim_start_matches(['+', '-'])) {
            Some(ns) if text.starts_with('-') || (!ahead && !text.starts_with('+')) => {
                timeline.at.saturating_sub(ns)
            }
            Some(ns) => timeline.at.saturating_add(ns),
            None => time::parse(text, timeline.span, &self.zone)
                .map_err(|_| format!("'{}' is not a time", clean_str(text)))?,
        };
        Ok(self.seek(Seek::To(wanted)))
    }
}

fn of_level(level: Level) -> &'static str {
    match level {
        Level::Placed => "remote memory reaches 20 % here",
        Level::Seen => "remote accesses reach 20 % here",
        Level::SeenMost => "remote accesses reach 50 % here",
    }
}

fn describe(mark: Highlight, marks: &Highlights) -> String {
    let value = marks.value(mark.kind).unwrap_or(0.0);
    match mark.kind {
        HighlightKind::Gap => "samples are missing before this one".into(),
        HighlightKind::Finding => {
            let title = marks.finding_at(mark.wall_ns).unwrap_or("a finding");
            format!("a finding begins: {title} (press 4)")
        }
        HighlightKind::Loss => "events were lost in this interval: see LOST above".into(),
        HighlightKind::Remote => format!("the highest rate of remote accesses: {}/s", count(value)),
        HighlightKind::Ipc => format!("the lowest IPC: {value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_limits() {
        assert_eq!(parse_interval(" 0.5 s "), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("0,1"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_interval("60"), Ok(Duration::from_secs(60)));
        for bad in ["0.09", "61", "-1", "nan", "inf", "", "x", "1e9"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn steps_end_at_the_limits() {
        let ms = Duration::from_millis;
        assert_eq!(step(ms(1_000), true), ms(2_000));
        assert_eq!(step(ms(1_500), true), ms(2_000));
        assert_eq!(step(ms(1_500), false), ms(1_000));
        assert_eq!(step(ms(60_000), true), ms(60_000));
        assert_eq!(step(ms(100), false), ms(100));
    }
}
