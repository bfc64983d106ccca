//! Runs the tool and reads its JSON.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use jiff::Timestamp;
use serde_json::Value;
use vmtests_protocol::TOOL_PATH;

use crate::cases::Stop;
use crate::intervals::Totals;

/// Intervals in which a process that has ended must be shown as such.
const PATIENCE: usize = 60;

/// The remains of a finished run.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The exit code and the last lines of its output, for a message.
    pub fn brief(&self) -> String {
        let said: Vec<&str> = self.stderr.lines().collect();
        let said = said[said.len().saturating_sub(5)..].join(" / ");
        match self.code {
            Some(code) => format!("exit {code}: {said}"),
            None => format!("killed by a signal: {said}"),
        }
    }
}

/// A command line of the tool, or the reason to skip when it is not in this guest.
pub fn command(arguments: &[&str]) -> Result<Command, Stop> {
    if !Path::new(TOOL_PATH).exists() {
        return Err(Stop::skip("the tool is not in this guest"));
    }
    let mut command = Command::new(TOOL_PATH);
    command.args(arguments).env_clear().env("PATH", "/bin").env("HOME", "/root").env("RUST_BACKTRACE", "1");
    Ok(command)
}

/// Runs the tool to its end.
pub fn run(arguments: &[&str]) -> Result<Output, Stop> {
    finish(command(arguments)?)
}

/// Runs a prepared command line to its end.
pub fn finish(mut command: Command) -> Result<Output, Stop> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{TOOL_PATH} cannot be run: {error}"))?;
    Ok(Output {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs the tool, which must succeed and print one JSON value.
pub fn json(arguments: &[&str]) -> Result<Value, Stop> {
    let output = run(arguments)?;
    if output.code != Some(0) {
        return Err(Stop::fail(format!("numatop-ng {}: {}", arguments.join(" "), output.brief())));
    }
    serde_json::from_str(&output.stdout)
        .map_err(|error| Stop::fail(format!("numatop-ng {} printed no JSON: {error}", arguments.join(" "))))
}

/// A batch run beside a workload, until it is stopped.
pub struct Batch {
    child: Child,
    lines: Receiver<String>,
    arguments: String,
}

impl Batch {
    /// Starts `--batch --json-full` with these further arguments.
    pub fn start(arguments: &[&str]) -> Result<Self, Stop> {
        Batch::start_with(arguments, &[])
    }

    /// The same with these variables in its environment.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Self, Stop> {
        let mut command = command(&["--batch", "--json-full"])?;
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{TOOL_PATH} cannot be run: {error}"))?;
        let stdout = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Batch { child, lines, arguments: arguments.join(" ") })
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for this many intervals whose end the tool saw after now, adds them and those before that were not read;
    /// gives the last. The first that is ever added only sets the mark, and is always a new one.
    ///
    /// A busy guest keeps a case from reading for seconds, so the first output may be old.
    pub fn follow(&mut self, totals: &mut Totals, further: usize) -> Result<Value, Stop> {
        let asked = Timestamp::now();
        let mut last = Value::Null;
        let mut left = further;
        while left > 0 {
            let interval = self.next()?;
            let new = seen_at(&interval)? > asked;
            if new || totals.marked() {
                totals.add(interval.clone())?;
            }
            if new {
                (last, left) = (interval, left - 1);
            }
        }
        Ok(last)
    }

    /// Adds intervals until this process, which has ended, is shown as ended.
    pub fn follow_to_end(&mut self, totals: &mut Totals, pid: i32) -> Result<(), Stop> {
        for _ in 0..PATIENCE {
            if totals.has_ended(pid) {
                return Ok(());
            }
            totals.add(self.next()?)?;
        }
        Err(Stop::fail(format!("process {pid} is not shown as ended, after {PATIENCE} intervals")))
    }

    /// The next interval; waits for it.
    pub fn next(&mut self) -> Result<Value, Stop> {
        match self.lines.recv() {
            Ok(line) => parse(&line),
            Err(_) => {
                let output = self.end()?;
                Err(Stop::fail(format!(
                    "numatop-ng --batch {} ended early: {}",
                    self.arguments,
                    output.brief()
                )))
            }
        }
    }

    /// Asks the tool to end, which it must do in good order.
    pub fn stop(mut self) -> Result<(), Stop> {
        // SAFETY: the child is ours and has not been waited for, so the pid is its.
        unsafe { libc::kill(self.pid(), libc::SIGTERM) };
        let output = self.end()?;
        match output.code {
            Some(0) => Ok(()),
            _ => Err(Stop::fail(format!(
                "numatop-ng --batch {}, at SIGTERM: {}",
                self.arguments,
                output.brief()
            ))),
        }
    }

    fn end(&mut self) -> Result<Output, Stop> {
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            let _ = pipe.read_to_string(&mut stderr);
        }
        let status = self.child.wait().map_err(|error| format!("waiting for the tool: {error}"))?;
        Ok(Output { code: status.code(), stdout: String::new(), stderr })
    }
}

/// When the tool looked at the end of an interval.
pub fn seen_at(interval: &Value) -> Result<Timestamp, Stop> {
    let time = interval["time"].as_str().unwrap_or_default();
    time.parse().map_err(|error| Stop::fail(format!("the time {time:?} of an interval: {error}")))
}

fn parse(line: &str) -> Result<Value, Stop> {
    serde_json::from_str(line)
        .map_err(|error| Stop::fail(format!("an interval is not JSON: {error}: {line:.200}")))
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
