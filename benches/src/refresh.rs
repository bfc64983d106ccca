//! The cost of one refresh with many threads: CPU time and memory, beside top, htop, pidstat and perf stat.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::numbers::{Spread, median};
use crate::process::{Process, children_cpu_time, cpu_time, resident};
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;
use crate::work::{self, wait_until_ready};

/// Threads per process of the load.
const PER_PROCESS: usize = 500;
const ACTIVE: usize = 100;

/// The row that the limits are about.
const LIMIT_AT: usize = 10_000;

/// The largest load, which has separate limits.
const MOST: usize = 100_000;
/// CPU time of a refresh of the live view with that, ms.
const MOST_MS: f64 = 110.0;
/// Resident memory then, MB.
const MOST_MB: f64 = 150.0;

/// The first refreshes fill tables and caches; they are not counted.
const WARM_UP: usize = 2;

/// A refresh of the slowest tool with the most threads takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

const HTOPRC: &str = "hide_kernel_threads=0\nhide_userland_threads=0\ndelay=10\ntree_view=0\nsort_key=46\n";

/// The cost of one refresh of a program.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// Of one refresh.
    pub cpu_ms: f64,
    /// Resident memory at the end, bytes.
    pub rss: f64,
    peak: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tool {
    OursBatch,
    OursScreen,
    TopLoop,
    TopOnce,
    Htop,
    Pidstat,
    PerfStat,
}

const TOOLS: [Tool; 7] = [
    Tool::OursBatch,
    Tool::OursScreen,
    Tool::TopLoop,
    Tool::TopOnce,
    Tool::Htop,
    Tool::Pidstat,
    Tool::PerfStat,
];

/// Programs that list all threads, as we do: limits are about these.
const PEERS: [Tool; 3] = [Tool::TopLoop, Tool::TopOnce, Tool::Htop];

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::OursBatch => "numatop-ng -b --threads --top 50 --format json",
            Tool::OursScreen => "numatop-ng, live view of threads",
            Tool::TopLoop => "top -b -H, one of many refreshes",
            Tool::TopOnce => "top -b -H -n1, start included",
            Tool::Htop => "htop, threads shown",
            Tool::Pidstat => "pidstat -t, threads that ran",
            Tool::PerfStat => "perf stat -a -I 1000, two events, no tasks",
        }
    }

    /// Whether it ends a refresh of `threads` threads within [`PATIENCE`]: pidstat takes 0.8 s for 10,000,
    /// and a hundred times as long for ten times as many.
    fn bears(self, threads: usize) -> bool {
        self != Tool::Pidstat || threads < MOST
    }

    /// CPU time of one of `count` refreshes a second apart.
    fn measure(self, plan: &Plan, scratch: &Path, count: usize) -> Result<Cost> {
        let binary = plan.binary.to_string_lossy();
        match self {
            Tool::OursBatch => {
                let mut command = Command::new(&*binary);
                command.args(["-b", "-d", "1", "--threads", "--top", "50", "--format", "json"]);
                stream(&mut command, any_line, WARM_UP, count)
            }
            Tool::TopLoop => {
                let mut command = Command::new("top");
                command.args(["-b", "-H", "-d", "1"]).env("HOME", scratch);
                stream(&mut command, |line| line.starts_with("top - "), WARM_UP, count)
            }
            Tool::TopOnce => {
                let before = children_cpu_time();
                let mut top = Command::new("top");
                top.args(["-b", "-H", "-n1"]).env("HOME", scratch).stdout(Stdio::null());
                Process::start(&mut top)?.wait()?;
                let cpu = children_cpu_time() - before;
                Ok(Cost { cpu_ms: cpu.as_secs_f64() * 1e3, ..Cost::default() })
            }
            Tool::Htop => {
                let rc = scratch.join("htoprc");
                let mut screen = Screen::start("htop", &[], &[("HTOPRC", &rc.to_string_lossy())])?;
                on_screen(&mut screen, WARM_UP, count)
            }
            Tool::Pidstat => {
                let mut command = Command::new("pidstat");
                command.args(["-t", "1"]);
                stream(&mut command, |line| line.contains("TGID"), WARM_UP, count)
            }
            Tool::PerfStat => {
                let mut command = Command::new("perf");
                let args = "stat --log-fd 1 -a -I 1000 -e context-switches,cpu-clock";
                command.args(args.split(' '));
                stream(&mut command, |line| line.contains("cpu-clock"), WARM_UP, count)
            }
            Tool::OursScreen => {
                let mut screen = Screen::start(&binary, &["-H", "-d", "1"], &[])?;
                on_screen(&mut screen, WARM_UP, count)
            }
        }
    }
}

