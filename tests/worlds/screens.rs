//! The content of screens: every view at two sizes, with colour and without colour and Unicode, cell by cell.

use std::sync::Arc;

use common::screen::{draw, dump, text};
use common::{Actor, App, World, app, press, type_text};

use crate::common;
use numatop_ng::analysis::curve::Curve;
use numatop_ng::analysis::highlights::Finder;
use numatop_ng::collect::mappings::{Mapping, Mappings};
use numatop_ng::metric::matrix::PAIR_METRICS;
use numatop_ng::model::access::answers::{AccessClass, Answers};
use numatop_ng::model::access::lines::{ContendedLine, ContendedLines, LineSide, Object};
use numatop_ng::model::access::next_runs::NextRuns;
use numatop_ng::model::access::{AccessSource, ByNodes, MappingUse, MemoryUse, MemoryUses, SampledEvent};
use numatop_ng::model::event::{Event, Role, Tested};
use numatop_ng::model::process::{Details, Texts};
use numatop_ng::model::sample::{Comm, Missing, PagesFound, PlacementRaw, Sample};
use numatop_ng::model::stacks::Function;
use numatop_ng::model::topology::{Calibration, Cost};
use numatop_ng::model::units::NodeId;
use numatop_ng::overhead::{ReadCost, Runs, Statistics};
use numatop_ng::record::recorder::Progress;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::synthetic::demo_machine;
use numatop_ng::tui::input::{Effect, ScreenId};
use numatop_ng::tui::theme::Theme;

const SIZES: [(u16, u16); 2] = [(80, 24), (160, 50)];

/// Draws what `prepare` makes at every size and in both themes.
fn check(view: &str, world: fn() -> World, prepare: fn(&mut App)) {
    for size in SIZES {
        for (name, theme) in [("colour", Theme::new(true, false)), ("mono", Theme::new(false, true))] {
            let mut app = app(&mut world(), 4, size, theme);
            prepare(&mut app);
            let buf = draw(&app, size.0, size.1);
            if name == "mono" {
                assert!(text(&buf).is_ascii(), "{}", text(&buf));
            }
            insta::assert_snapshot!(format!("{view}_{}x{}_{name}", size.0, size.1), dump(&buf));
        }
    }
}

#[test]
fn tasks() {
    check("tasks", World::intel, |app| {
        press(app, "Down");
    });
}

#[test]
fn nodes() {
    check("nodes", World::ft_2500, |app| {
        press(app, "Tab");
    });
}

#[test]
fn the_header_says_that_it_is_recorded() {
    let mut app = app(&mut World::intel(), 4, (160, 24), Theme::new(false, true));
    assert!(!text(&draw(&app, 160, 24)).contains("REC"));
    app.state.recording = Some(Progress { file: Some("web.nrec".into()), bytes: 1_300_000, waiting: 0 });
    for width in [40, 80, 160] {
        let shown = text(&draw(&app, width, 24));
        let head = shown.lines().next().unwrap();
        assert!(head.contains("REC 1.2M"), "{width}: {head}");
        assert_eq!(head.contains("into web.nrec"), width == 160, "{width}: {head}");
    }
    app.state.recording = Some(Progress { file: Some("web.nrec".into()), bytes: 1_300_000, waiting: 3 });
    let shown = text(&draw(&app, 40, 24));
    assert!(shown.lines().next().unwrap().contains("REC PAUSED"), "{shown}");
}

#[test]
fn a_node_without_cpus_is_a_row_like_others() {
    let mut app = app(&mut World::new("cxl", true, vec![]), 4, (80, 24), Theme::new(false, false));
    for key in ["2", "End"] {
        press(&mut app, key);
    }
    let shown = text(&draw(&app, 80, 24));
    assert!(shown.contains("CPUs      none: memory only (CXL"), "{shown}");
}

#[test]
fn interrupts_of_a_device_that_go_to_another_node_are_said() {
    let mut app = app(&mut World::intel(), 4, (160, 50), Theme::new(false, false));
    press(&mut app, "2");
    let node = |app: &App| text(&draw(app, 160, 50));
    let first = node(&app);
    press(&mut app, "Down");
    let both = first + &node(&app);
    assert!(both.contains("interrupts on node"), "{both}");
}

#[test]
fn accesses_from_node_to_node() {
    check("accesses", World::intel, |app| {
        for key in ["2", "x"] {
            press(app, key);
        }
    });
}

#[test]
fn accesses_among_sixteen_nodes() {
    check("accesses_ft_2500", World::ft_2500_placed, |app| {
        for key in ["2", "x"] {
            press(app, key);
        }
    });
}

#[test]
fn task_moves_from_node_to_node() {
    check("task_moves", World::ft_2500, |app| {
        for key in ["2", "x", "x"] {
            press(app, key);
        }
    });
}

#[test]
fn page_moves_from_node_to_node() {
    check("page_moves", World::ft_2500, |app| {
        for key in ["2", "x", "x", "x"] {
            press(app, key);
        }
    });
}

#[test]
fn distances() {
    check("distances", World::ft_2500, |app| {
        for key in ["2", "x", "x", "x", "x", "Down"] {
            press(app, key);
        }
    });
}

/// A world whose costs `calibrate` measured: 82 ns and 172 GB/s at home, twice and a third of that elsewhere. The rounds of the
/// way from the first node to the second differ.
fn calibrated(mut world: World) -> World {
    let topology = &mut Arc::make_mut(&mut world.host).topology;
    let ids: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    for node in &mut topology.nodes {
        let cost = |to: &NodeId| Cost {
            node: *to,
            latency_ps: Some(if *to == node.id { 82_000 } else { 164_000 }),
            read_bytes_per_s: Some(if *to == node.id { 172_000_000_000 } else { 58_000_000_000 }),
            latency_error_ps: Some(if (node.id, *to) == (ids[0], ids[1]) { 9_000 } else { 600 }),
            read_error_bytes_per_s: Some(1_500_000_000),
        };
        node.measured = ids.iter().map(cost).collect();
    }
    topology.calibration =
        Some(Calibration { time: "2026-11-22T10:03:00Z".into(), ..Calibration::default() });
    world
}

/// The screen of nodes after the key of the next matrix was pressed so often.
fn matrix(mut world: World, size: (u16, u16), times: usize) -> String {
    let mut app = app(&mut world, 4, size, Theme::new(false, true));
    press(&mut app, "2");
    for _ in 0..times {
        press(&mut app, "x");
    }
    text(&draw(&app, size.0, size.1))
}

/// Checks that the screen has lines that begin so.
fn has_lines(screen: &str, lines: &[&str]) {
    for line in lines {
        assert!(screen.lines().any(|found| found.trim().starts_with(line)), "{line} is not in\n{screen}");
    }
}

