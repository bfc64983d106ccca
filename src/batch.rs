//! Batch mode: one piece of output per interval, until the count is reached or a signal comes.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::export::Export;
use crate::hot::profile::Profile;
use crate::overhead::costs;
use crate::snapshot::{Grain, derive, derive_tasks};
use crate::source::{Focus, Source};

/// What ends and paces a run.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub interval: Duration,
    pub iterations: Option<u64>,
    pub grain: Grain,
    /// Hot spots too: the source samples stacks.
    pub hot: bool,
    /// What our own programs cost too.
    pub overhead: bool,
}

/// Functions are looked up for so long at the end of an interval; those that take longer have names in the next one.
const NAMES_PATIENCE: Duration = Duration::from_secs(10);

/// Takes samples at each interval and writes what happened in between. The first output comes after
/// the first full interval. Returns when done, when `stop` becomes readable, or when nobody reads
/// the output any more.
///
/// # Errors
/// The source failed, or the output could not be written for another reason than a closed pipe.
pub fn run(
    source: &mut dyn Source,
    export: &mut dyn Export,
    out: &mut dyn Write,
    pace: Pace,
    stop: RawFd,
) -> Result<()> {
    let asked = export.asked();
    source.focus(Focus { asked, ..Focus::default() });
    let Some(mut previous) = source.next()? else { return Ok(()) };
    let mut profile = Profile::default();
    if pace.hot {
        source.set_hot(true)?;
    }
    if pace.overhead {
        source.set_statistics(true)?;
    }
    let mut statistics = source.statistics()?;
    // Nothing is written for the first sample: what it notes is said with the first interval.
    let mut opening = std::mem::take(&mut previous.notes);
    let mut due = Instant::now() + pace.interval;
    let mut left = pace.iterations;
    while left != Some(0) {
        if source.wait(due, stop)? {
            return Ok(());
        }
        // Intervals start on a grid, so that they do not drift; one that was missed is not made up for.
        due = (due + pace.interval).max(Instant::now());
        let Some(current) = source.next()? else { return Ok(()) };
        let derive = if export.wants_containers() { derive } else { derive_tasks };
        let mut snapshot = derive(&source.host(), Some(&previous), &current, pace.grain);
        snapshot.notes.splice(..0, opening.drain(..));
        if let Some(news) = source.hot_news(NAMES_PATIENCE)? {
            profile.restart();
            profile.add(news);
            snapshot.hot = Some(std::mem::take(&mut profile));
        }
        if let Some(now) = source.statistics()? {
            snapshot.overhead = statistics.as_ref().map(|before| costs(before, &now));
            statistics = Some(now);
        }
        match export.write(out, &snapshot) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("writing the output")?,
        }
        source.focus(Focus { processes: export.shown().map(<[_]>::to_vec), groups: Vec::new(), asked });
        profile = snapshot.hot.take().unwrap_or_default();
        previous = current;
        left = left.map(|left| left - 1);
    }
    Ok(())
}
