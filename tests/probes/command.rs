//! The built binary as a program sees it: batch output, its keys, its endings.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::json_reader::{Reader, in_full};
use crate::program;
use crate::until::until;
use crate::workload::{ForEverybody, Workload};

pub fn numatop(words: &[&str]) -> Result<Output> {
    Command::new(program::path()).args(words).stdin(Stdio::null()).output().context("starting numatop-ng")
}

pub fn intervals(words: &[&str]) -> Result<Vec<Value>> {
    intervals_of(&numatop(words)?)
}

/// The last interval of a run that went well.
pub fn last_interval(output: &Output) -> Result<Value> {
    intervals_of(output)?.pop().context("no interval")
}

fn intervals_of(output: &Output) -> Result<Vec<Value>> {
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let text = std::str::from_utf8(&output.stdout)?;
    let mut reader = Reader::default();
    let lines = text.lines().map(|line| serde_json::from_str(line).context("a line is not JSON"));
    lines.map(|line| Ok(in_full(reader.read(line?)))).collect()
}

fn task(interval: &Value, pid: u32) -> Result<&Value> {
    let tasks = interval["tasks"].as_array().context("tasks is no array")?;
    tasks.iter().find(|task| task["pid"] == pid).with_context(|| format!("no row for {pid}"))
}

pub fn json_has_every_metric_or_its_reason() -> Result<()> {
    let began = Instant::now();
    let lines = intervals(&["-b", "-n", "2", "-d", "0.3", "--json-full"])?;
    let took = began.elapsed().as_nanos() as u64;
    ensure!(lines.len() == 2, "{} lines for -n 2", lines.len());
    for line in &lines {
        ensure!(line["schema"] == 1);
        let length = line["interval_ns"].as_u64().context("interval_ns")?;
        ensure!((200_000_000..took).contains(&length), "an interval of {length} ns in a run of {took} ns");
        for key in ["hostname", "kernel", "arch", "cpus", "nodes", "pmu"] {
            ensure!(line["host"].get(key).is_some(), "host has no {key}");
        }
        ensure!(line["lost"].is_object() && line["self"]["self_rss_bytes"].as_u64() > Some(0));
        let missing = line["missing"].as_object().context("missing is no object")?;
        for (key, value) in line["host"].as_object().context("host is no object")? {
            ensure!(!value.is_null() || missing.contains_key(key), "host has no {key} and no reason");
        }
        for task in line["tasks"].as_array().context("tasks")? {
            for metric in numatop_ng::metric::task::TASK_METRICS.iter().filter(|metric| metric.id != "tid") {
                let value = task.get(metric.id).with_context(|| format!("a task has no {}", metric.id))?;
                ensure!(
                    !value.is_null() || missing.contains_key(metric.id),
                    "{} is null without a reason",
                    metric.id
                );
            }
        }
        let nodes = line["nodes"].as_array().context("nodes")?;
        // A node may have CPUs only.
        ensure!(nodes.iter().any(|node| node["mem_total_bytes"].as_u64() > Some(0)));
    }
    Ok(())
}

pub fn threads_have_rows_of_their_own() -> Result<()> {
    let mut threads = Workload::start("threads")?;
    threads.go()?;
    let pid = threads.pid().to_string();
    let lines = intervals(&["-b", "-n", "1", "-d", "0.3", "--format", "json", "--threads", "-p", &pid])?;
    let tasks = lines[0]["tasks"].as_array().context("tasks")?;
    ensure!(!tasks.is_empty());
    ensure!(tasks.iter().all(|task| task["tid"].is_u64() && task["pid"] == threads.pid()), "{tasks:?}");
    Ok(())
}