#[test]
fn sockets_that_are_not_the_nodes_have_rows_behind_the_matrices() {
    let hidden =
        matrix(World::new("intel-8269cy-hidden", true, Vec::new()), (100, 24), PAIR_METRICS.len() + 1);
    has_lines(&hidden, &["PLACE", "socket 0", "socket 1"]);
    // Nodes, sockets and caches are the same there.
    let intel = matrix(World::intel(), (100, 40), PAIR_METRICS.len() + 1);
    assert!(!intel.contains("PLACE"), "{intel}");
}

#[test]
fn measured_costs_stand_beside_the_slit() {
    let of_selected = [
        "CPUs of node 0     latency, ns           reads, GB/s        SLIT",
        "memory of 0         82.0 +-0.6   1.00x   172.0 +-1.5  100%    10",
        "memory of 1       164.0~ +-9.0   2.00x    58.0 +-1.5   34%    21",
    ];
    for (times, head) in [(4, "SLIT"), (5, "ns"), (6, "GB/s")] {
        let screen = matrix(calibrated(World::intel()), (80, 24), times);
        has_lines(&screen, &[head]);
        has_lines(&screen, &of_selected);
    }
    let latency = matrix(calibrated(World::intel()), (80, 24), 5);
    has_lines(
        &latency,
        &["node 0  :::     82 ###   164~", "node 1  ###    164 :::     82", "Measured 2026-11-22."],
    );
    let reads = matrix(calibrated(World::intel()), (80, 24), 6);
    has_lines(&reads, &["node 0  ###    172 :::     58"]);
}

#[test]
fn measured_costs_of_sixteen_nodes_fit_the_screen() {
    let screen = matrix(calibrated(World::ft_2500()), (80, 24), 5);
    has_lines(&screen, &["node 0    82 164~  164", "node 15  164  164  164", "2 more nodes: < and > scroll"]);
}

#[test]
fn a_machine_that_was_not_measured_says_what_measures_it() {
    let screen = matrix(World::intel(), (80, 24), 5);
    has_lines(&screen, &["no values to show: not measured on this machine: run numatop-ng calibrate"]);
}

#[test]
fn help_says_what_is_counted_and_where_it_was_verified() {
    let mut world = World::intel();
    let host = Arc::make_mut(&mut world.host);
    host.events[0].tested = Tested::Here("verified here, 2026-11-23, Linux 6.12".into());
    host.events[1].tested = Tested::Nowhere;
    let size = (100, 800);
    let mut app = app(&mut world, 4, size, Theme::new(false, true));
    press(&mut app, "?");
    let screen = text(&draw(&app, size.0, size.1));
    has_lines(
        &screen,
        &["Counters", "cycles", "verified here, 2026-11-23, Linux 6.12", "not verified on hardware"],
    );
}

#[test]
fn a_matrix_that_is_too_wide_moves() {
    let mut app = app(&mut World::ft_2500(), 4, (40, 24), Theme::new(false, true));
    for key in ["2", "x", "x", "x", "x"] {
        press(&mut app, key);
    }
    assert!(text(&draw(&app, 40, 24)).contains("8 more nodes"), "{}", text(&draw(&app, 40, 24)));
    for _ in 0..20 {
        press(&mut app, ">");
    }
    insta::assert_snapshot!("matrix_moved", dump(&draw(&app, 40, 24)));
}

#[test]
fn containers() {
    check("containers", World::containers, |app| {
        press(app, "3");
        press(app, "Down");
    });
}

#[test]
fn a_tree_of_containers_has_totals() {
    let mut app = app(&mut World::containers(), 4, (120, 24), Theme::new(false, false));
    press(&mut app, "3");
    press(&mut app, "e");
    insta::assert_snapshot!("containers_tree", dump(&draw(&app, 120, 24)));
}

#[test]
fn nodes_with_memory_are_not_hidden_behind_those_it_ran_on() {
    let mut world = World::ft_2500();
    let mut by_node = vec![0; 16];
    (by_node[13], by_node[15]) = (700, 300);
    let found = PagesFound { space_bytes: 6 << 30, asked: 1000, by_node, error_hundredths: 290 };
    let svc = PlacementRaw {
        start_ns: 3000 * 1_000_000,
        read_ns: 2_000_000_000,
        found: Ok(found),
        policies: None,
        by_policy: None,
    };
    world.placement.insert(3000, Arc::new(svc));
    let mut app = app(&mut world, 4, (80, 24), Theme::new(false, false));
    press(&mut app, "Enter");
    let screen = text(&draw(&app, 80, 24));
    let line = |name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line(" node 13").contains("70.0%") && line(" node 15").contains("30.0%"), "{screen}");
    assert!(line(" 13 more").contains('%'), "{screen}");
}

#[test]
fn detail() {
    check("detail", World::intel, |app| {
        press(app, "Enter");
        let details = Details {
            pid: 4242,
            start_ns: 4242 * 1_000_000,
            texts: Texts {
                cmdline: Ok(
                    "/usr/sbin/mysqld --defaults-file=/etc/mysql/my.cnf --innodb-numa-interleave=ON".into()
                ),
                cpus_allowed: Ok("0-63".into()),
                mems_allowed: Ok("0-1".into()),
            },
            cgroups: vec!["/system.slice/mysql.service".into()],
            rss: Some([19 << 30, 61 << 20, 0]),
            schedstat: Some([3_723_000_000_000, 12_500_000_000]),
        };
        app.inspected(4242, Ok(details));
    });
}

/// Mappings of the database: private memory, a file, huge pages, memory of a device.
fn mappings() -> Mappings {
    let row = |start, bytes, name: &str, policy: &str, by_node: &[f64]| Mapping {
        start,
        bytes,
        name: name.into(),
        policy: (!policy.is_empty()).then(|| policy.into()),
        by_node: by_node.iter().map(|mib| mib * 1024.0 * 1024.0).collect(),
    };
    let rows = vec![
        row(0x7f10_0000_0000, 16 << 30, "", "interleave:0-1", &[8192.0, 8000.0]),
        row(0x7f80_0000_0000, 2 << 30, "/anon_hugepage (deleted)", "bind:1", &[0.0, 2048.0]),
        row(0x7fa0_0000_0000, 700 << 20, "/var/lib/mysql/ibdata1", "default", &[650.0, 12.0]),
        row(0x7fb0_0000_0000, 256 << 20, "/dev/nvidia0", "default", &[]),
        row(0x55d0_0000_0000, 132 << 10, "[heap]", "default", &[0.125]),
    ];
    Mappings { error_points: None, count: 20_004, rows }
}

#[test]
fn mappings_of_a_process() {
    check("mappings", World::intel, |app| {
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "m"] {
            press(app, key);
        }
        app.mapped((4242, 4242 * 1_000_000), Ok(mappings()));
    });
}

