//! A page about the samples that are kept. Pure.

use jiff::tz::TimeZone;

use super::KeptSamples;
use crate::report::Options;
use crate::report::clock::Clock;
use crate::report::fold::{Fold, Interval};
use crate::report::page::{View, render};
use crate::snapshot::{RowKind, derive};

/// The page, with times of this zone; `None` before the first interval.
pub fn page(kept: KeptSamples, zone: TimeZone) -> Option<String> {
    let KeptSamples { host, wall_ns, mut samples } = kept;
    let span = (*wall_ns.first()?, *wall_ns.last()?);
    let mut lengths: Vec<i64> = wall_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    lengths.sort_unstable();
    let interval_ns = lengths.get(lengths.len() / 2).copied()?;
    let mut fold = Fold::new(Options::default(), span, interval_ns, &host)?;
    let mut previous = samples.next()?;
    fold.begin(previous.lost.clone(), previous.exit_lost_ns.iter().sum());
    for sample in samples {
        let snapshot = derive(&host, Some(&previous), &sample, RowKind::Processes);
        fold.take(Interval { snapshot: &snapshot, is_interrupted: false, hot: None });
        previous = sample;
    }
    let report = fold.finish()?;
    let clock = Clock::new(zone, report.span, report.grid.width_ns);
    Some(render(&View { report: &report, clock: &clock, command: String::new() }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source::synthetic::demo_machine;
    use crate::tui::history::{History, Want};

    #[test]
    fn samples_that_are_kept_become_a_page() {
        let mut machine = demo_machine();
        let mut history = History::new(Want::default());
        let mut page_after = |samples: u64| {
            for _ in 0..samples {
                history.sample(Arc::clone(&machine.host), machine.tick(), 1);
                history.tidy();
            }
            page(history.kept().unwrap(), TimeZone::UTC)
        };
        assert_eq!(page_after(1), None);
        let made = page_after(4).unwrap();
        assert!(made.starts_with("<!DOCTYPE html>") && made.contains("postgres"));
        assert!(made.contains("4 intervals of 1 s"));
        assert!(page_after(200).unwrap().contains("204 intervals of 1 s"), "most of them were packed");
    }
}
