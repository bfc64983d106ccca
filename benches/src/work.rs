//! Loads of known shape. Each runs until it is killed, or until the program that started it is gone.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::access::load::Load;
use crate::memory;
use crate::process::{children_cpu_time, schedstat};

/// The least that pthreads takes.
const STACK: usize = 16 * 1024;

/// The work of each wake-up of an active thread.
const ACTIVE_BURN: Duration = Duration::from_micros(20);

#[derive(Subcommand, Clone, Debug)]
pub enum Work {
    /// Processes of sleeping threads; some of them wake up now and then.
    Threads {
        #[arg(long)]
        processes: usize,
        /// Threads of each process.
        #[arg(long)]
        threads: usize,
        /// Threads that wake up, over all processes.
        #[arg(long)]
        active: usize,
        #[arg(long, default_value_t = 20)]
        period_ms: u64,
    },
    /// Holds memory.
    Memory {
        #[arg(long)]
        gib: usize,
        #[arg(long)]
        mappings: usize,
    },
    /// Maps and unmaps without pause.
    Mmap {
        #[arg(long)]
        threads: usize,
    },
    /// Processes of one thread; every twentieth of them wakes up now and then.
    Family {
        #[arg(long)]
        processes: usize,
    },
    /// Computes without pause.
    Hog,
    /// Accesses two regions in a known way.
    Access(Load),
    /// Two processes that compute for a millisecond in turns.
    Alternate {
        /// The second of them.
        #[arg(long)]
        partner: bool,
    },
    /// Computes a little, then sleeps.
    Nap,
    /// Children of 20 ms each; prints `pid ns` from the schedstat of each before it is reaped.
    Children {
        /// Be such a child.
        #[arg(long)]
        child: bool,
    },
    /// Forks, executes and reaps /bin/true at a rate. At the end prints the number of children, their ns, and
    /// its own ns from before it joined the cgroup.
    Storm {
        #[arg(long)]
        per_second: u64,
        #[arg(long)]
        seconds: u64,
        /// The cgroup.procs file to move to first.
        #[arg(long)]
        cgroup: PathBuf,
    },
}

impl Work {
    /// # Errors
    /// Something could not be started.
    pub fn run(self) -> Result<()> {
        die_with_parent();
        match self {
            Work::Threads { processes, threads, active, period_ms } => {
                many_threads(processes, threads, active, Duration::from_millis(period_ms))
            }
            Work::Memory { gib, mappings } => memory::hold(gib, mappings),
            Work::Mmap { threads } => memory::churn(threads),
            Work::Family { processes } => family(processes),
            Work::Access(load) => load.run(),
            Work::Hog => loop {
                burn(Duration::from_secs(1));
            },
            Work::Alternate { partner: false } => first_of_two(),
            Work::Alternate { partner: true } => take_turns(&mut io::stdin(), &mut io::stdout()),
            Work::Nap => loop {
                burn(Duration::from_micros(500));
                thread::sleep(Duration::from_millis(10));
            },
            Work::Children { child: true } => {
                burn(Duration::from_millis(20));
                Ok(())
            }
            Work::Children { child: false } => short_lived(),
            Work::Storm { per_second, seconds, cgroup } => {
                fs::write(&cgroup, "0").with_context(|| format!("writing {}", cgroup.display()))?;
                // The time to get here is not in the cgroup.
                let outside = schedstat(std::process::id()).context("reading our own schedstat")?;
                storm(per_second, Duration::from_secs(seconds), outside)
            }
        }
    }
}

/// This program again, as a load.
pub fn command(args: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding our own program")?);
    command.arg("work").args(args);
    Ok(command)
}

fn die_with_parent() {
    // SAFETY: plain calls; the request is forgotten at exec, and we make none of our own.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // It was too late to ask: the parent is gone already.
        if libc::getppid() == 1 {
            libc::_exit(1);
        }
    }
}