/// Samples of the database: the file is used most, from another node than it is on, and a mapping that is not listed.
fn memory_use() -> MemoryUses {
    let node = |id| Some(NodeId(id));
    let used = |start, bytes, name: &str, by_node: &[((u32, u32), f64)]| MappingUse {
        start,
        bytes,
        name: name.into(),
        by_node: by_node.iter().map(|((page, cpu), samples)| ((node(*page), node(*cpu)), *samples)).collect(),
        next_by_node: [].into(),
        answers: Answers::default(),
    };
    let found = MemoryUse {
        samples: 970,
        with_address: 880,
        gone: 20,
        of_all: 970,
        mappings: vec![
            used(0x7fa0_0000_0000, 700 << 20, "/var/lib/mysql/ibdata1", &[((0, 1), 600.0), ((0, 0), 100.0)]),
            used(0x7f10_0000_0000, 16 << 30, "", &[((0, 0), 60.0), ((1, 1), 60.0)]),
            used(0x7fff_0000_0000, 132 << 10, "[stack]", &[((0, 0), 60.0)]),
        ],
        ..MemoryUse::default()
    };
    let processes = [((4242, 4242 * 1_000_000), Arc::new(found))].into();
    MemoryUses { source: AccessSource::Clock, event: None, window_s: 10.0, processes }
}

#[test]
fn mappings_that_are_used() {
    for (width, height) in [(80, 24), (130, 40)] {
        let mut world = World::intel();
        let mut app = app(&mut world, 3, (width, height), Theme::new(false, false));
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "m"] {
            press(&mut app, key);
        }
        app.mapped((4242, 4242 * 1_000_000), Ok(Mappings { error_points: Some(2.9), ..mappings() }));
        assert_eq!(press(&mut app, "u"), Some(Effect::SetAccess(true)));
        press(&mut app, "Esc");
        press(&mut app, "Enter");
        press(&mut app, "m");
        app.mapped((4242, 4242 * 1_000_000), Ok(Mappings { error_points: Some(2.9), ..mappings() }));
        let sample = Sample { memory_use: Some(Arc::new(memory_use())), ..world.tick() };
        app.sample(Arc::clone(&world.host), sample);
        insta::assert_snapshot!(
            format!("mappings_in_use_{width}x{height}"),
            text(&draw(&app, width, height))
        );
    }
}

/// Modes of two words keep their nodes, in 80 columns and beside the use of memory, too.
#[test]
fn policies_of_two_words_are_readable() {
    let policies = ["prefer (many):0", "weighted interleave:0-1", "default", "bind:1", "default"];
    for (width, used) in [(80, false), (80, true), (130, true)] {
        let mut world = World::intel();
        let mut app = app(&mut world, 3, (width, 40), Theme::new(false, false));
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter"] {
            press(&mut app, key);
        }
        if used {
            press(&mut app, "u");
        }
        press(&mut app, "m");
        let mut found = mappings();
        for (row, policy) in found.rows.iter_mut().zip(policies) {
            row.policy = Some(policy.into());
        }
        app.mapped((4242, 4242 * 1_000_000), Ok(found));
        let memory_use = used.then(|| Arc::new(memory_use()));
        let sample = Sample { memory_use, ..world.tick() };
        app.sample(Arc::clone(&world.host), sample);
        let shown = text(&draw(&app, width, 40));
        assert_eq!(shown.contains("USE%"), used, "{shown}");
        for policy in policies {
            assert!(shown.contains(&format!(" {policy} ")), "no '{policy}' in {width} columns:\n{shown}");
        }
        assert!(shown.contains("7f8000000000"), "the start of a mapping:\n{shown}");
    }
}

/// The same samples, followed: the next run of an instruction knows nothing of the one after it.
fn accesses() -> MemoryUses {
    let mut uses = memory_use();
    for found in uses.processes.values_mut() {
        let found = Arc::make_mut(found);
        let pairs = [(false, false), (false, true), (true, false), (true, true)].map(|pair| (pair, 50));
        found.next_runs =
            NextRuns { followed: 880, resolved: 870, by_remote: pairs.into(), ..NextRuns::default() };
        for mapping in &mut found.mappings {
            mapping.next_by_node = mapping.by_node.clone();
            (0..200).for_each(|load| {
                mapping.answers.add(AccessClass::Dram { remote: load % 2 == 0 }, None, Some(300));
            });
            found.answers.add_all(&mapping.answers);
        }
    }
    uses.event = Some(SampledEvent { source: AccessSource::Ibs, threshold: None });
    uses
}

#[test]
fn mappings_have_the_latencies_of_sampled_loads() {
    for (width, words) in [(140, true), (110, false)] {
        let mut world = World::intel();
        let mut app = app(&mut world, 3, (width, 40), Theme::new(false, false));
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "m"] {
            press(&mut app, key);
        }
        app.mapped((4242, 4242 * 1_000_000), Ok(mappings()));
        let sample = Sample { memory_use: Some(Arc::new(accesses())), ..world.tick() };
        app.sample(Arc::clone(&world.host), sample);
        let shown = text(&draw(&app, width, 40));
        // 300 cycles at 2 GHz, within a step of 6 %.
        let line = shown.lines().find(|line| line.contains("LOCAL NS") && line.contains("REMOTE NS"));
        assert_eq!(line.is_some(), words, "{shown}");
        assert_eq!(shown.contains(" 148/152   148/152 "), words, "{shown}");
    }
}

/// If the clock gives no result, a PMU and followed samples do: the mappings are in the order of their
/// accesses.
#[test]
fn mappings_have_their_accesses_without_the_clock() {
    let shown = |width, change: fn(&mut MemoryUse)| {
        let mut world = World::intel();
        let mut app = app(&mut world, 3, (width, 40), Theme::new(false, false));
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "m"] {
            press(&mut app, key);
        }
        app.mapped((4242, 4242 * 1_000_000), Ok(mappings()));
        let mut uses = accesses();
        uses.processes.values_mut().for_each(|found| change(Arc::make_mut(found)));
        let sample = Sample { memory_use: Some(Arc::new(uses)), ..world.tick() };
        app.sample(Arc::clone(&world.host), sample);
        text(&draw(&app, width, 40))
    };
    let without = |width| {
        shown(width, |found| {
            // The clock was refused, and the third mapping has most loads.
            (found.samples, found.with_address, found.next_runs) = (0, 0, NextRuns::default());
            let last = &mut found.mappings[2].answers;
            (0..300).for_each(|_| last.add(AccessClass::Dram { remote: false }, None, Some(300)));
            found.answers = Answers::default();
            found.mappings.iter().for_each(|mapping| found.answers.add_all(&mapping.answers));
        })
    };
    for width in [80, 140] {
        let text = without(width);
        assert!(!text.contains("USE%") && text.contains("accesses of ibs"), "{text}");
        let title = text.lines().position(|line| line.contains("PMU% ") && line.contains("LOCAL NS"));
        let first = text.lines().nth(title.expect(&text) + 1).unwrap();
        assert!(first.contains("7fff00000000") && first.contains("148/152"), "{text}");
    }
    // A list that is walked by pointer: its addresses are overwritten, and the next runs give them back.
    let chase = shown(110, |found| {
        (found.gone, found.with_address) = (900, 50);
        found.next_runs.by_mapping =
            [(0x7fa0_0000_0000, 0x7f10_0000_0000), (0x7f10_0000_0000, 0x7fa0_0000_0000)]
                .into_iter()
                .flat_map(|(one, other)| [((one, other), 60), ((one, one), 60)])
                .collect();
    });
    assert!(!chase.contains("USE%") && chase.contains("ACC% by count"), "{chase}");
    let first = chase.lines().find(|line| line.contains("/var/lib/mysql/ibdata1")).unwrap();
    assert!(first.contains(" 79.5 "), "{chase}");
    // Most of its pages were not looked up.
    let few = shown(130, |found| (found.samples, found.with_address) = (3000, 3000));
    assert!(few.contains("with address, 29% of the addresses in a known mapping); "), "{few}");
    // Beside shares of time they fit on a wide screen only.
    assert!(shown(140, |_| {}).contains("PMU%") && !shown(130, |_| {}).contains("PMU%"));
}

