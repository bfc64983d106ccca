//! Batch mode: one piece of output per interval, until the count is reached or a signal comes.
//!
//! Samples are taken on the calling thread, and written on another: a reader that is slow delays no sample.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::export::{Export, derive_for, derive_rows};
use crate::hot::profile::Profile;
use crate::model::process::Asked;
use crate::model::process::ProcessId;
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::overhead::{Statistics, costs};
use crate::program::pace::{Cause, Pacing};
use crate::program::progress;
use crate::program::systemd::{self, Watchdog};
use crate::record::recorder::Progress;
use crate::snapshot::RowKind;
use crate::source::live::since;
use crate::source::merge::Merger;
use crate::source::witness::Watch;
use crate::source::{Focus, Source};
use crate::text::plural;

/// The end and the pace of a run.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub interval: Duration,
    pub iterations: Option<u64>,
    pub counted: Counted,
    pub grain: RowKind,
    /// Hot spots too: the source samples stacks.
    pub hot: bool,
    /// Memory use too: the source samples it with a clock.
    pub access: bool,
    /// The cost of our own programs, too.
    pub overhead: bool,
    /// Findings where the format has them; without, to measure what they cost.
    pub findings: bool,
    /// Progress of the recording is shown on standard error, where that is a terminal.
    pub progress: bool,
}

/// The intervals that [`Pace::iterations`] counts. They differ where a reader is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Intervals of the output, however many samples are in one.
    Written,
    /// Intervals that samples end: a recording has each of them.
    Taken,
}

/// Maximum time for looking up functions at the end of an interval, or half of an interval if that is less
/// and another one follows. Slower ones have names in the next one.
const NAMES_PATIENCE: Duration = Duration::from_millis(500);

/// For the last interval they are looked up for this time: no later one could have their names. A signal is
/// still noticed within two seconds.
const LAST_NAMES_PATIENCE: Duration = Duration::from_millis(1500);

/// Intervals that wait for the reader of the output. Later ones become one, until it has taken some.
const WAITING: usize = 4;

/// An interval to be written.
struct Job {
    host: Arc<HostFacts>,
    previous: Arc<Sample>,
    current: Arc<Sample>,
    /// Notes of the sample that begins the first interval.
    opening: Vec<String>,
    news: Option<StackBatch>,
    statistics: Option<Statistics>,
}

/// Results of the writing thread for the measuring one.
#[derive(Default)]
struct Written {
    /// Jobs that were handed over and are not done.
    waiting: AtomicUsize,
    /// The processes of the rows written last, until they are taken.
    shown: Mutex<Option<Shown>>,
}

/// Processes whose fields are read first.
struct Shown {
    /// From [`Export::shown`].
    rows: Option<Vec<ProcessId>>,
    /// The ones for which a condition of a finding holds.
    suspects: Vec<ProcessId>,
}

/// Takes samples at each interval and writes the changes in between. The first output comes after the first
/// full interval. Returns the number of intervals when done, when `stop` becomes readable, or when the reader
/// of the output is gone. `out` should give up when `stop` is readable and its reader takes nothing.
///
/// # Errors
/// The source failed, or the output could not be written for another reason than a closed pipe.
pub fn run(
    source: &mut dyn Source,
    export: &mut (dyn Export + Send),
    out: &mut (dyn Write + Send),
    pace: Pace,
    stop: BorrowedFd<'_>,
) -> Result<u64> {
    let asked = export.asked();
    source.focus(Focus { asked, ..Focus::default() });
    let watch = Watch::new();
    let mut pacing = Pacing::new(Instant::now(), pace.interval, watch.look());
    let Some(mut first) = source.next()? else { return Ok(0) };
    let sampled = Instant::now();
    if pace.hot {
        source.set_hot(true)?;
    }
    if pace.access {
        source.set_access(true)?;
    }
    if pace.overhead {
        source.set_statistics(true)?;
    }
    pacing.spent(Cause::Setup, sampled.elapsed());
    let statistics = source.statistics()?;
    systemd::ready("measuring");
    // Nothing is written for the first sample: its notes are shown with the first interval.
    let opening = std::mem::take(&mut first.notes);
    let written = Written::default();
    let taken = thread::scope(|scope| {
        let (jobs, received) = channel();
        let writer = thread::Builder::new().name("output".into());
        let written = &written;
        let writer = writer
            .spawn_scoped(scope, move || write(export, out, pace, statistics, &received, written))
            .context("starting the thread that writes the output")?;
        let shared = Shared { jobs, written, closed: &|| writer.is_finished(), asked };
        let measured = measure(source, pace, (pacing, watch), stop, (first, opening), &shared);
        systemd::stopping();
        // The writer ends when it has done its jobs.
        drop(shared);
        let output =
            writer.join().map_err(|_| anyhow!("the thread that writes the output panicked; this is a bug"));
        let taken = measured?;
        output?.map(|()| taken)
    })?;
    focus(source, &written, asked);
    Ok(taken)
}

/// The measuring thread's side of the writer.
struct Shared<'a> {
    jobs: Sender<Job>,
    written: &'a Written,
    closed: &'a dyn Fn() -> bool,
    asked: Asked,
}

