//! Attacks by an ordinary user on hot spots that root samples: nothing ends, hangs or grows, and names of others stay.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::fs::inotify;
use serde_json::Value;

use crate::command::Ours;
use crate::hostile;
use crate::program;
use crate::workload::{ForEverybody, Workload};

/// The user "nobody".
const NOBODY: u32 = 65_534;
/// Peak memory of the tool and of its symbolizer, each, in KiB. Pages of files are not counted: those of a debug build are
/// several times those of a release.
const RSS_MAX_KIB: u64 = 105 << 10;
/// The same where names are without end: the tool and both of its helpers together stay below 150 MB.
const NAMES_RSS_MAX_KIB: u64 = 64 << 10;
/// Intervals that are looked at, at least.
const INTERVALS: usize = 5;
const INTERVAL_S: f64 = 0.5;

/// A hostile program of an ordinary user, and a directory of his.
pub struct Attacker {
    workload: Workload,
    dir: PathBuf,
    _program: ForEverybody,
}

impl Attacker {
    pub fn start(name: &str) -> Result<Attacker> {
        Attacker::start_in(name, |_| Ok(()))
    }

    /// As [`Attacker::start`], after `prepare` has put into the directory what the program needs.
    fn start_in(name: &str, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Attacker> {
        let dir = std::env::temp_dir().join(format!("numatop-ng-{name}-{}", std::process::id()));
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
        prepare(&dir)?;
        let program = ForEverybody::copy(&std::env::current_exe()?)?;
        let workload = Workload::start_program(&program.program, name, |command| {
            command.uid(NOBODY).gid(NOBODY).env(hostile::DIR, &dir).current_dir("/");
        })?;
        Ok(Attacker { workload, dir, _program: program })
    }

    pub fn pid(&self) -> u32 {
        self.workload.pid()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.workload.finish();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The output of the tool until it was stopped or finished writing, and its peak memory in KiB.
struct Run {
    lines: Vec<Value>,
    rss_kib: u64,
}

/// The peak memory since its start of the process of this id, or of one of its descendants.
fn peak_kib(pid: u32) -> u64 {
    let number = |status: &str, field: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let statuses = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let all: Vec<(u64, u64, u64)> = statuses
        .filter_map(|status| {
            Some((
                number(&status, "Pid:")?,
                number(&status, "PPid:")?,
                number(&status, "VmHWM:")
                    .zip(number(&status, "RssFile:"))
                    .map_or(0, |(all, file)| all.saturating_sub(file)),
            ))
        })
        .collect();
    let mut ours = vec![u64::from(pid)];
    // The process that opens files, and the one that reads them.
    for _ in 0..2 {
        ours.extend(
            all.iter()
                .filter(|(pid, parent, _)| ours.contains(parent) && !ours.contains(pid))
                .map(|one| one.0)
                .collect::<Vec<_>>(),
        );
    }
    all.iter().filter(|(pid, ..)| ours.contains(pid)).map(|(.., peak)| *peak).max().unwrap_or_default()
}

/// Runs the tool until it ends, or until its output fulfils `enough`: then SIGTERM ends it, in good order.
fn run_until(words: &[&str], enough: impl Fn(&[Value]) -> bool) -> Result<Run> {
    let mut command = Command::new(program::path());
    let child = command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Ours(child.context("starting numatop-ng")?);
    let (mut lines, mut rss_kib, mut told) = (Vec::new(), 0, false);
    for line in BufReader::new(child.0.stdout.take().context("stdout")?).lines() {
        lines.push(serde_json::from_str(&line?).context("a line is not JSON")?);
        rss_kib = rss_kib.max(peak_kib(child.0.id()));
        if !told && enough(&lines) {
            child.signal(libc::SIGTERM)?;
            told = true;
        }
    }
    let status = child.ended()?;
    ensure!(status.success(), "{status}, killed by {:?}", status.signal());
    Ok(Run { lines, rss_kib })
}

fn run(words: &[&str]) -> Result<Run> {
    run_until(words, |_| false)
}

/// Samples everything while the hostile program of this name runs, and another of root whose functions are known.
fn sampled_beside(name: &str) -> Result<()> {
    let attacker = Attacker::start(name)?;
    let innocent = Workload::start("shares")?;
    let length = INTERVAL_S.to_string();
    let hostile = attacker.pid().to_string();
    let words = ["-b", "-n", "40", "-d", &length, "--json-full", "--hot", "--hot-event", "cpu-clock"];
    let rate = ["--hot-rate", "997", "--events", "", "-p", &hostile, "-p", &innocent.pid().to_string()];
    let sampled = |lines: &[Value]| functions(lines, attacker.pid()).next().is_some();
    let named = |lines: &[Value]| functions(lines, innocent.pid()).any(|name| name.ends_with("sixty"));
    let enough = |lines: &[Value]| lines.len() >= INTERVALS && sampled(lines) && named(lines);
    let run = run_until(&[&words[..], &rate[..]].concat(), enough)?;
    ensure!((1..=RSS_MAX_KIB).contains(&run.rss_kib), "{} KiB at the peak", run.rss_kib);
    for line in &run.lines {
        let length = line["interval_ns"].as_f64().context("interval_ns")? / 1e9;
        // Half a second is what names are waited for.
        ensure!((INTERVAL_S / 2.0..INTERVAL_S * 8.0).contains(&length), "an interval of {length} s");
    }
    ensure!(sampled(&run.lines), "the hostile program was not sampled");
    ensure!(named(&run.lines), "the other program has no names in {} intervals", run.lines.len());
    println!("{name}: {} KiB at the peak, {} intervals", run.rss_kib, run.lines.len());
    Ok(())
}

/// The functions of a process in all intervals.
fn functions(lines: &[Value], pid: u32) -> impl Iterator<Item = String> {
    let processes = lines.iter().filter_map(|line| line["hot"]["processes"].as_array()).flatten();
    let process = processes.filter(move |process| process["pid"] == pid);
    let functions = process.filter_map(|process| process["functions"].as_array()).flatten();
    functions.filter_map(|function| function["function"].as_str().map(str::to_string))
}

pub fn a_library_that_is_truncated_while_it_is_read_ends_nothing() -> Result<()> {
    sampled_beside("hostile-truncating")
}

pub fn a_library_with_a_terabyte_of_symbols_takes_no_memory() -> Result<()> {
    sampled_beside("hostile-giant")
}

pub fn a_perf_map_that_is_truncated_while_it_is_read_ends_nothing() -> Result<()> {
    sampled_beside("hostile-map-truncating")
}

pub fn a_perf_map_of_250_mib_takes_no_memory_and_no_time() -> Result<()> {
    sampled_beside("hostile-map-huge")
}

/// Random callers, each with a name of 390 characters: the memory of names does not follow their number.
pub fn names_without_end_take_bounded_memory() -> Result<()> {
    const LONG: usize = 40;
    let attacker = Attacker::start("hostile-map-names")?;
    let pid = attacker.pid().to_string();
    let words = ["-b", "-n", "60", "-d", "0.5", "--json-full", "--hot", "--hot-event", "cpu-clock"];
    let rate = ["--hot-rate", "997", "--events", "", "-p", &pid];
    let run = run_until(&[&words[..], &rate[..]].concat(), |lines| lines.len() >= LONG)?;
    ensure!((1..=NAMES_RSS_MAX_KIB).contains(&run.rss_kib), "{} KiB at the peak", run.rss_kib);
    let names: std::collections::HashSet<String> = functions(&run.lines, attacker.pid()).collect();
    ensure!(names.iter().any(|name| name.len() > 300), "the names were not found: {names:?}");
    println!("names: {} KiB at the peak, {} intervals", run.rss_kib, run.lines.len());
    Ok(())
}

pub fn a_perf_map_that_becomes_a_pipe_is_not_waited_for() -> Result<()> {
    sampled_beside("hostile-map-flapping")
}

pub fn a_recording_goes_on_beside_a_library_that_is_truncated() -> Result<()> {
    let attacker = Attacker::start("hostile-truncating")?;
    let file = attacker.dir.join("x.nrec");
    let path = file.to_str().context("a directory in UTF-8")?;
    let pid = attacker.pid().to_string();
    let hot = ["--hot", "--hot-event", "cpu-clock", "--hot-rate", "997", "-d", "0.3", "-n", "8", "-p", &pid];
    run(&[&["record", path][..], &hot].concat())?;
    let replayed = run(&["export", path, "--format", "json", "--json-full"])?;
    ensure!(replayed.lines.len() == 8, "{} intervals", replayed.lines.len());
    Ok(())
}

/// A perf map that is a link to a pipe, a device and a file of the kernel's: none of them is opened.
pub fn a_link_to_a_pipe_or_a_device_is_not_opened() -> Result<()> {
    for target in ["pipe", "/dev/full", "/proc/version", "/etc/hostname"] {
        let attacker = Attacker::start_in("hostile-map-link", |dir| {
            let place = dir.join("target");
            if target == "pipe" {
                let path = std::ffi::CString::new(place.as_os_str().as_encoded_bytes())?;
                // SAFETY: a NUL-terminated path.
                ensure!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0, "mkfifo");
            } else {
                std::os::unix::fs::symlink(target, &place)?;
            }
            Ok(())
        })?;
        let link = format!("/tmp/perf-{}.map", attacker.pid());
        ensure!(fs::symlink_metadata(&link)?.uid() == NOBODY, "the attack is not there");
        let opened = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let watched = if target == "pipe" { attacker.dir.join("target") } else { PathBuf::from(target) };
        inotify::add_watch(&opened, &watched, inotify::WatchFlags::OPEN)?;
        let pid = attacker.pid().to_string();
        let words = ["-b", "-n", "2", "-d", "0.4", "--json-full", "--hot", "--hot-event", "cpu-clock"];
        let sampled = run(&[&words[..], &["--events", "", "-p", &pid]].concat())?;
        let seen = functions(&sampled.lines, attacker.pid()).next().is_some();
        ensure!(seen, "the hostile program was not sampled");
        let mut bytes = [0; 512];
        match rustix::io::read(&opened, &mut bytes) {
            Err(rustix::io::Errno::AGAIN) => {}
            other => anyhow::bail!("{} was opened: {other:?}", watched.display()),
        }
    }
    Ok(())
}

/// A limit on memory below the need of the symbolizer, and descriptors that the parent of the tool left open.
pub fn names_are_found_under_low_limits_and_beside_inherited_descriptors() -> Result<()> {
    let innocent = Workload::start("shares")?;
    let pid = innocent.pid().to_string();
    let mut command = Command::new(program::path());
    command.args(["-b", "-n", "4", "-d", "0.5", "--json-full", "--hot", "--hot-event", "cpu-clock"]);
    command.args(["--hot-rate", "997", "--events", "", "-p", &pid]).stdin(Stdio::null());
    let limit = libc::rlimit { rlim_cur: 48 << 20, rlim_max: 48 << 20 };
    // SAFETY: both calls may be made between fork and exec, and the limit outlives them.
    unsafe {
        command.pre_exec(move || {
            for descriptor in 10..40 {
                if libc::dup2(0, descriptor) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            match libc::setrlimit(libc::RLIMIT_DATA, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().context("starting numatop-ng")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let named = functions(&lines, innocent.pid()).any(|name| name.ends_with("sixty"));
    ensure!(named, "{:?}", lines.last().map(|line| line["hot"].clone()));
    Ok(())
}
