//! The process that measures: it takes jobs from standard input, and ends when that does. It is the first to be killed where
//! memory is short. A load is counted by the thread that does it: two lengths in turns, so that what both have in
//! common cancels.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::job::{Answer, Count, Counts, Job, Limits, Walk};
use super::stats::median;
use crate::known::asm::{Cycle, Work, work};
use crate::known::chase::{self, GROUP, Shape};
use crate::known::counted::{Load, Ready};
use crate::known::idle::Usage;
use crate::known::pages::{self, Placed};
use crate::known::pair::{self, Task, Way};
use crate::known::step::StepRunner;
use crate::known::stream::{self, Stream};
use crate::model::event::Mode;
use crate::model::sample::Missing;
use crate::pmu::open::OwnCount;
use crate::sys;

/// The name under which the tool starts itself to measure.
pub const NAME: &str = "numatop-ng-known-load";

/// The word with which it runs after all others.
pub const ASIDE: &str = "aside";

/// The word with the seconds after which it ends in any case.
pub const LIMIT: &str = "limit=";

/// The exit code when they are over.
pub const TIME_UP: i32 = 124;

/// The name of the process and its threads.
const THREAD: &std::ffi::CStr = c"known-load";

/// Orders of walks are the same in every run.
const SEED: u64 = 21;

/// Does jobs until the input ends.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(THREAD);
    // The end of the pipe is read between two jobs; this ends us in the middle of one.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // Memory that we fill is given back when we are killed.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if std::env::args_os().any(|word| word == ASIDE) {
        sys::stand_back();
    }
    let seconds = std::env::args().find_map(|word| word.strip_prefix(LIMIT)?.parse::<f64>().ok());
    if let Some(limit) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        // The parent may be stopped or hang while the machine is still loaded.
        thread::spawn(move || {
            thread::sleep(limit);
            std::process::exit(TIME_UP);
        });
    }
    let mut worker = Worker::default();
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line).is_ok_and(|read| read == 0) {
            return ExitCode::SUCCESS;
        }
        let answer = match serde_json::from_str(&line) {
            Ok(job) => worker.answer(&job),
            Err(error) => Answer::Failed { why: format!("the measurement job cannot be parsed: {error}") },
        };
        let Ok(mut text) = serde_json::to_vec(&answer) else { return ExitCode::FAILURE };
        text.push(b'\n');
        if output.write_all(&text).and_then(|()| output.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
}

/// A walk, and the node that it is to be on.
struct Walked {
    cycle: Cycle,
    node: u32,
}

impl Walked {
    fn on_node(&self) -> f64 {
        share(&pages::nodes_of(self.cycle.region()), self.node)
    }
}

pub(super) fn share(nodes: &io::Result<Vec<i32>>, node: u32) -> f64 {
    match nodes {
        Ok(nodes) => {
            nodes.iter().filter(|found| **found == node as i32).count() as f64 / nodes.len().max(1) as f64
        }
        // A kernel without nodes has all memory in one place.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => 1.0,
        Err(_) => 0.0,
    }
}

/// Memory that jobs share.
#[derive(Default)]
struct Worker {
    walks: BTreeMap<(Walk, u32), Walked>,
    streams: BTreeMap<u32, Placed>,
    doer: StepRunner,
}

type Done = Result<Answer, String>;

impl Worker {
    fn answer(&mut self, job: &Job) -> Answer {
        let done = match job {
            Job::Walk { .. } => self.walk(job),
            Job::Streams { node, bytes, cpu, limits } => self.streams(*node, *bytes, *cpu, limits),
            Job::Forget { walk: None } => {
                self.streams.clear();
                Ok(Answer::Done)
            }
            Job::Forget { walk: Some(walk) } => {
                self.walks.retain(|(kind, _), _| kind != walk);
                Ok(Answer::Done)
            }
            Job::Warm { cpu, ms } => warm(*cpu, Duration::from_millis((*ms).into())),
            Job::Latency { .. } => self.latency(job),
            Job::Bandwidth { kind, node, cpus, windows, ms } => {
                let window = Duration::from_millis((*ms).into());
                self.bandwidth(*kind, *node, cpus, *windows as usize, window)
            }
            Job::Line { first, second, two_lines, ms } => {
                let way = if *two_lines { Way::TwoLines } else { Way::Exchange };
                let times = pair::line_ns(*first, *second, way, Duration::from_millis((*ms).into()));
                times
                    .map(|ns| Answer::Times { ns })
                    .ok_or_else(|| format!("CPUs {first} and {second} did not run at the same time"))
            }
            Job::EachPage { node, bytes, cpu, limits } => self::each_page(*node, *bytes, *cpu, limits),
            Job::Do(deed) => self.doer.act(deed).map(Answer::Did),
            Job::Rates { .. } => rates(job),
            Job::Count(count) => count_load(count).map(Answer::Counted),
        };
        done.unwrap_or_else(|why| Answer::Failed { why })
    }

