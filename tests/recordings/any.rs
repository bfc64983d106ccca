//! Any sample at all, for property tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::model::access::answers::{AccessClass, Answers};
use numatop_ng::model::access::lines::{ContendedLine, ContendedLines, LineSide, Object};
use numatop_ng::model::access::next_runs::{GaveUp, NextRuns};
use numatop_ng::model::access::{
    AccessSource, ByNodes, MappingUse, MemoryUse, MemoryUses, RestUse, SampledEvent,
};
use numatop_ng::model::counters::{NR_COUNTERS, Scalars};
use numatop_ng::model::disks::{DiskUse, DisksUsed};
use numatop_ng::model::inputs::Inputs;
use numatop_ng::model::machine::PlaceMoves;
use numatop_ng::model::memory::{ObjectId, ObjectNodes};
use numatop_ng::model::sample::{
    Comm, Counts, CpuRaw, FilePages, Flow, GroupCounters, GroupRaw, Hints, HugeNode, HugePages, MachineRaw,
    MemPolicy, Missing, Names, NodeCounts, NodeRaw, PagesFound, PlacementRaw, PolicyBytes, Pressure,
    Resident, Sample, SelfUsage, Slot, TaskRaw, VmStat,
};
use numatop_ng::model::stacks::{BuildId, CodePlace, Frame, Function, Stack, StackBatch};
use numatop_ng::model::turns::{
    DeviceInterrupts, DramCount, DramTraffic, FreeBlocks, Interrupts, NodeTier, SchedExt, TierPages,
};
use numatop_ng::model::units::NodeId;

fn slot() -> impl Strategy<Value = Slot> {
    prop_oneof![
        Just(Slot::default()),
        any::<[u64; 3]>().prop_map(|[count, enabled_ns, running_ns]| Slot { count, enabled_ns, running_ns })
    ]
}

fn counts() -> impl Strategy<Value = Counts> {
    let by_node =
        vec(any::<[u64; 2]>().prop_map(|[cycles, instructions]| NodeCounts { cycles, instructions }), 0..4);
    let scalars = proptest::array::uniform::<_, NR_COUNTERS>(any::<u64>()).prop_map(Scalars::from);
    let siblings = any::<[u64; 4]>().prop_map(|[idle, idle_done, busy, busy_done]| {
        [
            NodeCounts { cycles: idle, instructions: idle_done },
            NodeCounts { cycles: busy, instructions: busy_done },
        ]
    });
    let times = || vec(any::<u64>(), 0..4);
    let nodes = (times(), times(), times(), by_node);
    (nodes, scalars, siblings, proptest::array::uniform8(slot())).prop_map(
        |((run_ns, by_place, pages, by_node), scalars, by_sibling, slots)| Counts {
            run_ns,
            by_place,
            scalars,
            slots: slots.into(),
            by_node,
            pages,
            by_sibling,
        },
    )
}

/// Nodes that a task may use: none at all is not known.
fn nodes() -> impl Strategy<Value = Option<u64>> {
    any::<u64>().prop_map(|bits| (bits % 4 > 0).then_some(bits))
}

/// No process has so much memory that the last number is needed.
fn resident() -> impl Strategy<Value = Resident> {
    (0..u64::MAX, any::<[u64; 3]>()).prop_map(|(file_bytes, [anon_bytes, shmem_bytes, swap_bytes])| {
        Resident { anon_bytes, file_bytes, shmem_bytes, swap_bytes }
    })
}

fn file_pages() -> impl Strategy<Value = FilePages> {
    (0..u64::MAX, any::<[u64; 3]>()).prop_map(|(active_bytes, [inactive_bytes, shmem_bytes, dirty_bytes])| {
        FilePages { active_bytes, inactive_bytes, shmem_bytes, dirty_bytes }
    })
}

fn pressure() -> impl Strategy<Value = Pressure> {
    (0..u64::MAX, any::<[u64; 2]>()).prop_map(|(cpu_some_us, [memory_some_us, memory_full_us])| Pressure {
        cpu_some_us,
        memory_some_us,
        memory_full_us,
    })
}

