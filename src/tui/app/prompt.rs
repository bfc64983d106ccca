//! A line that is being typed at the bottom of the screen.

use std::time::Duration;

/// Characters taken at most.
const MAX: usize = 64;

/// Intervals that can be set, in seconds.
pub const SHORTEST: f64 = 0.1;
pub const LONGEST: f64 = 60.0;

/// The steps of `+` and `-`, in milliseconds.
const STEPS: &[u64] = &[100, 200, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000];

/// The purpose of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Search,
    Filter,
    Interval,
    /// Where to go in a recording: by this time, or ahead by this long.
    Forward,
    /// The same, but back.
    Backward,
}

pub struct Prompt {
    pub purpose: Purpose,
    pub text: String,
    /// The text that Esc brings back.
    pub before: String,
}

impl Prompt {
    /// Starts with `text`, which Esc brings back.
    pub fn new(purpose: Purpose, text: &str) -> Prompt {
        Prompt { purpose, text: text.to_string(), before: text.to_string() }
    }

    /// The question.
    pub fn question(&self) -> &'static str {
        match self.purpose {
            Purpose::Search => "Search: ",
            Purpose::Filter => "Show only: ",
            Purpose::Interval => "Interval in seconds (0.1 to 60): ",
            Purpose::Forward => "Go to a time, or ahead by (03:12, 90s, 5m): ",
            Purpose::Backward => "Go to a time, or back by (03:12, 90s, 5m): ",
        }
    }

    /// Takes a character that can be shown.
    pub fn push(&mut self, c: char) {
        let mut bytes = [0; 4];
        let text: &str = c.encode_utf8(&mut bytes);
        // A backslash is harmless here: nothing of this line is an escape.
        let harmless = c == '\\' || crate::text::clean_str(text) == text;
        if harmless && self.text.chars().count() < MAX {
            self.text.push(c);
        }
    }
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

    #[test]
    fn nothing_that_a_terminal_obeys_can_be_typed() {
        let mut prompt = Prompt::new(Purpose::Search, "");
        for c in ['a', '\u{1b}', '\u{202e}', '\\', '界', '\u{200d}'] {
            prompt.push(c);
        }
        assert_eq!(prompt.text, "a\\界");
    }
}
