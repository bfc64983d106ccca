//! A page about the samples that are kept. Pure.

use std::sync::Arc;

use jiff::tz::TimeZone;

use crate::model::sample::{HostFacts, Sample};
use crate::report::Options;
use crate::report::clock::Clock;
use crate::report::fold::{Fold, Interval};
use crate::report::page::{View, render};
use crate::snapshot::{RowKind, derive};

/// The page, with times of this zone; `None` where there is no interval yet.
pub fn page(host: &Arc<HostFacts>, samples: &[Sample], zone: TimeZone) -> Option<String> {
    let span = (samples.first()?.wall_ns, samples.last()?.wall_ns);
    let mut lengths: Vec<i64> =
        samples.windows(2).map(|pair| pair[1].wall_ns.saturating_sub(pair[0].wall_ns)).collect();
    lengths.sort_unstable();
    let interval_ns = lengths.get(lengths.len() / 2).copied()?;
    let mut fold = Fold::new(Options::default(), span, interval_ns, host)?;
    let first = samples.first()?;
    fold.begin(first.lost.clone(), first.exit_lost_ns.iter().sum());
    for pair in samples.windows(2) {
        let snapshot = derive(host, Some(&pair[0]), &pair[1], RowKind::Processes);
        fold.take(Interval { snapshot: &snapshot, is_interrupted: false, hot: None });
    }
    let report = fold.finish()?;
    let clock = Clock::new(zone, report.span, report.grid.width_ns);
    Some(render(&View { report: &report, clock: &clock, command: String::new() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::demo_machine;

    #[test]
    fn samples_that_are_kept_become_a_page() {
        let mut machine = demo_machine();
        let samples: Vec<Sample> = (0..5).map(|_| machine.tick()).collect();
        let page = |samples| page(&machine.host, samples, TimeZone::UTC);
        let made = page(&samples).unwrap();
        assert!(made.starts_with("<!DOCTYPE html>") && made.contains("postgres"));
        assert!(made.contains("4 intervals of 1 s"));
        assert_eq!((page(&samples[..1]), page(&[])), (None, None));
    }
}