fn machine() -> impl Strategy<Value = MachineRaw> {
    let bytes = || option::of(0..u64::MAX);
    (any::<[Option<u32>; 2]>(), bytes(), bytes(), option::of(pressure()), any::<Option<[u32; 3]>>()).prop_map(
        |([numa_balancing, swappiness], swap_total_bytes, swap_free_bytes, pressure, load_hundredths)| {
            MachineRaw {
                numa_balancing,
                swappiness,
                swap_total_bytes,
                swap_free_bytes,
                pressure,
                load_hundredths,
            }
        },
    )
}

/// Use of one disk.
fn used(bytes: u64, requests: u64) -> DisksUsed {
    [("0000:3b:00.0".to_owned(), DiskUse { bytes, requests })].into()
}

fn tier_pages(promoted: u64, demoted: Option<u64>) -> TierPages {
    TierPages { promoted: Some(promoted), candidates: None, demoted, demoted_asked: demoted }
}

/// Free memory, tiers, switches and a scheduler.
fn inputs() -> impl Strategy<Value = Inputs> {
    // An absent number is written as the one after the largest.
    let amount = || option::of(0..u64::MAX);
    let free = (vec(any::<u64>(), 0..12), amount());
    let tier = (any::<[Option<u32>; 2]>(), proptest::array::uniform4(amount()), 0..u64::MAX);
    let nodes = btree_map(0..1024u32, (free, tier), 0..4);
    let scheduler = option::of(("[a-z_]{1,9}", any::<Option<bool>>(), amount()));
    (nodes, scheduler, amount()).prop_map(|(nodes, scheduler, limit)| {
        let mut inputs = Inputs::default();
        for (node, ((by_order, huge_bytes), ([tier, weight], n, promoted))) in nodes {
            let node = NodeId(node);
            let free = FreeBlocks { by_order, page_bytes: promoted, huge_bytes };
            let [read_latency_ns, write_latency_ns, read_mbs, write_mbs] = n;
            let tier = NodeTier { tier, read_latency_ns, write_latency_ns, read_mbs, write_mbs, weight };
            Arc::make_mut(&mut inputs.free_blocks).insert(node, Arc::new(free));
            Arc::make_mut(&mut inputs.tiers).insert(node, Arc::new(tier));
            Arc::make_mut(&mut inputs.tier_pages).insert(node, Arc::new(tier_pages(promoted, read_mbs)));
            let why = huge_bytes.map(|_| Missing::Lost("counted backwards".into()));
            let read = DramCount { bytes: promoted, losses: 7, why };
            let traffic = Arc::new(DramTraffic { read, write: DramCount::default() });
            Arc::make_mut(&mut inputs.node_dram).insert(node, Arc::clone(&traffic));
            Arc::make_mut(&mut inputs.socket_dram).insert(node.0, traffic);
        }
        if let Some((name, switch_all, rejected)) = scheduler {
            inputs.schedulers = Arc::new([(name, Arc::new(SchedExt { switch_all, rejected }))].into());
        }
        if let Some(inode) = limit {
            let id = ObjectId { device: 1, inode, generation: inode as u32 };
            let nodes = ObjectNodes {
                read_ns: inode,
                asked: 1024,
                by_node: vec![7, 9],
                meant: vec![7],
                error_hundredths: 99,
            };
            inputs.object_nodes = Arc::new([(id, Arc::new(nodes))].into());
        }
        if let Some(limit) = limit {
            inputs.scope_ns = Arc::new([(limit as u32, Arc::new(limit))].into());
            let moves = PlaceMoves { llc_in: limit, llc_out: limit / 2, socket_in: 0, socket_out: u64::MAX };
            inputs.place_moves = Arc::new([(limit as u32, Arc::new(moves))].into());
            inputs.tier_switches = Arc::new([("promote_rate_limit_mbs".to_owned(), Arc::new(limit))].into());
        }
        inputs
    })
}

fn counters_before() -> impl Strategy<Value = GroupCounters> {
    (any::<u64>(), any::<[Option<u64>; 3]>(), option::of(pressure())).prop_map(
        |(read_ns, [periods, throttled_periods, events], pressure)| GroupCounters {
            read_ns,
            periods,
            throttled_periods,
            pressure,
            memory_max_events: events,
            oom_events: events,
            tier_pages: periods.map(|promoted| tier_pages(promoted, events)),
        },
    )
}

