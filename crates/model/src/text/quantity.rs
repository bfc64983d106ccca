//! Quantities as people read them: few characters, with a prefix or a unit.

/// `0.0` to `99.9`, then without decimals.
pub fn percent(v: f64) -> String {
    if v < 99.95 { format!("{v:.1}") } else { format!("{v:.0}") }
}

/// Up to five characters with a decimal prefix: `0`, `0.3`, `42`, `9.8k`, `12M`.
pub fn count(v: f64) -> String {
    if v == 0.0 {
        return "0".into();
    }
    if v < 10.0 {
        return format!("{v:.1}").trim_end_matches(".0").into();
    }
    prefixed(v, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Up to five characters with a binary prefix: `512`, `1.5K`, `23G`.
pub fn bytes(v: f64) -> String {
    prefixed(v, 1024.0, &["", "K", "M", "G", "T", "P", "E"])
}

fn prefixed(mut v: f64, step: f64, prefixes: &[&str]) -> String {
    let mut at = 0;
    while v >= 999.5 && at + 1 < prefixes.len() {
        v /= step;
        at += 1;
    }
    if v < 9.95 && at > 0 { format!("{v:.1}{}", prefixes[at]) } else { format!("{v:.0}{}", prefixes[at]) }
}

/// `12s`, `3m59s`, `2h03m`, `45d02h`: a length of time to read at a glance.
pub fn length(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// `0:01.25` up to an hour, then `1h02m`, then `3d04h`.
pub fn duration(ns: u64) -> String {
    let hundredths = ns / 10_000_000;
    let seconds = hundredths / 100;
    match seconds {
        0..3600 => format!("{}:{:02}.{:02}", seconds / 60, seconds % 60, hundredths % 100),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}
