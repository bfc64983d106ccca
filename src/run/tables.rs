//! Writing tables of recordings as Parquet files: each recording is read once, by a few threads, in memory that does not grow.

mod files;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::files::{Counts, Files, Of, Parts, WantedPart};
use super::pipeline::ahead;
use super::replay::{Read, blame, nothing_there};
use super::{ran, stop_signals};
use crate::cli::ExportArgs;
use crate::error::chain;
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::options::{self, Layout, Tables};
use crate::program::{output, signals};
use crate::record::reader::{Found, Reader};
use crate::snapshot::{RowKind, Snapshot, derive, derive_both, derive_tasks};
use crate::source::recording::{Recording, files_of};
use crate::source::{Source, poll};
use crate::tables::{Fold, Gap, Losses, Table};
use crate::text::{clean_str, one_line, plural};

/// Samples, and intervals, that are handed to the next thread at a time.
const READ_AHEAD: usize = 4;
const DERIVED_AHEAD: usize = 1;

/// The recordings of one host; or of one boot, if each boot has a file.
struct Host {
    /// Clean.
    name: String,
    boot_id: String,
    /// The version that recorded the first of them. Clean.
    version: String,
    files: Vec<PathBuf>,
    /// When the first file begins that is still being recorded, ns since 1970.
    recorded_from: Option<i64>,
}

pub(super) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let choices = options::tables(args)?;
    let is_flat = choices.layout == Layout::Flat;
    let (hosts, recorded) = hosts(&args.path, is_flat)?;
    if is_flat && hosts.len() > 1 {
        let names: Vec<String> = hosts.into_iter().map(|host| host.name).collect();
        return Err(options::several_hosts_in_a_file(&names).into());
    }
    let stop = stop_signals()?;
    let mut counts = Counts::default();
    let mut span = None::<(i64, i64)>;
    for host in &hosts {
        if host.files.is_empty() || signals::ended_by().is_some() {
            continue;
        }
        let mut recording = Recording::of_files(&args.path, host.files.clone())?;
        let own = recording.span().unwrap_or_default();
        span = Some(span.map_or(own, |span| (span.0.min(own.0), span.1.max(own.1))));
        let between = options::stretch(args.from.as_deref(), args.to.as_deref(), own);
        let between = between.map_err(|error| blame(&args.path, error))?;
        export(&mut recording, (host, &choices, args.path.is_dir()), between, stop, &mut counts)?;
    }
    if signals::ended_by().is_some() {
        return Ok(ran());
    }
    if counts == Counts::default() && recorded == 0 {
        return Ok(nothing_there(&args.path, span.unwrap_or_default()));
    }
    output::message(summary(&choices.out, &counts, recorded));
    Ok(ExitCode::SUCCESS)
}

fn summary(out: &Path, counts: &Counts, recorded: usize) -> String {
    let mut text = format!("numatop-ng: {} written to {}", plural(counts.written, "file"), out.display());
    if counts.left > 0 {
        text += &format!("; {} already present, unchanged", plural(counts.left, "file"));
    }
    if recorded > 0 {
        text += &format!("; {} still being recorded, left for a later export", plural(recorded, "recording"));
    }
    text
}

/// The hosts of the recordings in the order of their first ones; `boots_together` joins all boots of a host.
/// Also the number of files that are still being recorded, which are excluded.
///
/// # Errors
/// A directory cannot be read, or the only file cannot be used.
fn hosts(path: &Path, boots_together: bool) -> Result<(Vec<Host>, usize)> {
    let files = files_of(path)?;
    let (mut hosts, mut recorded) = (Vec::<Host>::new(), 0);
    let alone = files.len() == 1;
    for file in files {
        let reader = match Reader::open(&file) {
            Err(error) if alone => return Err(error),
            Err(error) => {
                output::message(format!("numatop-ng: omitted: {}", one_line(&chain(&error))));
                continue;
            }
            Ok(reader) => reader,
        };
        let head = reader.first_head();
        let name = clean_str(&head.head.host.hostname);
        let boot_id = head.head.host.boot_id.clone();
        let is_same = |host: &Host| host.name == name && (boots_together || host.boot_id == boot_id);
        let at = hosts.iter().position(is_same).unwrap_or_else(|| {
            let version = clean_str(&head.head.writer);
            hosts.push(Host { name, boot_id, version, files: Vec::new(), recorded_from: None });
            hosts.len() - 1
        });
        let host = &mut hosts[at];
        if reader.is_being_written() {
            recorded += 1;
            let begins = match reader.at(0)? {
                Found::Frame(frame) => frame.head.wall_ns,
                _ => i64::MAX,
            };
            host.recorded_from = Some(host.recorded_from.map_or(begins, |from| from.min(begins)));
        } else {
            host.files.push(file);
        }
    }
    Ok((hosts, recorded))
}

/// A sample, and the part that it is in where that is to be written.
struct Item {
    part: Option<Arc<WantedPart>>,
    read: Read,
}

/// The same, derived.
enum Step {
    Interval {
        snapshot: Box<Snapshot>,
        processes: Option<Box<Snapshot>>,
        losses: Vec<(String, u64)>,
        gap: Option<Gap>,
        hot: Option<Arc<StackBatch>>,
    },
    Begin {
        host: Arc<HostFacts>,
        wall_ns: i64,
        gap: Option<Gap>,
    },
}