/// `count` refreshes of a program that writes lines, after `warm_up` others. A line for which `begins` holds is the first
/// of one.
///
/// # Errors
/// The program ended, or nothing came for too long.
pub fn stream(command: &mut Command, begins: fn(&str) -> bool, warm_up: usize, count: usize) -> Result<Cost> {
    let mut frames = Frames::start(command, begins, |pid| cpu_time(pid).ok())?;
    for _ in 0..warm_up {
        frames.next(PATIENCE)?;
    }
    let from = frames.next(PATIENCE)?.probed.context("the program ended")?;
    let mut to = from;
    for _ in 0..count {
        to = frames.next(PATIENCE)?.probed.context("the program ended")?;
    }
    let (rss, peak) = resident(frames.process.pid())?;
    Ok(Cost { cpu_ms: (to - from).as_secs_f64() * 1e3 / count as f64, rss: rss as f64, peak: peak as f64 })
}

/// The same of a program that fills a screen.
///
/// # Errors
/// As [`stream`].
pub fn on_screen(screen: &mut Screen, warm_up: usize, count: usize) -> Result<Cost> {
    // Heads of tables may come before the first sample.
    screen.wait_for(has_rows, PATIENCE)?;
    screen.refreshes(warm_up, PATIENCE)?;
    let (cpu, _) = screen.refreshes(count, PATIENCE)?;
    let (rss, peak) = resident(screen.pid())?;
    Ok(Cost { cpu_ms: cpu.as_secs_f64() * 1e3, rss: rss as f64, peak: peak as f64 })
}

/// Whether a screen lists tasks: rows that begin with an id.
fn has_rows(text: &str) -> bool {
    let is_row = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.parse::<u32>().is_ok());
    text.contains("PID") && text.lines().filter(is_row).count() >= 10
}

