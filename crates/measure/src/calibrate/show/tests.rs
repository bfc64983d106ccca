use super::*;
use crate::model::profile::{Lines, Local, MachineKey, NodeKey, Origin, Smt, Wandering};

/// Two nodes with a link between them.
fn two() -> Profile {
    let node = |node, cpus: &str, slit: [u32; 2]| NodeKey { node, cpus: cpus.into(), slit: slit.into() };
    Profile {
        machine: MachineKey {
            cpu: "GenuineIntel 6/106/6".into(),
            cores: 48,
            nodes: vec![node(0, "0-23", [10, 21]), node(1, "24-47", [21, 10])],
            ..MachineKey::default()
        },
        state: State::Good,
        took_s: 14.2,
        others_pct: 0.4,
        latency_ns: vec![vec![Some(82.1), Some(139.4)], vec![Some(138.9), Some(82.4)]],
        latency_error: vec![vec![Some(0.6), Some(1.1)], vec![Some(9.0), Some(0.7)]],
        read_gbs: vec![vec![Some(172.3), Some(58.1)], vec![Some(58.4), Some(171.8)]],
        read_error: vec![vec![Some(1.0); 2]; 2],
        local: vec![Local {
            node: 0,
            one_core_gbs: Some(13.9),
            cores_to_fill: Some(11),
            copy_gbs: Some(121.0),
            ..Local::default()
        }],
        lines_ns: Lines {
            core: Some(7.1),
            llc: Some(48.0),
            nodes: vec![vec![Some(48.0), Some(121.3)]; 2],
            ..Lines::default()
        },
        smt: Smt { additions: Some(1.0), memory: Some(1.94), ..Smt::default() },
        walk_ns: Some(23.1),
        missing: [("lines_ns.node".to_string(), "each node has one last-level cache".to_string())].into(),
        ..Profile::default()
    }
}

