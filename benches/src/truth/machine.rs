//! The kernel's sums of the whole machine: busy time in /proc/stat, CPU time of a cgroup.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

/// One reading of the first line of /proc/stat, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub at: Instant,
    /// user, nice, system, irq, softirq: what the timer tick found running.
    pub columns: f64,
    /// idle, iowait and steal: times of day, not samples, where the tick stops on idle CPUs.
    pub not_busy: f64,
}

impl Stat {
    pub fn read() -> Result<Stat> {
        let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let at = Instant::now();
        let line = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("cpu "))
            .context("/proc/stat has no cpu line")?;
        // SAFETY: sysconf has no preconditions.
        let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let ticks: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            anyhow::bail!("/proc/stat has too few columns: {line}");
        };
        let columns = (user + nice + system + irq + softirq) / hz;
        Ok(Stat { at, columns, not_busy: (idle + iowait + steal) / hz })
    }

    /// Busy seconds of all CPUs from `before` to this: the wall-clock time minus idle time.
    pub fn busy_since(&self, before: &Stat, cpus: usize) -> f64 {
        (self.at - before.at).as_secs_f64() * cpus as f64 - (self.not_busy - before.not_busy)
    }

    /// The same from the columns of busy time.
    pub fn columns_since(&self, before: &Stat) -> f64 {
        self.columns - before.columns
    }
}

/// A new cgroup. Dropping this removes it; it must be empty by then.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Where the kernel sums up CPU time: the cpuacct controller, or any cgroup v2.
    ///
    /// # Errors
    /// No hierarchy is usable, or permission is denied.
    pub fn create() -> Result<Cgroup> {
        let roots = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"];
        let there = |root: &&&str| {
            Path::new(root).join("cpuacct.usage").exists()
                || Path::new(root).join("cgroup.controllers").exists()
        };
        let root = roots.iter().find(there).context("no cgroup hierarchy that counts CPU time")?;
        let dir = Path::new(root).join(format!("numatop-bench-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Cgroup(dir))
    }

    /// The file that a process moves itself into the cgroup with.
    pub fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// CPU time of all tasks that ever ran in it, ns.
    ///
    /// # Errors
    /// The file is not there or not readable.
    pub fn cpu_ns(&self) -> Result<u64> {
        if let Ok(text) = fs::read_to_string(self.0.join("cpuacct.usage")) {
            return text.trim().parse().context("reading cpuacct.usage");
        }
        let path = self.0.join("cpu.stat");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let usec = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<u64>().ok());
        usec.map(|usec| usec * 1000).context("cpu.stat has no usage_usec")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}
