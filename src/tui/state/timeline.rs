//! The stretch of time of a recording or of the kept samples while paused, and moving in it.

use super::State;
use crate::analysis::curve::Level;
use crate::analysis::highlights::{Highlight, Highlights, Kind};
use crate::record::time;
use crate::text::clean_str;
use crate::text::quantity::count;
use crate::tui::input::action::{Effect, Seek};

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
        Level::Placed => "remote memory reaches a fifth here",
        Level::Seen => "remote accesses reach a fifth here",
        Level::SeenMost => "remote accesses reach half here",
    }
}

fn describe(mark: Highlight, marks: &Highlights) -> String {
    let value = marks.value(mark.kind).unwrap_or(0.0);
    match mark.kind {
        Kind::Gap => "samples are missing before this one".into(),
        Kind::Finding => {
            let title = marks.finding_at(mark.wall_ns).unwrap_or("a finding");
            format!("a finding begins: {title}; 4 shows it")
        }
        Kind::Loss => "measurements were lost in this interval: see LOST above".into(),
        Kind::Remote => format!("the most remote accesses: {}/s", count(value)),
        Kind::Ipc => format!("the fewest instructions per cycle: {value:.2}"),
    }
}