pub fn what_columns_ask_for_is_read_from_proc() -> Result<()> {
    let pinned = Workload::start_with("bound", |command| {
        command.arg("two words").env("NUMATOP_NG_TEST_CPU", "0");
    })?;
    let pid = pinned.pid().to_string();
    let columns = "cmdline,cpus_allowed,mems_allowed,mempolicy";
    let lines = intervals(&["-n", "1", "-d", "0.3", "--format", "json", "-p", &pid, "--columns", columns])?;
    let row = task(&lines[0], pinned.pid())?;
    let cmdline = row["cmdline"].as_str().with_context(|| format!("no cmdline: {lines:?}"))?;
    ensure!(cmdline.ends_with(" two words"), "{cmdline}");
    ensure!(row["cpus_allowed"] == "0", "{row}");
    ensure!(row["mempolicy"] == "bind=static:0", "{row}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mems = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:\t"));
    ensure!(row["mems_allowed"].as_str() == mems, "{row}");
    Ok(())
}

pub fn columns_sort_top_and_comm_select() -> Result<()> {
    let _hogs = [Workload::start("hog")?, Workload::start("hog")?, Workload::start("hog")?];
    let name = std::fs::read_to_string("/proc/self/comm")?;
    let comm = format!("^{}$", name.trim());
    let words = [
        "-b",
        "-n",
        "1",
        "-d",
        "1",
        "--json-full",
        "--columns",
        "cpu_pct",
        "--sort",
        "-cpu_pct",
        "--top",
        "2",
        "--comm",
        &comm,
    ];
    let lines = intervals(&words)?;
    let tasks = lines[0]["tasks"].as_array().context("tasks")?;
    ensure!(tasks.len() == 2, "{} rows for --top 2", tasks.len());
    let keys: BTreeSet<&str> = tasks[0].as_object().context("a task")?.keys().map(String::as_str).collect();
    ensure!(keys == ["cpu_pct", "exited", "pid"].into(), "{keys:?}");
    ensure!(tasks[0]["cpu_pct"].as_f64() <= tasks[1]["cpu_pct"].as_f64(), "not ascending: {tasks:?}");
    Ok(())
}

pub fn hostile_names_reach_no_output() -> Result<()> {
    let mut hostile = Workload::start_with("brief", |command| {
        command.env("NUMATOP_NG_TEST_COMM", "\u{1b}]0;P\u{7}\u{9b}\u{202e}x\n,\"");
    })?;
    let pid = hostile.pid().to_string();
    for format in ["text", "json", "csv"] {
        let output = numatop(&["-b", "-n", "1", "-d", "0.1", "--format", format, "-p", &pid])?;
        ensure!(output.status.success());
        let text = String::from_utf8(output.stdout).context("output is not UTF-8")?;
        ensure!(text.contains("P"), "{format}: the row is not there");
        let bad = text.chars().find(|c| (c.is_control() && !"\r\n".contains(*c)) || *c == '\u{202e}');
        ensure!(bad.is_none(), "{format}: {bad:?} got through");
        if format == "csv" {
            ensure!(text.lines().count() == 2, "a name broke a CSV line: {text}");
        }
    }
    hostile.go()?;
    hostile.finish()
}

pub fn without_capabilities_it_says_which_and_exits_3() -> Result<()> {
    let copy = ForEverybody::copy(Path::new(program::path()))?;
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy.program)
        .args(["-b", "-n", "1"])
        .output()
        .context("starting setpriv (util-linux)")?;
    // A line may end within a phrase.
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(output.status.code() == Some(3), "{}: {said}", output.status);
    for word in ["CAP_BPF", "CAP_PERFMON", "setcap", "Operation not permitted"] {
        ensure!(said.contains(word), "'{word}' is not said: {said}");
    }
    Ok(())
}

/// A child that is killed if it is still there when dropped.
pub struct Ours(pub Child);

