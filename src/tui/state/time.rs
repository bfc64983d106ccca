//! The interval that is shown, and the length of intervals.

use std::time::Duration;

use super::State;
use crate::analysis::highlights::Highlights;
use crate::tui::input::action::Effect;

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
            self.message = Some("nothing older is kept".into());
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