/// A line that is stored to on node 1 and loaded on node 0, and one with samples of loads only.
fn contended() -> ContendedLines {
    let function = |name: &str| {
        Some(Arc::new(Function { name: Some(name.into()), module: "mysqld".into(), kernel: false }))
    };
    let node = |node| Some(NodeId(node));
    let side = |store, function, (offset, on), (samples, far)| LineSide {
        store,
        function,
        offset,
        cpu_node: node(on),
        samples,
        far,
    };
    let sides = vec![
        side(false, function("trx_sys_lookup"), (0, 0), (61, 61)),
        side(false, None, (0, 1), (20, 0)),
        side(true, function("trx_sys_register"), (8, 1), (212, 0)),
    ];
    let mapping = "[heap]".into();
    let first = ContendedLine { mapping, page_node: node(1), loads: 81, far: 61, stores: 212, sides };
    let second = ContendedLine {
        loads: 12,
        sides: vec![side(false, function("buf_page_get"), (40, 0), (12, 0))],
        ..ContendedLine::default()
    };
    ContendedLines { loads: 103, listed: vec![first, second] }
}

#[test]
fn contended_lines_have_the_code_of_both_sides() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut world = World::intel();
        let mut app = app(&mut world, 3, (width, height), Theme::new(false, false));
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "l"] {
            press(&mut app, key);
        }
        let shown = text(&draw(&app, width, height));
        assert!(shown.contains("contended cache lines unavailable: "), "{shown}");
        let mut uses = accesses();
        uses.processes.values_mut().for_each(|found| Arc::make_mut(found).lines = contended());
        let sample = Sample { memory_use: Some(Arc::new(uses)), ..world.tick() };
        app.sample(Arc::clone(&world.host), sample);
        insta::assert_snapshot!(
            format!("contended_lines_{width}x{height}"),
            text(&draw(&app, width, height))
        );
        // Back to its threads; the mappings take their place, too.
        press(&mut app, "l");
        assert!(!text(&draw(&app, width, height)).contains("FAR%"));
        press(&mut app, "l");
        press(&mut app, "m");
        assert!(!text(&draw(&app, width, height)).contains("FAR%"));
    }
}

/// A table that one function filled on node 0, and a buffer whose function has no name.
fn touched_first() -> Vec<Object> {
    let function = |name: Option<&str>| {
        Arc::new(Function { name: name.map(str::to_string), module: "mysqld".into(), kernel: false })
    };
    let node = |node| Some(NodeId(node));
    let table = Object {
        functions: vec![function(Some("buf_chunk_init")), function(Some("buf_pool_init"))],
        touched_on: [(NodeId(0), 412)].into(),
        mapping: String::new(),
        by_node: [((node(0), node(0)), 20.0), ((node(0), node(1)), 140.0)].into(),
        next_by_node: ByNodes::new(),
    };
    let buffer = Object {
        functions: vec![function(None)],
        touched_on: [(NodeId(0), 3), (NodeId(1), 9)].into(),
        mapping: "[heap]".into(),
        by_node: [((node(1), node(1)), 31.0)].into(),
        next_by_node: ByNodes::new(),
    };
    vec![table, buffer]
}

#[test]
fn memory_has_the_code_that_touched_it_first() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut world = World::intel();
        let mut app = app(&mut world, 3, (width, height), Theme::new(false, false));
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "a"] {
            press(&mut app, key);
        }
        let shown = text(&draw(&app, width, height));
        assert!(shown.contains("first touches: "), "{shown}");
        let tick = |app: &mut App, world: &mut World, objects: Vec<Object>| {
            let mut uses = accesses();
            for found in uses.processes.values_mut() {
                Arc::make_mut(found).objects.clone_from(&objects);
            }
            let sample = Sample { memory_use: Some(Arc::new(uses)), ..world.tick() };
            app.sample(Arc::clone(&world.host), sample);
            text(&draw(app, width, height))
        };
        let none = tick(&mut app, &mut world, Vec::new());
        assert!(none.contains("no result yet: press u, then wait"), "{none}");
        let shown = tick(&mut app, &mut world, touched_first());
        insta::assert_snapshot!(format!("first_touches_{width}x{height}"), shown);
        // Contended lines take its place, and threads.
        press(&mut app, "l");
        assert!(!text(&draw(&app, width, height)).contains("TOUCHED"));
        press(&mut app, "a");
        assert!(text(&draw(&app, width, height)).contains("TOUCHED"));
        press(&mut app, "a");
        assert!(!text(&draw(&app, width, height)).contains("TOUCHED"));
    }
}

#[test]
fn a_clock_alone_says_why_no_line_is_listed() {
    let mut world = World::intel();
    let why = Missing::Unsupported("no PMU here samples accesses".into());
    Arc::make_mut(&mut world.host).missing.insert("dram_remote_pct".into(), why);
    let mut app = app(&mut world, 3, (100, 30), Theme::new(false, false));
    for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "l"] {
        press(&mut app, key);
    }
    let sample = Sample { memory_use: Some(Arc::new(memory_use())), ..world.tick() };
    app.sample(Arc::clone(&world.host), sample);
    let shown = text(&draw(&app, 100, 30));
    assert!(shown.contains("contended cache lines unavailable: no PMU here samples accesses"), "{shown}");
}

