//! Process 1: mounts what programs expect, runs the cases one by one, reports EXIT, powers off.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use vmtests_protocol::{CASE_LIMIT, EXIT_WORD, Event, Outcome, PLAN_PATH, Plan};

use crate::cases;
use crate::report::Channel;
use crate::tty;

/// The shell and its programs, where the guest has them.
const BUSYBOX: &str = "/bin/busybox";

/// Runs as process 1 and never returns.
pub fn run() -> ! {
    // A panic of process 1 is a kernel panic: the runner would learn nothing of the cause.
    std::panic::set_hook(Box::new(|info| {
        let _ = writeln!(io::stderr(), "guest: {info}");
        power_off();
    }));
    if let Err(why) = live() {
        let _ = writeln!(io::stderr(), "guest: {why}");
    }
    power_off()
}

fn live() -> Result<(), String> {
    mount_all()?;
    let plan = read_plan()?;
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("PATH", "/bin") };
    if Path::new(BUSYBOX).exists() {
        let installed = Command::new(BUSYBOX).args(["--install", "-s", "/bin"]).status();
        installed.map_err(|error| format!("{BUSYBOX} cannot be run: {error}"))?;
    }
    match &plan.results {
        Some(results) => {
            let channel = Channel::open(results)?;
            let worst = run_cases(&plan, &channel);
            channel.raw_line(&format!("{EXIT_WORD} {worst}"))?;
            channel.drain();
            Ok(())
        }
        None => shell(&plan),
    }
}

pub fn read_plan() -> Result<Plan, String> {
    let text = fs::read(PLAN_PATH).map_err(|error| format!("reading {PLAN_PATH}: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("{PLAN_PATH}: {error}"))
}

fn run_cases(plan: &Plan, channel: &Channel) -> i32 {
    let mut worst = 0;
    channel.send(&Event::Ready {
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.to_owned(),
        uptime: read_trimmed("/proc/uptime")
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0.0),
    });
    let mut cases = plan.cases.iter();
    while let Some(name) = cases.next() {
        let started = Instant::now();
        let verdict = run_case(name);
        let seconds = started.elapsed().as_secs_f64();
        // Processes that the case left running must not disturb the next one. From process 1, -1 is everyone else.
        // SAFETY: kill has no memory effects; process 1 itself is exempt.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        reap_all();
        let end = |case: &String, outcome, reason, seconds| {
            channel.send(&Event::End { case: case.clone(), outcome, reason: Some(reason), seconds });
        };
        match verdict {
            Ok(Outcome::Failed) => worst = 1,
            Ok(_) => {}
            Err(why) => {
                end(name, Outcome::Failed, why, seconds);
                worst = 1;
                // It could not undo its changes: a CPU that is off, a sysctl, a tracer.
                for unreached in cases.by_ref() {
                    let why =
                        format!("{name} was ended from outside, and what it had changed may be so still");
                    end(unreached, Outcome::Skipped, why, 0.0);
                }
            }
        }
    }
    worst
}

/// Runs a case in a separate process, so that its effects on itself end with it.
///
/// The case reports its own end. `Err` is for one that could not.
fn run_case(name: &str) -> Result<Outcome, String> {
    let child = Command::new("/proc/self/exe")
        .args(["case", name])
        .process_group(0)
        .spawn()
        .map_err(|error| format!("starting the case: {error}"))?;
    let pid = child.id() as i32;
    let deadline = Instant::now() + CASE_LIMIT;
    loop {
        match reap() {
            Some((reaped, status)) if reaped == pid => {
                let code = ExitStatus::from_raw(status);
                return cases::outcome_of(code.code())
                    .ok_or_else(|| format!("the case ended with {code} and no verdict"));
            }
            Some(_) => continue,
            None if Instant::now() > deadline => {
                return Err(format!("the case was still running after {} s", CASE_LIMIT.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Takes one dead child, orphans included, without waiting.
fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: status is a valid place for the answer.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

fn reap_all() {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let mut status = 0;
        // SAFETY: as above.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            pid if pid > 0 => continue,
            0 if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => return,
        }
    }
}

fn shell(plan: &Plan) -> Result<(), String> {
    let shell = plan.shell.as_ref().ok_or("the plan has neither results nor a shell")?;
    let console = plan.console.clone();
    let (rows, cols) = (shell.rows, shell.cols);
    let mut command = Command::new("/bin/sh");
    command
        .arg("-l")
        .env("TERM", &shell.term)
        .env("HOME", "/root")
        .env("PS1", "guest# ")
        .current_dir("/root");
    command.env("LINES", rows.to_string()).env("COLUMNS", cols.to_string());
    // SAFETY: the closure makes system calls only, and one allocation before any other thread exists.
    unsafe {
        command.pre_exec(move || tty::become_session_on(&console, rows, cols));
    }
    let mut child = command.spawn().map_err(|error| format!("starting /bin/sh: {error}"))?;
    let pid = child.id() as i32;
    loop {
        let mut status = 0;
        // SAFETY: status is a valid place for the answer.
        if unsafe { libc::waitpid(-1, &mut status, 0) } == pid {
            let _ = child.try_wait();
            return Ok(());
        }
    }
}

fn mount_all() -> Result<(), String> {
    for (kind, target, needed) in [
        ("proc", "/proc", true),
        ("sysfs", "/sys", true),
        ("devtmpfs", "/dev", true),
        ("devpts", "/dev/pts", true),
        ("tmpfs", "/tmp", true),
        ("tmpfs", "/run", true),
        ("securityfs", "/sys/kernel/security", false),
        ("debugfs", "/sys/kernel/debug", false),
        ("tracefs", "/sys/kernel/tracing", false),
        ("bpf", "/sys/fs/bpf", false),
        ("cgroup2", "/sys/fs/cgroup", true),
    ] {
        let _ = fs::create_dir_all(target);
        match mount(kind, target) {
            Err(error) if needed => return Err(format!("mounting {kind} on {target}: {error}")),
            _ => {}
        }
    }
    Ok(())
}

fn mount(kind: &str, target: &str) -> io::Result<()> {
    let (kind, target) = (CString::new(kind)?, CString::new(target)?);
    // SAFETY: both strings live through the call and no data is passed.
    match unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn power_off() -> ! {
    // SAFETY: neither call touches memory of this process.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    // Only reached when this is not process 1 of a guest.
    std::process::exit(1)
}
