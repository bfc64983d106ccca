//! Moments and lengths of time as a report writes them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The zone of a report, and how exact its times are.
#[derive(Clone, Debug)]
pub struct Clock {
    pub zone: TimeZone,
    /// The report is of several days: times have their date.
    pub days: bool,
    /// Buckets are shorter than a minute: times have seconds.
    pub seconds: bool,
}

impl Clock {
    /// For a report of this span (ns since 1970) in buckets of this width in ns.
    pub fn new(zone: TimeZone, span: (i64, i64), width_ns: i64) -> Clock {
        let day = |ns: i64| stamp(ns).to_zoned(zone.clone()).date();
        let days = day(span.0) != day(span.1.saturating_sub(1).max(span.0));
        Clock { days, seconds: width_ns < 60_000_000_000, zone }
    }

    /// `03:04`, `03:04:05`, `20 Nov 03:04`.
    pub fn time(&self, wall_ns: i64) -> String {
        let form = match (self.days, self.seconds) {
            (false, false) => "%H:%M",
            (false, true) => "%H:%M:%S",
            (true, false) => "%-d %b %H:%M",
            (true, true) => "%-d %b %H:%M:%S",
        };
        self.format(wall_ns, form)
    }

    /// `2026-11-20 03:04:05`, as `--from` takes it.
    pub fn typed(&self, wall_ns: i64) -> String {
        self.format(wall_ns, "%Y-%m-%d %H:%M:%S")
    }

    /// `20 November 2026`.
    pub fn day(&self, wall_ns: i64) -> String {
        self.format(wall_ns, "%-d %B %Y")
    }

    /// `UTC`, `UTC+02:00`: at this moment.
    pub fn offset(&self, wall_ns: i64) -> String {
        let offset = self.format(wall_ns, "%:z");
        if offset == "+00:00" { "UTC".into() } else { format!("UTC{offset}") }
    }

    fn format(&self, wall_ns: i64, form: &str) -> String {
        stamp(wall_ns).to_zoned(self.zone.clone()).strftime(form).to_string()
    }
}

fn stamp(wall_ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(wall_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A length of time with one unit: `45 s`, `1.5 min`, `24 h`, `3 days`.
pub fn length(ns: f64) -> String {
    let seconds = ns / 1e9;
    let (number, unit) = match seconds {
        s if s < 119.5 => (s, "s"),
        s if s < 7_170.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    let text = if number < 9.95 { format!("{number:.1}") } else { format!("{number:.0}") };
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_795_176_000_000_000_000;
    const MINUTE: i64 = 60_000_000_000;

    #[test]
    fn times_have_what_they_need() {
        let hour = (NOON, NOON + 60 * MINUTE);
        let clock = Clock::new(TimeZone::UTC, hour, MINUTE);
        assert_eq!(clock.time(NOON + 4 * MINUTE), "12:04");
        assert_eq!(Clock::new(TimeZone::UTC, hour, MINUTE / 60).time(NOON), "12:00:00");
        let days = (NOON, NOON + 2000 * MINUTE);
        assert_eq!(Clock::new(TimeZone::UTC, days, MINUTE).time(NOON), "20 Nov 12:00");
        assert_eq!(clock.day(NOON), "20 November 2026");
        assert_eq!(clock.typed(NOON), "2026-11-20 12:00:00");
    }

    #[test]
    fn a_day_to_midnight_is_one_day() {
        let midnight = NOON - 720 * MINUTE;
        assert!(!Clock::new(TimeZone::UTC, (midnight, midnight + 1440 * MINUTE), MINUTE).days);
    }

    #[test]
    fn the_offset_is_said() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let clock = Clock::new(zone, (NOON, NOON + MINUTE), MINUTE);
        assert_eq!((clock.time(NOON).as_str(), clock.offset(NOON).as_str()), ("14:00", "UTC+02:00"));
        assert_eq!(Clock::new(TimeZone::UTC, (0, 1), 1).offset(0), "UTC");
    }

    #[test]
    fn lengths_have_one_unit() {
        let text = |seconds: f64| length(seconds * 1e9);
        assert_eq!(
            [0.5, 45.0, 90.0, 150.0, 7200.0, 86_400.0, 259_200.0].map(text),
            ["0.5 s", "45 s", "90 s", "2.5 min", "2 h", "24 h", "3 days"]
        );
    }
}
