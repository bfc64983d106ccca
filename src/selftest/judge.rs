//! Verdicts on comparisons, and the likeliest reasons. Pure.

use serde::{Deserialize, Serialize};

use super::expected::by_id;
use super::report::Comparison;

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the tolerance.
    Ok,
    /// Outside the range.
    Wrong,
    /// Outside the range, according to an erratum of the vendor.
    Known,
    /// As large as it may be; no truth is exact.
    Plausible,
    /// Not compared.
    Untested,
}

impl Verdict {
    /// The word on the screen: `WRONG` is visible without colour.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Wrong => "WRONG",
            Verdict::Known => "known",
            Verdict::Plausible => "plausible",
            Verdict::Untested => "untested",
        }
    }
}

/// The verdict on a comparison, and its reason unless it is `ok`. Never `ok` without a comparison.
pub fn judge(comparison: &Comparison) -> (Verdict, Option<String>) {
    let Some(check) = by_id(&comparison.check) else {
        return (Verdict::Untested, Some("this version has no such check".into()));
    };
    let (truth, tool) = match (comparison.truth, comparison.tool) {
        (Some(truth), Some(tool)) if truth.is_finite() && tool.is_finite() => (truth, tool),
        _ => {
            return (
                Verdict::Untested,
                Some(comparison.why.clone().unwrap_or("this number was not measured".into())),
            );
        }
    };
    // A truth of nothing is no test: a tool that counts nothing would pass it.
    if truth <= 0.0 {
        return (Verdict::Untested, Some("the load did nothing that could be counted".into()));
    }
    let allowed = check.tolerance.allowed(truth, comparison.error);
    match (tool - truth).abs() <= allowed {
        true => (Verdict::Ok, None),
        false => (Verdict::Wrong, Some(reason(truth, tool))),
    }
}

/// The likeliest reason, the first that fits.
fn reason(truth: f64, tool: f64) -> String {
    let near = |times: f64| (tool / truth / times - 1.0).abs() < 0.02;
    if tool == 0.0 {
        return "nothing was counted: the probe does not see these events".into();
    }
    if near(2.0) {
        return "twice the expected count: each event is counted twice".into();
    }
    if near(0.5) {
        return "half the expected count: one of two threads or directions is not counted".into();
    }
    let percent = 100.0 * (tool / truth - 1.0);
    let word = if tool > truth { "more" } else { "less" };
    format!("{:.1} % {word}: please report this", percent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::expected::CHECKS;
    use proptest::prelude::*;

    fn verdict(check: &str, truth: f64, tool: f64) -> Verdict {
        judge(&Comparison::new(check, truth, tool)).0
    }

    #[test]
    fn limits_are_those_of_the_check() {
        use Verdict::{Ok, Wrong};
        for (check, truth, tool, expected) in [
            ("minor_faults", 20_000.0, 20_020.0, Ok),
            ("minor_faults", 20_000.0, 20_021.0, Wrong),
            ("switches", 20_000.0, 20_025.0, Ok),
            ("switches", 20_000.0, 19_974.0, Wrong),
            ("cpu_moves", 2000.0, 2000.0, Ok),
            ("cpu_moves", 2000.0, 2001.0, Wrong),
            ("cpu_time", 5e8, 5e8 + 10.5e6, Ok),
            ("cpu_time", 5e8, 5e8 + 10.6e6, Wrong),
            ("moved_pages", 4000.0, 3999.0, Wrong),
            ("remote", 70.0, 75.0, Ok),
            ("remote", 70.0, 64.9, Wrong),
        ] {
            assert_eq!(verdict(check, truth, tool), expected, "{check}: {tool} of {truth}");
        }
    }

    #[test]
    fn an_error_that_the_tool_states_is_allowed() {
        let with = |error| judge(&Comparison { error, ..Comparison::new("placement", 30.0, 36.0) }).0;
        assert_eq!(with(None), Verdict::Wrong);
        assert_eq!(with(Some(2.9)), Verdict::Wrong);
        assert_eq!(with(Some(3.0)), Verdict::Ok);
    }

    #[test]
    fn mistakes_have_their_reasons() {
        let reason = |tool| judge(&Comparison::new("switches", 20_000.0, tool)).1.unwrap();
        assert!(reason(0.0).starts_with("nothing was counted"));
        assert!(reason(40_010.0).starts_with("twice the expected count"));
        assert!(reason(10_002.0).starts_with("half"));
        assert_eq!(reason(23_000.0), "15.0 % more: please report this");
        assert_eq!(reason(19_000.0), "5.0 % less: please report this");
    }

    #[test]
    fn nothing_passes_without_a_comparison() {
        assert_eq!(
            judge(&Comparison::untested("remote", "one node")),
            (Verdict::Untested, Some("one node".into()))
        );
        assert_eq!(verdict("moved_pages", 0.0, 0.0), Verdict::Untested);
        assert_eq!(verdict("moved_pages", f64::NAN, 0.0), Verdict::Untested);
        assert_eq!(verdict("another", 1.0, 1.0), Verdict::Untested);
    }

    proptest! {
        #[test]
        fn a_number_that_is_far_from_the_truth_is_never_ok(at in 0..CHECKS.len(), truth in 50.0..1e9f64) {
            let check = CHECKS[at];
            let truth = if check.unit == "%" { truth % 50.0 + 10.0 } else { truth };
            for times in [0.0, 0.5, 2.0, 16.0] {
                // A tick is more than a very short time.
                if check.id != "cpu_time" || truth > 3e7 {
                    prop_assert_eq!(verdict(check.id, truth, times * truth), Verdict::Wrong);
                }
            }
            prop_assert_eq!(verdict(check.id, truth, truth), Verdict::Ok);
        }
    }
}
