//! The interval that is shown, and the length of intervals.

use std::time::Duration;

use super::{App, prompt};
use crate::marks::Marks;
use crate::tui::action::Effect;

impl App {
    /// How far the interval shown lies behind the newest, ns; `None` when not paused.
    pub fn behind_ns(&self) -> Option<u64> {
        let (newest, shown) = (self.kept.newest_mono_ns()?, self.snapshot()?.mono_ns);
        self.paused_at.map(|_| newest.saturating_sub(shown))
    }

    pub(super) fn pause(&mut self) {
        let newest = self.kept.numbers().map(|(_, newest)| newest);
        self.pause_at(if self.paused_at.is_some() { None } else { newest });
    }

    /// Shows the interval that sample `number` ends from now on; `None` follows the newest.
    pub(super) fn pause_at(&mut self, number: Option<u64>) {
        if self.paused_at.is_none() {
            (self.kept_marks, self.kept_looked) = (Marks::default(), 0.0);
        }
        self.paused_at = number;
    }

    pub(super) fn scrub(&mut self, step: i32) {
        let Some((oldest, newest)) = self.kept.numbers() else { return };
        let shown = self.paused_at.unwrap_or(newest);
        let wanted = shown.saturating_add_signed(step.into());
        if wanted < oldest {
            self.message = Some("nothing older is kept".into());
        } else if wanted > newest {
            self.message = Some("this is the newest interval; space follows it".into());
        }
        self.pause_at(Some(wanted.clamp(oldest, newest)));
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
