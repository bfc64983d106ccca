//! Are all counts beside an idle sibling counted as such, on a machine that is told what its cores are?

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use numatop_ng::collect::records::{self, Layout};
use numatop_ng::collect::sched::SchedProbe;
use numatop_ng::collect::scope::Scope;
use numatop_ng::collect::table::parse;
use numatop_ng::collect::tasks::TaskProbe;
use numatop_ng::collect::wire::Scoped;
use numatop_ng::host::topology::Topology;
use numatop_ng::pmu::event::{Event, Role};
use numatop_ng::sample::Counts;
use numatop_ng::units::CpuId;

use crate::workload::Workload;

/// This machine, with cores of another make.
fn machine(change: impl FnOnce(&mut Topology)) -> Result<Topology> {
    let mut topology = Topology::read(Path::new("/"))?;
    change(&mut topology);
    Ok(topology)
}

/// What a task that computes without pause has counted after 100 ms on CPU at least.
fn counts_of_a_hog(topology: &Topology) -> Result<Counts> {
    let hog = Workload::start("hog")?;
    let role = |name: &str, role: Role| Ok::<Event, anyhow::Error>(Event { role, ..Event::named(name)? });
    let events = vec![role("cpu-clock", Role::Cycles)?, role("task-clock", Role::Instructions)?];
    let layout = Layout::new(topology.possible_nodes, topology.smt(), &events);
    let store = records::create(layout)?;
    let mut sched = SchedProbe::start(topology, (&store, layout), events, Scoped::Not, None)?;
    let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
    for cpu in &online {
        sched.online(topology, *cpu)?;
    }
    let nodes = topology.possible_nodes;
    let mut tasks = TaskProbe::start(&sched, &store, nodes, &Scope::default(), None, false)?;
    tasks.walk(|_| {})?;
    // A busy machine lets it wait.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        thread::sleep(Duration::from_millis(500));
        for cpu in &online {
            sched.flush(*cpu)?;
        }
        let mut rows = Vec::new();
        tasks.walk(|row| rows.push(parse(&row, 4096)))?;
        let row = rows.iter().find(|row| row.task.tid == hog.pid());
        if let Some(row) = row.filter(|row| row.task.counts.slots[0].count > 100_000_000) {
            return Ok(row.task.counts.clone());
        }
        ensure!(Instant::now() < deadline, "the hog did not run for 100 ms in 20 s");
    }
}

/// The sibling is a CPU that is not there, so it never runs anything.
pub fn beside_an_idle_sibling_all_counts_are_idle() -> Result<()> {
    let topology = machine(|topology| {
        for (cpu, core) in topology.cpus.iter_mut().zip(0..) {
            cpu.siblings = vec![cpu.id, CpuId(cpu.id.0 + 1000)];
            cpu.core = core;
        }
    })?;

    let counts = counts_of_a_hog(&topology)?;

    let [idle, busy] = counts.by_sibling;
    ensure!((busy.cycles, busy.instructions, counts.smt_busy_ns) == (0, 0, 0), "{counts:?}");
    // The first stretch of each CPU began before anybody looked.
    ensure!(idle.cycles <= counts.slots[0].count, "{counts:?}");
    ensure!(idle.cycles * 100 >= counts.slots[0].count * 90, "{counts:?}");
    Ok(())
}