    fn walk(&mut self, job: &Job) -> Done {
        let Job::Walk { walk, node, bytes, cpu, orders, limits } = job else {
            return Err("a walk with this number does not exist".into());
        };
        let (walk, node, bytes, cpu) = (*walk, *node, *bytes, *cpu);
        self.walks.remove(&(walk, node));
        let huge = walk != Walk::SmallPages;
        let placed = placed(node, bytes, cpu, huge, limits)?;
        let (huge_share, on_node) = (placed.huge_share, share(&pages::nodes_of(&placed.region), node));
        let got_huge = huge && huge_share.is_none_or(|share| share > 0.9);
        let mut shape = Shape::of(limits.line_bytes as usize, got_huge);
        if walk == Walk::SmallPages {
            shape.group = placed.region.bytes();
        }
        shape.orders = *orders as usize;
        let cycle =
            chase::cycle(placed.region, shape, SEED).ok_or("the memory is too small for a pointer walk")?;
        self.walks.insert((walk, node), Walked { cycle, node });
        Ok(Answer::Memory { huge_share, on_node })
    }

    fn streams(&mut self, node: u32, bytes: u64, cpu: u32, limits: &Limits) -> Done {
        self.streams.remove(&node);
        let placed = placed(node, bytes, cpu, true, limits)?;
        let (huge_share, on_node) = (placed.huge_share, share(&pages::nodes_of(&placed.region), node));
        self.streams.insert(node, placed);
        Ok(Answer::Memory { huge_share, on_node })
    }

    fn latency(&mut self, job: &Job) -> Done {
        let Job::Latency { walk, node, cpu, ms, awake, traffic, traffic_node } = job else {
            return Err("a walk with this number does not exist".into());
        };
        let walked = self.walks.get_mut(&(*walk, *node)).ok_or("the pointer walk got no memory")?;
        let time = Duration::from_millis((*ms).into());
        let before = walked.on_node();
        let stop = AtomicBool::new(false);
        let mut memory = self.streams.get_mut(traffic_node).filter(|_| !traffic.is_empty());
        let (round, gbs) = thread::scope(|scope| {
            if let Some(awake) = awake {
                scope.spawn(|| {
                    while sys::run_on(&[*awake]).is_ok() && !stop.load(Ordering::Relaxed) {
                        work(Work::Loop, 100_000);
                    }
                });
            }
            let streaming = memory.as_mut().map(|memory| {
                let words = memory.region.words_mut();
                let window = time + time / 2;
                scope.spawn(move || stream::measure(Stream::Read, traffic, words, 1, window))
            });
            // Streams begin before the walk does, and end after it.
            if streaming.is_some() {
                thread::sleep(Duration::from_millis(20));
            }
            let round = sys::run_on(&[*cpu])
                .map_err(|error| format!("CPU {cpu}: {error}"))
                .map(|()| chase::measure(&mut walked.cycle, *walk == Walk::Flushed, time));
            stop.store(true, Ordering::Relaxed);
            let speeds = streaming.map_or(Ok(Vec::new()), |thread| {
                thread.join().unwrap_or_else(|_| Err("a measuring thread ended early".into()))
            });
            let gbs = speeds.map(|speeds| median(&speeds).unwrap_or(0.0));
            round.and_then(|round| gbs.map(|gbs| (round, gbs)))
        })?;
        Ok(Answer::Round { round, on_node: before.min(walked.on_node()), traffic_gbs: gbs })
    }