/// Writes the files of one host that are not there yet.
fn export(
    recording: &mut Recording,
    (host, choices, of_ring): (&Host, &Tables, bool),
    between: (Option<i64>, Option<i64>),
    stop: BorrowedFd<'_>,
    counts: &mut Counts,
) -> Result<()> {
    let mut files: Option<Files> = None;
    let mut written = 0;
    let mut parts = Parts::new(host, choices, of_ring);
    let mut deriving = Deriving { previous: None, tables: &choices.tables, threads: choices.threads };
    let done = ahead(
        DERIVED_AHEAD,
        |give| {
            ahead(
                READ_AHEAD,
                |give| read(recording, &mut parts, between, give),
                |item: Item| {
                    if let Some((part, step)) = deriving.step(item) {
                        ensure!(give((part, step)), "the export was cancelled");
                    }
                    Ok(true)
                },
            )
        },
        |(part, step): (Arc<WantedPart>, Step)| {
            if poll(&[stop], Instant::now()).context("waiting for a signal")?.is_some() {
                return Ok(false);
            }
            if files.as_ref().is_none_or(|files| !Arc::ptr_eq(files.part(), &part)) {
                written += files.take().map_or(Ok(0), Files::finish)?;
            }
            let files = match &mut files {
                Some(files) => files,
                None => files.insert(Files::new(part, &host.version, choices)?),
            };
            files.take(|fold| take(fold, step))?;
            Ok(true)
        },
    );
    // Files that are not whole go with `files`.
    done?;
    if signals::ended_by().is_none() {
        written += files.take().map_or(Ok(0), Files::finish)?;
    }
    counts.left += parts.left();
    counts.written += written;
    Ok(())
}

fn take(fold: &mut Fold, step: Step) {
    match step {
        Step::Interval { snapshot, processes, losses, gap, hot } => {
            fold.take(*snapshot, processes.as_deref(), losses, gap, hot.as_deref());
        }
        Step::Begin { host, wall_ns, gap } => fold.begin(&host, wall_ns, gap),
    }
}

/// Passes on the samples of a recording, and skips parts whose files exist.
fn read(
    recording: &mut Recording,
    parts: &mut Parts<'_>,
    (from, to): (Option<i64>, Option<i64>),
    give: &mut dyn FnMut(Item) -> bool,
) -> Result<()> {
    if let Some(from) = from {
        recording.seek(from.saturating_sub(1))?;
    }
    while let Some(sample) = recording.next()?
        && to.is_none_or(|to| sample.wall_ns <= to)
    {
        let is_wanted = from.is_none_or(|from| sample.wall_ns >= from);
        let (host, wall_ns) = (recording.host(), sample.wall_ns);
        let part = match is_wanted.then(|| parts.of(&host, wall_ns)).transpose()? {
            None | Some(Of::Left) => None,
            Some(Of::Wanted(part)) => Some(part),
            Some(Of::LeftFrom { end_ns }) => {
                // The next sample is the last before its end, or one behind it.
                recording.seek(end_ns.saturating_sub(1))?;
                continue;
            }
            Some(Of::Later) => break,
        };
        let (goes_on, is_interrupted) = (recording.continues(), recording.is_interrupted());
        if !give(Item { part, read: Read { host, sample, goes_on, is_interrupted } }) {
            break;
        }
    }
    Ok(())
}

/// From samples to intervals, and the sample before.
struct Deriving<'a> {
    previous: Option<Sample>,
    tables: &'a [Table],
    threads: bool,
}

impl Deriving<'_> {
    /// The interval that a sample ends, or that one begins; `None` where neither is wanted.
    fn step(&mut self, Item { part, read }: Item) -> Option<(Arc<WantedPart>, Step)> {
        let Read { host, mut sample, goes_on, is_interrupted } = read;
        let hot = sample.hot.take();
        let step = part.map(|part| (part, self.derive(&host, &sample, (goes_on, is_interrupted), hot)));
        self.previous = Some(sample);
        step
    }

    fn derive(
        &self,
        host: &Arc<HostFacts>,
        sample: &Sample,
        (goes_on, is_interrupted): (bool, bool),
        hot: Option<Arc<StackBatch>>,
    ) -> Step {
        let gap = |ns| Gap { why: reasons(sample), ns };
        let Some(before) = self.previous.as_ref().filter(|_| goes_on) else {
            let wall_ns = sample.wall_ns;
            let length = self.previous.as_ref().map(|before| wall_ns.saturating_sub(before.wall_ns).max(0));
            return Step::Begin { host: Arc::clone(host), wall_ns, gap: length.map(|ns| gap(ns as u64)) };
        };
        let containers = Fold::wants_containers(self.tables);
        let wants_findings = self.tables.contains(&Table::Findings);
        let (snapshot, processes) = match (self.threads, wants_findings) {
            (true, true) => {
                let (threads, processes) = derive_both(host, Some(before), sample, containers);
                (threads, Some(Box::new(processes)))
            }
            (true, false) => (rows(host, before, sample, RowKind::Threads, containers), None),
            (false, _) => (rows(host, before, sample, RowKind::Processes, containers), None),
        };
        let losses = Losses::of(sample).since(&Losses::of(before));
        let ns = snapshot.interval_ns.unwrap_or(0);
        Step::Interval {
            snapshot: Box::new(snapshot),
            processes,
            losses,
            gap: is_interrupted.then(|| gap(ns)),
            hot,
        }
    }
}

fn rows(
    host: &Arc<HostFacts>,
    before: &Sample,
    sample: &Sample,
    grain: RowKind,
    containers: bool,
) -> Snapshot {
    match containers {
        true => derive(host, Some(before), sample, grain),
        false => derive_tasks(host, Some(before), sample, grain),
    }
}

/// The reasons that a recording has for a gap.
fn reasons(sample: &Sample) -> String {
    let reasons: Vec<String> = sample.notes.iter().map(|note| one_line(note)).collect();
    reasons.join("; ")
}
