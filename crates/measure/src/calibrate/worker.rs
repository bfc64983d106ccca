//! The measuring process, seen from its parent, which sends it jobs, watches it and ends it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::child::{ASIDE, LIMIT, NAME};
use super::job::{Answer, Job};
use crate::known::idle::{self, Usage};
use crate::program::helper::OWN_PROGRAM;
use crate::sys;

/// Seconds in a row in which others worked, after which we end.
const BAD_SECONDS: f64 = 3.0;

/// Time between two looks at the machine.
const SECOND: Duration = Duration::from_secs(1);

/// The shortest useful time of a look: ticks are 10 ms.
const LEAST: Duration = Duration::from_millis(200);

/// Time in which a signal comes that ended the process as well.
const GRACE: Duration = Duration::from_millis(50);

/// Time after our own limit at which the process ends by itself.
const LATER: Duration = Duration::from_secs(2);

/// The reason why measuring ended.
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

impl Second {
    /// This stretch and the second after it, which is quiet or has a reason why not.
    fn and(self, why: Option<String>) -> Second {
        match (self, why) {
            (Second::Bad(why), _) | (_, Some(why)) => Second::Bad(why),
            (_, None) => Second::Quiet,
        }
    }
}

/// The process, and the watch over the machine.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    stop: BorrowedFd<'static>,
    until: Instant,
    seen: (Usage, Instant),
    /// Seconds in a row in which others worked.
    bad_for: f64,
    /// The seconds since the last [`Worker::watch`]: quiet, or the first reason why one was not.
    since: Second,
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
        let limit = until.saturating_duration_since(Instant::now()) + LATER;
        let mut child = Command::new(OWN_PROGRAM)
            .arg0(NAME)
            // Ctrl-C goes to the process group of the terminal. The parent decides when this process ends,
            // and knows why.
            .process_group(0)
            .args(word)
            .arg(format!("{LIMIT}{}", limit.as_secs_f64()))
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
            bad_for: 0.0,
            since: Second::Lasts,
            force,
            used: (0.0, 0.0),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes it do a job. Returns its answer within 0.1 s of its end.
    ///
    /// # Errors
    /// There will be no answer; the process has been killed.
    pub fn ask(&mut self, job: &Job) -> Result<Answer, Ended> {
        let answer = self.told(job).map_err(|ended| match ended {
            // The signal that ended it may be about to end us.
            Ended::Died(_) if is_readable(self.stop, GRACE) => Ended::Signal,
            other => other,
        });
        if answer.is_err() {
            let _ = self.child.kill();
        }
        answer
    }

    fn told(&mut self, job: &Job) -> Result<Answer, Ended> {
        let died = |error: io::Error| Ended::Died(format!("the measuring process ended: {error}"));
        let mut line = serde_json::to_string(job).map_err(|error| died(error.into()))?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).map_err(died)?;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Ended::TimeUp);
            }
            let next = SECOND.saturating_sub(self.seen.1.elapsed()).max(Duration::from_millis(1));
            match self.readable(left.min(next)) {
                Ok(true) => break,
                // Long jobs are watched, too.
                Ok(false) if self.seen.1.elapsed() >= SECOND => self.look()?,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(Ended::Signal),
                Err(error) => return Err(died(error)),
            }
        }
        line.clear();
        match self.output.read_line(&mut line) {
            Ok(0) => {
                Err(Ended::Died("the measuring process was killed, perhaps because memory ran out".into()))
            }
            Ok(_) => serde_json::from_str(&line).map_err(|error| died(error.into())),
            Err(error) => Err(died(error)),
        }
    }

    /// Whether an answer has come, after waiting for at most `time`.
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

    /// The seconds since the last call: bad if one of them was. With `now`, the current one is ended, after
    /// [`LEAST`] at the earliest.
    ///
    /// # Errors
    /// Others have worked for three seconds in a row, or a signal came.
    pub fn watch(&mut self, now: bool) -> Result<Second, Ended> {
        if now {
            let left = LEAST.saturating_sub(self.seen.1.elapsed());
            if !left.is_zero() && is_readable(self.stop, left) {
                return Err(Ended::Signal);
            }
        }
        if now || self.seen.1.elapsed() >= SECOND {
            self.look()?;
        }
        Ok(std::mem::replace(&mut self.since, Second::Lasts))
    }

    /// Ends a second, and judges it.
    fn look(&mut self) -> Result<(), Ended> {
        let own = [self.child.id(), std::process::id()];
        let seconds = self.seen.1.elapsed().as_secs_f64();
        let (before, _) =
            std::mem::replace(&mut self.seen, (Usage::read(Path::new("/"), &own), Instant::now()));
        let others = idle::others(&before, &self.seen.0, seconds);
        self.used = (self.used.0 + others.all * seconds, self.used.1 + seconds);
        let why = idle::disturbed(&before, &self.seen.0, seconds);
        self.bad_for = if why.is_some() { self.bad_for + seconds } else { 0.0 };
        self.since = std::mem::replace(&mut self.since, Second::Lasts).and(why.clone());
        match why {
            Some(why) if self.bad_for >= BAD_SECONDS && !self.force => {
                let _ = self.child.kill();
                Err(Ended::Busy(why))
            }
            _ => Ok(()),
        }
    }

    /// CPUs that others used on the average, percent of all.
    pub fn others_pct(&self) -> f64 {
        if self.used.1 > 0.0 { 100.0 * self.used.0 / self.used.1 } else { 0.0 }
    }
}

/// Whether a file is readable, after waiting for `time` at most.
fn is_readable(file: BorrowedFd<'_>, time: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    rustix::event::poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_as_bad_as_its_worst_second() {
        let bad = |why: &str| Second::Bad(why.into());
        assert_eq!(Second::Lasts.and(None), Second::Quiet);
        assert_eq!(Second::Quiet.and(Some("late".into())), bad("late"));
        assert_eq!(bad("early").and(None), bad("early"));
        assert_eq!(bad("early").and(Some("late".into())), bad("early"));
    }
}
