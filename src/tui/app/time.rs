//! The interval that is shown, and the length of intervals.

use std::time::Duration;

use super::{App, prompt};
use crate::tui::action::Effect;

impl App {
    /// How far the interval shown lies behind the newest, ns; `None` when not paused.
    pub fn behind_ns(&self) -> Option<u64> {
        let (_, newest) = self.ring.pair(self.ring.newest()?)?;
        let shown = self.snapshot.as_ref()?.mono_ns;
        self.paused_at.map(|_| newest.mono_ns.saturating_sub(shown))
    }

    pub(super) fn shown(&self) -> Option<u64> {
        self.paused_at.or(self.ring.newest())
    }

    pub(super) fn pause(&mut self) {
        self.paused_at = if self.paused_at.is_some() { None } else { self.ring.newest() };
        if self.paused_at.is_some() {
            self.mark_kept();
        }
        self.derive();
    }

    pub(super) fn scrub(&mut self, step: i32) {
        let (Some(shown), Some(oldest), Some(newest)) =
            (self.shown(), self.ring.oldest(), self.ring.newest())
        else {
            return;
        };
        let wanted = shown.saturating_add_signed(step.into());
        if wanted < oldest {
            self.message = Some("nothing older is kept".into());
        } else if wanted > newest {
            self.message = Some("this is the newest interval; space follows it".into());
        }
        if self.paused_at.is_none() {
            self.mark_kept();
        }
        self.paused_at = Some(wanted.clamp(oldest, newest));
        self.derive();
    }

    pub(super) fn set_interval(&mut self, interval: Duration) -> Option<Effect> {
        if interval == self.interval {
            self.message = Some(format!(
                "the interval stays at {}; it can be {} to {} s",
                seconds(interval),
                prompt::SHORTEST,
                prompt::LONGEST
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
