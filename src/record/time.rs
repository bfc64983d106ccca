//! Which moment of a recording does somebody mean who types a time? Pure.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// What may be typed, for help and messages.
pub const FORMS: &str = "2026-01-31T03:12:00Z, '2026-01-31 03:12', 03:12, @SECONDS, -10m (before the end) or +1h (after the start)";

/// The wall clock in ns since 1970 that `text` means in a recording from `first` to `last`. Times without a
/// zone are in `zone`; a time without a date is its last occurrence in the recording, or else on its last
/// day.
///
/// # Errors
/// It is none of [`FORMS`].
pub fn parse(text: &str, (first, last): (i64, i64), zone: &TimeZone) -> Result<i64, String> {
    let text = text.trim();
    let not_understood = || format!("'{}' is no time; use {FORMS}", crate::text::clean_str(text));
    let ns = |time: Timestamp| i64::try_from(time.as_nanosecond()).map_err(|_| not_understood());
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds: f64 = seconds.parse().map_err(|_| not_understood())?;
        return Ok((seconds * 1e9) as i64);
    }
    if let Some(back) = text.strip_prefix('-') {
        return duration(back).map(|ns| last.saturating_sub(ns)).ok_or_else(not_understood);
    }
    if let Some(on) = text.strip_prefix('+') {
        return duration(on).map(|ns| first.saturating_add(ns)).ok_or_else(not_understood);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return ns(time);
    }
    if let Ok(time) = text.parse::<Time>()
        && !text.contains('-')
    {
        let end =
            Timestamp::from_nanosecond(last.into()).map_err(|_| not_understood())?.to_zoned(zone.clone());
        let at = |zoned: jiff::Zoned| zoned.with().time(time).build().ok().map(|zoned| zoned.timestamp());
        let today = at(end.clone()).ok_or_else(not_understood)?;
        if ns(today)? > last {
            let before = end.yesterday().ok().and_then(at).ok_or_else(not_understood)?;
            if ns(before)? >= first {
                return ns(before);
            }
        }
        return ns(today);
    }
    match text.parse::<DateTime>() {
        Ok(time) => {
            let zoned = time.to_zoned(zone.clone()).map_err(|_| not_understood())?;
            ns(zoned.timestamp())
        }
        Err(_) => Err(not_understood()),
    }
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

    fn parsed(text: &str) -> Result<i64, String> {
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
        ] {
            assert_eq!(parsed(text), Ok(at(moment)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_would_do() {
        for text in ["", "yesterday", "25:00", "-", "-5x", "+-3", "@x", "\x1b[2J"] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains("03:12") && !error.contains('\x1b'), "{text}: {error}");
        }
    }
}
