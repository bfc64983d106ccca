//! Cost by the number of CPUs: parts of a refresh and of a start that have something for each CPU, with made-up CPUs.

use std::fs;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::Plan;
use crate::findings::wide_of;
use crate::numbers::Spread;
use crate::report::{Cell, Report, Table};
use numatop_ng::collect::cpu_states::CpuStates;
use numatop_ng::collect::isolated::IsolatedCpus;
use numatop_ng::collect::machine::MachineReader;
use numatop_ng::host::clock::thread_time;
use numatop_ng::host::privileges;
use numatop_ng::model::event::Event;
use numatop_ng::model::units::CpuId;
use numatop_ng::model::wire::{CpuState, SLOTS};
use numatop_ng::pmu::budget;
use numatop_ng::pmu::open::Counters;
use numatop_ng::source::synthetic::{Actor, Machine};
use numatop_ng::tui::history::{History, Want};

/// Nodes, and CPUs of each.
const MACHINES: [(u32, u32); 4] = [(1, 2), (2, 32), (2, 128), (8, 128)];

const TASKS: u32 = 2_000;

/// One task in this many runs.
const IDLE: u32 = 50;

/// CPU time of a refresh on the largest machine, at most, ms.
const LIMIT_MS: f64 = 10.0;

/// Time of the parts of a start on the largest machine, at most, ms.
const START_MS: f64 = 1_500.0;

/// CPU time that `work` takes, ms.
fn took<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let began = thread_time();
    let done = work();
    ((thread_time() - began).as_secs_f64() * 1e3, done)
}

/// Mostly idle tasks on all of these CPUs.
fn machine(nodes: u32, cpus: u32) -> Machine {
    let mut machine = wide_of(nodes, cpus, 0);
    machine.actors.extend((0..TASKS).map(|at| {
        let runs = at % IDLE == 0;
        let actor = Actor { asleep: !runs, rss: 1 << 28, ..Actor::new(1_000_000 + at, "worker") };
        actor.runs(&[(at % nodes, if runs { 5.0 } else { 0.0 })])
    }));
    machine
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    /// `sys/` and `proc/` of a machine of `nodes` nodes and `cpus` CPUs.
    fn of(nodes: u32, cpus: u32) -> Result<Folder> {
        let root = std::env::temp_dir().join(format!("numatop-bench-cpus-{}", std::process::id()));
        let folder = Folder(root);
        let all = nodes * cpus;
        let list = format!("0-{}\n", all - 1);
        for name in ["online", "present", "possible"] {
            folder.write(&format!("sys/devices/system/cpu/{name}"), &list)?;
        }
        for cpu in 0..all {
            let (node, dir) = (cpu / cpus, format!("sys/devices/system/cpu/cpu{cpu}"));
            folder.write(&format!("{dir}/topology/core_cpus_list"), &format!("{cpu}\n"))?;
            folder.write(&format!("{dir}/topology/core_id"), &format!("{}\n", cpu % cpus))?;
            folder.write(&format!("{dir}/topology/physical_package_id"), &format!("{node}\n"))?;
            let shared = format!("{}-{}\n", node * cpus, (node + 1) * cpus - 1);
            for (index, (kind, level, of)) in [
                ("Data", 1, format!("{cpu}\n")),
                ("Instruction", 1, format!("{cpu}\n")),
                ("Unified", 2, format!("{cpu}\n")),
                ("Unified", 3, shared),
            ]
            .iter()
            .enumerate()
            {
                let cache = format!("{dir}/cache/index{index}");
                folder.write(&format!("{cache}/type"), &format!("{kind}\n"))?;
                folder.write(&format!("{cache}/level"), &format!("{level}\n"))?;
                folder.write(&format!("{cache}/size"), "32768K\n")?;
                folder.write(&format!("{cache}/shared_cpu_list"), of)?;
            }
        }
        let nodes_list = format!("0-{}\n", nodes - 1);
        for name in ["online", "possible"] {
            folder.write(&format!("sys/devices/system/node/{name}"), &nodes_list)?;
        }
        let distances: Vec<&str> = (0..nodes).map(|_| "20").collect();
        for node in 0..nodes {
            let dir = format!("sys/devices/system/node/node{node}");
            folder
                .write(&format!("{dir}/cpulist"), &format!("{}-{}\n", node * cpus, (node + 1) * cpus - 1))?;
            folder.write(&format!("{dir}/distance"), &distances.join(" "))?;
            // The machine of the benchmark has these for one node: more of the same.
            for name in ["meminfo", "numastat"] {
                let text = fs::read_to_string(format!("/sys/devices/system/node/node0/{name}"))
                    .with_context(|| format!("reading {name} of node 0"))?;
                folder.write(&format!("{dir}/{name}"), &text.replace("Node 0", &format!("Node {node}")))?;
            }
        }
        for name in ["vmstat", "meminfo", "zoneinfo"] {
            let text =
                fs::read_to_string(format!("/proc/{name}")).with_context(|| format!("reading {name}"))?;
            folder.write(&format!("proc/{name}"), &text)?;
        }
        let line = |name: String| format!("{name} 1264539 0 523917 86713255 120935 0 35120 8120 0 0\n");
        let times: String = std::iter::once("cpu ".to_string())
            .chain((0..all).map(|cpu| format!("cpu{cpu}")))
            .map(line)
            .collect();
        folder.write("proc/stat", &format!("{times}intr 1 2 3\nctxt 4\n"))?;
        Ok(folder)
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is in the way of no later run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// States of `cpus` CPUs in mapped memory, most of them idle.
fn states(cpus: u32) -> Result<CpuStates> {
    // SAFETY: the name ends with NUL; the descriptor is new, and only this file owns it.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"states".as_ptr(), libc::MFD_CLOEXEC);
        ensure!(fd >= 0, "making a file in memory: {}", std::io::Error::last_os_error());
        fs::File::from_raw_fd(fd)
    };
    let bytes = size_of::<CpuState>() * cpus as usize;
    let mut content: Vec<u8> = vec![0; bytes.next_multiple_of(4096)];
    for (at, word) in content.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(at as u64 % 1000).to_ne_bytes());
    }
    file.write_all(&content)?;
    CpuStates::new(&file, cpus).context("mapping states")
}

