//! Whether each metric of the whole machine has its value or its reason, in JSON and on the screen.

use std::sync::Arc;

use crate::common;
use common::screen::{draw, text};
use common::{World, all_rows, app, press};
use numatop_ng::export::json::JsonLines;
use numatop_ng::export::{Export, Selection};
use numatop_ng::metric::container;
use numatop_ng::metric::host::HOST_METRICS;
use numatop_ng::metric::needs;
use numatop_ng::metric::task::by_id;
use numatop_ng::model::facility::Facility;
use numatop_ng::model::sample::{CpuRaw, MachineRaw, Missing, Pressure, Sample};
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::tui::theme::Theme;
use serde_json::Value;

/// The JSON of the interval that ends with `current`.
fn json(world: &World, previous: Option<&Sample>, current: &Sample) -> Value {
    let snapshot = derive(&world.host, previous, current, RowKind::Processes);
    let cpu_pct = by_id("cpu_pct").unwrap();
    let mut export = JsonLines::full(Selection { columns: vec![cpu_pct], ..all_rows() });
    let mut out = Vec::new();
    export.write(&mut out, &snapshot).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn pages_that_are_swapped_are_told_by_direction() {
    let mut world = World::intel();
    let (before, mut after) = (world.tick(), world.tick());
    let vm = after.vm.as_mut().unwrap();
    (vm.swapped_in, vm.swapped_out) = (vm.swapped_in + 30, vm.swapped_out + 12);

    let host = &json(&world, Some(&before), &after)["host"];

    assert_eq!(host["swap_pages_per_s"], 42.0);
    assert_eq!((&host["swap_in_pages_per_s"], &host["swap_out_pages_per_s"]), (&30.0.into(), &12.0.into()));
    assert_eq!(host["zone_reclaim_mode"], 0);
}

#[test]
fn pressure_and_stolen_time_are_shares_of_the_interval() {
    let mut world = World::intel();
    let (before, mut after) = (world.tick(), world.tick());
    let pressure = before.machine.unwrap().pressure.unwrap();
    after.machine.as_mut().unwrap().pressure = Some(Pressure {
        cpu_some_us: pressure.cpu_some_us + 250_000,
        memory_some_us: pressure.memory_some_us + 100_000,
        memory_full_us: pressure.memory_full_us + 1_000,
    });
    // Half of a second on each of two CPUs of node 0, of 32.
    for cpu in after.cpus.iter_mut().filter(|cpu| cpu.node == 0).take(2) {
        cpu.steal_ns = cpu.steal_ns.map(|ns| ns + 500_000_000);
    }

    let json = json(&world, Some(&before), &after);

    let host = &json["host"];
    assert_eq!(
        (&host["pressure_cpu_some_pct"], &host["pressure_memory_some_pct"]),
        (&25.0.into(), &10.0.into())
    );
    assert_eq!((&host["pressure_memory_full_pct"], &host["steal_pct"]), (&0.1.into(), &100.0.into()));
    assert_eq!((&host["numa_balancing"], &host["swappiness"]), (&1.into(), &60.into()));
    assert_eq!(
        (&json["nodes"][0]["steal_pct"], &json["nodes"][1]["steal_pct"]),
        (&3.125.into(), &0.0.into())
    );
}

#[test]
fn each_value_of_the_host_that_is_missing_has_its_reason() {
    let mut world = World::intel();
    let first = world.tick();
    let no_vm = Sample { vm: None, ..world.tick() };
    let no_switch = {
        let mut sample = world.tick();
        sample.vm.as_mut().unwrap().zone_reclaim_mode = None;
        sample
    };

    let no_state = Sample { machine: None, ..world.tick() };
    let no_pressure = {
        let mut sample = world.tick();
        *sample.machine.as_mut().unwrap() = MachineRaw::default();
        sample.cpus.iter_mut().for_each(|cpu| cpu.steal_ns = None);
        sample
    };

    for (previous, current) in [
        (None, &first),
        (Some(&first), &no_vm),
        (Some(&first), &no_switch),
        (Some(&first), &no_state),
        (Some(&first), &no_pressure),
    ] {
        let json = json(&world, previous, current);
        for metric in &HOST_METRICS {
            let value = &json["host"][metric.id];
            let reason = json["missing"].get(metric.id);
            assert!(!value.is_null() || reason.is_some(), "{} has neither", metric.id);
            // Rows of containers may lack what the host has under the same name.
            let is_shared = container::by_id(metric.id).is_some();
            assert!(value.is_null() || reason.is_none() || is_shared, "{} has both", metric.id);
        }
    }
    let json = json(&world, Some(&first), &no_switch);
    assert!(json["missing"]["zone_reclaim_mode"].as_str().unwrap().contains("CONFIG_NUMA"));
}

#[test]
fn a_recording_from_before_they_were_kept_says_so() {
    let mut world = World::intel();
    let why = Missing::NotCollected("not in this recording".into());
    needs::add_missing(&mut Arc::make_mut(&mut world.host).missing, Facility::HostMemory, &why);
    let (before, after) = (world.tick(), world.tick());

    let json = json(&world, Some(&before), &after);

    for id in ["swap_pages_per_s", "swap_in_pages_per_s", "swap_out_pages_per_s", "zone_reclaim_mode"] {
        assert!(json["host"][id].is_null(), "{id}");
        assert_eq!(json["missing"][id], "not in this recording", "{id}");
    }
}

#[test]
fn swapping_is_said_on_every_screen_and_only_then() {
    for (mut world, swaps) in [(World::ft_2500(), true), (World::intel(), false)] {
        let mut app = app(&mut world, 4, (80, 24), Theme::new(false, false));
        for screen in ["1", "2", "3"] {
            press(&mut app, screen);
            let shown = text(&draw(&app, 80, 24));
            assert_eq!(shown.contains("SWAP/s in 0 out 24"), swaps, "{shown}");
            assert_eq!(shown.contains("SWAP/s"), swaps, "{shown}");
        }
    }
}

#[test]
fn what_has_no_room_in_the_table_of_nodes_stands_below_it() {
    let mut app = app(&mut World::intel(), 4, (80, 24), Theme::new(false, false));
    press(&mut app, "2");
    press(&mut app, "Down");

    let shown = text(&draw(&app, 80, 24));

    assert!(shown.contains("slab 1.0G, huge pages 128 free of 512"), "{shown}");
    assert!(shown.contains("interleave 0, local 19k, other 1.0k"), "{shown}");
    assert!(shown.contains("then other nodes are used (zone_reclaim_mode 0)"), "{shown}");
    assert!(shown.contains("in 0, out 0 pages/s, whole machine"), "{shown}");
}

#[test]
fn time_in_interrupts_is_missing_where_a_cpu_has_no_line() {
    let mut world = World::intel();
    let (mut before, mut after) = (world.tick(), world.tick());
    // A container's view of /proc/stat; a CPU that is offline has no line either.
    for sample in [&mut before, &mut after] {
        let of_node = |node| move |cpu: &&mut CpuRaw| cpu.node == node;
        let cpu = sample.cpus.iter_mut().find(of_node(1)).unwrap();
        (cpu.irq_ns, cpu.steal_ns) = (None, None);
        let cpu = sample.cpus.iter_mut().find(of_node(0)).unwrap();
        (cpu.online, cpu.irq_ns, cpu.steal_ns) = (false, None, None);
    }
    let id = before.cpus.iter().find(|cpu| cpu.node == 1).unwrap().id;

    let json = json(&world, Some(&before), &after);

    let nodes = &json["nodes"];
    assert!(nodes[0]["irq_pct"].is_number() && nodes[0]["steal_pct"].is_number(), "{}", nodes[0]);
    assert!(nodes[1]["irq_pct"].is_null() && nodes[1]["steal_pct"].is_null(), "{}", nodes[1]);
    assert!(json["host"]["irq_pct"].is_null());
    let reason = json["missing"]["irq_pct"].to_string();
    assert!(reason.contains(&format!("had no lines for CPU {id} at ")), "{reason}");
}

/// Tasks and containers share the names of these keys, not their reasons.
#[test]
fn disk_traffic_that_is_not_counted_by_process_is_null() {
    let mut world = World::intel();
    let host = Arc::make_mut(&mut world.host);
    let why = Missing::Unsupported("no tracepoint".into());
    host.missing.insert("process_disk_bytes_per_s".into(), why);
    let (before, after) = (world.tick(), world.tick());
    let snapshot = derive(&world.host, Some(&before), &after, RowKind::Processes);
    let columns = vec![by_id("disk_bytes_per_s").unwrap(), by_id("disk_requests_per_s").unwrap()];
    let mut export = JsonLines::full(Selection { columns, ..all_rows() });
    let mut out = Vec::new();
    export.write(&mut out, &snapshot).unwrap();
    let json: Value = serde_json::from_slice(&out).unwrap();

    let tasks = json["tasks"].as_array().unwrap();
    assert!(tasks.iter().all(|task| task["disk_bytes_per_s"].is_null()), "{tasks:?}");
    assert!(tasks.iter().any(|task| task["disk_requests_per_s"] == 0.0), "{tasks:?}");
    assert_eq!(json["missing"]["process_disk_bytes_per_s"], "no tracepoint");
}
