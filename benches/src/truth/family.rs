//! A family of processes that fork, execute and exit at a rate, in a separate cgroup.

use std::io::Read;
use std::process::{ChildStdout, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::machine::Cgroup;
use crate::process::Process;
use crate::work;

/// A family that is at it.
pub struct Family {
    storm: Process,
    out: ChildStdout,
    cgroup: Cgroup,
}

/// The kernel's sums of a family that has ended.
pub struct Counted {
    pub children: u64,
    /// CPU time of the children when they were reaped, ns.
    pub children_ns: u64,
    outside_ns: u64,
    cgroup: Cgroup,
}

impl Counted {
    /// CPU time of the whole family, ns. The last switch of its last task comes a moment after its end.
    ///
    /// # Errors
    /// Its cgroup is not readable.
    pub fn whole_ns(&self) -> Result<u64> {
        Ok(self.cgroup.cpu_ns()? + self.outside_ns)
    }
}

impl Family {
    /// # Errors
    /// No cgroup can be made, or the load does not start.
    pub fn start(per_second: u64, seconds: u64) -> Result<Family> {
        let cgroup = Cgroup::create()?;
        let (rate, time, procs) = (per_second.to_string(), seconds.to_string(), cgroup.procs());
        let procs = procs.to_str().context("the path of a cgroup is text")?;
        let args = ["storm", "--per-second", &rate, "--seconds", &time, "--cgroup", procs];
        let mut storm = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
        let out = storm.child().stdout.take().context("standard output was asked for as a pipe")?;
        Ok(Family { storm, out, cgroup })
    }

    /// The process that forks.
    pub fn pid(&self) -> u32 {
        self.storm.pid()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It failed.
    pub fn ended(mut self) -> Result<Counted> {
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        ensure!(self.storm.wait()?.success(), "the storm ended with an error");
        let mut words = text.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(children)), Some(Ok(children_ns)), Some(Ok(outside_ns))) =
            (words.next(), words.next(), words.next())
        else {
            bail!("the storm said: {text}");
        };
        Ok(Counted { children, children_ns, outside_ns, cgroup: self.cgroup })
    }
}
