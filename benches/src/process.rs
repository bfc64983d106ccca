//! A program that we started: what it uses, and how it is ended.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The time that a program has to end by itself once it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// The program of this name on the path.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// A child process that is ended when this goes away.
pub struct Process {
    child: Child,
    what: String,
}

impl Process {
    /// Starts `command`; standard input is closed.
    ///
    /// # Errors
    /// The program could not be executed.
    pub fn start(command: &mut Command) -> Result<Process> {
        Process::spawn(command.stdin(Stdio::null()))
    }

    /// The same with a pipe to its standard input.
    ///
    /// # Errors
    /// The program could not be executed.
    pub fn start_with_input(command: &mut Command) -> Result<Process> {
        Process::spawn(command.stdin(Stdio::piped()))
    }

    fn spawn(command: &mut Command) -> Result<Process> {
        let what = format!("{command:?}");
        let child = command.spawn().with_context(|| format!("starting {what}"))?;
        Ok(Process { child, what })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: a plain call; the process is ours and not yet reaped, so its id is still its own.
        match unsafe { libc::kill(self.child.id() as i32, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).with_context(|| format!("signalling {}", self.what)),
        }
    }

    /// Fails when the program has ended by itself.
    ///
    /// # Errors
    /// It has; its status is in the message.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended too early: {status}", self.what),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Waiting failed.
    pub fn wait(mut self) -> Result<ExitStatus> {
        self.child.wait().with_context(|| format!("waiting for {}", self.what))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Ok(None) = self.child.try_wait() else { return };
        // One that ended in this moment is gone as well.
        let _ = self.signal(libc::SIGINT);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // It may have ended at this moment: then nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `program`, held to one CPU.
pub fn pinned(cpu: usize, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), program]);
    command
}

/// Holds the calling thread to one CPU.
///
/// # Errors
/// The errno of sched_setaffinity(2): EINVAL if the CPU does not exist.
pub fn pin_thread(cpu: usize) -> Result<()> {
    // SAFETY: a zeroed cpu_set_t is the empty set, and CPU_SET ignores numbers beyond its bits.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0
    };
    ensure!(!failed, "staying on CPU {cpu}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Processes below this one whose name begins with `comm`.
pub fn below(root: u32, comm: &str) -> HashSet<u32> {
    let mut parents: BTreeMap<u32, (u32, String)> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let (Some(from), Some(to)) = (stat.find('('), stat.rfind(')')) else { continue };
        let parent = stat[to + 1..].split_whitespace().nth(1).and_then(|word| word.parse().ok());
        parents.insert(pid, (parent.unwrap_or(0), stat[from + 1..to].to_string()));
    }
    let is_below = |pid: u32| {
        let mut at = pid;
        while at != root {
            match parents.get(&at) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        true
    };
    parents
        .iter()
        .filter(|(pid, (_, name))| name.starts_with(comm) && is_below(**pid))
        .map(|(pid, _)| *pid)
        .collect()
}

/// User and system time of all threads of a process, ended ones included, to the nanosecond.
///
/// # Errors
/// The process does not exist.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls fill the value they are given a pointer to.
    let status = unsafe {
        match libc::clock_getcpuclockid(pid as i32, &mut clock) {
            0 if libc::clock_gettime(clock, &mut time) == 0 => 0,
            0 => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
            errno => errno,
        }
    };
    if status != 0 {
        return Err(io::Error::from_raw_os_error(status)).context(format!("reading the CPU clock of {pid}"));
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of children that ended and were waited for.
pub fn children_cpu_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the struct; a zeroed rusage is a valid one should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// Resident memory in bytes: now, and at its highest.
///
/// # Errors
/// The process does not exist.
pub fn resident(pid: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Ok((field("VmRSS:").unwrap_or(0), field("VmHWM:").unwrap_or(0)))
}

/// On-CPU time of one thread in ns, from the scheduler.
pub fn schedstat(pid: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_clock_goes_on_and_our_memory_is_some() {
        let before = cpu_time(std::process::id()).unwrap();
        while cpu_time(std::process::id()).unwrap() == before {}
        let (now, highest) = resident(std::process::id()).unwrap();
        assert!(now > 0 && highest >= now);
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::start(Command::new("sleep").arg("1000")).unwrap();
        let pid = process.pid();
        drop(process);
        assert!(cpu_time(pid).is_err());
    }
}
