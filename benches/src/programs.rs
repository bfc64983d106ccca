//! Memory in use of programs that people run: samples that have an address, samples that can be followed, and their cost.

mod ends;
mod list;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, anyhow, ensure};

use self::ends::Ends;
use self::list::{PROGRAMS, Program};
use crate::Plan;
use crate::process::below;
use crate::report::{Cell, Report, Table};
use numatop_ng::access::sample::{Decoders, Outcome};
use numatop_ng::collect::access::follow::{Job, follow};
use numatop_ng::collect::access::{AccessProbe, self_check};
use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::placement::draw::Random;
use numatop_ng::host::clock::thread_time;
use numatop_ng::model::units::CpuId;

/// Samples a second on each CPU, and by default.
const HZ: u32 = 499;
const DEFAULT_HZ: f64 = 97.0;
/// Time for which each program is sampled.
const LENGTH: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// Time until a program is at work.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time that it has to end.
const TO_END: Duration = Duration::from_secs(5);

/// A program at work. Dropped, all of its processes are ended, and its directory is removed.
struct AtWork {
    shell: Child,
    directory: PathBuf,
}

impl AtWork {
    fn start(program: &Program) -> Result<AtWork> {
        let directory = std::env::temp_dir().join(format!("numatop-bench-{}", std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        let shell = Command::new("sh")
            .args(["-c", program.script])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting a shell")?;
        let mut at_work = AtWork { shell, directory };
        let out = at_work.shell.stdout.take().context("a pipe was asked for")?;
        let (said, ready) = std::sync::mpsc::channel();
        // It reads on, or the program would wait for it.
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = said.send(line == "ready");
            }
        });
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_ready =
                ready.recv_timeout(left).with_context(|| format!("{} is not at work", program.name))?;
            if is_ready {
                break;
            }
        }
        Ok(at_work)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a plain call; the group is that of our child, which is not reaped yet.
        unsafe { libc::kill(-(self.shell.id() as i32), signal) };
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Servers end fast at an interrupt, which a shell has its background ignore.
        self.signal(libc::SIGINT);
        self.signal(libc::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < TO_END && matches!(self.shell.try_wait(), Ok(None)) {
            thread::sleep(PAUSE);
        }
        if matches!(self.shell.try_wait(), Ok(None)) {
            self.signal(libc::SIGKILL);
        }
        let _ = self.shell.wait();
        thread::sleep(PAUSE);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Samples of one program.
#[derive(Default)]
struct Found {
    user: u64,
    kernel: u64,
    with_address: u64,
    plain: u64,
    gone: u64,
    /// Behind a jump, or not decoded.
    unknown: u64,
    followed: u64,
    resolved: u64,
    /// Time of the decoder, of the follower, and of the kernel's program, and samples of the last.
    decoding: Duration,
    following: Duration,
    program_ns: u64,
    ticks: u64,
    ends: Ends,
}

impl Found {
    fn of(pid: u32, comm: &str, length: Duration) -> Result<Found> {
        let store = maps::create(RecordLayout::new(1, false, &[]))?;
        let cpus: Vec<CpuId> =
            numatop_ng::host::topology::read(Path::new("/"))?.online_cpus().map(|cpu| cpu.id).collect();
        let mut probe = AccessProbe::load(&store, HZ, cpus.len() as u32)?;
        let verdict = self_check::run(&probe).map_err(|why| anyhow!("{why}"))?;
        probe.follow(&cpus)?;
        probe.take()?;
        let before_ns = probe.cost_ns();
        let (mut decoders, mut random) = (Decoders::default(), Random(pid.into()));
        let (mut found, page, began) = (Found::default(), page_size(), Instant::now());
        let mut follows = false;
        while began.elapsed() < length {
            thread::sleep(PAUSE);
            let wanted = below(pid, comm);
            let samples = probe.take()?;
            found.ticks += samples.len() as u64;
            let mut jobs = Vec::new();
            let decoding = thread_time();
            for sample in samples.into_iter().filter(|sample| wanted.contains(&sample.process.0)) {
                let Some(state) = sample.user else {
                    found.kernel += 1;
                    continue;
                };
                let outcome = decoders.outcome(&state, verdict.attribution);
                found.user += 1;
                *match outcome {
                    Outcome::Address(_) | Outcome::Pair(..) => &mut found.with_address,
                    Outcome::Plain => &mut found.plain,
                    Outcome::Gone => &mut found.gone,
                    Outcome::Nowhere | Outcome::Unknown => &mut found.unknown,
                } += 1;
                if outcome.is_memory() {
                    jobs.push(Job { process: sample.process, state, outcome, cpu_node: None });
                }
            }
            found.decoding += thread_time().saturating_sub(decoding);
            // Each takes a while, and memory that is read later has changed: a round of samples for one of the two.
            follows = !follows;
            if !follows {
                for job in &jobs {
                    found.ends.add(&decoders, &job.state, verdict.attribution, job.process.0);
                }
                continue;
            }
            let following = thread_time();
            for (_, next) in
                follow(Path::new("/"), jobs, verdict.attribution, page, Duration::from_secs(5), &mut random)
            {
                let next = next.context("following took five seconds")?;
                found.followed += 1;
                found.resolved += u64::from(next.runs[0].is_some());
            }
            found.following += thread_time().saturating_sub(following);
        }
        found.program_ns = probe.cost_ns() - before_ns;
        Ok(found)
    }

    /// Microseconds of a sample: in the kernel's program, decoding, and following.
    fn costs(&self) -> [f64; 3] {
        let each = |ns: f64, of: u64| ns / 1e3 / of.max(1) as f64;
        [
            each(self.program_ns as f64, self.ticks),
            each(self.decoding.as_nanos() as f64, self.user),
            each(self.following.as_nanos() as f64, self.followed),
        ]
    }

    fn cells(&self) -> Vec<Cell> {
        let of = |part: u64, whole: u64| Cell::Number(100.0 * part as f64 / whole.max(1) as f64, 0);
        let [program, decoding, following] = self.costs();
        // One thread that is always on a CPU, sampled at the default rate.
        let at_memory = self.with_address + self.gone;
        let memory = at_memory as f64 / (self.user + self.kernel).max(1) as f64;
        let at_default = DEFAULT_HZ * (program + decoding + memory * following) / 1e6;
        vec![
            Cell::Number((self.user + self.kernel) as f64, 0),
            of(self.kernel, self.user + self.kernel),
            of(self.with_address, self.user),
            of(self.gone, self.user),
            of(self.unknown, self.user),
            of(self.plain, self.user),
            of(self.with_address, self.with_address + self.gone + self.unknown),
            of(self.resolved, self.followed),
            Cell::Number(program, 1),
            Cell::Number(decoding, 1),
            Cell::Number(following, 1),
            Cell::Number(100.0 * at_default, 2),
        ]
    }
}

fn is_there(command: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(command).exists())
}

