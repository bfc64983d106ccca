use super::*;
use crate::calibrate::machine::key;
use crate::known::idle::{Room, Usage};
use crate::model::profile::MachineKey;

/// A host of the fixtures with `free_mib` MiB free on each node.
fn facts(host: &str, free_mib: u64) -> Facts {
    let root = crate::fixture::tree(&format!("hosts/{host}"));
    let topology = crate::host::topology::read(&root).unwrap();
    let room = Room { free: free_mib << 8, high: 1 << 8 };
    let key = key(&root, &topology);
    // Most fixtures have no /proc/cpuinfo.
    let hypervisor = if host.starts_with("ft-") { None } else { Some(false) };
    Facts {
        key: MachineKey { hypervisor: key.hypervisor.or(hypervisor), ..key },
        cache_bytes: topology.nodes.iter().map(|node| (node.id.0, 40 << 20)).collect(),
        cpus: topology.online_cpus().map(|cpu| cpu.id.0).collect(),
        nodes: None,
        usage: Usage {
            nodes: topology.nodes.iter().map(|node| (node.id.0, room)).collect(),
            ..Usage::default()
        },
        interrupts: BTreeMap::new(),
        cgroup_bytes: None,
        page_bytes: 4096,
        topology,
    }
}

#[test]
fn two_nodes_take_less_than_fifteen_seconds() {
    let plan = plan(&Asked::default(), &facts("intel-e5-2682v4", 64 << 10));
    assert_eq!((plan.rows.len(), plan.columns.len()), (2, 2));
    assert_eq!(plan.rows[0].cpus.len(), 16, "a thread of each core");
    assert!(!plan.rows[0].cpus[..15].contains(&0), "CPU 0 is the last choice");
    assert!((3.0..15.0).contains(&plan.seconds()), "{}", plan.seconds());
    assert_eq!(plan.walk_bytes, 16 << 20);
    assert_eq!(plan.streams_of(&plan.columns[0]), 160 << 20, "four times the caches");
    assert_eq!(plan.left_out, []);
    assert_eq!(plan.evicted_bytes, Some(640 << 20), "a line of each four: so much has four times the caches");
    assert_eq!(plan.siblings_node, Some(0), "threads whose memory is on their own node");
    let kinds: Vec<PairKind> = plan.pairs.iter().map(|pair| pair.kind).collect();
    assert_eq!(kinds, [PairKind::Core, PairKind::Llc, PairKind::Nodes(0, 1), PairKind::Nodes(1, 0)]);
}

#[test]
fn eight_nodes_take_less_than_two_minutes() {
    let plan = plan(&Asked::default(), &facts("ft-2500", 64 << 10));
    assert!(plan.columns.len() >= 8 && plan.seconds() < 120.0, "{}", plan.seconds());
}

#[test]
fn memory_stays_within_every_limit() {
    let asked = Asked::default();
    let all = |facts: &Facts| plan(&asked, facts).memory();
    assert!(all(&facts("intel-e5-2682v4", 1 << 10)).values().all(|bytes| *bytes <= 103 << 20), "a tenth");
    assert!(all(&facts("intel-e5-2682v4", 640 << 10)).values().all(|bytes| *bytes <= 2 << 30));
    let grouped = Facts { cgroup_bytes: Some(256 << 20), ..facts("intel-e5-2682v4", 64 << 10) };
    assert!(all(&grouped).values().sum::<u64>() <= 64 << 20, "a quarter of the group's");
    let loaded = Asked { only: Stage::ALL.map(|(stage, _)| stage).into(), ..Asked::default() };
    let every = plan(&loaded, &grouped);
    assert!(every.memory().values().sum::<u64>() <= 64 << 20, "with all stages");
    let first = &every.columns[0];
    assert!(2 * every.thread_bytes(first) <= first.bytes && every.pages_of(first) <= first.bytes);
    assert!(every.walk_bytes + every.traffic_of(first) <= first.bytes);
    assert!(Plan { hidden: true, ..every.clone() }.each_of(first) <= first.bytes);
    let full = plan(&asked, &facts("intel-e5-2682v4", 8));
    let small = plan(&asked, &facts("intel-e5-2682v4", 1 << 10));
    assert_eq!(small.evicted_bytes, None, "a walk that caches hold in part would be no witness");
    assert!(full.columns.is_empty() && full.stages.is_empty());
    assert!(full.missing["latency_ns.*.0"].contains("not enough free memory"), "{:?}", full.missing);
}

