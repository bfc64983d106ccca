//! The error of a share that was found in samples.

#![warn(missing_docs)]

/// Share of `part` in `whole` samples in per cent, and how far from it the true share may be: half the width of the
/// 95 % interval after Wilson (1927), which is right for few samples too. `None` without samples. Samples that count
/// in parts are allowed.
pub fn wilson(part: f64, whole: f64) -> Option<(f64, f64)> {
    const Z: f64 = 1.96;
    if whole <= 0.0 {
        return None;
    }
    let p = (part / whole).clamp(0.0, 1.0);
    let half = Z * (p * (1.0 - p) / whole + Z * Z / (4.0 * whole * whole)).sqrt() / (1.0 + Z * Z / whole);
    Some((100.0 * p, 100.0 * half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_the_interval() {
        assert_eq!(wilson(0.0, 0.0), None);
        let (pct, error) = wilson(485.0, 970.0).unwrap();
        assert!((pct - 50.0).abs() < 1e-9 && (3.13..3.15).contains(&error), "{pct} {error}");
        assert!(wilson(100.0, 100.0).unwrap().1 > 0.0, "all of a hundred do not prove that it is all");
    }
}