/// Costs of one machine, ms; of a refresh by its parts.
#[derive(Default)]
struct Costs {
    states: Vec<f64>,
    files: Vec<f64>,
    rows: Vec<f64>,
    start: Vec<f64>,
    opening: Vec<f64>,
    kept_bytes: f64,
}

fn measure(nodes: u32, cpus: u32, intervals: usize, costs: &mut Costs) -> Result<()> {
    let folder = Folder::of(nodes, cpus)?;
    let all = nodes * cpus;
    let topology = numatop_ng::host::topology::read(folder.path())?;
    ensure!(topology.cpus.len() == all as usize && topology.nodes.len() == nodes as usize);
    let (states, online) = (states(all)?, (0..all).map(CpuId).collect::<Vec<_>>());
    let mut files = MachineReader::open(folder.path(), &topology, 4096)?;
    let isolated = IsolatedCpus::default();
    let mut made_up = machine(nodes, cpus);
    let host = made_up.host.clone();
    let mut history = History::new(Want { threads: true, ..Want::default() });
    for interval in 0..intervals + 3 {
        let (of_files, read) = took(|| files.read());
        let times = read?.cpu_times;
        let (of_states, seen) = took(|| {
            let due = online.iter().filter(|cpu| {
                let lost = states.losses(**cpu);
                lost.is_some() && states.running(**cpu).is_some_and(|running| isolated.is_due(**cpu, running))
            });
            (due.count(), states.rows(&topology, &online, &times).len(), states.lost(&topology).len())
        });
        ensure!(seen.1 == all as usize, "rows of {} CPUs", seen.1);
        let sample = made_up.tick();
        let (of_rows, shown) = took(|| {
            history.sample(host.clone(), sample, 1);
            let shown = history.show();
            history.tidy();
            shown
        });
        ensure!(shown.is_some_and(|shown| shown.snapshot.tasks.len() >= TASKS as usize), "rows are missing");
        // The first ones fill tables.
        if interval >= 3 {
            costs.files.push(of_files);
            costs.states.push(of_states);
            costs.rows.push(of_rows);
        }
    }
    for _ in 0..intervals.min(5) {
        costs.start.push(took(|| numatop_ng::host::topology::read(folder.path())).0);
    }
    costs.kept_bytes = f64::from(all) * size_of::<numatop_ng::model::sample::CpuRaw>() as f64;
    Ok(())
}

