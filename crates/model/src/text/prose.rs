//! Quantities in sentences: a number, a space and a unit.

/// `4.25` as `4.2`, without a sign of zero.
pub fn number(value: f64) -> String {
    let value = if value == 0.0 { 0.0 } else { value };
    if value.abs() < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// `41.8 %`.
pub fn pct(value: f64) -> String {
    format!("{} %", number(value))
}

/// `41.8 ± 3.1 %` in ASCII; without the error where it is 0.
pub fn pct_with_error(value: f64, error: f64) -> String {
    if error < 0.05 { pct(value) } else { format!("{} +-{} %", number(value), number(error)) }
}

/// `17.1 GiB`, `300 MiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [(&str, f64); 4] = [
        ("TiB", (1u64 << 40) as f64),
        ("GiB", (1u64 << 30) as f64),
        ("MiB", (1u64 << 20) as f64),
        ("KiB", 1024.0),
    ];
    for (unit, size) in UNITS {
        if value >= size {
            return format!("{} {unit}", number(value / size));
        }
    }
    format!("{value:.0} bytes")
}

/// `60 s`, `6 min 40 s`, `2 h 3 min`.
pub fn duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}
