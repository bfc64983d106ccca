//! Pages that are moved: what for, and from which node to which.

use crate::common;
use common::{Actor, World, json};
use numatop_ng::metric::task::by_id;
use numatop_ng::metric::{Value, node};
use numatop_ng::model::sample::Missing;
use numatop_ng::snapshot::{RowKind, Snapshot, derive};

/// A second in which two processes moved between nodes three and two times, their memory with them.
fn second() -> Snapshot {
    let mover = |pid, moves| Actor { node_moves: moves, ..Actor::new(pid, "mover").runs(&[(0, 50.0)]) };
    second_of(&mut World::new("intel-e5-2682v4", true, vec![mover(7, 3), mover(8, 2)]))
}

fn second_of(world: &mut World) -> Snapshot {
    let (first, last) = (world.tick(), world.tick());
    derive(&world.host, Some(&first), &last, RowKind::Processes)
}

#[test]
fn reasons_add_up_to_all_that_moved() {
    let snapshot = second();
    let read = |id: &str| match by_id(id).unwrap().read(&snapshot.tasks[0], &snapshot) {
        Ok(Value::F64(pages)) => pages,
        other => panic!("{id}: {other:?}"),
    };

    let reasons = ["balancing", "asked", "other"].map(|why| read(&format!("pages_migrated_{why}_per_s")));

    assert_eq!(reasons, [120.0, 24.0, 6.0]);
    assert_eq!(reasons.iter().sum::<f64>(), read("pages_migrated_per_s"));
}

#[test]
fn the_host_has_what_its_tasks_have() {
    let host = &json(&second())["host"];

    assert_eq!(host["pages_migrated_per_s"], 250.0);
    assert_eq!(host["pages_migrated_balancing_per_s"], 200.0);
    assert_eq!(host["pages_migrate_failed_per_s"], 5.0);
}

#[test]
fn what_leaves_a_node_comes_to_another() {
    let snapshot = second_of(&mut World::ft_2500());
    let of_nodes = |id: &str| -> Vec<f64> {
        let metric = node::by_id(id).unwrap();
        let values = snapshot.nodes.iter().map(|node| metric.read(node, &snapshot));
        values.map(|value| value.unwrap().number().unwrap()).collect()
    };

    let (came, went) = (of_nodes("pages_in_per_s"), of_nodes("pages_out_per_s"));
    let matrix = &json(&snapshot)["matrix"]["pages_migrated_per_s"];

    assert_eq!((went[3], came[4], matrix["3"]["4"].as_f64()), (120.0, 120.0, Some(120.0)));
    assert_eq!(matrix["4"]["3"], 0.0);
    assert!(matrix["3"]["3"].is_null());
    assert_eq!(came.iter().sum::<f64>(), went.iter().sum::<f64>());
}

#[test]
fn without_a_hook_only_the_nodes_are_not_known() {
    let mut world = World::ft_2500();
    let why = "migrate_misplaced_folio does not accept a probe: not by fentry: EPERM";
    let missing = &mut std::sync::Arc::make_mut(&mut world.host).missing;
    for id in ["pages_in_per_s", "pages_out_per_s"] {
        missing.insert(id.into(), Missing::Unsupported(why.into()));
    }

    let json = json(&second_of(&mut world));

    assert!(json["matrix"]["pages_migrated_per_s"]["0"]["1"].is_null());
    assert_eq!(json["missing"]["pages_in_per_s"], why);
    assert!(json["missing"].get("pages_migrated_per_s").is_none(), "tasks still have it");
    assert!(json["tasks"][0]["pages_migrated_per_s"].is_number());
}

#[test]
fn reasons_of_the_host_are_apart_from_those_of_rows() {
    let mut world = World::ft_2500();
    let why = "the kernel lacks it";
    std::sync::Arc::make_mut(&mut world.host)
        .missing
        .insert("hint_remote_pct".into(), Missing::Unsupported(why.into()));

    let json = json(&second_of(&mut world));

    let keys = |object: &serde_json::Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let of_host: Vec<String> = world.host.missing.keys().map(ToString::to_string).collect();
    assert_eq!(json["host"]["missing"]["hint_remote_pct"], why);
    assert_eq!(keys(&json["host"]["missing"]), of_host);
    // No process of this machine is in a pod: nothing that its host could help.
    assert!(json["missing"]["pod"].is_string() && json["host"]["missing"].get("pod").is_none());
}