/// Samples each program that is installed, one after the other.
///
/// # Errors
/// The self-check refuses this CPU, or a program does not come to work.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Memory in use of programs that people run");
    let mut table = Table::new(
        "Samples of each program at work. Shares in per cent: in the kernel of all samples; with an address, with one that \
         was overwritten, behind a jump or not decoded, and without memory, of those in user mode; with an address of those at \
         memory; followed to the next run of the instruction. Costs in µs of CPU time for a sample; the last column is that of a \
         thread that is always on a CPU, without the reader of pages.",
        &[
            "program",
            "samples",
            "kernel",
            "address",
            "overwritten",
            "unknown",
            "no memory",
            "address of memory",
            "next run",
            "BPF µs",
            "decoding µs",
            "following µs",
            "% of a CPU at 97 Hz",
        ],
    );
    for program in PROGRAMS {
        if let Some(missing) = program.needs.iter().find(|command| !is_there(command)) {
            report.note(format!("{}: not sampled, {missing} is not installed", program.name));
            continue;
        }
        eprintln!("{}", program.name);
        let at_work = AtWork::start(program)?;
        let length = if plan.quick { LENGTH / 5 } else { LENGTH };
        let found = Found::of(at_work.shell.id(), program.comm, length)?;
        ensure!(found.user + found.kernel > 0, "{} was not sampled", program.name);
        let mut row = vec![Cell::text(program.name)];
        row.extend(found.cells());
        table.rows.push(row);
        report.note(format!("{}, % by the end of the way: {}", program.name, found.ends.words()));
    }
    report.tables.push(table);
    Ok(report)
}