#[test]
fn a_cpu_that_does_not_tell_of_lines_has_no_zero_of_them() {
    let mut world = World::intel();
    let why =
        Missing::Unsupported("SPE on CPU 0-3 has no known code for cache lines from another core".into());
    Arc::make_mut(&mut world.host).missing.insert("contended_lines".into(), why);
    let mut app = app(&mut world, 3, (100, 30), Theme::new(false, false));
    for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "l"] {
        press(&mut app, key);
    }
    let mut shown = |loads: u64| {
        let mut uses = accesses();
        let lines = ContendedLines { loads, listed: Vec::new() };
        uses.processes.values_mut().for_each(|found| Arc::make_mut(found).lines = lines.clone());
        let sample = Sample { memory_use: Some(Arc::new(uses)), ..world.tick() };
        app.sample(Arc::clone(&world.host), sample);
        text(&draw(&app, 100, 30))
    };
    let none = shown(0);
    assert!(none.contains("contended cache lines unavailable: SPE on CPU 0-3 has no known code"), "{none}");
    assert!(!none.contains("from another core's cache"), "{none}");
    // Others do.
    let some = shown(2);
    assert!(
        some.contains(
            "unknown for some CPUs: 2 of 600 accesses in 10 s read a line from another core's cache"
        ),
        "{some}"
    );
}

#[test]
fn counters_samples_and_placement_stand_side_by_side() {
    let mut world = World::intel();
    world.counts_remote();
    let host = Arc::make_mut(&mut world.host);
    let (lma, rma) = (host.events.len(), host.events.len() - 1);
    host.events.push(Event { role: Role::Lma, ..host.events[0].clone() });
    host.missing.remove("lma_per_s");
    let mut app = app(&mut world, 3, (100, 30), Theme::new(false, false));
    let line = |app: &App| {
        let shown = text(&draw(app, 100, 30));
        shown.lines().find(|line| line.starts_with(" remote")).map(str::to_string).unwrap_or(shown)
    };
    for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter"] {
        press(&mut app, key);
    }
    let alone = line(&app);
    assert!(!alone.contains(';') || alone.contains("of its accesses"), "{alone}");
    let sample = Sample { memory_use: Some(Arc::new(memory_use())), ..world.tick() };
    app.sample(Arc::clone(&world.host), sample);
    let by_time = line(&app);
    assert!(by_time.contains("time 68% ("), "{by_time}");
    assert!(!by_time.contains("sampled"), "shares of time are none of accesses: {by_time}");
    let mut sample = Sample { memory_use: Some(Arc::new(accesses())), ..world.tick() };
    let main = sample.tasks.iter_mut().find(|task| task.tid == 4242).unwrap();
    let slots = &mut Arc::make_mut(main).counts.slots;
    (slots[lma].count, slots[rma].count) = (slots[lma].count + 400, slots[rma].count + 600);
    app.sample(Arc::clone(&world.host), sample);
    let all = line(&app);
    for part in ["counted 60%; sampled 68% +-3; by time 68% (", "); placement ", "; DRAM 50%"] {
        assert!(all.contains(part), "{all}");
    }
    // The matrix has the process by its samples, all others by placement.
    for key in ["Esc", "2", "x"] {
        press(&mut app, key);
    }
    let shown = text(&draw(&app, 100, 30));
    assert!(shown.contains("weighted by sampled accesses"), "{shown}");
}

#[test]
fn a_cpu_whose_samples_say_nothing_is_named_above_the_mappings() {
    let mut world = World::intel();
    let why = Missing::Unsupported(
        "clock samples do not hit the instruction after a slow one on this CPU (3 %)".into(),
    );
    Arc::make_mut(&mut world.host).missing.insert("mem_time_pct".into(), why);
    let mut app = app(&mut world, 4, (130, 40), Theme::new(false, false));
    for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter", "m"] {
        press(&mut app, key);
    }
    app.mapped((4242, 4242 * 1_000_000), Ok(mappings()));
    let refused =
        "use unavailable: clock samples do not hit the instruction after a slow one on this CPU (3 %); 5 of";
    assert!(!text(&draw(&app, 130, 40)).contains(refused), "nothing was asked for");
    press(&mut app, "u");
    press(&mut app, "Z");
    let shown = text(&draw(&app, 130, 40));
    assert!(shown.contains(refused), "{shown}");
}

#[test]
fn memory_use_is_sampled_until_the_view_is_closed() {
    let open = |app: &mut App| {
        press(app, "Enter");
    };
    let mut live = app(&mut World::intel(), 4, (80, 24), Theme::new(false, false));
    open(&mut live);
    assert_eq!(press(&mut live, "u"), Some(Effect::SetAccess(true)));
    assert_eq!(press(&mut live, "u"), Some(Effect::SetAccess(false)));
    press(&mut live, "u");
    assert_eq!(press(&mut live, "Esc"), Some(Effect::SetAccess(false)));
    // With --access it continues, and a recording has none.
    live.state.access = true;
    open(&mut live);
    assert_eq!(press(&mut live, "u"), None);
    assert!(text(&draw(&live, 80, 24)).contains("always sampled (--access)"));
    assert_eq!(press(&mut live, "Esc"), None);
}

#[test]
fn mappings_in_use_are_those_of_the_recording_in_a_replay() {
    let mut world = World::intel();
    let mut app = app(&mut world, 4, (130, 40), Theme::new(false, false));
    app.state.replay((0, i64::MAX), false);
    for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter"] {
        press(&mut app, key);
    }
    assert_eq!(press(&mut app, "m"), None);
    assert!(text(&draw(&app, 130, 40)).contains("if recorded with --access"));
    let sample = Sample { memory_use: Some(Arc::new(memory_use())), ..world.tick() };
    app.sample(Arc::clone(&world.host), sample);
    assert_eq!(press(&mut app, "m"), None);
    let shown = text(&draw(&app, 130, 40));
    assert!(shown.contains("98% with address); 3 mappings recorded"), "{shown}");
    assert!(shown.contains("/var/lib/mysql/ibdata1") && shown.contains("[stack]"), "{shown}");
    assert_eq!(press(&mut app, "M"), None);
    assert!(text(&draw(&app, 130, 40)).contains("only on the running machine"));
}

#[test]
fn the_last_line_offers_what_the_source_has() {
    let mut world = World::intel();
    let last_line = |app: &App| text(&draw(app, 200, 40)).lines().last().unwrap().to_string();
    let open = |app: &mut App| {
        for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter"] {
            press(app, key);
        }
    };
    let mut live = app(&mut world, 4, (200, 40), Theme::new(false, false));
    press(&mut live, "3");
    assert!(last_line(&live).contains("c Scope"), "{}", last_line(&live));
    press(&mut live, "1");
    open(&mut live);
    assert!(
        last_line(&live).contains("m Mappings") && last_line(&live).contains("u Use"),
        "{}",
        last_line(&live)
    );

    let mut recording = app(&mut world, 4, (200, 40), Theme::new(false, false));
    recording.state.replay((0, i64::MAX), false);
    press(&mut recording, "3");
    assert!(!last_line(&recording).contains("Scope"), "{}", last_line(&recording));
    press(&mut recording, "1");
    open(&mut recording);
    let line = last_line(&recording);
    assert!(line.contains("Help") && !line.contains("Mappings") && !line.contains("u Use"), "{line}");
    let sample = Sample { memory_use: Some(Arc::new(memory_use())), ..world.tick() };
    recording.sample(Arc::clone(&world.host), sample);
    let line = last_line(&recording);
    assert!(line.contains("m Mappings") && !line.contains("u Use"), "{line}");
}

