//! The process that measures, seen from the one that started it: it is asked, watched, and ended with it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::child::{ASIDE, NAME};
use super::job::{Answer, Job};
use crate::known::quiet::{self, Usage};
use crate::program::helper::OWN_PROGRAM;
use crate::sys;

/// Seconds in a row in which others worked, after which we end.
const BAD_SECONDS: u32 = 3;

/// Why no more is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal came.
    Signal,
    /// Others worked for three seconds in a row, in words.
    Busy(String),
    /// It took too long.
    TimeUp,
    /// The process ended, or could not be started.
    Died(String),
}

/// One second of watching.
#[derive(Clone, Debug, PartialEq)]
pub enum Second {
    /// It is not over.
    Lasts,
    /// Nothing disturbed it.
    Quiet,
    /// Something did, in words.
    Bad(String),
}

/// The process, and the watch over the machine.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    stop: BorrowedFd<'static>,
    until: Instant,
    seen: (Usage, Instant),
    bad_in_a_row: u32,
    /// Go on, whatever others do.
    force: bool,
    /// CPUs that others used, summed over seconds, and those seconds.
    used: (f64, f64),
}

impl Worker {
    /// Starts it. No answer is waited for beyond `until`, or after `stop` is readable.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(stop: BorrowedFd<'static>, until: Instant, force: bool) -> io::Result<Worker> {
        Worker::start_with(Some(ASIDE), stop, until, force)
    }

    /// As [`Worker::start`], with the weight of any other task: for a self-test, which needs little and has to end on a busy
    /// machine, too.
    ///
    /// # Errors
    /// As there.
    pub fn start_beside_others(stop: BorrowedFd<'static>, until: Instant) -> io::Result<Worker> {
        Worker::start_with(None, stop, until, true)
    }

    fn start_with(
        word: Option<&str>,
        stop: BorrowedFd<'static>,
        until: Instant,
        force: bool,
    ) -> io::Result<Worker> {
        sys::close_on_exec();
        let mut child = Command::new(OWN_PROGRAM)
            .arg0(NAME)
            .args(word)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lost = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (input, output) = (child.stdin.take().ok_or_else(lost)?, child.stdout.take().ok_or_else(lost)?);
        let own = [child.id(), std::process::id()];
        let seen = (Usage::read(Path::new("/"), &own), Instant::now());
        Ok(Worker {
            child,
            input,
            output: BufReader::new(output),
            stop,
            until,
            seen,
            bad_in_a_row: 0,
            force,
            used: (0.0, 0.0),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do a job. Returns its answer within 0.1 s of its end.
    ///
    /// # Errors
    /// There is none and will be none; the process has been killed.
    pub fn ask(&mut self, job: &Job) -> Result<Answer, Ended> {
        let answer = self.told(job);
        if answer.is_err() {
            let _ = self.child.kill();
        }
        answer
    }

    fn told(&mut self, job: &Job) -> Result<Answer, Ended> {
        let died = |error: io::Error| Ended::Died(format!("the process that measures ended: {error}"));
        let mut line = serde_json::to_string(job).map_err(|error| died(error.into()))?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).map_err(died)?;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Ended::TimeUp);
            }
            match self.readable(left.min(Duration::from_secs(1))) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(Ended::Signal),
                Err(error) => return Err(died(error)),
            }
        }
        line.clear();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(Ended::Died("the process that measures was killed; memory may be short".into())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| died(error.into())),
            Err(error) => Err(died(error)),
        }
    }

    /// Whether there is an answer, after waiting for `time` at most.
    fn readable(&self, time: Duration) -> io::Result<bool> {
        let mut polled = [
            PollFd::from_borrowed_fd(self.stop, PollFlags::IN),
            PollFd::from_borrowed_fd(self.output.get_ref().as_fd(), PollFlags::IN),
        ];
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !polled[0].revents().is_empty() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(!polled[1].revents().is_empty())
    }

    /// Looks at the machine if a second is over, or if it is to be over `now`.
    ///
    /// # Errors
    /// Others have worked for three seconds in a row.
    pub fn watch(&mut self, now: bool) -> Result<Second, Ended> {
        let elapsed = self.seen.1.elapsed();
        if elapsed < Duration::from_millis(if now { 100 } else { 1000 }) {
            return Ok(Second::Lasts);
        }
        let own = [self.child.id(), std::process::id()];
        let usage = Usage::read(Path::new("/"), &own);
        let seconds = elapsed.as_secs_f64();
        let (before, _) = std::mem::replace(&mut self.seen, (usage, Instant::now()));
        let others = quiet::others(&before, &self.seen.0, seconds);
        self.used = (self.used.0 + others.all * seconds, self.used.1 + seconds);
        let Some(why) = quiet::disturbed(&before, &self.seen.0, seconds) else {
            self.bad_in_a_row = 0;
            return Ok(Second::Quiet);
        };
        self.bad_in_a_row += 1;
        if self.bad_in_a_row >= BAD_SECONDS && !self.force {
            let _ = self.child.kill();
            return Err(Ended::Busy(why));
        }
        Ok(Second::Bad(why))
    }

    /// CPUs that others used on the average, percent of all.
    pub fn others_pct(&self) -> f64 {
        if self.used.1 > 0.0 { 100.0 * self.used.0 / self.used.1 } else { 0.0 }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
