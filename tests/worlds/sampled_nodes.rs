//! Injected samples on a machine of four nodes, all the way from addresses to metrics, the matrix and the
//! details. Each sample is on the node of its page, and views agree.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use common::screen::{draw, text};
use common::{Actor, World, app, press};

use crate::common;
use numatop_ng::access::next_runs::NextRun;
use numatop_ng::access::sample::Outcome;
use numatop_ng::access::window::{AccessPlace, EventAt, Losses, Places, Tally, Window};
use numatop_ng::metric::Value;
use numatop_ng::metric::matrix::PAIR_METRICS;
use numatop_ng::metric::task::by_id;
use numatop_ng::model::access::answers::AccessClass;
use numatop_ng::model::access::{AccessSource, MemoryUses, SampledEvent};
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::process::ProcessId;
use numatop_ng::model::sample::{PagesFound, PlacementRaw, Sample};
use numatop_ng::model::share::wilson_farther;
use numatop_ng::model::units::NodeId;
use numatop_ng::snapshot::{RowKind, Snapshot, derive};
use numatop_ng::tui::theme::Theme;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const SHIFT: u32 = 12;
/// The first page of the mapping that is accessed; four pages in turns are on nodes 0 to 3.
const FIRST: u64 = 0x7f000;

/// Processes: accesses counted by the CPU, and sampled; sampled; known by their memory alone.
const COUNTED: u32 = 100;
const SAMPLED: u32 = 200;
const PLACED: u32 = 300;

/// Samples by the node of the CPU, then by the node of the page. 115 of 400 are remote.
const SAMPLES: [[u64; 4]; 4] = [[90, 10, 0, 0], [20, 60, 20, 0], [0, 0, 50, 50], [5, 5, 5, 85]];
const REMOTE: f64 = 115.0;
const ALL: f64 = 400.0;

fn node(id: usize) -> Option<NodeId> {
    Some(NodeId(id as u32))
}

/// Any address on a page of this node.
fn address(of_node: usize, random: &mut u64) -> u64 {
    // Marsaglia's xorshift.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    ((FIRST + *random % 256 * 4 + of_node as u64) << SHIFT) + *random % 4096 / 8 * 8
}

/// Samples of a clock and of a PMU: next runs of an instruction go to the same shares of nodes, independently
/// of each other.
fn tally(random: &mut u64) -> Tally {
    let mut tally = Tally::default();
    for (cpu, pages) in SAMPLES.iter().enumerate() {
        let row: Vec<usize> =
            pages.iter().enumerate().flat_map(|(page, count)| vec![page; *count as usize]).collect();
        for (at, page) in row.iter().enumerate() {
            let outcome = Outcome::Address(address(*page, random));
            tally.add(Some(outcome), node(cpu), SHIFT);
            // 37 has no divisor in common with the 100 samples of a row: each page is the second one once.
            let second = row[at * 37 % row.len()];
            let runs = [Some(address(*page, random)), Some(address(second, random))];
            tally.add_next(&NextRun { outcome, cpu_node: node(cpu), runs, end: None }, SHIFT);
            tally.add_event(EventAt {
                page: Some(address(*page, random) >> SHIFT),
                // Every other one has a physical address; the class is that of a CPU that calls all memory near.
                page_node: node(*page).filter(|_| at % 2 == 0),
                cpu_node: node(cpu),
                class: AccessClass::Dram { remote: false },
                cycles: Some(if *page == cpu { 200 } else { 400 }),
            });
        }
    }
    tally
}

