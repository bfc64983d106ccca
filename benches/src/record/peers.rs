//! Other recorders on the same machine with the same load.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Scratch;
use crate::Plan;
use crate::numbers::Spread;
use crate::process::{Process, cpu_time, on_path};
use crate::report::{Cell, Report, Table};

/// Until a recorder has started and has written what it writes once.
const WARM_UP: Duration = Duration::from_secs(4);

/// Where Debian and others put the collector of sar.
const SADC: [&str; 2] = ["/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc"];

/// Another recorder of tasks, once a second if that can be chosen.
struct Peer {
    name: &'static str,
    /// The tasks in its recording.
    knows: &'static str,
    command: fn(&Plan, &Path) -> Option<Command>,
}

const PEERS: [Peer; 5] = [
    Peer {
        name: "numatop-ng record",
        knows: "every task, its nodes, switches, waits, counters",
        command: ours,
    },
    Peer { name: "atop -w", knows: "every process, no nodes", command: atop },
    Peer { name: "below record", knows: "every process and cgroup, no nodes", command: below },
    Peer { name: "sadc -S ALL", knows: "no tasks: the machine only", command: sadc },
    Peer { name: "perf sched record", knows: "every switch and wake-up", command: perf_sched },
];

fn ours(plan: &Plan, to: &Path) -> Option<Command> {
    let mut command = Command::new(&plan.binary);
    command.arg("record").arg(to).args(["-d", "1"]);
    Some(command)
}

fn atop(_: &Plan, to: &Path) -> Option<Command> {
    let mut command = Command::new(on_path("atop")?);
    command.arg("-w").arg(to).arg("1");
    Some(command)
}

fn below(_: &Plan, to: &Path) -> Option<Command> {
    let config = to.with_extension("conf");
    let (store, log) = (to.join("store"), to.join("log"));
    let text = format!("log_dir = {log:?}\nstore_dir = {store:?}\n");
    std::fs::write(&config, text).ok()?;
    let mut command = Command::new(on_path("below")?);
    command.arg("--config").arg(config).args(["record", "--interval-s", "1"]);
    Some(command)
}

fn sadc(_: &Plan, to: &Path) -> Option<Command> {
    let mut command = Command::new(SADC.iter().find(|path| Path::new(path).exists())?);
    command.args(["-S", "ALL", "1"]).arg(to);
    Some(command)
}

fn perf_sched(_: &Plan, to: &Path) -> Option<Command> {
    let mut command = Command::new(on_path("perf")?);
    command.args(["sched", "record", "-o"]).arg(to).args(["--", "sleep", "1000"]);
    Some(command)
}

/// Bytes of a file, or of all below a directory; 0 if it is missing.
fn bytes(path: &Path) -> u64 {
    let Ok(meta) = path.metadata() else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| bytes(&entry.path())).sum()
}

/// # Errors
/// A recorder that is here ended by itself, or its CPU time cannot be read.
pub fn run(plan: &Plan, report: &mut Report, scratch: &Scratch) -> Result<()> {
    let (rounds, seconds) = if plan.quick { (1, 6) } else { (3, 30) };
    let mut table = Table::new(
        format!(
            "500 tasks of which 80 run, one sample a second: what each recorder writes, by the time that it ran, and uses \
             for {seconds} s once it has started; in turns, {rounds} times each; median (quartiles)."
        ),
        &["recorder", "bytes per second", "CPU ms per second", "what it has of tasks"],
    );
    let mut costs: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); PEERS.len()];
    for round in 0..rounds {
        for (at, peer) in PEERS.iter().enumerate() {
            let to = scratch.join(&format!("peer-{at}-{round}"));
            let Some(command) = (peer.command)(plan, &to) else { continue };
            let (written, used) = measure(command, &to, Duration::from_secs(seconds)).context(peer.name)?;
            costs[at].0.push(written);
            costs[at].1.push(used);
        }
    }
    for (peer, (written, used)) in PEERS.iter().zip(&costs) {
        let cell = |values: &[f64], decimals| match values {
            [] => Cell::text("not here"),
            values => Cell::spread(Spread::of(values), decimals),
        };
        table.rows.push(vec![Cell::text(peer.name), cell(written, 0), cell(used, 2), Cell::text(peer.knows)]);
    }
    report.tables.push(table);
    Ok(())
}

/// Bytes of the whole recording and CPU ms used, per second.
fn measure(mut command: Command, to: &Path, time: Duration) -> Result<(f64, f64)> {
    let began = Instant::now();
    let mut recorder = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    thread::sleep(WARM_UP);
    recorder.check()?;
    let (from, started) = (cpu_time(recorder.pid())?, Instant::now());
    thread::sleep(time);
    recorder.check()?;
    let used = (cpu_time(recorder.pid())? - from).as_secs_f64() * 1e3 / started.elapsed().as_secs_f64();
    let ran = began.elapsed().as_secs_f64();
    // Some write what they have only when they end.
    drop(recorder);
    Ok((bytes(to) as f64 / ran, used))
}