/// Serials are few, so that samples have tasks in common.
fn task() -> impl Strategy<Value = TaskRaw> {
    let numbers = (0..12u64, any::<[u64; 5]>(), any::<[u32; 14]>());
    let others = (any::<[u8; 16]>(), any::<i32>(), any::<bool>(), any::<Option<u32>>(), counts());
    let allowed = (nodes(), nodes(), option::of(resident()));
    (numbers, others, allowed).prop_map(|((serial, n, m), (comm, nice, kthread, node, counts), allowed)| {
        TaskRaw {
            serial,
            pid: m[0],
            tid: m[1],
            ppid: m[2],
            uid: m[3],
            start_ns: n[0],
            leader_start_ns: n[1],
            cgroup_id: n[2],
            comm: Comm(comm),
            state: m[4],
            exit_state: m[5],
            policy: m[6],
            nice,
            cpu: m[7],
            cpus_allowed: m[8],
            cpu_nodes: allowed.0,
            mem_nodes: allowed.1,
            kthread,
            rss_bytes: n[3],
            resident: allowed.2,
            exec_ns: n[4],
            preferred_node: node.map(NodeId),
            scan_period_ms: m[9],
            numa_group: m[10],
            mempolicy: MemPolicy { mode: m[11] as u16, flags: m[12] as u16, nodes: u64::from(m[13]) << 32 },
            counts,
        }
    })
}

fn cpu() -> impl Strategy<Value = CpuRaw> {
    let slots = proptest::array::uniform8(slot());
    let times = (any::<[u64; 2]>(), option::of(0..u64::MAX), option::of(0..u64::MAX));
    (any::<[u32; 2]>(), any::<bool>(), times, option::of(hints()), slots).prop_map(
        |([id, node], online, ([busy_ns, switches], irq_ns, steal_ns), hints, slots)| CpuRaw {
            id,
            node,
            online,
            busy_ns,
            switches,
            irq_ns,
            steal_ns,
            hints,
            slots,
        },
    )
}