/// The window after such an interval of two processes.
fn uses() -> MemoryUses {
    let mut random = 0x9e37_79b9_7f4a_7c15;
    let mut placed = |pid| {
        let tally = tally(&mut random);
        let place = |page: u64| AccessPlace { mapping: 0, node: node((page - FIRST) as usize % 4) };
        let pages: HashMap<u64, AccessPlace> =
            tally.pages().into_iter().map(|page| (page, place(page))).collect();
        let mappings = vec![(FIRST << SHIFT, 1024 << SHIFT, "[heap]".to_string())];
        (process(pid), tally.place(&Places { mappings, pages, no_nodes: None }))
    };
    let uses = BTreeMap::from([placed(COUNTED), placed(SAMPLED)]);
    let mut window = Window::default();
    window.add(0, S, uses, Losses::new());
    window.sum(Some(SampledEvent { source: AccessSource::Ibs, threshold: None }))
}

fn process(pid: u32) -> ProcessId {
    (pid, u64::from(pid) * MS)
}

/// Four nodes; each process runs on all of them alike, and has a quarter of its memory on each.
fn world() -> World {
    let everywhere = [(0, 25.0), (1, 25.0), (2, 25.0), (3, 25.0)];
    let actor = |pid, name| Actor { rss: 1 << 30, ..Actor::new(pid, name) }.runs(&everywhere);
    let actors = vec![actor(COUNTED, "counted"), actor(SAMPLED, "onlysampled"), actor(PLACED, "placed")];
    let mut world = World::new("kunpeng-920-4826", true, actors);
    let memory = |pid| {
        let found =
            PagesFound { space_bytes: 1 << 30, asked: 1024, by_node: vec![256; 4], error_hundredths: 310 };
        let placed = PlacementRaw {
            start_ns: process(pid).1,
            read_ns: 0,
            found: Ok(found),
            policies: None,
            by_policy: None,
        };
        (u64::from(pid), Arc::new(placed))
    };
    world.placement = [COUNTED, SAMPLED, PLACED].map(memory).into();
    world
}

/// The next two samples: between them two processes were sampled, and accesses of one of them counted: 400 near, 600 far.
fn interval(world: &mut World) -> (Sample, Sample) {
    let before = world.tick();
    let mut after = Sample { memory_use: Some(Arc::new(uses())), ..world.tick() };
    let main = after.tasks.iter_mut().find(|task| task.tid == COUNTED).unwrap();
    let slots = &mut Arc::make_mut(main).counts.slots;
    let (lma, rma) = (world.host.events.len(), world.host.events.len() + 1);
    let host = Arc::make_mut(&mut world.host);
    for (role, id) in [(Role::Lma, "lma_per_s"), (Role::Rma, "rma_per_s")] {
        host.events.push(Event { role, ..host.events[0].clone() });
        host.missing.remove(id);
    }
    // Nothing else was counted: these slots are at zero.
    for (slot, count) in [(lma, 400), (rma, 600)] {
        slots[slot].count += count;
        slots[slot].enabled_ns += S;
        slots[slot].running_ns += S;
    }
    (before, after)
}

fn snapshot() -> Snapshot {
    let mut world = world();
    let (before, after) = interval(&mut world);
    derive(&world.host, Some(&before), &after, RowKind::Processes)
}

fn read(snapshot: &Snapshot, pid: u32, id: &str) -> Value {
    let row = snapshot.tasks.iter().find(|task| task.raw.pid == pid).unwrap();
    by_id(id).unwrap().read(row, snapshot).unwrap_or_else(|why| panic!("{id} of {pid}: {why}"))
}

fn number(snapshot: &Snapshot, pid: u32, id: &str) -> f64 {
    read(snapshot, pid, id).number().unwrap()
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.01, "{found}, not {expected}");
}

#[test]
fn each_sample_is_on_the_node_of_its_page() {
    let uses = uses();
    let found = &uses.processes[&process(SAMPLED)];
    let mut expected = BTreeMap::new();
    for (cpu, pages) in SAMPLES.iter().enumerate() {
        for (page, count) in pages.iter().enumerate().filter(|(_, count)| **count > 0) {
            expected.insert((node(page).unwrap(), node(cpu).unwrap()), *count as f64);
        }
    }
    assert_eq!(found.followed_by_nodes(), expected);
    assert_eq!((found.remote(), found.remote_by_count()), ((REMOTE, ALL), (REMOTE, ALL)));
    assert_eq!(found.answers.memory(), (REMOTE as u64, ALL as u64), "the address wins over the class");
    assert_eq!(found.answers.remote.latencies.loads(), REMOTE as u64);
}

