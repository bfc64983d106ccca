//! The moment of a recording that a typed time means. Pure.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The forms of a time, for help and messages.
pub const FORMS: &str = "2026-01-31T03:12:00Z, '2026-01-31 03:12', 03:12, @SECONDS, -10m (before the end) or +1h (after the start)";

/// Why a text does not mean a moment of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// It has none of the [`FORMS`].
    #[error("'{0}' is not a time; use {FORMS}")]
    NotATime(String),
    /// A time of its last day, and no calendar has that day.
    #[error(
        "the last sample's clock is {last_ns} ns since 1970, so the day of '{text}' is unknown; use -10m (before \
         the end), +1h (after the start), or a time with its date"
    )]
    NoLastDay { text: String, last_ns: i64 },
}

/// The wall clock in ns since 1970 that `text` means in a recording from `first` to `last`; one of these for
/// a time beyond them. Times without a zone are in `zone`. A time without a date is its last occurrence in
/// the recording, or else on its last day.
///
/// # Errors
/// It has none of the [`FORMS`], or is a time of the last day of a recording whose clock was wrong.
pub fn parse(text: &str, (first, last): (i64, i64), zone: &TimeZone) -> Result<i64, TimeError> {
    let text = text.trim();
    let no_time = || TimeError::NotATime(crate::text::clean_str(text));
    let no_day = || TimeError::NoLastDay { text: crate::text::clean_str(text), last_ns: last };
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds: f64 = seconds.parse().map_err(|_| no_time())?;
        let since = SignedDuration::try_from_secs_f64(seconds).map_err(|_| no_time())?;
        return Timestamp::from_duration(since).map(ns).map_err(|_| no_time());
    }
    if let Some(back) = text.strip_prefix('-') {
        return duration(back).map(|ns| last.saturating_sub(ns)).ok_or_else(no_time);
    }
    if let Some(on) = text.strip_prefix('+') {
        return duration(on).map(|ns| first.saturating_add(ns)).ok_or_else(no_time);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(ns(time));
    }
    if let Ok(time) = text.parse::<Time>()
        && !text.contains('-')
    {
        let end = Timestamp::from_nanosecond(last.into()).map_err(|_| no_day())?.to_zoned(zone.clone());
        let at = |zoned: jiff::Zoned| {
            let time = zoned.with().time(time).build().ok()?.timestamp();
            i64::try_from(time.as_nanosecond()).ok()
        };
        let today = at(end.clone()).ok_or_else(no_day)?;
        let before = if today > last { end.yesterday().ok().and_then(at) } else { None };
        return Ok(before.filter(|before| *before >= first).unwrap_or(today));
    }
    let (text, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(text) => (text, TimeZone::UTC),
        None => (text, zone.clone()),
    };
    let time: DateTime = text.parse().map_err(|_| no_time())?;
    // The last hours of the year 9999 are a date, and no timestamp.
    let beyond = if time.year() < 0 { i64::MIN } else { i64::MAX };
    Ok(time.to_zoned(zone).map_or(beyond, |zoned| ns(zoned.timestamp())))
}

/// In nanoseconds, which there are up to the year 2262 and from 1677 on.
fn ns(time: Timestamp) -> i64 {
    let ns = time.as_nanosecond();
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

/// `90`, `90s`, `10m`, `1.5h`, `2d`: a length of time in ns, seconds without a unit.
pub fn duration(text: &str) -> Option<i64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let length = SignedDuration::try_from_secs_f64(number * seconds).ok()?;
    i64::try_from(length.as_nanos()).ok().filter(|ns| *ns >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as i64
    }

    fn parsed(text: &str) -> Result<i64, TimeError> {
        let span = (at("2026-01-30T10:00:00Z"), at("2026-01-31T10:00:00Z"));
        parse(text, span, &TimeZone::fixed(jiff::tz::offset(2)))
    }

    #[test]
    fn every_form_means_a_moment() {
        for (text, moment) in [
            ("2026-01-31T03:12:00Z", "2026-01-31T03:12:00Z"),
            ("2026-01-31T03:12:00+01:00", "2026-01-31T02:12:00Z"),
            ("2026-01-31 03:12", "2026-01-31T01:12:00Z"),
            ("2026-01-31T03:12:30", "2026-01-31T01:12:30Z"),
            // The recording ends at 12:00 in this zone.
            ("03:12", "2026-01-31T01:12:00Z"),
            ("15:00", "2026-01-30T13:00:00Z"),
            ("-10m", "2026-01-31T09:50:00Z"),
            ("+1.5h", "2026-01-30T11:30:00Z"),
            ("@1769853600", "2026-01-31T10:00:00Z"),
            ("@-1.5", "1969-12-31T23:59:58.5Z"),
        ] {
            assert_eq!(parsed(text), Ok(at(moment)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_would_do() {
        for text in [
            "",
            "yesterday",
            "25:00",
            "-",
            "-5x",
            "+-3",
            "@x",
            "\x1b[2J",
            "@NaN",
            "@inf",
            "@-inf",
            "@1e18",
            "-NaN",
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains("03:12") && !error.contains('\x1b'), "{text}: {error}");
        }
    }

    #[test]
    fn a_time_beyond_all_nanoseconds_is_the_last_one() {
        for text in ["9999-12-31T23:59:59Z", "9999-12-31 23:59:59", "@253402207000"] {
            assert_eq!(parsed(text), Ok(i64::MAX), "{text}");
        }
        assert_eq!(parsed("0001-01-01T00:00:00Z"), Ok(i64::MIN));
    }

    #[test]
    fn a_clock_that_was_wrong_is_not_the_fault_of_the_text() {
        let zone = TimeZone::UTC;
        let error = parse("00:01", (i64::MIN, i64::MIN), &zone).unwrap_err();
        assert!(matches!(error, TimeError::NoLastDay { .. }), "{error}");
        assert_eq!(parse("+1s", (i64::MIN, i64::MIN), &zone), Ok(i64::MIN + 1_000_000_000));
    }
}
