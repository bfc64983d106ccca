//! Commands that `run` starts, and trees of processes: everything is counted, and the command is not
//! affected.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use numatop_ng::container::scope::Scope;
use numatop_ng::model::sample::Sample;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use serde_json::Value as Json;

use crate::program;
use crate::recording::{Place, text};
use crate::workload::VARIABLE;

/// Children of the workload that makes many.
const CHILDREN: u64 = 10_000;

/// Page faults and context switches of a process around its own look at them: its start and its end.
const ASIDE: u64 = 1_500;

/// `run` with these words, and a page in JSON.
fn run(words: &[&str]) -> Result<(Output, Json)> {
    let place = Place::new("run", None)?;
    let page = place.path.join("page");
    let begin = ["run", "--format", "json", "-o", text(&page)?];
    let output = Command::new(program::path()).args(begin).args(words).stdin(Stdio::null()).output()?;
    let page = fs::read_to_string(&page)
        .with_context(|| format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((output, serde_json::from_str(&page)?))
}

fn number(page: &Json, key: &str) -> Result<f64> {
    page["series"][0]["runs"][0][key].as_f64().with_context(|| format!("no {key} in {page:#}"))
}

pub fn the_exit_code_is_that_of_the_command() -> Result<()> {
    for (words, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/nonexistent/program"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = Command::new(program::path()).args(["run", "--"]).args(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code), "{words:?}: {:?}, {said}", output.status);
        ensure!(output.stdout.is_empty() && !said.is_empty(), "{words:?}: {said}");
    }
    Ok(())
}

pub fn standard_input_and_output_are_those_of_the_command() -> Result<()> {
    let mut child = Command::new(program::path())
        .args(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("no input")?.write_all(b"to be copied")?;
    let output = child.wait_with_output()?;
    ensure!(output.stdout == b"to be copied", "{output:?}");
    let page = String::from_utf8(output.stderr)?;
    ensure!(page.contains("cat: exit code 0") && page.contains("elapsed"), "{page}");
    Ok(())
}

/// A running `run`, and what it prints when it is ready.
fn waiting(script: &str) -> Result<Child> {
    let mut child = Command::new(program::path())
        .args(["run", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().context("no output")?, &mut byte)?;
    Ok(child)
}

fn signal(child: &Child, signal: libc::c_int) -> Result<()> {
    // SAFETY: the child is ours and not yet waited for.
    let sent = unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    ensure!(sent == 0, "kill: {}", std::io::Error::last_os_error());
    Ok(())
}

pub fn a_signal_to_the_tool_is_handed_on_to_the_command() -> Result<()> {
    let mut trapped = waiting("trap 'exit 9' TERM; echo; while :; do sleep 0.05; done")?;
    signal(&trapped, libc::SIGTERM)?;
    ensure!(trapped.wait()?.code() == Some(9));
    let mut killed = waiting("echo; exec sleep 60")?;
    // The shell has its own first moments.
    thread::sleep(Duration::from_millis(200));
    signal(&killed, libc::SIGTERM)?;
    ensure!(killed.wait()?.code() == Some(143));
    // A terminal sends it to the command, too: it is not handed on.
    let mut goes_on = waiting("echo; sleep 1; exit 4")?;
    signal(&goes_on, libc::SIGINT)?;
    ensure!(goes_on.wait()?.code() == Some(4));
    Ok(())
}

/// The workload: makes many children that end at once, and prints its page faults and switches with theirs.
pub fn make_children() {
    for _ in 0..CHILDREN {
        // SAFETY: this process has one thread, and the child calls _exit(2) only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: the child is ours and not yet waited for.
        let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
    }
    let used = |whose| {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the structure that is passed.
        unsafe {
            libc::getrusage(whose, usage.as_mut_ptr());
            usage.assume_init()
        }
    };
    let (own, of_children) = (used(libc::RUSAGE_SELF), used(libc::RUSAGE_CHILDREN));
    let faults = own.ru_minflt + of_children.ru_minflt;
    let switches = own.ru_nvcsw + own.ru_nivcsw + of_children.ru_nvcsw + of_children.ru_nivcsw;
    println!("{faults} {switches}");
}

pub fn ten_thousand_short_children_are_all_counted() -> Result<()> {
    let workload = std::env::current_exe()?;
    let variable = format!("{VARIABLE}=children");
    let (output, page) = run(&["--", "env", &variable, text(&workload)?])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(number(&page, "threads_born")? == CHILDREN as f64, "{page:#}");
    ensure!(number(&page, "threads_left")? == 0.0, "{page:#}");
    // None was lost.
    ensure!(page["series"][0]["runs"][0]["lost"] == serde_json::json!({}), "{page:#}");
    ensure!(number(&page, "lost_cpu_s")? == 0.0, "{page:#}");
    let said = String::from_utf8(output.stdout)?;
    let (faults, switches) = said.trim().split_once(' ').context("two numbers")?;
    let near = |counted: f64, truth: &str| -> Result<bool> {
        Ok((counted - truth.parse::<f64>()?).abs() < ASIDE as f64)
    };
    ensure!(near(number(&page, "minor_faults")?, faults)?, "{faults} faults, {page:#}");
    let counted = number(&page, "voluntary_switches")? + number(&page, "involuntary_switches")?;
    ensure!(near(counted, switches)?, "{switches} switches, {page:#}");
    // wait4(2) has the sum of the scheduler's own clock.
    let (cpu, waited) = (number(&page, "cpu_s")?, number(&page, "user_s")? + number(&page, "system_s")?);
    ensure!((cpu - waited).abs() < 0.02 * waited, "{cpu} s, and wait4 has {waited} s");
    Ok(())
}

pub fn a_command_that_leaves_a_daemon_ends_at_its_own_end() -> Result<()> {
    let begin = Instant::now();
    let script = "setsid sleep 4 >/dev/null 2>&1 </dev/null & echo launched";
    let (output, page) = run(&["--", "sh", "-c", script])?;
    ensure!(output.stdout == b"launched\n", "{output:?}");
    ensure!(number(&page, "elapsed_s")? < 2.0 && begin.elapsed() < Duration::from_secs(20), "{page:#}");
    ensure!(number(&page, "threads_left")? >= 1.0, "{page:#}");
    Ok(())
}

pub fn runs_are_repeated_in_each_place() -> Result<()> {
    let words = [
        "--repeat",
        "3",
        "--warmup",
        "1",
        "--bind",
        "cpu:0",
        "--",
        "grep",
        "Cpus_allowed_list",
        "/proc/self/status",
    ];
    let (output, page) = run(&words)?;
    let lines = String::from_utf8(output.stdout)?;
    ensure!(lines.lines().count() == 4 && lines.lines().all(|line| line.ends_with("\t0")), "{lines}");
    let series = &page["series"][0];
    ensure!(series["binding"] == "cpu:0" && series["runs"].as_array().is_some_and(|runs| runs.len() == 3));
    let elapsed: Vec<f64> = series["runs"]
        .as_array()
        .context("no runs")?
        .iter()
        .filter_map(|run| run["elapsed_s"].as_f64())
        .collect();
    let mean = series["mean"]["elapsed_s"].as_f64().context("no mean")?;
    ensure!((mean - elapsed.iter().sum::<f64>() / 3.0).abs() < 1e-6, "{page:#}");
    ensure!(series["standard_deviation"]["elapsed_s"].as_f64().is_some_and(|sd| sd > 0.0), "{page:#}");
    Ok(())
}

pub fn a_command_in_a_pid_namespace_is_found() -> Result<()> {
    // Once with a new /proc, and once with that of the machine, where ids differ.
    for proc in [&["--mount-proc"][..], &[]] {
        let place = Place::new("namespace", None)?;
        let page = place.path.join("page");
        let output = Command::new("unshare")
            .args(["--pid", "--fork"])
            .args(proc)
            .args([program::path(), "run", "--format", "json", "-o", text(&page)?, "--"])
            .args(["sh", "-c", "for i in 1 2 3; do /bin/true; done; exit 5"])
            .stdin(Stdio::null())
            .output()
            .context("starting unshare")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(5), "{proc:?}: {:?}, {said}", output.status);
        let page: Json = serde_json::from_str(&fs::read_to_string(&page)?)?;
        ensure!(number(&page, "threads_born")? == 3.0, "{proc:?}: {page:#}");
        let (cpu, waited) = (number(&page, "cpu_s")?, number(&page, "user_s")? + number(&page, "system_s")?);
        // Only the CPU time of the command counts, not that of the machine.
        ensure!(
            cpu > 0.5 * waited && cpu < 1.5 * waited + 0.02,
            "{proc:?}: {cpu} s, and wait4 has {waited} s"
        );
    }
    Ok(())
}

/// Ids and names of the processes of a sample.
fn processes(sample: &Sample) -> Vec<(u32, String)> {
    sample
        .tasks
        .iter()
        .map(|task| (task.pid, String::from_utf8_lossy(task.comm.bytes()).into_owned()))
        .collect()
}

pub fn a_tree_is_what_it_has_and_what_is_to_come() -> Result<()> {
    // An existing child, and later one whose parent ends at once.
    let script = "sleep 30 & old=$!; echo; read go; (setsid sleep 5 &); read go; kill $old";
    let mut tree =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut byte = [0];
    std::io::Read::read_exact(tree.stdout.as_mut().context("no output")?, &mut byte)?;
    let mut other = Command::new("sleep").arg("30").spawn()?;
    let scope = Scope { trees: [tree.id()].into(), ..Scope::default() };
    let mut source = LiveSource::start(LiveOptions { scope, ..LiveOptions::default() })?;
    let first = processes(&source.next()?.context("no sample")?);
    let mut input = tree.stdin.take().context("no input")?;
    input.write_all(b"go\n")?;
    let begin = Instant::now();
    let later = loop {
        thread::sleep(Duration::from_millis(50));
        let now = processes(&source.next()?.context("no sample")?);
        if now.len() == 3 && now.iter().filter(|(_, comm)| comm == "sleep").count() == 2 {
            break Ok(now);
        }
        if begin.elapsed() > Duration::from_secs(4) {
            break Err(anyhow::anyhow!("{now:?}"));
        }
    };
    drop(input);
    other.kill()?;
    tree.wait()?;
    other.wait()?;
    let later = later?;
    ensure!(first.len() == 2 && first.iter().any(|(_, comm)| comm == "sleep"), "{first:?}");
    ensure!(!later.iter().any(|(pid, _)| *pid == other.id()), "{later:?}");
    Ok(())
}