#[test]
fn metrics_have_their_shares_and_errors() {
    let snapshot = snapshot();
    let (pct, error) = wilson_farther(REMOTE, ALL).unwrap();
    near(pct, 28.75);
    for id in ["remote_pct", "mem_time_remote_pct", "dram_remote_pct"] {
        near(number(&snapshot, SAMPLED, id), pct);
    }
    near(number(&snapshot, SAMPLED, "mem_time_error_points"), error);
    // Columns of the samples: 115, 75, 75 and 135 of 400.
    let Value::ByNode(by_node) = read(&snapshot, SAMPLED, "mem_time_pct_by_node") else {
        panic!("not by node")
    };
    let found: BTreeMap<NodeId, f64> = by_node.into_iter().collect();
    for (id, expected) in [28.75, 18.75, 18.75, 33.75].into_iter().enumerate() {
        near(found[&node(id).unwrap()], expected);
    }
}

#[test]
fn each_process_has_its_best_source_by_name() {
    let snapshot = snapshot();
    let source = |pid| match read(&snapshot, pid, "remote_source") {
        Value::Text(name) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!([COUNTED, SAMPLED, PLACED].map(source), ["counted", "sampled", "placement"]);
    // A quarter of the memory is on each node, and so are the CPUs that each of them runs on.
    for (pid, expected) in [(COUNTED, 60.0), (SAMPLED, 28.75), (PLACED, 75.0)] {
        let of = |id| number(&snapshot, pid, id);
        near(of("remote_pct"), expected);
        let (low, high) = (of("remote_low_pct"), of("remote_high_pct"));
        assert!(low <= expected + 0.01 && expected <= high + 0.01, "{pid}: {low} to {high}");
    }
    let (_, error) = wilson_farther(REMOTE, ALL).unwrap();
    near(number(&snapshot, SAMPLED, "remote_error_points"), error);
    near(number(&snapshot, COUNTED, "remote_error_points"), 0.0);
}

#[test]
fn the_matrix_is_that_of_the_samples() {
    let mut world = world();
    let (before, mut after) = interval(&mut world);
    // The task known by its memory alone is excluded: the matrix has the sampled ones.
    after.tasks.retain(|task| task.pid != PLACED);
    let snapshot = derive(&world.host, Some(&before), &after, RowKind::Processes);
    near(snapshot.accesses.sampled_pct().unwrap(), 100.0);
    for (cpu, pages) in SAMPLES.iter().enumerate() {
        for (page, count) in pages.iter().enumerate() {
            let (from, to) = (node(cpu).unwrap(), node(page).unwrap());
            near(snapshot.accesses.pct(from, to).unwrap(), *count as f64 / 4.0);
        }
    }
    assert!(PAIR_METRICS[0].sources(&snapshot).unwrap().contains("sampled"));
}

#[test]
fn details_have_all_sources_side_by_side_with_their_errors() {
    let mut world = world();
    let mut app = app(&mut world, 2, (140, 40), Theme::new(false, false));
    let (before, after) = interval(&mut world);
    for sample in [before, after] {
        app.sample(Arc::clone(&world.host), sample);
    }
    for key in ["/", "c", "o", "u", "n", "Enter", "Enter"] {
        press(&mut app, key);
    }
    let shown = text(&draw(&app, 140, 40));
    let line = shown.lines().find(|line| line.starts_with(" remote")).unwrap_or(&shown);
    let (_, error) = wilson_farther(REMOTE, ALL).unwrap();
    let sampled = format!("counted 60%; sampled 29% +-{error:.0}; by time 29% (");
    assert!(
        line.contains(&sampled) && line.contains("); placement 75% (") && line.contains("; DRAM 29%"),
        "{line}"
    );
}
