//! Rows of containers are the sums of their tasks.

use std::sync::Arc;

use crate::common;
use common::World;
use numatop_ng::export::text::Text;
use numatop_ng::export::{ContainerSelection, Export};
use numatop_ng::metric::container::by_id;
use numatop_ng::metric::{Value, task};
use numatop_ng::snapshot::{Container, RowKind, Snapshot, Task, derive};

/// The interval that ends with the fifth sample, in which a task of the machine ends.
fn snapshot() -> Snapshot {
    let mut world = World::containers();
    let samples: Vec<_> = (0..5).map(|_| world.tick()).collect();
    derive(&world.host, Some(&samples[3]), &samples[4], RowKind::Processes)
}

fn row(snapshot: &Snapshot, id: u64) -> &Container {
    snapshot.containers.iter().find(|row| row.id == id).expect("there is a row for the cgroup")
}

fn number(snapshot: &Snapshot, id: u64, metric: &str) -> f64 {
    let metric = by_id(metric).expect("there is the metric");
    metric.read(row(snapshot, id), snapshot).unwrap().number().unwrap()
}

#[test]
fn a_row_is_the_sum_of_its_tasks_and_the_top_is_the_sum_of_all() {
    let snapshot = snapshot();
    let tasks = |keep: &dyn Fn(&Task) -> bool| -> u64 {
        snapshot.tasks.iter().filter(|task| keep(task)).map(Task::run_ns).sum()
    };
    let docker = tasks(&|task| task.raw.cgroup_id == 13);
    assert!(docker > 0);
    assert_eq!(row(&snapshot, 13).sum.run_ns(), docker);
    assert_eq!(row(&snapshot, 12).sum.run_ns(), docker, "a row includes what is below it");
    assert_eq!(row(&snapshot, 10).sum.run_ns(), tasks(&|_| true));
    assert_eq!(row(&snapshot, 13).processes, 2);
}

#[test]
fn tasks_that_ended_in_the_interval_are_included() {
    let snapshot = snapshot();
    assert!(snapshot.tasks.iter().any(|task| task.exited && task.raw.cgroup_id == 14));
    let machine = row(&snapshot, 14);
    assert_eq!((machine.processes, machine.sum.threads), (1, 1));
    assert!(machine.sum.run_ns() > 1_000_000_000, "{} ns", machine.sum.run_ns());
}

#[test]
fn ratios_come_from_sums() {
    let snapshot = snapshot();
    let slots = |role: usize| -> f64 {
        let here = snapshot.tasks.iter().filter(|task| task.raw.cgroup_id == 13);
        here.map(|task| task.delta.slots[role].count as f64).sum()
    };
    let of_sums = slots(1) / slots(0);
    assert!((number(&snapshot, 13, "ipc") - of_sums).abs() < 1e-9);
    let ipc = task::by_id("ipc").unwrap();
    let each: Vec<f64> = snapshot
        .tasks
        .iter()
        .filter(|task| task.raw.cgroup_id == 13)
        .filter_map(|task| ipc.read(task, &snapshot).ok()?.number())
        .collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    assert!((of_sums - mean).abs() > 0.05, "the test tells a sum from a mean");
}

#[test]
fn limits_and_memory_are_those_of_its_files() {
    let snapshot = snapshot();
    assert_eq!(number(&snapshot, 13, "cpu_quota_pct"), 150.0);
    assert_eq!(number(&snapshot, 13, "throttled_pct"), 25.0);
    let nodes = by_id("nodes_allowed").unwrap().read(row(&snapshot, 14), &snapshot).unwrap();
    assert!(matches!(&nodes, Value::Text(nodes) if !nodes.is_empty()), "{nodes:?}");
    let why = by_id("mem_limit_bytes").unwrap().read(row(&snapshot, 2), &snapshot).unwrap_err();
    assert_eq!(why.to_string(), "the group has no memory limit");
}

#[test]
fn siblings_in_another_container_are_counted() {
    // CPUs 0-7 and 32-39 of this machine are the two threads of eight cores.
    let snapshot = snapshot();
    assert_eq!(number(&snapshot, 13, "smt_shared_cpus"), 8.0);
    assert_eq!(number(&snapshot, 14, "smt_shared_cpus"), 8.0);
    // A service that may use every CPU does not count as sharing.
    assert!(by_id("smt_shared_cpus").unwrap().read(row(&snapshot, 2), &snapshot).is_err());
}

#[test]
fn a_task_of_an_unknown_cgroup_has_a_row_too() {
    let mut world = World::containers();
    world.actors[1].cgroup = 999;
    let samples: Vec<_> = (0..2).map(|_| world.tick()).collect();
    let snapshot = derive(&world.host, Some(&samples[0]), &samples[1], RowKind::Processes);
    let unknown = row(&snapshot, 999);
    assert!(unknown.group.is_none() && unknown.sum.run_ns() > 0);
}

#[test]
fn ids_that_came_again_make_no_circle() {
    let mut world = World::containers();
    let mut sample = world.tick();
    let names = Arc::make_mut(&mut sample.names);
    for (id, parent) in [(10, 13), (13, 12), (12, 10)] {
        Arc::make_mut(names.groups.get_mut(&id).unwrap()).parent = Some(parent);
    }
    let snapshot = derive(&world.host, None, &sample, RowKind::Processes);
    assert!(snapshot.containers.len() >= 5);
}

#[test]
fn long_names_do_not_shift_the_columns_of_text() {
    let snapshot = snapshot();
    let columns = vec![by_id("cgroup").unwrap(), by_id("kind").unwrap()];
    let sort = by_id("cpu_pct").unwrap();
    let mut text = Text::new(ContainerSelection { columns, sort, reversed: false, top: None });
    let mut out = Vec::new();
    text.write(&mut out, &snapshot).unwrap();
    let out = String::from_utf8(out).unwrap();
    let table: Vec<&str> = out.lines().skip_while(|line| !line.starts_with("CGROUP")).collect();
    let kind = table[0].find("KIND").unwrap();
    let (long, short): (Vec<&&str>, Vec<&&str>) =
        table[1..].iter().partition(|line| line.split(' ').next().unwrap().len() > 64);
    assert!(kind > 24 && long.len() == 1 && short.len() == 6, "{out}");
    for line in short {
        assert!(line.as_bytes()[kind - 1] == b' ' && line.as_bytes()[kind] != b' ', "{line}");
    }
}