#[test]
fn counting_every_page_says_first_what_it_costs() {
    let mut app = app(&mut World::intel(), 4, (80, 24), Theme::new(false, false));
    for key in ["/", "m", "y", "s", "q", "l", "Enter", "Enter"] {
        press(&mut app, key);
    }
    let asked = press(&mut app, "m");
    assert!(matches!(asked, Some(Effect::Map { exact: false, .. })), "{asked:?}");
    let sampled = Mappings { error_points: Some(2.9), ..mappings() };
    app.mapped((4242, 4242 * 1_000_000), Ok(sampled));
    let shown = text(&draw(&app, 80, 24));
    assert!(shown.contains("+-2.9 points; M counts every page and reads POLICY, 608 ms"), "{shown}");

    assert_eq!(press(&mut app, "M"), None);
    let said = text(&draw(&app, 80, 24));
    assert!(
        said.contains("counting all pages of 19G stalls the process for up to 608 ms: press M again"),
        "{said}"
    );

    let asked = press(&mut app, "M");
    assert!(matches!(asked, Some(Effect::Map { exact: true, .. })), "{asked:?}");
}

#[test]
fn the_details_name_who_is_on_the_sibling() {
    let actors = vec![
        Actor { wait_pct: 12.0, ..Actor::new(7, "service") }.runs(&[(0, 80.0)]),
        Actor::new(8, "batch").runs(&[(0, 60.0)]),
    ];
    let mut world = World::new("intel-e5-2682v4", true, actors);
    let mut app = app(&mut world, 0, (160, 50), Theme::new(false, false));
    for _ in 0..3 {
        let mut sample = world.tick();
        for row in &mut sample.tasks {
            // CPU 32 is the sibling of CPU 0.
            Arc::make_mut(row).cpu = if row.pid == 8 { 32 } else { 0 };
        }
        app.sample(Arc::clone(&world.host), sample);
    }
    press(&mut app, "Enter");
    let shown = text(&draw(&app, 160, 50));
    let said = "sibling busy 25.0%: batch 8 ~54.0%; waits 12.0% (~12.0% while another node had an idle CPU)";
    assert!(shown.contains(said), "{shown}");
}

/// Samples after which the made-up machine has its findings.
const UNTIL_FOUND: usize = 130;

#[test]
fn findings() {
    for size in SIZES {
        let mut app = app(&mut demo_machine(), UNTIL_FOUND, size, Theme::new(true, false));
        let mut see = |name: &str, keys: &[&str]| {
            for key in keys {
                press(&mut app, key);
            }
            let buf = draw(&app, size.0, size.1);
            insta::assert_snapshot!(format!("findings_{name}_{}x{}", size.0, size.1), dump(&buf));
        };
        see("list", &["4"]);
        see("details", &["Enter"]);
        see("blind", &["Esc", "v"]);
        see("marks", &["Esc", "3"]);
    }
}

#[test]
fn the_summary_leads_to_the_worst_interval() {
    let mut app = app(&mut demo_machine(), 20, (80, 24), Theme::new(true, false));
    press(&mut app, "S");
    insta::assert_snapshot!("summary_80x24", dump(&draw(&app, 80, 24)));
    press(&mut app, "Enter");
    let worst = app.state.summary[0].worst_wall_ns;
    assert_eq!(app.state.snapshot().unwrap().wall_ns, worst);
    press(&mut app, "Esc");
    assert!(text(&draw(&app, 80, 24)).contains("PAUSED"));
}

#[test]
fn findings_fit_every_size() {
    let mut world = demo_machine();
    for (at, actor) in world.actors.iter_mut().enumerate() {
        let name = ["\u{e4}\u{6f22}\u{5b57}\u{1f600}", "'; reboot #", "\x1b[2J\n", "$(reboot)"];
        actor.comm = Comm::new(name[at % name.len()]);
    }
    let mut app = app(&mut world, UNTIL_FOUND, (80, 24), Theme::new(false, true));
    for keys in
        [&["4"][..], &["Enter"], &["Down", "End"], &["Esc", "v"], &["End", "Esc", "Down", "s", "Enter"]]
    {
        keys.iter().for_each(|key| {
            press(&mut app, key);
        });
        for (width, height) in [
            (1, 1),
            (2, 1),
            (1, 50),
            (10, 3),
            (19, 5),
            (20, 6),
            (39, 9),
            (80, 2),
            (80, 24),
            (300, 1),
            (300, 100),
        ] {
            let shown = text(&draw(&app, width, height));
            assert!(shown.is_ascii(), "{width}x{height}: {shown}");
        }
    }
}

#[test]
fn a_command_is_copied_as_it_is_and_a_finding_put_aside_is_gone() {
    let mut app = app(&mut demo_machine(), UNTIL_FOUND, (80, 24), Theme::new(false, true));
    press(&mut app, "4");
    // The first is critical and has no command; below it is what it explains.
    press(&mut app, "Down");
    press(&mut app, "Down");
    assert_eq!(press(&mut app, "y"), Some(Effect::Copy));
    let copied = app.state.clipboard.clone().unwrap();
    assert!(copied.lines().all(|line| !line.starts_with(' ')) && !copied.is_empty(), "{copied}");
    let before = text(&draw(&app, 80, 24));
    press(&mut app, "a");
    let after = text(&draw(&app, 80, 24));
    assert_ne!(before.lines().nth(9), after.lines().nth(9), "{after}");
    press(&mut app, "w");
    assert!(app.state.message.is_some() || text(&draw(&app, 80, 24)) != after);
}

#[test]
fn a_page_is_asked_for_and_told_of() {
    let mut app = app(&mut demo_machine(), 3, (80, 24), Theme::new(false, true));
    assert_eq!(press(&mut app, "R"), None, "a question");
    let asked = text(&draw(&app, 80, 24));
    assert!(asked.contains("Save an HTML report of the last 10 min as: numatop-ng-"), "{asked}");
    press(&mut app, "Esc");
    assert_eq!(app.state.report, None);
    press(&mut app, "R");
    assert_eq!(press(&mut app, "Enter"), Some(Effect::WritePage));
    assert!(app.state.report.as_ref().is_some_and(|name| name.ends_with(".html")));
    app.page_written(&Ok("numatop-ng-1.html".into()));
    let told = text(&draw(&app, 80, 24));
    assert!(told.contains("report saved: numatop-ng-1.html"), "{told}");
    app.page_written(&Err("no space is left".into()));
    let told = text(&draw(&app, 80, 24));
    assert!(told.contains("report not saved: no space is left"), "{told}");
    app.state.replay((0, 1), false);
    assert_eq!(press(&mut app, "R"), None);
    assert!(app.state.message.as_ref().is_some_and(|said| said.contains("numatop-ng report")));
}

