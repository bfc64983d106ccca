//! Interference with a task: interrupts, waits beside idle nodes, and tasks on the sibling.

use std::sync::Arc;

use crate::common;
use common::{Actor, World};
use numatop_ng::metric::{Value, Witness, container, task};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{GroupRaw, Reading, Sample};
use numatop_ng::snapshot::{RowKind, Snapshot, beside, derive};

/// Two samples, a second apart, after `change` was made to both.
fn pair(world: &mut World, change: impl Fn(&mut Sample)) -> (Sample, Sample) {
    let (mut first, mut second) = (world.tick(), world.tick());
    change(&mut first);
    change(&mut second);
    (first, second)
}

fn snapshot(world: &World, (first, second): &(Sample, Sample)) -> Snapshot {
    derive(&world.host, Some(first), second, RowKind::Processes)
}

fn read(snapshot: &Snapshot, pid: u32, id: &str) -> Reading<Value> {
    let row = snapshot.tasks.iter().find(|row| row.raw.pid == pid).unwrap();
    task::by_id(id).unwrap().read(row, snapshot)
}

fn estimate(reading: Reading<Value>) -> f64 {
    match reading {
        Ok(Value::Share { pct, witness: Witness::Estimate, .. }) => pct,
        other => panic!("no estimate: {other:?}"),
    }
}

/// Puts the threads of a process on a CPU.
fn on_cpu(sample: &mut Sample, pid: u32, cpu: u32) {
    for row in sample.tasks.iter_mut().filter(|row| row.pid == pid) {
        Arc::make_mut(row).cpu = cpu;
    }
}

fn one(runs: &[(u32, f64)]) -> World {
    World::new("intel-e5-2682v4", true, vec![Actor { wait_pct: 20.0, ..Actor::new(7, "one") }.runs(runs)])
}

#[test]
fn what_did_not_run_has_no_interrupts_and_they_are_not_below_zero() {
    let thread = |tid| Actor { tid, ..Actor::new(7, "resting") }.runs(&[]);
    let mut world = World::new("intel-e5-2682v4", true, vec![thread(7), thread(8)]);
    let samples = pair(&mut world, |_| ());
    let got = estimate(read(&snapshot(&world, &samples), 7, "irq_pct"));
    assert!(got == 0.0 && got.is_sign_positive(), "{got:?}");
}

#[test]
fn a_task_that_stayed_has_the_interrupts_of_its_cpu() {
    // CPUs whose number is a multiple of eight spend 1 % of their time in interrupts, the others none.
    for (cpu, irq) in [(0, 1.0), (1, 0.0)] {
        let mut world = one(&[(0, 50.0)]);
        let samples = pair(&mut world, |sample| on_cpu(sample, 7, cpu));
        let snapshot = snapshot(&world, &samples);
        let Ok(Value::F64(ran)) = read(&snapshot, 7, "cpu_pct") else { panic!("it ran") };
        let got = estimate(read(&snapshot, 7, "irq_pct"));
        assert!((got - ran * irq / 100.0).abs() < 1e-6, "CPU {cpu}: {got} of {ran}");
    }
}

#[test]
fn a_task_that_moved_has_the_interrupts_of_its_nodes() {
    let mut world = one(&[(0, 40.0), (1, 40.0)]);
    let mut samples = pair(&mut world, |_| {});
    Arc::make_mut(&mut samples.1.tasks[0]).counts[Counter::CpuMigrations] = 5;
    // All CPUs of node 1 are in interrupts half of the time.
    for cpu in &mut samples.1.cpus {
        cpu.irq_ns = Some(if cpu.node == 1 { 500_000_000 } else { 0 });
    }
    samples.0.cpus.iter_mut().for_each(|cpu| cpu.irq_ns = Some(0));
    let snapshot = snapshot(&world, &samples);
    let Ok(Value::F64(ran)) = read(&snapshot, 7, "cpu_pct") else { panic!("it ran") };
    let got = estimate(read(&snapshot, 7, "irq_pct"));
    assert!((got - ran / 4.0).abs() < 1e-6, "{got} of {ran}");
    let rows = snapshot.containers.iter().filter(|row| row.sum.run_ns() > 0);
    let of_rows: Vec<f64> =
        rows.map(|row| estimate(container::by_id("irq_pct").unwrap().read(row, &snapshot))).collect();
    assert!(of_rows.len() > 1 && of_rows.iter().all(|of_row| (of_row - got).abs() < 1e-6), "{of_rows:?}");
}