fn burn(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Prints "ready" once all threads exist.
fn many_threads(processes: usize, threads: usize, active: usize, period: Duration) -> Result<()> {
    if processes > 1 {
        return many_processes(processes, threads, active, period);
    }
    // The main thread is one of them.
    for i in 1..threads {
        let body = move || {
            if i > active {
                loop {
                    thread::park();
                }
            }
            // Spread over the period, so that they do not wake up all at once.
            thread::sleep(period * i as u32 / active.max(1) as u32);
            loop {
                burn(ACTIVE_BURN);
                thread::sleep(period);
            }
        };
        thread::Builder::new()
            .stack_size(STACK)
            .spawn(body)
            .with_context(|| format!("starting thread {i} of {threads}"))?;
    }
    println!("ready");
    loop {
        thread::park();
    }
}

fn many_processes(processes: usize, threads: usize, active: usize, period: Duration) -> Result<()> {
    let mut children = Vec::new();
    for i in 0..processes {
        let share = active * (i + 1) / processes - active * i / processes;
        let period = period.as_millis().to_string();
        let (threads, share) = (threads.to_string(), share.to_string());
        let args = [
            "threads",
            "--processes",
            "1",
            "--threads",
            &threads,
            "--active",
            &share,
            "--period-ms",
            &period,
        ];
        children
            .push(command(&args)?.stdout(Stdio::piped()).spawn().context("starting a process of threads")?);
    }
    for child in &mut children {
        wait_until_ready(child)?;
    }
    println!("ready");
    loop {
        thread::park();
    }
}

/// Forks without exec: thousands of processes in little memory. Prints "ready" once all exist.
fn family(processes: usize) -> Result<()> {
    const PERIOD: Duration = Duration::from_millis(20);
    for i in 0..processes {
        // SAFETY: this process has one thread, so its copy can do what it could.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()).with_context(|| format!("forking process {i}")),
            0 => {
                // SAFETY: a plain call.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                loop {
                    if i % 20 == 0 {
                        burn(ACTIVE_BURN);
                        thread::sleep(PERIOD);
                    } else {
                        thread::park();
                    }
                }
            }
            _ => {}
        }
    }
    println!("ready");
    loop {
        thread::park();
    }
}

/// Waits for the line "ready" of a child with a piped standard output.
///
/// # Errors
/// It ended before.
pub fn wait_until_ready(child: &mut Child) -> Result<()> {
    let mut ready = [0; 6];
    let out = child.stdout.as_mut().context("standard output was asked for as a pipe")?;
    out.read_exact(&mut ready).context("waiting for the load to be ready")
}

fn first_of_two() -> Result<()> {
    let mut second = command(&["alternate", "--partner"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the second of two")?;
    let mut to: ChildStdin = second.stdin.take().context("a pipe was asked for")?;
    let mut from = second.stdout.take().context("a pipe was asked for")?;
    println!("{}", second.id());
    to.write_all(b"x")?;
    take_turns(&mut from, &mut to)
}

/// Until the other of the two is gone.
fn take_turns(from: &mut dyn Read, to: &mut dyn Write) -> Result<()> {
    let mut turn = [0];
    while from.read_exact(&mut turn).is_ok() {
        burn(Duration::from_millis(1));
        if to.write_all(&turn).and_then(|()| to.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

fn short_lived() -> Result<()> {
    loop {
        let mut child = command(&["children", "--child"])?.spawn().context("starting a short-lived child")?;
        let pid = child.id();
        // SAFETY: zeroed is a valid siginfo_t; waitid fills it. WNOWAIT leaves the zombie for us to read.
        unsafe {
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT);
        }
        // It reports its end a little before it has left the CPU for good.
        thread::sleep(Duration::from_millis(5));
        let ns = schedstat(pid).context("reading schedstat of a zombie")?;
        child.wait()?;
        if writeln!(io::stdout(), "{pid} {ns}").is_err() {
            // The receiver is gone: the measurement is over.
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// On enough threads that one fork at a time does not limit the rate.
fn storm(per_second: u64, time: Duration, outside: u64) -> Result<()> {
    const LANES: u64 = 4;
    let every = Duration::from_nanos(1_000_000_000 * LANES / per_second.max(1));
    let done = AtomicU64::new(0);
    let began = Instant::now();
    let lane = |lane: u64| {
        let mut due = began + every * lane as u32 / LANES as u32;
        while due < began + time {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            Command::new("/bin/true").status().context("executing /bin/true")?;
            done.fetch_add(1, Ordering::Relaxed);
            due += every;
        }
        anyhow::Ok(())
    };
    thread::scope(|scope| {
        let lane = &lane;
        let lanes: Vec<_> = (0..LANES).map(|i| scope.spawn(move || lane(i))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    println!("{} {} {outside}", done.into_inner(), children_cpu_time().as_nanos());
    Ok(())
}