#[test]
fn f_opens_the_first_finding_of_the_selected_row() {
    let mut app = app(&mut demo_machine(), UNTIL_FOUND, (80, 24), Theme::new(false, true));
    press(&mut app, "3");
    while !text(&draw(&app, 80, 24)).contains("report") {
        press(&mut app, "Down");
    }
    press(&mut app, "f");
    assert!(text(&draw(&app, 80, 24)).contains("FINDING"));
}

#[test]
fn enter_on_a_thread_opens_the_thread() {
    let mut world = World::intel();
    let mut app = app(&mut world, 3, (100, 30), Theme::new(false, true));
    press(&mut app, "H");
    let row = |app: &App| app.screens.tasks.selected(app.state.snapshot().unwrap()).unwrap().clone();
    while row(&app).leads() {
        press(&mut app, "Down");
    }
    let thread = row(&app);
    let (tid, asked) = (thread.tid.unwrap(), press(&mut app, "Enter"));
    assert_eq!(asked, Some(Effect::Inspect(tid, thread.raw.start_ns)), "/proc has threads by their ids");
    let shown = text(&draw(&app, 100, 30));
    assert!(shown.contains(&format!("thread {tid} of {}", thread.raw.pid)), "{shown}");
}

#[test]
fn replay() {
    check("replay", World::intel, |app| {
        let mut world = World::intel();
        world.counts_remote();
        let began = world.tick().wall_ns;
        app.state.replay((began, began + 3_600_000_000_000), false);
        let (mut finder, mut curve, mut previous) = (Finder::default(), Curve::default(), None::<Sample>);
        for minute in 0..60 {
            let mut sample = world.tick();
            sample.wall_ns = began + minute * 60_000_000_000;
            if minute >= 40 {
                sample.lost.insert("exit".into(), 3);
            }
            for (slot, many) in [(1, minute % 30), (2, (minute * 7) % 60)] {
                sample.cpus[0].slots[slot].count += many as u64 * 100_000_000;
            }
            curve.take(&derive(&world.host, previous.as_ref(), &sample, RowKind::Processes));
            previous = Some(sample.clone());
            finder.take(&world.host, sample, minute == 50, minute != 50);
        }
        app.state.curve = Arc::new(curve);
        app.state.marked(finder.marks().clone(), 1.0);
        let (before, mut sample) = (world.tick(), world.tick());
        sample.wall_ns = began + 1_200_000_000_000;
        app.moved(world.host.clone(), Some(before), sample);
    });
}

#[test]
fn hot_functions() {
    check("hot_functions", World::intel, |app| {
        press(app, "p");
        app.hot_news(Ok(common::hot::news(app.state.snapshot().unwrap())));
        press(app, "j");
    });
}

#[test]
fn a_narrow_screen_names_the_functions() {
    let mut app = app(&mut World::intel(), 4, (40, 24), Theme::new(false, true));
    press(&mut app, "p");
    app.hot_news(Ok(common::hot::news(app.state.snapshot().unwrap())));
    let shown = text(&draw(&app, 40, 24));
    assert!(shown.contains("FUNCTION") && shown.contains("row_search_mvcc(unsig"), "{shown}");
}

#[test]
fn hot_callees() {
    check("hot_callees", World::intel, |app| {
        press(app, "p");
        app.hot_news(Ok(common::hot::news(app.state.snapshot().unwrap())));
        press(app, "Tab");
    });
}

#[test]
fn overhead() {
    check("overhead", World::intel, |app| {
        assert_eq!(press(app, "o"), Some(Effect::SetStatistics(true)));
        let at = |seconds: u64| Statistics {
            mono_ns: seconds * 1_000_000_000,
            programs: [
                ("on_sched_switch", 3000, 636_000),
                ("on_task_walk", 12, 4800),
                ("on_task_newtask", 0, 0),
            ]
            .map(|(name, count, ns)| (name.into(), Runs { count: seconds * count, ns: seconds * ns }))
            .into(),
            counters: 4,
            read: Some(ReadCost { count_ns: 31.0, scaled_ns: 58.0 }),
            scaled: false,
        };
        app.statistics(Ok(at(1)));
        app.statistics(Ok(at(2)));
    });
}

#[test]
fn overhead_without_counters_or_rights_says_why() {
    let mut app = app(&mut World::vm(), 4, (100, 24), Theme::new(false, false));
    let screen = |app: &App| text(&draw(app, 100, 24));
    press(&mut app, "o");
    assert!(screen(&app).contains("wait for one interval"), "{}", screen(&app));
    app.statistics(Ok(Statistics::default()));
    assert!(screen(&app).contains("no counters open"), "{}", screen(&app));
    app.statistics(Err("enabling statistics of BPF programs: EPERM".into()));
    assert!(!app.is_open(ScreenId::Overhead) && screen(&app).contains("EPERM"), "{}", screen(&app));
}

#[test]
fn hot_spots_are_of_what_was_selected() {
    let mut app = app(&mut World::containers(), 4, (120, 24), Theme::new(false, false));
    let screen = |app: &App| text(&draw(app, 120, 24));
    press(&mut app, "2");
    assert_eq!(press(&mut app, "p"), Some(Effect::SetHot(true)));
    assert!(screen(&app).contains("Hot spots of all tasks in scope"), "{}", screen(&app));
    assert!(screen(&app).contains("loading the sampler"));
    let news = common::hot::news(app.state.snapshot().unwrap());
    app.hot_news(Ok(news.clone()));
    let all = app.screens.hot.samples;
    assert_eq!(all, news.stacks.iter().map(|stack| stack.samples).sum::<u64>());
    assert_eq!(press(&mut app, "Esc"), Some(Effect::SetHot(false)));
    press(&mut app, "3");
    press(&mut app, "p");
    app.hot_news(Ok(news));
    let of_container = app.screens.hot.samples;
    assert!((1..all).contains(&of_container), "{of_container} of {all}");
    app.hot_news(Err("sampling stacks: no such event".into()));
    assert!(!app.is_open(ScreenId::Hot) && screen(&app).contains("no such event"), "{}", screen(&app));
}

