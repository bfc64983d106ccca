//! Sampling of accesses in the live view without a flag: the chosen processes, the loaded programs, and the
//! times of both.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::access::is_emulated;
use crate::terminal::Terminal;
use crate::until::{PATIENCE, until};
use crate::workload::Workload;
use numatop_ng::collect::access::AccessProbe;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::model::sample::Sample;
use numatop_ng::model::units::CpuId;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::source::{Focus, Source};

fn online() -> Result<Vec<CpuId>> {
    Ok(numatop_ng::host::topology::read("/".as_ref())?.online_cpus().map(|cpu| cpu.id).collect())
}

pub fn only_chosen_processes_are_sampled() -> Result<()> {
    let hogs = [Workload::start("hog")?, Workload::start("hog")?];
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    let mut probe = AccessProbe::load(&store, 499, 1)?;
    let cpus = online()?;
    probe.choose(Some(&[]))?;
    probe.follow(&cpus)?;
    until("the sampler runs", || Ok(probe.cost_ns() > 0))?;
    ensure!(probe.take()?.is_empty(), "no process is chosen");
    probe.choose(None)?;
    // /proc does not say starts to the nanosecond.
    let mut processes = [None; 2];
    until("all processes are sampled", || {
        for sample in probe.take()? {
            for (hog, process) in hogs.iter().zip(&mut processes) {
                *process = process.or((sample.process.0 == hog.pid()).then_some(sample.process));
            }
        }
        Ok(processes.iter().all(Option::is_some))
    })?;
    for chosen in processes.into_iter().flatten() {
        probe.choose(Some(&[chosen]))?;
        // Drop what others left in the ring.
        probe.take()?;
        let mut samples = 0;
        until("the chosen process is sampled", || {
            for sample in probe.take()? {
                ensure!(sample.process == chosen, "{:?}", sample.process);
                samples += 1;
            }
            Ok(samples >= 100)
        })?;
    }
    // A process with the id of a chosen one is another one if it began at another time.
    probe.choose(Some(&[(hogs[0].pid(), 1)]))?;
    probe.take()?;
    let cost_ns = probe.cost_ns();
    until("the sampler runs on", || Ok(probe.cost_ns() > cost_ns + 100_000))?;
    ensure!(probe.take()?.is_empty());
    Ok(())
}

pub fn a_rate_of_zero_samples_nothing() -> Result<()> {
    let _hog = Workload::start("hog")?;
    let store = maps::create(RecordLayout::new(1, false, &[]))?;
    let mut probe = AccessProbe::load(&store, 499, 1)?;
    let cpus = online()?;
    probe.follow(&cpus)?;
    until("the sampler runs", || Ok(probe.cost_ns() > 0))?;
    probe.set_rate(0);
    probe.follow(&cpus)?;
    let cost_ns = probe.cost_ns();
    std::thread::sleep(Duration::from_millis(300));
    ensure!(probe.cost_ns() == cost_ns, "it ran on");
    probe.set_rate(97);
    probe.follow(&cpus)?;
    until("the sampler runs again", || Ok(probe.cost_ns() > cost_ns))
}

pub fn a_focus_has_its_processes_sampled_and_no_others() -> Result<()> {
    if is_emulated() {
        return Ok(());
    }
    let (one, other) = (Workload::start("hog")?, Workload::start("hog")?);
    let mut source = LiveSource::start(LiveOptions::default())?;
    let focus = |accesses| Focus { accesses, ..Focus::default() };
    let mut next = source_next(&mut source);
    let first = next(None)?;
    ensure!(first.memory_use.is_none(), "nothing was wanted yet");
    let process = |of: &Workload| {
        let task = first.tasks.iter().find(|task| task.tid == of.pid()).context("no row")?;
        Ok::<_, anyhow::Error>(task.process())
    };
    for wanted in [process(&one)?, process(&other)?] {
        let mut last = Some(focus(Some(vec![wanted])));
        let mut before: Option<u64> = None;
        until("the process is sampled", || {
            let sample = next(last.take())?;
            let uses = sample.memory_use.context("the sampler is not loaded")?;
            let samples = |process| uses.processes.get(&process).map_or(0, |found| found.samples);
            // The window still has earlier samples, and gets no new ones.
            let rest: u64 =
                uses.processes.keys().filter(|one| **one != wanted).map(|one| samples(*one)).sum();
            ensure!(before.is_none_or(|before| rest <= before + 1), "{rest} samples of others");
            before = (samples(wanted) > 0).then_some(rest);
            Ok(samples(wanted) >= 10)
        })?;
    }
    ensure!(next(Some(focus(None)))?.memory_use.is_none(), "it is loaded still");
    Ok(())
}