    fn bandwidth(&mut self, kind: Stream, node: u32, cpus: &[u32], windows: usize, window: Duration) -> Done {
        let placed = self.streams.get_mut(&node).ok_or("the bandwidth test got no memory")?;
        let gbs = stream::measure(kind, cpus, placed.region.words_mut(), windows, window)?;
        Ok(Answer::Speeds { gbs, on_node: share(&pages::nodes_of(&placed.region), node) })
    }
}

/// Memory on a node, touched from a CPU; ends before the node is short of memory.
pub(super) fn placed(node: u32, bytes: u64, cpu: u32, huge: bool, limits: &Limits) -> Result<Placed, String> {
    sys::run_on(&[cpu]).map_err(|error| format!("CPU {cpu}: {error}"))?;
    let page = rustix::param::page_size() as u64;
    let room = || {
        let usage = Usage::read(Path::new("/"), &[]);
        match usage.nodes.get(&node) {
            Some(room) if room.free * page < limits.keep_bytes => {
                Err(format!("node {node} has only {} MiB of free memory", (room.free * page) >> 20))
            }
            _ => Ok(()),
        }
    };
    let has_nodes = Path::new("/sys/devices/system/node").exists();
    pages::on_node(bytes as usize, has_nodes.then_some(node), huge, room).map_err(|error| error.to_string())
}

fn warm(cpu: u32, time: Duration) -> Done {
    sys::run_on(&[cpu]).map_err(|error| format!("CPU {cpu}: {error}"))?;
    let begin = Instant::now();
    while begin.elapsed() < time {
        work(Work::Additions, 10_000);
    }
    Ok(Answer::Done)
}

/// Latency of each huge page, the least of five passes. All of them are held at the same time: a page that is given back is
/// the next one that the kernel gives.
fn each_page(node: u32, bytes: u64, cpu: u32, limits: &Limits) -> Done {
    const PASSES: u32 = 5;
    let placed = placed(node, bytes, cpu, true, limits)?;
    if placed.huge_share.is_none_or(|share| share < 0.9) {
        return Err("huge pages are missing, and a small page is too small for a pointer walk".into());
    }
    let shape = Shape::of(limits.line_bytes as usize, true);
    let loads = shape.lines(GROUP) as u64;
    let mut cycle =
        chase::cycle(placed.region, shape, SEED).ok_or("a page is too small for a pointer walk")?;
    let ns = chase::each_group(&mut cycle, loads, PASSES);
    match ns.is_empty() {
        true => Err("other tasks ran on the CPU in every round".into()),
        false => Ok(Answer::Times { ns }),
    }
}

fn rates(job: &Job) -> Done {
    let Job::Rates { load, cpus, node, bytes, ms, limits } = job else {
        return Err("a load with this name does not exist".into());
    };
    let mut tasks = Vec::new();
    for (seed, cpu) in (SEED..).zip(cpus) {
        let task = match load.work() {
            Some(kind) => Task::Loop(kind),
            None => {
                let placed = placed(*node, *bytes, *cpu, true, limits)?;
                let huge = placed.huge_share.is_none_or(|share| share > 0.9);
                let shape = Shape::of(limits.line_bytes as usize, huge);
                Task::Walk(chase::cycle(placed.region, shape, seed).ok_or("no walk")?)
            }
        };
        tasks.push((*cpu, task));
    }
    let rates = pair::rates(&mut tasks, Duration::from_millis((*ms).into()))?;
    Ok(Answer::Rates { rates })
}

