//! Starts workloads beside the tool and gets their truth.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::affinity;
use crate::cases::Stop;

/// A workload that runs.
pub struct Work {
    child: Child,
    /// Its process id may have been reused by now.
    waited: bool,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    name: String,
    /// Its message at the start.
    pub facts: Value,
}

/// The remains of a workload.
pub struct Done {
    /// The truth that it printed.
    pub truth: Value,
    /// CPU time of its process by the kernel's account, to its last instruction, with the
    /// children that it waited for.
    pub cpu: Duration,
    /// Context switches, voluntary and not, with those children's.
    pub switches: u64,
}

impl Work {
    /// Starts a workload, which then waits for [`Work::go`].
    pub fn start(name: &str, arguments: &[&str]) -> Result<Self, Stop> {
        let mut child = Command::new("/proc/self/exe")
            .args(["workload", name])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting the workload {name}: {error}"))?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        let facts = read_json(&mut stdout, name)?;
        Ok(Work { child, waited: false, stdin, stdout, name: name.to_owned(), facts })
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Starts a workload and lets it begin at once.
    pub fn start_now(name: &str, arguments: &[&str]) -> Result<Self, Stop> {
        let mut work = Work::start(name, arguments)?;
        work.go();
        Ok(work)
    }

    /// Gives the workload the permission to begin, or to go on where it waits a second time.
    pub fn go(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"go\n");
        }
    }

    /// Its next message while it runs; waits for it.
    pub fn said(&mut self) -> Result<Value, Stop> {
        read_json(&mut self.stdout, &self.name)
    }

    /// Ends the workload and waits for its end.
    pub fn stop(mut self) -> Result<Done, Stop> {
        self.stdin = None;
        let truth = read_json(&mut self.stdout, &self.name)?;
        let mut status = 0;
        // SAFETY: a zeroed rusage is a valid place for the answer.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the child is ours and has not been waited for; both places are valid.
        let waited = unsafe { libc::wait4(self.pid(), &mut status, 0, &mut usage) };
        if waited != self.pid() {
            return Err(Stop::fail(format!("the workload {} was lost", self.name)));
        }
        self.waited = true;
        Ok(Done {
            truth,
            cpu: affinity::cpu_time(&usage),
            switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        })
    }
}

impl Drop for Work {
    /// A case that fails leaves no load behind.
    fn drop(&mut self) {
        if !self.waited {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn read_json(stdout: &mut impl BufRead, name: &str) -> Result<Value, Stop> {
    let mut line = String::new();
    stdout.read_line(&mut line).map_err(|error| format!("reading from the workload {name}: {error}"))?;
    serde_json::from_str(&line)
        .map_err(|error| Stop::fail(format!("the workload {name} said {line:?}: {error}")))
}