#[test]
fn two_nodes_are_numbers_beside_the_slit() {
    let text = render_text(&two(), 100, false);
    for said in [
        "2 nodes, 48 cores, GenuineIntel 6/106/6; took 14 s, other tasks used 0.4 % of the CPUs, +-6.5 %\n",
        "read latency, ns     memory of 0     memory of 1   SLIT\n",
        "  CPUs of 0                 82.1     139.4 1.70x   10  21\n",
        "  CPUs of 1         138.9~ 1.69x            82.4   21  10\n",
        "  2 distances: 82 ns 1.0x (2) . 139 ns 1.7x (2)\n",
        "  CPUs of 0                172.3        58.1 34%\n",
        "within node 0, GB/s: reads by one core 13.9, 11 cores fill it, copy 121.0\n",
        "transfer of a cache line between cores, one way, ns: same core 7, same cache 48, other node 121\n",
        "throughput of both threads of a core, one thread = 1: independent additions 1.00, memory 1.94\n",
        "a page walk adds 23 ns",
        "  a task limited by the farthest memory takes at most 41 % less time with local memory\n",
        "  5 cores of node 0 saturate the link to node 1\n",
        "missing: lines_ns.node: each node has one last-level cache\n",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    assert!(text.is_ascii() && !text.contains('\x1b'));
}

#[test]
fn numbers_of_other_runs_have_their_day() {
    let run = |day: u32, state| Origin { time: format!("2026-11-{day}T10:00:00Z"), state };
    let mut profile = Profile { time: run(23, State::Good).time, ..two() };
    let text = render_text(&profile, 100, false);
    assert!(!text.contains("measured 2026"), "one run is no news: {text}");
    profile.origins = [
        ("latency_ns.0.1".to_owned(), run(20, State::Good)),
        ("smt.memory".to_owned(), run(21, State::Wandering)),
        ("lines_ns.node".to_owned(), run(22, State::Good)),
    ]
    .into();
    let text = render_text(&profile, 100, false);
    for said in [
        "measured 2026-11-20T10:00:00Z: latency (1 number)\n",
        "measured 2026-11-21T10:00:00Z, while the hypervisor moved CPUs: smt (1 number)\n",
        "measured 2026-11-23T10:00:00Z: bandwidth (7 numbers), ",
        "missing: lines_ns.node: each node has one last-level cache (2026-11-22)\n",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
}

#[test]
fn sixteen_nodes_are_ratios_in_eighty_columns() {
    let nodes = (0..16).map(|node| NodeKey { node, cpus: node.to_string(), slit: vec![20; 16] });
    let row = |from: usize| {
        (0..16)
            .map(|to| {
                Some(if to == from {
                    96.0
                } else if to / 8 == from / 8 {
                    112.0
                } else {
                    300.0
                })
            })
            .collect()
    };
    let profile = Profile {
        machine: MachineKey { nodes: nodes.collect(), ..MachineKey::default() },
        latency_ns: (0..16).map(row).collect(),
        read_gbs: vec![vec![Some(80.0); 16]; 16],
        ..Profile::default()
    };
    let text = render_text(&profile, 80, false);
    assert!(
        text.contains("\n    0  10  12  12  12  12  12  12  12  31  31  31  31  31  31  31  31\n"),
        "{text}"
    );
    assert!(text.contains("3 distances: 96 ns 1.0x (16) . 112 ns 1.2x (112) . 300 ns 3.1x (128)"), "{text}");
    assert!(text.contains("  distance 3.1x: 80.0 GB/s\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let narrow = render_text(&profile, 40, false);
    assert!(
        narrow.lines().take_while(|line| !line.starts_with("bandwidth")).all(|line| line.len() <= 40),
        "{narrow}"
    );
    let json = serde_json::to_string(&profile).unwrap();
    assert!(json.len() < 64 << 10, "{} bytes", json.len());
}

#[test]
fn a_profile_that_may_not_be_used_says_so_and_means_nothing() {
    let disturbed = render_text(&Profile { state: State::Disturbed, ..two() }, 100, false);
    assert!(
        disturbed.contains("discarded: the machine was busy") && !disturbed.contains("what the numbers mean")
    );
    let looks = Wandering { cpus: (0, 1), looks_ns: vec![10.0, 30.0], classes: vec![3, 13, 4] };
    let wandering = Profile { state: State::Wandering, wandering: Some(looks), ..two() };
    let text = render_text(&wandering, 200, false);
    assert!(
        text.contains("20 measurements between CPUs 0 and 1 gave 3 different distances (3, 13, 4)"),
        "{text}"
    );
    let nothing = render_text(&Profile::default(), 100, false);
    assert!(nothing.contains("partial") && !nothing.contains("read latency"), "{nothing}");
}

#[test]
fn csv_has_a_row_for_each_pair() {
    let text = render_csv(&two());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[2], "0,1,21,139.4,1.1,,58.1,1,121.3");
    let fields = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])));
}

#[test]
fn cells_are_compared_one_by_one() {
    let mut new = two();
    new.latency_ns[0][1] = Some(153.3);
    new.read_gbs[0][0] = None;
    let text = compare(&two(), &new, 100);
    assert!(text.contains("  CPUs of node 0, memory of node 1      139.4    153.3  +10.0 %\n"), "{text}");
    assert!(text.contains("+0.0 %  (the same)"), "{text}");
    assert!(text.contains("  CPUs of node 0, memory of node 0      172.3        -\n"), "{text}");
    new.machine.cores = 3;
    assert!(compare(&two(), &new, 100).contains("another machine: the machine's cores have changed"));
}

#[test]
fn colour_is_by_what_a_cell_costs_and_takes_no_room() {
    let plain = render_text(&two(), 100, false);
    let coloured = render_text(&two(), 100, true);
    let unmarked: String = coloured.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    assert_eq!(unmarked, plain);
    for cell in ["\u{1}82.1\u{4}", "\u{2}139.4 1.70x\u{4}", "\u{3}58.1 34%\u{4}"] {
        assert!(coloured.contains(cell), "{cell:?} is not in\n{coloured}");
    }
}
