//! What batch output asks of its source.

mod common;

use std::io::PipeReader;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use common::World;
use numatop_ng::batch::{Pace, run};
use numatop_ng::collect::placement::Process;
use numatop_ng::export::json::JsonLines;
use numatop_ng::export::{Selection, all_columns};
use numatop_ng::filter::RowFilter;
use numatop_ng::metric::task::by_id;
use numatop_ng::sample::{HostFacts, Sample};
use numatop_ng::snapshot::Grain;
use numatop_ng::source::{Focus, Source};

/// A world that remembers what it was asked to look at.
struct Asked {
    world: World,
    processes: Option<Vec<Process>>,
}

impl Source for Asked {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.world.host)
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        Ok(Some(self.world.tick()))
    }

    fn focus(&mut self, focus: Focus) {
        self.processes = focus.processes;
    }

    fn wait(&mut self, _due: Instant, _stop: RawFd) -> Result<bool> {
        Ok(false)
    }
}

/// What is asked of the source by output with such rows.
fn asked(filter: RowFilter) -> Option<Vec<u32>> {
    let (never, _keep): (PipeReader, _) = std::io::pipe().unwrap();
    let mut source = Asked { world: World::intel(), processes: None };
    let sort = by_id("cpu_pct").unwrap();
    let mut export = JsonLines::new(Selection {
        filter,
        columns: all_columns(),
        sort,
        reversed: false,
        asked: Default::default(),
    });
    let pace = Pace {
        interval: Duration::from_millis(1),
        iterations: Some(2),
        grain: Grain::Processes,
        hot: false,
        overhead: false,
    };
    run(&mut source, &mut export, &mut std::io::sink(), pace, never.as_raw_fd()).unwrap();
    Some(source.processes?.iter().map(|(pid, _)| *pid).collect())
}

#[test]
fn memory_of_the_rows_that_are_written_is_looked_at_first() {
    let filter = RowFilter { top: Some(2), ..RowFilter::default() };
    assert_eq!(asked(filter), Some(vec![4242, 9002]));
}

#[test]
fn output_of_all_rows_leaves_the_order_to_what_changed() {
    assert_eq!(asked(RowFilter::default()), None);
}

#[test]
fn output_without_rows_asks_for_nobody_instead_of_all() {
    let filter =
        RowFilter { comm: Some(regex_lite::Regex::new("^nobody$").unwrap()), ..RowFilter::default() };
    assert_eq!(asked(filter), Some(Vec::new()));
}