#[test]
fn hot_spots_of_a_recording_are_those_of_the_moment() {
    let mut world = World::intel();
    let mut app = app(&mut world, 4, (120, 24), Theme::new(false, false));
    app.state.replay((0, i64::MAX), false);
    press(&mut app, "2");
    assert_eq!(press(&mut app, "p"), Some(Effect::SetHot(true)));
    let news = common::hot::news(app.state.snapshot().unwrap());
    let samples = |app: &App| app.screens.hot.samples;
    app.hot_news(Ok(news.clone()));
    let once = samples(&app);
    app.sample(Arc::clone(&world.host), world.tick());
    app.hot_news(Ok(news.clone()));
    assert_eq!(samples(&app), 2 * once, "what is played adds up");
    app.moved(Arc::clone(&world.host), None, world.tick());
    app.hot_news(Ok(news));
    assert_eq!(samples(&app), once, "another moment has its own");
    assert!(matches!(press(&mut app, "Right"), Some(Effect::Seek(_))), "time moves in this view too");
    assert_eq!(press(&mut app, "Esc"), Some(Effect::SetHot(false)));
}

#[test]
fn help() {
    check("help", World::vm, |app| {
        press(app, "?");
    });
}

#[test]
fn columns() {
    check("columns", World::intel, |app| {
        press(app, "F2");
    });
}

#[test]
fn sort() {
    check("sort", World::vm, |app| {
        press(app, "s");
    });
}

fn colour(view: &str, app: &App) {
    insta::assert_snapshot!(view, dump(&draw(app, 80, 24)));
}

#[test]
fn sixteen_nodes_in_eighty_columns() {
    let mut app = app(&mut World::ft_2500(), 3, (80, 24), Theme::new(true, false));
    press(&mut app, "H");
    colour("tasks_ft_2500", &app);
}

#[test]
fn one_node_without_counters() {
    let app = app(&mut World::vm(), 3, (80, 24), Theme::new(true, false));
    colour("tasks_vm", &app);
}

#[test]
fn a_tree_while_paused_with_losses_and_a_filter() {
    let mut world = World::intel();
    world.lost.insert("exit".into(), 1234);
    world.notes = vec!["CPU 7 went offline".into()];
    let mut app = app(&mut world, 3, (80, 24), Theme::new(true, false));
    press(&mut app, "Z");
    for _ in 0..2 {
        app.sample(world.host.clone(), world.tick());
    }
    press(&mut app, "\\");
    type_text(&mut app, "n");
    press(&mut app, "Enter");
    press(&mut app, "F5");
    colour("tasks_tree_paused", &app);
}

#[test]
fn hidden_numa_is_said() {
    let mut world = World::new("intel-8269cy-hidden", true, vec![Actor::new(1, "systemd")]);
    let app = app(&mut world, 2, (160, 50), Theme::new(true, false));
    let screen = text(&draw(&app, 160, 50));
    assert!(screen.contains("2 sockets but 1 node"), "{screen}");
}

#[test]
fn an_ended_task_is_marked_in_the_interval_in_which_it_ended() {
    let mut world = World::intel();
    let mut app = app(&mut world, 5, (80, 24), Theme::new(false, true));
    let row = |app: &App| {
        text(&draw(app, 80, 24)).lines().find(|line| line.contains("cc1plus")).map(str::to_string)
    };
    assert!(row(&app).is_some_and(|row| row.starts_with("x   9003 X")));
    app.sample(world.host.clone(), world.tick());
    assert_eq!(row(&app), None);
}

#[test]
fn nothing_that_a_terminal_obeys_reaches_a_cell() {
    let hostile =
        ["\x1b]0;PWN\x07", "\x1b[2J\x1b[31m", "a\u{202e}b\u{2066}", "z\u{200d}\u{200b}\u{85}x", "\u{9b}31m"];
    let mut actors: Vec<Actor> =
        (1..).zip(hostile).map(|(pid, name)| Actor::new(pid, name).runs(&[(0, 9.0)])).collect();
    let mut invalid = Actor::new(77, "");
    invalid.comm =
        Comm([0xff, 0x1b, b'[', 0x9b, 0xc3, 0x28, 0xe2, 0x80, b'\n', b'\r', 8, 127, b'c', b'd', b'e', 0]);
    actors.push(invalid);
    let mut world = World::new("intel-e5-2682v4", true, actors);
    world.notes = vec!["\x1b[2J CPU went \u{202e}".into()];
    for ascii in [true, false] {
        let mut app = app(&mut world, 3, (120, 30), Theme::new(true, ascii));
        for key in ["F5", "Enter", "Esc", "H", "u", "Enter", "Tab", "?", "Esc", "F2"] {
            press(&mut app, key);
            let buf = draw(&app, 120, 30);
            for cell in buf.content() {
                let harmless = |c: char| {
                    !c.is_control()
                        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
                };
                assert!(cell.symbol().chars().all(harmless), "{:?} after {key}", cell.symbol());
            }
        }
    }
}

#[test]
fn before_the_first_sample_the_screen_says_what_is_being_done() {
    let app = app(&mut World::vm(), 0, (80, 24), Theme::new(true, false));
    assert!(text(&draw(&app, 80, 24)).contains("first sample"));
}

#[test]
fn ten_thousand_rows_are_arranged_and_drawn_in_no_time() {
    let actors =
        (1..10_001).map(|pid| Actor::new(pid, "worker").runs(&[(pid % 2, 0.01 * f64::from(pid % 100))]));
    let mut world = World::new("intel-e5-2682v4", true, actors.collect());
    let mut app = app(&mut world, 2, (160, 50), Theme::new(true, false));
    let began = std::time::Instant::now();
    for _ in 0..20 {
        press(&mut app, "PgDn");
        draw(&app, 160, 50);
    }
    // Formatting every row would take a hundred times as long, also without optimization.
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn nodes_over_time() {
    for (seconds, size) in [(12, (80, 24)), (200, (120, 35)), (200, (220, 60))] {
        let mut app = app(&mut demo_machine(), seconds, size, Theme::new(false, false));
        for key in ["2", "v", "Down"] {
            press(&mut app, key);
        }
        insta::assert_snapshot!(
            format!("over_time_{}x{}", size.0, size.1),
            text(&draw(&app, size.0, size.1))
        );
    }
}

#[test]
fn nodes_over_time_say_where_a_pause_is_and_what_is_not_measured() {
    let mut paused = app(&mut demo_machine(), 30, (80, 24), Theme::new(false, true));
    for key in ["Z", "2", "v", "J", "9", "Enter"] {
        press(&mut paused, key);
    }
    let shown = text(&draw(&paused, 80, 24));
    assert!(shown.contains("here") && !shown.contains(" now ") && shown.is_ascii(), "{shown}");
    let marks = shown.lines().filter(|line| line.contains('^') && line.contains("03:04"));
    assert!(marks.count() >= 1, "{shown}");
    // The first sample ends no interval.
    let mut unknown = app(&mut World::ft_2500(), 1, (120, 40), Theme::new(false, false));
    for key in ["2", "v"] {
        press(&mut unknown, key);
    }
    let shown = text(&draw(&unknown, 120, 40));
    assert_eq!(shown.matches("no values yet").count(), 2, "{shown}");
}