#[test]
fn a_wait_counts_as_far_as_another_node_was_idle() {
    let mut world = one(&[(0, 100.0)]);
    let mut samples = pair(&mut world, |_| {});
    // The CPUs of node 1 are busy for three quarters of the second, one of them for half a second.
    for cpu in samples.1.cpus.iter_mut().filter(|cpu| cpu.node == 1) {
        let before = samples.0.cpus.iter().find(|old| old.id == cpu.id).unwrap();
        cpu.busy_ns = before.busy_ns + if cpu.id == 20 { 500_000_000 } else { 750_000_000 };
    }
    let snapshot = snapshot(&world, &samples);
    let got = estimate(read(&snapshot, 7, "runq_wait_idle_elsewhere_pct"));
    assert!((got - 10.0).abs() < 1e-6, "{got}");
}

#[test]
fn a_bound_task_waits_for_its_affinity_and_one_with_a_quota_for_that() {
    let mut world = one(&[(0, 100.0)]);
    let mut samples = pair(&mut world, |sample| Arc::make_mut(&mut sample.tasks[0]).cpus_allowed = 8);
    let parts = |world: &World, samples: &(Sample, Sample)| {
        let shown = snapshot(world, samples);
        ["throttled", "bound", "idle_elsewhere"]
            .map(|part| estimate(read(&shown, 7, &format!("runq_wait_{part}_pct"))).round())
    };
    assert_eq!(parts(&world, &samples), [0.0, 20.0, 0.0], "all other CPUs idle");

    // Its group was stopped for a twentieth of the second, a quarter of the time that it waited.
    let group = samples.1.tasks[0].cgroup_id;
    let mut raw = GroupRaw::clone(World::containers().groups.values().next().unwrap());
    (raw.read_ns, raw.throttled_ns) = (2_000_000_000, Ok(90_000_000));
    raw.throttled_before = Some((1_000_000_000, 40_000_000));
    samples.1.groups = [(group, Arc::new(raw))].into();
    assert_eq!(parts(&world, &samples), [5.0, 15.0, 0.0]);
}

#[test]
fn the_sibling_has_a_name() {
    let actors = [(7, 80.0), (8, 60.0), (9, 30.0), (10, 90.0)];
    let actors = actors.map(|(pid, pct)| Actor::new(pid, &format!("task{pid}")).runs(&[(0, pct)]));
    let mut world = World::new("intel-e5-2682v4", true, actors.to_vec());
    // CPU 32 is the sibling of CPU 0; CPU 1 is another core.
    let (first, second) = pair(&mut world, |sample| {
        for (pid, cpu) in [(7, 0), (8, 32), (9, 32), (10, 1)] {
            on_cpu(sample, pid, cpu);
        }
    });
    let found = beside(&world.host.topology, &first, &second, (7, 7_000_000));
    let pids: Vec<u32> = found.iter().map(|beside| beside.process.0).collect();
    assert_eq!(pids, [8, 9]);
    // They ran at 70 % of their strength in that second, regardless of other tasks.
    assert!((found[0].pct - 42.0).abs() < 1e-6 && (found[1].pct - 21.0).abs() < 1e-6, "{found:?}");
    assert_eq!(beside(&world.host.topology, &first, &second, (10, 10_000_000)), []);
}