/// Counts a load.
///
/// # Errors
/// The load cannot be done, or the event cannot be opened; in words.
pub(super) fn count_load(count: &Count) -> Result<Counts, String> {
    let told = |missing: Missing| missing.to_string();
    // Elsewhere an event of some CPUs would wait for them, and seem to take turns.
    if count.event.cpus.is_some() {
        sys::run_on(&[count.cpu]).map_err(|error| format!("CPU {}: {error}", count.cpu))?;
    }
    // Before anything else, because the tool counts the whole job as well.
    let all = count.all.then(|| OwnCount::open(&count.event, Mode::Both)).transpose().map_err(told)?;
    let mut ready = ready(count)?;
    sys::run_on(&[count.cpu]).map_err(|error| format!("CPU {}: {error}", count.cpu))?;
    let rounds = count.load.rounds();
    // Pages, predictors and caches are as they will be.
    ready.run(rounds)?;
    let mut counts = Counts { amount: ready.amount(rounds), running: 1.0, ..Counts::default() };
    for _ in 0..count.repeats {
        if count.all {
            ready.run(3 * rounds)?;
            continue;
        }
        let once = run(count, &mut ready, rounds, &mut counts.running)?;
        let twice = run(count, &mut ready, 2 * rounds, &mut counts.running)?;
        let difference = |at: usize| twice[at] as i64 - once[at] as i64;
        counts.user.push(difference(0));
        counts.kernel.push(difference(1));
        if count.whole.is_some() {
            counts.whole.push(difference(2));
        }
    }
    counts.on_node = match ready.region() {
        Some(region) if count.load.has_node() => share(&pages::nodes_of(region), count.node),
        _ => 1.0,
    };
    if let Some(all) = all {
        let (count, running) = all.read().map_err(told)?;
        counts.all = Some(count);
        counts.running = counts.running.min(running);
    }
    Ok(counts)
}

fn ready(count: &Count) -> Result<Ready, String> {
    let (load, limits) = (count.load, &count.limits);
    let (mut region, mut huge) = (None, false);
    if load.bytes() > 0 {
        let placed = placed(count.node, load.bytes(), count.touched_by, true, limits)?;
        huge = placed.huge_share.is_none_or(|share| share > 0.9);
        region = Some(placed.region);
    }
    if load == Load::OnePage && !huge {
        return Err("no huge page is free".into());
    }
    Ready::new(load, region, huge, limits.line_bytes as usize, count.writer)
}

/// Counts of a run: in user space, in the kernel, and of the whole in user space.
fn run(count: &Count, ready: &mut Ready, rounds: u64, running: &mut f64) -> Result<[u64; 3], String> {
    let told = |missing: Missing| missing.to_string();
    let user = OwnCount::open(&count.event, Mode::User).map_err(told)?;
    let kernel = OwnCount::open(&count.event, Mode::Kernel).map_err(told)?;
    let whole =
        count.whole.as_ref().map(|whole| OwnCount::open(whole, Mode::User)).transpose().map_err(told)?;
    ready.run(rounds)?;
    let mut read = |counter: &OwnCount| {
        let (count, share) = counter.read().map_err(told)?;
        *running = running.min(share);
        Ok::<u64, String>(count)
    };
    let whole = whole.as_ref().map(&mut read).transpose()?.unwrap_or(0);
    Ok([read(&user)?, read(&kernel)?, whole])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::job::Limits;
    use crate::model::event::Event;

    fn counted(event: &str, load: Load, all: bool) -> Counts {
        let cpu = sys::current_cpu().unwrap();
        count_load(&Count {
            event: Event::named(event).unwrap(),
            whole: None,
            load,
            cpu,
            node: 0,
            touched_by: cpu,
            writer: None,
            repeats: 3,
            all,
            limits: Limits { line_bytes: 64, keep_bytes: 0 },
        })
        .unwrap()
    }

    /// A clock needs no PMU: its count of twice the work is larger, by the time of the work.
    #[test]
    fn twice_the_length_counts_more() {
        let counts = counted("task-clock", Load::Additions, false);
        assert_eq!((counts.amount, counts.user.len(), counts.on_node), (50_000, 3, 1.0));
        let median = {
            let mut user = counts.user.clone();
            user.sort_unstable();
            user[1]
        };
        // 3.2 million dependent additions: 0.5 to 6.4 ms below 6.4 GHz and above 0.5.
        assert!(median > 0, "{counts:?}");
        assert!(counts.all.is_none());
    }

    #[test]
    fn all_of_a_job_is_counted_where_that_is_asked_for() {
        let counts = counted("page-faults", Load::InCache, true);
        assert!(counts.all.unwrap() > 0, "its memory is touched in the job: {counts:?}");
        assert!(counts.user.is_empty());
    }
}