/// Takes samples until the run ends. The first one and its notes are given.
fn measure(
    source: &mut dyn Source,
    pace: Pace,
    (mut pacing, watch): (Pacing, Watch),
    stop: BorrowedFd<'_>,
    (first, mut opening): (Sample, Vec<String>),
    shared: &Shared<'_>,
) -> Result<u64> {
    let mut previous = Arc::new(first);
    let mut merger = Merger::default();
    // Samples that the reader has no room for, as the newest of them, and how many they are.
    let mut held: Option<(Sample, u64)> = None;
    let mut news: Option<StackBatch> = None;
    let mut left = pace.iterations;
    let mut watchdog = Watchdog::new();
    let mut taken = 0u64;
    let mut line = pace.progress.then(|| progress::Progress::new("recording"));
    let hand_over = |previous: &Arc<Sample>, current: Sample, opening, news, statistics, host| {
        let current = Arc::new(current);
        let job = Job { host, previous: Arc::clone(previous), current, opening, news, statistics };
        let current = Arc::clone(&job.current);
        shared.written.waiting.fetch_add(1, Ordering::SeqCst);
        // The writer ends first only if the reader is gone, or it failed.
        shared.jobs.send(job).is_ok().then_some(current)
    };
    while left != Some(0) {
        if watchdog.wait(pacing.due(), |due| source.wait(due, stop))? {
            break;
        }
        if (shared.closed)() {
            return Ok(taken);
        }
        focus(source, shared.written, shared.asked);
        let due = Instant::now();
        source.prepare()?;
        pacing.spent(Cause::Preparing, due.elapsed());
        let now = Instant::now();
        for word in pacing.taken(now, watch.look_when(pacing.is_late(now), pacing.seen())) {
            source.note(word);
        }
        let Some(mut current) = source.next()? else { break };
        pacing.sampled(Instant::now() - since(current.mono_ns).min(now.elapsed()));
        pacing.spent(Cause::Sampling, now.elapsed());
        taken += 1;
        watchdog.beat(|| status(taken, source.recording()));
        if let Some(line) = &mut line {
            line.say(|| status(taken, source.recording()).trim_end_matches(" recorded").to_owned());
        }
        let asked = Instant::now();
        let patience =
            if left == Some(1) { LAST_NAMES_PATIENCE } else { NAMES_PATIENCE.min(pace.interval / 2) };
        if let Some(later) = source.hot_news(patience)? {
            match &mut news {
                Some(news) => merger.merge_news(news, later),
                None => news = Some(later),
            }
        }
        pacing.spent(Cause::Names, asked.elapsed());
        let statistics = source.statistics()?;
        let behind = held.take().map_or(0, |(earlier, samples)| {
            merger.merge(earlier, &mut current);
            samples
        });
        if shared.written.waiting.load(Ordering::SeqCst) >= WAITING {
            held = Some((current, behind + 1));
            if pace.counted == Counted::Taken {
                left = left.map(|left| left - 1);
            }
            continue;
        }
        say_behind(&mut current, behind);
        merger.count_losses(&mut current);
        if let Some(news) = &mut news {
            merger.count_lost_stacks(news);
        }
        let opening = std::mem::take(&mut opening);
        match hand_over(&previous, current, opening, news.take(), statistics, source.host()) {
            Some(current) => previous = current,
            None => return Ok(taken),
        }
        left = left.map(|left| left - 1);
    }
    if let Some((mut current, samples)) = held {
        // A reader that continues in time gets them.
        say_behind(&mut current, samples - 1);
        merger.count_losses(&mut current);
        hand_over(&previous, current, opening, news, None, source.host());
    }
    Ok(taken)
}

/// The state of the run for the service manager.
fn status(taken: u64, recording: Option<Progress>) -> String {
    let intervals = plural(usize::try_from(taken).unwrap_or(usize::MAX), "interval");
    match recording {
        None => intervals,
        Some(Progress { waiting, .. }) if waiting > 0 => {
            format!("{intervals}; recording paused, {} waiting", plural(waiting as usize, "sample"))
        }
        Some(Progress { bytes, .. }) => format!("{intervals}, {} recorded", size(bytes)),
    }
}

/// `128 kB`, `1.3 MB`: bytes as disks have them.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Adds to the notes of a sample that it covers `behind` earlier ones.
fn say_behind(sample: &mut Sample, behind: u64) {
    if behind > 0 {
        sample.notes.push(format!(
            "an interval is longer than requested: the reader of the output was too slow; {} samples were \
             merged into one interval",
            behind + 1
        ));
    }
}

/// Makes the source look first at the rows written last.
fn focus(source: &mut dyn Source, written: &Written, asked: Asked) {
    let taken = written.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Shown { rows, suspects }) = taken {
        source.focus(Focus { processes: rows, suspects, asked, ..Focus::default() });
    }
}

/// Writes the jobs it gets, until the input ends or the reader is gone.
fn write(
    export: &mut (dyn Export + Send),
    out: &mut (dyn Write + Send),
    pace: Pace,
    mut statistics: Option<Statistics>,
    jobs: &Receiver<Job>,
    written: &Written,
) -> Result<()> {
    let mut profile = Profile::default();
    for job in jobs {
        let mut snapshot = if pace.findings {
            derive_for(export, &job.host, &job.previous, &job.current, pace.grain)
        } else {
            derive_rows(export.wants_containers(), &job.host, &job.previous, &job.current, pace.grain)
        };
        drop((job.previous, job.current));
        snapshot.notes.splice(..0, job.opening);
        if let Some(news) = job.news {
            profile.restart();
            profile.add(news);
            snapshot.hot = Some(std::mem::take(&mut profile));
        }
        if let Some(now) = job.statistics {
            snapshot.overhead = statistics.as_ref().map(|before| costs(before, &now));
            statistics = Some(now);
        }
        match export.write(out, &snapshot) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            done => done.context("writing the output")?,
        }
        let rows = export.shown().map(<[_]>::to_vec);
        let suspects = export.engine().map(|engine| engine.suspects()).unwrap_or_default();
        *written.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(Shown { rows, suspects });
        profile = snapshot.hot.take().unwrap_or_default();
        written.waiting.fetch_sub(1, Ordering::SeqCst);
    }
    Ok(())
}