/// Milliseconds on the clock to open the counters of `cpus` CPUs, on the CPUs of this machine.
fn open_counters(cpus: u32) -> Result<f64> {
    let event = Event::named("cpu-clock")?;
    let here = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let mut counters = Counters::new(vec![event; SLOTS]);
    let mut took = Duration::ZERO;
    for cpu in 0..cpus {
        let on = CpuId(cpu % here);
        // A CPU has one set of counters. When one more is opened on a CPU, the kernel goes through all that
        // are open there. So the counters of 1,024 CPUs on two of them would take seventy times as long as on
        // their own CPUs.
        counters.close_on(on);
        let began = Instant::now();
        let (_, failed) = counters.open_on(on, |_, _| Ok(()));
        took += began.elapsed();
        if let Some(failed) = failed.first() {
            bail!("CPU {cpu} of {cpus}: {}", failed.why);
        }
    }
    Ok(took.as_secs_f64() * 1e3)
}

/// # Errors
/// Files cannot be written below the folder for temporary files, or counters cannot be opened.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("CPUs: cost by their number");
    let intervals = if plan.quick { 10 } else { 60 };
    let most = MACHINES.iter().map(|(nodes, cpus)| nodes * cpus).max().unwrap_or(0);
    let needed = budget::needed(SLOTS as u64, most.into());
    let limit = privileges::raise_open_files(needed);
    let mut table = Table::new(
        format!("{TASKS} tasks, one in {IDLE} of which runs; CPU ms of one refresh by its parts."),
        &["CPUs", "states of CPUs", "files of the machine", "rows, findings, history", "sum"],
    );
    let mut start = Table::new(
        format!(
            "Parts of a start: sysfs of so many CPUs, CPU ms; {SLOTS} counters on each, ms on the clock."
        ),
        &["CPUs", "topology", "counters", "files that counters take", "kB of a sample's CPUs"],
    );
    let (mut sum, mut starts) = (0.0, 0.0);
    for (nodes, cpus) in MACHINES {
        let mut costs = Costs::default();
        measure(nodes, cpus, intervals, &mut costs)?;
        let all = nodes * cpus;
        if limit.is_none_or(|limit| limit >= budget::needed(SLOTS as u64, all.into())) {
            for _ in 0..if plan.quick { 1 } else { 5 } {
                costs.opening.push(open_counters(all)?);
            }
        } else {
            report.note(format!(
                "Counters of {all} CPUs were not opened: {needed} files are not allowed here."
            ));
        }
        let parts = [&costs.states, &costs.files, &costs.rows].map(|ms| Spread::of(ms));
        sum = parts.iter().map(|part| part.median).sum::<f64>();
        let mut row = vec![Cell::Number(all.into(), 0)];
        row.extend(parts.map(|part| Cell::spread(part, 3)));
        row.push(Cell::Number(sum, 2));
        table.rows.push(row);
        let read = Spread::of(&costs.start);
        let opened = (!costs.opening.is_empty()).then(|| Spread::of(&costs.opening));
        starts = read.median + opened.map_or(0.0, |opened| opened.median);
        start.rows.push(vec![
            Cell::Number(all.into(), 0),
            Cell::spread(read, 1),
            opened.map_or(Cell::Nothing, |opened| Cell::spread(opened, 1)),
            Cell::Number(f64::from(all) * SLOTS as f64, 0),
            Cell::Number(costs.kept_bytes / 1e3, 1),
        ]);
    }
    report.tables.extend([table, start]);
    report.at_most(format!("CPU ms of a refresh with {most} CPUs"), LIMIT_MS, sum, 2);
    report.at_most(format!("ms of a start with {most} CPUs"), START_MS, starts, 0);
    report.note(
        "Made up: states, files in a folder, tasks. Not in it: the kernel's list of tasks, which grows with tasks and not with \
         CPUs; interrupts of CPUs that are busy; /proc/stat, which the kernel sums up over all CPUs and interrupts; waking other \
         CPUs when counters are opened.",
    );
    Ok(report)
}
