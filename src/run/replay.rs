//! A recording as text, JSON or CSV: what batch mode would have written at the time.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::export::Export;
use crate::hot::profile::Profile;
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::snapshot::{RowKind, derive, derive_tasks};
use crate::source::recording::{Outlook, Recording};
use crate::source::{Source, poll};

/// How often a recording that is being written is looked at for more.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// Which part of a recording, and what of it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Wall clock, ns since 1970: intervals that end at or after the first and at or before the second.
    pub from_wall_ns: Option<i64>,
    pub to_wall_ns: Option<i64>,
    pub iterations: Option<u64>,
    /// Wait for more at the end.
    pub follow: bool,
    pub grain: RowKind,
}

/// Writes the interval between two samples. Returns false if the reader of the output has gone.
///
/// # Errors
/// The output cannot be written.
pub fn write_interval(
    export: &mut dyn Export,
    out: &mut dyn Write,
    host: &Arc<HostFacts>,
    previous: &Sample,
    current: &Sample,
    news: Option<StackBatch>,
    grain: RowKind,
) -> Result<bool> {
    let derive = if export.wants_containers() { derive } else { derive_tasks };
    let mut snapshot = derive(host, Some(previous), current, grain);
    snapshot.hot = news.map(|news| {
        let mut profile = Profile::default();
        profile.add(news);
        profile
    });
    match export.write(out, &snapshot) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("writing the output"),
    }
}

/// Writes the intervals of `part`, holding two samples at a time. Returns how many there were; ends early
/// when `stop` becomes readable or nobody reads the output any more. `tell` is called once for each thing that happens
/// to a file that is followed.
///
/// # Errors
/// The recording cannot be read, or the output cannot be written; nothing can come of what is followed any more.
pub fn run(
    recording: &mut Recording,
    export: &mut dyn Export,
    out: &mut dyn Write,
    part: Part,
    stop: BorrowedFd<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<u64> {
    if let Some(from) = part.from_wall_ns {
        // The sample right before the first interval is needed too.
        recording.seek(from.saturating_sub(1))?;
    }
    let mut previous: Option<Sample> = None;
    // Of samples that no interval ends with.
    let mut notes = Vec::new();
    let mut written = 0;
    let mut told = String::new();
    while part.iterations != Some(written) {
        if poll(&[stop], Instant::now()).context("looking for signals")?.is_some() {
            break;
        }
        let Some(mut current) = recording.next()? else {
            if !part.follow {
                break;
            }
            match recording.outlook() {
                Outlook::More => told.clear(),
                Outlook::Perhaps(what) if what != told => {
                    tell(&what);
                    told = what;
                }
                Outlook::Perhaps(_) => {}
                Outlook::Nothing(why) => {
                    out.flush().context("writing the output")?;
                    bail!(why);
                }
            }
            if recording.wait(Instant::now() + FOLLOW_EVERY, stop)? {
                break;
            }
            continue;
        };
        if part.to_wall_ns.is_some_and(|to| current.wall_ns > to) {
            break;
        }
        current.notes.splice(..0, notes.drain(..));
        let before = previous.take().filter(|_| recording.continues());
        if let Some(before) = before
            && part.from_wall_ns.is_none_or(|from| current.wall_ns >= from)
        {
            let news = current.hot.take().filter(|_| export.wants_hot()).map(Arc::unwrap_or_clone);
            written += 1;
            if !write_interval(export, out, &recording.host(), &before, &current, news, part.grain)? {
                break;
            }
        } else {
            notes.clone_from(&current.notes);
        }
        previous = Some(current);
    }
    Ok(written)
}
