//! NUMA balancing, from samples that are known: hinting faults of nodes and of the machine, and the time
//! it takes from tasks.

use std::sync::Arc;

use crate::common;
use common::{Actor, World};
use numatop_ng::metric::{Value, balancing, node, task};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Missing, Reading, Sample};
use numatop_ng::snapshot::{RowKind, Snapshot, derive};

/// An interval of one second on a machine of two nodes.
fn interval(change: impl FnOnce(&mut Sample)) -> Snapshot {
    let mut world = World::intel();
    let before = world.tick();
    let mut after = world.tick();
    change(&mut after);
    derive(&world.host, Some(&before), &after, RowKind::Processes)
}

fn of_node(snapshot: &Snapshot, at: usize, id: &str) -> Reading<Value> {
    node::by_id(id).unwrap().read(&snapshot.nodes[at], snapshot)
}

#[test]
fn a_node_has_the_faults_of_its_cpus() {
    let snapshot = interval(|_| ());
    // 40 on each CPU; a quarter is remote on node 1.
    let faults = 40.0 * f64::from(snapshot.nodes[1].cpus);

    assert_eq!(of_node(&snapshot, 1, "hint_faults_per_s"), Ok(Value::F64(faults)));
    assert_eq!(of_node(&snapshot, 1, "hint_remote_pct"), Ok(Value::F64(25.0)));
    assert_eq!(of_node(&snapshot, 0, "hint_remote_pct"), Ok(Value::F64(0.0)));
}

#[test]
fn where_cpus_do_not_count_a_node_has_a_reason_and_no_zero() {
    let snapshot = interval(|sample| sample.cpus.iter_mut().for_each(|cpu| cpu.hints = None));

    assert!(matches!(of_node(&snapshot, 0, "hint_faults_per_s"), Err(Missing::NotCollected(_))));
}

#[test]
fn the_machine_has_what_vmstat_counts() {
    let snapshot = interval(|_| ());
    let [(_, faults), (_, remote)] = balancing::of_host(&snapshot);
    assert_eq!(faults, Ok(40.0 * f64::from(snapshot.online_cpus)));
    assert_eq!(remote, Ok(0.0));

    let snapshot = interval(|sample| sample.vm = None);
    let [(_, faults), (_, _)] = balancing::of_host(&snapshot);
    assert!(matches!(faults, Err(Missing::NotCollected(_))));
}

#[test]
fn time_of_balancing_is_a_share_of_time_on_cpus() {
    let actor = Actor::new(7, "one").runs(&[(0, 50.0)]);
    for (balancing_ms, pct) in [(0, 0.0), (125, 25.0), (600, 100.0)] {
        let mut world = World::new("intel-e5-2682v4", true, vec![actor.clone()]);
        let (before, mut after) = (world.tick(), world.tick());
        let ran_ns = after.tasks[0].counts.cpu_ns() - before.tasks[0].counts.cpu_ns();
        Arc::make_mut(&mut after.tasks[0]).counts[Counter::BalancingNs] = ran_ns * balancing_ms / 500;
        let snapshot = derive(&world.host, Some(&before), &after, RowKind::Processes);

        let found = task::by_id("balancing_pct").unwrap().read(&snapshot.tasks[0], &snapshot);

        let Ok(Value::F64(found)) = found else { panic!("{found:?}") };
        assert!((found - pct).abs() < 0.001, "{found} for {pct}");
    }
}