fn node() -> impl Strategy<Value = NodeRaw> {
    (any::<u32>(), any::<[u64; 18]>(), option::of(file_pages())).prop_map(|(id, n, file_pages)| NodeRaw {
        id,
        mem_total_bytes: n[0],
        mem_free_bytes: n[1],
        mem_file_bytes: n[2],
        file_pages,
        mem_anon_bytes: n[3],
        mem_slab_bytes: n[4],
        huge_total: n[5],
        huge_free: n[6],
        numa_hit: n[7],
        numa_miss: n[8],
        numa_foreign: n[9],
        interleave_hit: n[10],
        local_node: n[11],
        other_node: n[12],
        low_watermark_bytes: n[13],
        managed_bytes: n[14],
        kswapd_pages: n[15],
        direct_pages: n[16],
        node_reclaims: n[17],
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    any::<(u32, u32, u64)>().prop_map(|(from, to, count)| Flow { from: NodeId(from), to: NodeId(to), count })
}

fn interrupts() -> impl Strategy<Value = Interrupts> {
    let by_node = btree_map(any::<u32>().prop_map(NodeId), any::<u64>(), 0..3);
    let device = (any::<[u64; 2]>(), by_node).prop_map(|([read_ns, over_ns], by_node)| DeviceInterrupts {
        read_ns,
        over_ns,
        by_node,
    });
    btree_map("[0-9a-f:.]{0,12}", device.prop_map(Arc::new), 0..3)
}

/// No counter reaches the greatest number.
fn hints() -> impl Strategy<Value = Hints> {
    (0..u64::MAX, any::<u64>()).prop_map(|(faults, remote)| Hints { faults, remote })
}

fn vm() -> impl Strategy<Value = VmStat> {
    (any::<[u64; 4]>(), any::<Option<u32>>(), option::of(hints())).prop_map(
        |(n, zone_reclaim_mode, hints)| VmStat {
            swapped_in: n[0],
            swapped_out: n[1],
            kswapd_pages: n[2],
            direct_pages: n[3],
            zone_reclaim_mode,
            hints,
        },
    )
}

fn names() -> impl Strategy<Value = Names> {
    (btree_map(0..5u32, ".{0,9}", 0..4), btree_map(0..5u64, ".{0,9}", 0..4)).prop_map(|(users, cgroups)| {
        // Facts that follow from a path are not recorded, but derived again.
        let groups =
            describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent")));
        Names { users, cgroups, groups }
    })
}

fn limits() -> impl Strategy<Value = Arc<GroupRaw>> {
    let reading = (any::<u64>(), any::<bool>()).prop_map(|(number, known)| {
        if known { Ok(number) } else { Err(Missing::Unsupported("the cgroup has no such file".into())) }
    });
    let nodes = btree_map(0..4u32, any::<u64>(), 0..3);
    let counters = (pressure(), option::of(counters_before()));
    (any::<[u64; 3]>(), reading, nodes, "[0-9,-]{0,9}", any::<Option<u64>>(), counters).prop_map(
        |(n, reading, nodes, cpus, limit, (pressure, counters_before))| {
            Arc::new(GroupRaw {
                read_ns: n[0],
                cpus: Ok(cpus.clone()),
                mems: Ok(cpus),
                cpu_quota_milli: Ok(limit),
                throttled_ns: reading.clone(),
                throttled_before: limit.map(|at| (at, n[1])),
                mem_limit_bytes: reading.clone().map(Some),
                mem_bytes: reading.clone(),
                mem_bytes_by_node: Ok(nodes.clone()),
                cache_by_node: Ok(nodes),
                periods: reading.clone(),
                throttled_periods: Ok(n[2]),
                pressure: reading.clone().map(|_| pressure),
                memory_max_events: reading.clone(),
                oom_events: reading.clone(),
                tier_pages: reading.clone().map(|promoted| tier_pages(promoted, limit)),
                counters_before,
                disks: reading.map(|bytes| used(bytes, n[0])),
                disks_before: limit.map(|bytes| used(bytes, n[1])),
            })
        },
    )
}

fn huge_pages() -> impl Strategy<Value = HugePages> {
    let node = any::<[u64; 3]>().prop_map(|[used, total, free]| HugeNode { used, total, free });
    (any::<u64>(), proptest::collection::btree_map(any::<u32>(), node, 0..3))
        .prop_map(|(page_bytes, by_node)| HugePages { page_bytes, by_node })
}

fn placement() -> impl Strategy<Value = Arc<PlacementRaw>> {
    let policies = proptest::option::of((any::<[u64; 3]>(), any::<bool>(), vec(huge_pages(), 0..3)));
    (any::<[u64; 3]>(), any::<[u32; 2]>(), vec(any::<u32>(), 0..4), any::<bool>(), policies).prop_map(
        |([start_ns, read_ns, space_bytes], [asked, error_hundredths], by_node, known, policies)| {
            let found = PagesFound { space_bytes, asked, by_node, error_hundredths };
            let missing = Missing::NotPermitted("reading maps of the process: Permission denied".into());
            let policies = policies.map(|([read_ns, all_bytes, own_bytes], known, huge)| {
                let why = || Missing::NotCollected("too large".into());
                (read_ns, if known { Ok(PolicyBytes { all_bytes, own_bytes, huge }) } else { Err(why()) })
            });
            let found = if known { Ok(found) } else { Err(missing) };
            Arc::new(PlacementRaw { start_ns, read_ns, found, policies, by_policy: None })
        },
    )
}

fn stacks() -> impl Strategy<Value = StackBatch> {
    let id = any::<u8>().prop_map(|byte| BuildId([byte; 20]));
    let function = (proptest::option::of("[a-z:<>]{1,9}"), "[a-z/.]{1,9}", any::<bool>());
    let function = function.prop_map(|(name, module, kernel)| Arc::new(Function { name, module, kernel }));
    let place = prop_oneof![
        any::<u64>().prop_map(CodePlace::Kernel),
        (id.clone(), any::<u64>()).prop_map(|(id, offset)| CodePlace::File(id, offset)),
        (any::<(u32, u64)>(), any::<u64>())
            .prop_map(|(process, address)| CodePlace::Address(process, address)),
    ];
    let frame = prop_oneof![
        any::<u64>().prop_map(Frame::Kernel),
        (id, any::<u64>()).prop_map(|(id, offset)| Frame::File(id, offset)),
        any::<u64>().prop_map(Frame::Address),
    ];
    let stack = (any::<((u32, u64), u32, u64, u64)>(), vec(frame, 0..5)).prop_map(
        |((process, tid, cgroup_id, samples), frames)| {
            let comm = Comm::new("stack");
            Stack { process, tid, cgroup_id, comm, samples, frames }
        },
    );
    let lost = btree_map("[a-z_]{1,5}", any::<u64>(), 0..3);
    (vec(stack, 0..4), vec((place, function), 0..4), lost, any::<u32>())
        .prop_map(|(stacks, names, lost, hz)| StackBatch { event: "cycles".into(), hz, stacks, names, lost })
}

/// Samples by pairs of nodes, in halves.
fn by_nodes() -> impl Strategy<Value = ByNodes> {
    let node = || option::of((0..200u32).prop_map(NodeId));
    btree_map((node(), node()), any::<u32>().prop_map(|halves| f64::from(halves) / 2.0), 0..4)
}

fn answers() -> impl Strategy<Value = Answers> {
    let access = (0..AccessClass::ALL.len(), any::<Option<bool>>(), any::<Option<u32>>());
    vec(access, 0..5).prop_map(|accesses| {
        let mut answers = Answers::default();
        accesses
            .into_iter()
            .for_each(|(class, elsewhere, cycles)| answers.add(AccessClass::ALL[class], elsewhere, cycles));
        answers
    })
}

fn mapping_use() -> impl Strategy<Value = MappingUse> {
    (any::<[u64; 2]>(), "[a-z/]{0,9}", by_nodes(), by_nodes(), answers()).prop_map(
        |([start, bytes], name, by_node, next_by_node, answers)| MappingUse {
            start,
            bytes,
            name,
            by_node,
            next_by_node,
            answers,
        },
    )
}

fn lines() -> impl Strategy<Value = ContendedLines> {
    let node = || option::of((0..200u32).prop_map(NodeId));
    let count = || any::<u32>().prop_map(u64::from);
    let function = (option::of("[a-z]{1,9}"), "[a-z]{0,9}")
        .prop_map(|(name, module)| Arc::new(Function { name, module, kernel: false }));
    let side = (any::<bool>(), option::of(function), 0..64u8, node(), count(), count()).prop_map(
        |(store, function, offset, cpu_node, samples, far)| LineSide {
            store,
            function,
            offset,
            cpu_node,
            samples,
            far,
        },
    );
    let line = ("[a-z/]{0,9}", node(), [count(), count(), count()], vec(side, 0..4)).prop_map(
        |(mapping, page_node, [loads, far, stores], sides)| ContendedLine {
            mapping,
            page_node,
            loads,
            far,
            stores,
            sides,
        },
    );
    (count(), vec(line, 0..4)).prop_map(|(loads, listed)| ContendedLines { loads, listed })
}

fn object() -> impl Strategy<Value = Object> {
    let function = (option::of("[a-z]{1,9}"), "[a-z]{0,9}")
        .prop_map(|(name, module)| Arc::new(Function { name, module, kernel: false }));
    let touched_on = btree_map((0..200u32).prop_map(NodeId), any::<u32>().prop_map(u64::from), 0..4);
    (vec(function, 0..5), touched_on, "[a-z/]{0,9}", by_nodes(), by_nodes()).prop_map(
        |(functions, touched_on, mapping, by_node, next_by_node)| Object {
            functions,
            touched_on,
            mapping,
            by_node,
            next_by_node,
        },
    )
}

fn memory_use() -> impl Strategy<Value = MemoryUse> {
    let count = || any::<u32>().prop_map(u64::from);
    let counts = proptest::array::uniform12(count());
    let pairs = (
        btree_map(any::<(bool, bool)>(), count(), 0..4),
        btree_map((any::<u64>(), any::<u64>()), count(), 0..4),
        btree_map(proptest::sample::select(&GaveUp::ALL[..]), count(), 0..4),
    );
    let lost = btree_map("[a-z_]{1,5}", count(), 0..3);
    let no_nodes = option::of(Just(Missing::Unsupported("no move_pages".into())));
    let no_nodes = (no_nodes, answers(), lines(), vec(object(), 0..4));
    let rest = (vec(mapping_use(), 0..4), by_nodes(), by_nodes(), no_nodes, any::<u32>());
    (counts, pairs, lost, rest).prop_map(
        |(
            n,
            (by_remote, by_mapping, ends),
            lost,
            (mappings, by_node, next_by_node, (no_nodes, answers, lines, objects), unmapped),
        )| MemoryUse {
            samples: n[0],
            with_address: n[1],
            plain: n[2],
            gone: n[3],
            nowhere: n[4],
            unknown: n[5],
            kernel: n[6],
            of_all: n[7],
            lost,
            next_runs: NextRuns {
                followed: n[8],
                resolved: n[9],
                gone_resolved: n[10],
                left_out: n[11],
                by_remote,
                by_mapping,
                ends,
            },
            unmapped: f64::from(unmapped) / 2.0,
            no_nodes,
            mappings,
            rest: RestUse { by_node, next_by_node },
            answers,
            lines,
            objects,
        },
    )
}

fn memory_uses() -> impl Strategy<Value = MemoryUses> {
    let processes = btree_map(any::<(u32, u64)>(), memory_use().prop_map(Arc::new), 0..4);
    let event = option::of(any::<Option<u32>>());
    (0..1_000_000_u32, processes, event).prop_map(|(window_ms, processes, event)| MemoryUses {
        source: AccessSource::Clock,
        event: event.map(|threshold| SampledEvent { source: AccessSource::Ibs, threshold }),
        window_s: (u64::from(window_ms) * 1_000_000) as f64 / 1e9,
        processes,
    })
}

fn shared(tasks: Vec<TaskRaw>) -> Vec<Arc<TaskRaw>> {
    tasks.into_iter().map(Arc::new).collect()
}

/// `sorted` as sources hand them out; otherwise with serials in any order, repeated ones too.
pub fn sample(sorted: bool) -> impl Strategy<Value = Sample> {
    let rows = (
        vec(task(), 0..9),
        vec(task(), 0..3),
        vec(cpu(), 0..4),
        vec(node(), 0..3),
        (proptest::option::of(vm()), proptest::option::of(machine())),
        (vec(flow(), 0..4), vec(flow(), 0..4)),
    );
    let rest = (
        any::<(i64, [u64; 5])>(),
        btree_map("[a-z_]{0,5}", any::<u64>(), 0..3),
        vec(any::<u64>(), 0..3),
        names(),
        vec(".{0,20}", 0..3),
        (
            btree_map(0..5u64, limits(), 0..4),
            btree_map(0..5u64, placement(), 0..4),
            (interrupts(), inputs()),
            proptest::option::of(stacks()),
            proptest::option::of(memory_uses()),
            btree_map(any::<(u32, u64)>(), "[a-z -]{0,40}".prop_map(Arc::from), 0..4),
        ),
    );
    (rows, rest).prop_map(
        move |(
            (mut tasks, exited, cpus, nodes, (vm, machine), (flows, page_flows)),
            (
                (wall_ns, n),
                lost,
                exit_lost_ns,
                names,
                notes,
                (groups, placement, (interrupts, inputs), hot, memory_use, command_lines),
            ),
        )| {
            if sorted {
                tasks.sort_by_key(|task| task.serial);
                tasks.dedup_by_key(|task| task.serial);
            }
            Sample {
                wall_ns,
                mono_ns: n[0],
                boot_ns: n[1],
                tasks: shared(tasks).into(),
                exited: shared(exited),
                cpus,
                nodes,
                vm,
                machine,
                flows,
                page_flows,
                inputs: Inputs { interrupts: Arc::new(interrupts), ..inputs },
                lost,
                exit_lost_ns,
                own: SelfUsage { cpu_ns: n[2], rss_bytes: n[3], sample_ns: n[4] },
                names: Arc::new(names),
                groups,
                placement: Arc::new(placement),
                about: Arc::default(),
                command_lines: Arc::new(command_lines),
                memory_use: memory_use.map(Arc::new),
                hot: hot.map(Arc::new),
                notes,
            }
        },
    )
}