/// # Errors
/// A tool is missing, or the threads could not be started.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Refresh: CPU time and memory with many threads");
    let scratch = std::env::temp_dir().join(format!("numatop-bench-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    fs::write(scratch.join("htoprc"), HTOPRC)?;
    let sizes: &[usize] = if plan.quick { &[100, 10_000] } else { &[100, 1_000, 10_000, 50_000, MOST] };
    let one = plan.threads.map(|threads| [threads]);
    let sizes = one.as_ref().map_or(sizes, |one| &one[..]);
    let (rounds, count) = if plan.quick { (1, 3) } else { (3, 5) };
    let limits = sizes.last().map(|most| Limits::raise(*most)).transpose()?;
    let result = sizes.iter().try_for_each(|threads| {
        let rounds = match *threads {
            MOST => 1,
            more if more > LIMIT_AT => rounds.min(2),
            _ => rounds,
        };
        one_size(plan, &mut report, &scratch, *threads, rounds, count)
    });
    drop(limits);
    // A leftover does no harm.
    let _ = fs::remove_dir_all(&scratch);
    result?;
    report.note(format!(
        "Load: processes of up to {PER_PROCESS} threads with 16 KiB stacks; {ACTIVE} of all threads compute 20 µs \
         every 20 ms, the others sleep. One refresh a second. CPU time is the process's own clock (user and system, \
         all threads), between the first and the last of {count} refreshes after {WARM_UP} of warm-up."
    ));
    report.note("htop and the live view run in a terminal of 160 by 50; a refresh is a burst of output.");
    Ok(report)
}

/// This many threads, most of them asleep.
///
/// # Errors
/// They could not be started.
pub fn start_load(threads: usize) -> Result<Process> {
    let processes = threads.div_ceil(PER_PROCESS);
    let (each, active) = ((threads / processes).to_string(), ACTIVE.min(threads).to_string());
    let processes = processes.to_string();
    let args = ["threads", "--processes", &processes, "--threads", &each, "--active", &active];
    let mut load = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
    wait_until_ready(load.child())?;
    Ok(load)
}

fn one_size(
    plan: &Plan,
    report: &mut Report,
    scratch: &Path,
    threads: usize,
    rounds: usize,
    count: usize,
) -> Result<()> {
    // Ends with the rounds.
    let _load = start_load(threads)?;
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); TOOLS.len()];
    let mut absent = None;
    for round in 0..rounds {
        for turn in 0..TOOLS.len() {
            let at = (round + turn) % TOOLS.len();
            let tool = TOOLS[at];
            if !tool.bears(threads) {
                continue;
            }
            match tool.measure(plan, scratch, count) {
                Ok(cost) => costs[at].push(cost),
                // An older binary has no live view; everything else must work.
                Err(error) if tool == Tool::OursScreen => absent = Some(format!("{error:#}")),
                Err(error) => return Err(error).context(tool.name()),
            }
        }
    }
    let mut table = Table::new(
        format!("{threads} threads: median (quartiles) of {rounds} interleaved rounds."),
        &["program", "CPU ms per refresh", "times numatop-ng", "RSS MB", "peak RSS MB"],
    );
    let cpu = |at: usize| costs[at].iter().map(|cost| cost.cpu_ms).collect::<Vec<_>>();
    let base = median(&cpu(0));
    for (at, tool) in TOOLS.iter().enumerate() {
        if costs[at].is_empty() {
            continue;
        }
        let memory = |read: fn(&Cost) -> f64| match median(&costs[at].iter().map(read).collect::<Vec<_>>()) {
            0.0 => Cell::Nothing,
            bytes => Cell::Number(bytes / 1e6, 1),
        };
        table.rows.push(vec![
            Cell::text(tool.name()),
            Cell::spread(Spread::of(&cpu(at)), 2),
            Cell::Number(median(&cpu(at)) / base, 1),
            memory(|cost| cost.rss),
            memory(|cost| cost.peak),
        ]);
    }
    report.tables.push(table);
    for tool in TOOLS.iter().filter(|tool| !tool.bears(threads)) {
        let limit = PATIENCE.as_secs();
        report.note(format!("{}: a refresh of {threads} threads takes more than {limit} s.", tool.name()));
    }
    if let Some(why) = absent {
        report.note(format!("The live view was not measured with {threads} threads: {}", one_line(&why)));
    }
    for (ours, tool) in TOOLS.iter().enumerate().take(2).filter(|(at, _)| !costs[*at].is_empty()) {
        let what = if *tool == Tool::OursBatch { "batch" } else { "live view" };
        let peak = median(&costs[ours].iter().map(|cost| cost.peak).collect::<Vec<_>>()) / 1e6;
        if threads == MOST {
            report.at_most(format!("{what}, {threads} threads: CPU ms"), MOST_MS, median(&cpu(ours)), 1);
            report.at_most(format!("{what}, {threads} threads: peak RSS in MB"), MOST_MB, peak, 1);
        }
        if threads == LIMIT_AT {
            for (at, peer) in TOOLS.iter().enumerate().filter(|(_, tool)| PEERS.contains(tool)) {
                let ratio = median(&cpu(at)) / median(&cpu(ours));
                report.at_least(
                    format!("{what}: {} costs so many times as much", peer.name()),
                    20.0,
                    ratio,
                    1,
                );
            }
            report.at_most(format!("{what}: peak RSS in MB"), 40.0, peak, 1);
        }
    }
    Ok(())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().take(40).collect::<Vec<_>>().join(" ")
}

/// Kernel limits on the number of threads, raised as far as needed; set back when this goes away.
pub struct Limits(Vec<(PathBuf, String)>);

impl Limits {
    /// Room for `threads` threads.
    ///
    /// # Errors
    /// A limit cannot be read or raised.
    pub fn raise(threads: usize) -> Result<Limits> {
        let mut raised = Limits(Vec::new());
        let needed = threads + 20_000;
        for name in ["pid_max", "threads-max"] {
            let path = Path::new("/proc/sys/kernel").join(name);
            let old = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            if old.trim().parse::<usize>().is_ok_and(|old| old < needed) {
                fs::write(&path, needed.to_string())
                    .with_context(|| format!("raising {} to {needed}", path.display()))?;
                raised.0.push((path, old));
            }
        }
        Ok(raised)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for (path, old) in &self.0 {
            if let Err(error) = fs::write(path, old.trim()) {
                eprintln!("cannot set {} back to {}: {error}", path.display(), old.trim());
            }
        }
    }
}