#[test]
fn time_is_cut_in_order() {
    let facts = facts("intel-e5-2682v4", 64 << 10);
    let asked = |seconds| Asked {
        only: Stage::ALL.map(|(stage, _)| stage).into(),
        seconds: Some(seconds),
        ..Asked::default()
    };
    let left =
        |seconds| plan(&asked(seconds), &facts).left_out.iter().map(|(stage, _)| *stage).collect::<Vec<_>>();
    let whole = plan(&asked(100.0), &facts);
    assert_eq!(left(100.0), []);
    assert_eq!(left(whole.seconds() - 0.1), [Stage::Loaded]);
    let short = plan(&asked(1.5), &facts);
    assert!(left(1.5).starts_with(&[Stage::Loaded, Stage::Cores, Stage::Pages]));
    assert_eq!((short.rounds, short.windows), (3, 1));
    assert!(short.has(Stage::Latency) && short.seconds() <= 1.5, "{}", short.seconds());
}

#[test]
fn parts_may_be_asked_for() {
    let facts = facts("intel-e5-2682v4", 64 << 10);
    let asked = Asked { only: [Stage::Latency].into(), to: Some([1].into()), ..Asked::default() };
    let plan = plan(&asked, &facts);
    assert_eq!((plan.rows.len(), plan.columns.len()), (2, 1));
    assert_eq!(plan.stages.len(), 1);
    let every = super::plan(&Asked { every_core: true, ..Asked::default() }, &facts);
    assert_eq!(every.pairs.iter().filter(|pair| pair.kind == PairKind::Every).count(), 32 * 31 / 2);
}

#[test]
fn nodes_and_cpus_that_are_closed_have_a_reason() {
    let mut facts = facts("intel-e5-2682v4", 64 << 10);
    facts.nodes = Some([0].into());
    facts.cpus.retain(|cpu| {
        facts.topology.node(crate::model::units::NodeId(0)).unwrap().cpus.iter().any(|own| own.0 == *cpu)
    });
    let plan = plan(&Asked::default(), &facts);
    assert_eq!((plan.rows.len(), plan.columns.len()), (1, 1));
    assert!(plan.missing["latency_ns.*.1"].contains("cpuset"));
    assert!(plan.missing["latency_ns.1"].contains("taskset"));
}

#[test]
fn memory_without_cpus_is_a_column_without_a_row() {
    let plan = plan(&Asked::default(), &facts("cxl", 64 << 10));
    let rows: Vec<u32> = plan.rows.iter().map(|row| row.node).collect();
    let extra: Vec<&Column> = plan.columns.iter().filter(|column| !rows.contains(&column.node)).collect();
    assert!(!extra.is_empty());
    assert!(extra.iter().all(|column| plan.rows.iter().any(|row| row.cpus.contains(&column.touched_by))));
}

#[test]
fn an_arm_machine_has_a_long_walk_in_several_orders() {
    let plan = plan(&Asked::default(), &facts("ft-2500", 64 << 10));
    assert_eq!(plan.orders, 8);
    let caches: u64 = facts("ft-2500", 1).cache_bytes.values().sum();
    assert_eq!(plan.walk_wanted, 4 * 4 * caches, "four times the caches, with a line of each four");
    assert!(plan.walk_bytes < plan.walk_wanted, "two GiB of a node are the limit");
}

#[test]
fn a_machine_without_smt_leaves_that_out() {
    let plan = plan(&Asked::default(), &facts("ft-2500", 64 << 10));
    assert!(plan.absent.iter().any(|(stage, why)| *stage == Stage::Smt && why.contains("two CPUs")));
    assert!(plan.siblings.is_none());
}