/// The next sample, a moment after the focus was changed.
fn source_next(source: &mut LiveSource) -> impl FnMut(Option<Focus>) -> Result<Sample> {
    move |focus| {
        focus.into_iter().for_each(|focus| source.focus(focus));
        std::thread::sleep(Duration::from_millis(100));
        source.next()?.context("a live source goes on")
    }
}

/// BPF programs and perf events that a process has open.
fn loaded(pid: u32) -> Result<(usize, usize)> {
    let (mut programs, mut events) = (0, 0);
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // It may have been closed meanwhile.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        programs += usize::from(target.contains("bpf-prog"));
        events += usize::from(target.contains("[perf_event]"));
    }
    Ok((programs, events))
}

/// The live view of a workload that uses memory.
fn live(workload: &Workload, more: &[&str]) -> Result<Terminal> {
    let pid = workload.pid().to_string();
    let words = [&["-d", "0.3", "-p", pid.as_str()], more].concat();
    let mut terminal = Terminal::start(&words, 40, 130)?;
    terminal.until("row of the workload", |text| text.contains(&pid) && text.contains("COMMAND"))?;
    Ok(terminal)
}

fn memory() -> Result<Workload> {
    let mut workload = Workload::start_with("memory-mixed-random", |command| {
        command.env("NUMATOP_NG_TEST_TENTHS", "9");
    })?;
    workload.line()?;
    workload.go()?;
    Ok(workload)
}

/// Waits until the loaded programs are as `wanted`, while the screen continues.
fn until_loaded(terminal: &mut Terminal, what: &str, wanted: impl Fn((usize, usize)) -> bool) -> Result<()> {
    let (pid, end) = (terminal.pid()?, Instant::now() + PATIENCE);
    while !wanted(loaded(pid)?) {
        ensure!(Instant::now() < end, "{what}: {:?}\n{}", loaded(pid)?, terminal.text());
        terminal.take_in(Duration::from_millis(50));
    }
    Ok(())
}

pub fn the_details_sample_their_process_and_leave_nothing_behind() -> Result<()> {
    let workload = memory()?;
    let mut terminal = live(&workload, &[])?;
    let before = loaded(terminal.pid()?)?;
    if numatop_ng::host::topology::read("/".as_ref())?.nodes.len() == 1 {
        // Nothing is remote: no row is worth it.
        terminal.take_in(Duration::from_secs(1));
        ensure!(loaded(terminal.pid()?)? == before, "{before:?}");
    }
    terminal.press("\r")?;
    terminal.until("details", |text| text.contains("cgroup"))?;
    terminal.press("m")?;
    if is_emulated() {
        return Ok(());
    }
    terminal.until("use of mappings", |text| {
        text.contains("USE%") && text.contains("share of memory-access time")
    })?;
    until_loaded(&mut terminal, "the sampler is loaded", |now| now.0 > before.0 && now.1 > before.1)?;
    // Off is off at once, whatever is on the screen.
    terminal.press("U")?;
    terminal.until("a word about it", |text| text.contains("sampling off"))?;
    until_loaded(&mut terminal, "nothing is left", |now| now == before)?;
    terminal.press("U")?;
    until_loaded(&mut terminal, "it is loaded again", |now| now.0 > before.0 && now.1 > before.1)?;
    // Rows come and go: ten seconds after the last one it is unloaded.
    terminal.press("\u{1b}")?;
    if numatop_ng::host::topology::read("/".as_ref())?.nodes.len() == 1 {
        until_loaded(&mut terminal, "nothing is left after the view", |now| now == before)?;
    }
    terminal.press("q")?;
    ensure!(terminal.ended()?.exit_code() == 0);
    Ok(())
}

pub fn with_no_access_the_details_sample_nothing() -> Result<()> {
    let workload = memory()?;
    let mut terminal = live(&workload, &["--no-access"])?;
    let before = loaded(terminal.pid()?)?;
    terminal.press("\r")?;
    terminal.until("details", |text| text.contains("cgroup"))?;
    terminal.press("m")?;
    terminal.until("mappings", |text| text.contains("MEM BY NODE"))?;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        terminal.take_in(Duration::from_millis(100));
        ensure!(loaded(terminal.pid()?)? == before, "{before:?}");
    }
    ensure!(!terminal.text().contains("USE%"), "{}", terminal.text());
    terminal.press("q")?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.exit_code() == 0);
    Ok(())
}