impl Ours {
    pub fn signal(&self, signal: libc::c_int) -> Result<()> {
        // SAFETY: kill has no memory to go wrong with; the child is ours and not yet waited for.
        let sent = unsafe { libc::kill(self.0.id() as libc::pid_t, signal) };
        ensure!(sent == 0, "kill: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        until("the program ends", || {
            status = self.0.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("until it has one")
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run that has written its first line; the rest is not read.
fn running(words: &[&str]) -> Result<Ours> {
    let child =
        Command::new(program::path()).args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut child = Ours(child);
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().context("stdout")?).read_line(&mut line)?;
    ensure!(!line.is_empty(), "nothing was written");
    Ok(child)
}

pub fn a_signal_ends_batch_mode_at_once_and_cleanly() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut child = running(&["-b", "-d", "0.2", "--format", "json"])?;
        // Now in a long wait: the signal must not have to wait for the interval.
        child.signal(signal)?;
        let status = child.ended()?;
        let mut said = String::new();
        child.0.stderr.take().context("stderr")?.read_to_string(&mut said)?;
        ensure!(status.success(), "signal {signal}: {status}, killed by {:?}: {said}", status.signal());
        ensure!(said.is_empty(), "{said}");
    }
    Ok(())
}

pub fn a_signal_ends_batch_mode_that_nobody_reads() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let (_reader, writer) = std::io::pipe()?;
        let words = ["-b", "-d", "0.1", "--format", "json"];
        let mut child = Ours(Command::new(program::path()).args(words).stdout(writer.try_clone()?).spawn()?);
        let mut room = libc::pollfd { fd: writer.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one valid pollfd, of a pipe that is open.
        until("the pipe is full", || Ok(unsafe { libc::poll(&mut room, 1, 0) } == 0))?;
        child.signal(signal)?;
        let status = child.ended()?;
        ensure!(status.success(), "signal {signal}: {status}, killed by {:?}", status.signal());
    }
    Ok(())
}

pub fn a_closed_pipe_ends_batch_mode() -> Result<()> {
    let mut child = running(&["-b", "-d", "0.1", "--format", "json"])?;
    drop(child.0.stdout.take());
    ensure!(child.ended()?.success());
    Ok(())
}

pub fn doctor_agrees_that_the_live_view_works() -> Result<()> {
    let output = numatop(&["doctor", "--format", "json"])?;
    ensure!(output.status.success(), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["schema"] == 1, "{report}");
    Ok(())
}

pub fn overhead_is_measured_when_asked_for() -> Result<()> {
    let lines = intervals(&["-b", "-n", "5", "-d", "0.4", "--format", "json", "--overhead"])?;
    ensure!(lines.len() == 5, "{} intervals", lines.len());
    let mut times = Vec::new();
    for line in &lines {
        let switch = &line["self"]["programs"]["on_sched_switch"];
        let (ns, runs) = (switch["probe_ns"].as_f64(), switch["probe_runs_per_s"].as_f64());
        // No machine switches less than once a second.
        ensure!(ns > Some(10.0) && runs > Some(1.0), "{switch}");
        let share = ns.zip(runs).map(|(ns, runs)| ns * runs / 1e7);
        let shown = switch["probe_cpu_pct"].as_f64();
        ensure!(share.zip(shown).is_some_and(|(a, b)| (a - b).abs() < 0.01), "{share:?} {shown:?}");
        times.extend(ns);
    }
    // No switch takes a tenth of a millisecond. A host that stops the CPU within one makes it
    // milliseconds, and forty switches of one interval do not hide that; their median does.
    times.sort_by(f64::total_cmp);
    println!("{times:?} ns");
    ensure!(times[2] < 100_000.0, "{times:?} ns");
    let plain = intervals(&["-b", "-n", "1", "-d", "0.2", "--format", "json"])?;
    ensure!(plain[0]["self"].get("programs").is_none(), "statistics that nobody asked for");
    Ok(())
}

pub fn json_counts_named_events() -> Result<()> {
    let hog = Workload::start("hog")?;
    let pid = hog.pid().to_string();
    let lines = intervals(&[
        "-b",
        "-n",
        "1",
        "-d",
        "1",
        "--format",
        "json",
        "--events",
        "cpu-clock,page-faults",
        "-p",
        &pid,
    ])?;
    let counters = &task(&lines[0], hog.pid())?["counters"];
    ensure!(counters["cpu-clock"].as_u64() > Some(100_000_000), "{counters}");
    ensure!(counters["page-faults"].is_u64(), "{counters}");
    Ok(())
}
