//! The machine and its nodes in the interval.

use std::collections::HashMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::cpu_sets::{PlaceSets, SetKind, add_moves, cpu_sets};
use super::{Accesses, CpuDelta, OnCpus, Own, Remote, Room, RowKind, Snapshot, add, cpus, sum};
use crate::model::disks::{DiskSender, DiskTraffic};
use crate::model::event::Event;
use crate::model::process::ProcessId;
use crate::model::sample::{Flow, Hints, HostFacts, NodeRaw, Pressure, Sample};
use crate::model::sockets::SocketTraffic;
use crate::model::sums::sums;
use crate::model::traffic;
use crate::model::turns::{DramBytes, TierPages};
use crate::model::units::NodeId;

/// One node of the machine.
#[derive(Clone, Debug)]
pub struct Node {
    pub raw: NodeRaw,
    /// Online CPUs.
    pub cpus: u32,
    /// In the interval, of its CPUs.
    pub on_cpus: OnCpus,
    /// In the interval, of its memory.
    pub counts: NodeCounts,
    /// Pages since boot, as in numastat(8); `None` where one of them is less than before.
    pub pages_since_boot: Option<NumaPages>,
    /// Of what ran on its CPUs.
    pub remote: Remote,
}

/// Events in the memory of a node in an interval.
#[derive(Clone, Debug, Default)]
pub struct NodeCounts {
    /// Pages, as in numastat(8).
    pub pages: NumaPages,
    /// Pages that moved between tiers; `None` where they were not counted before or now.
    pub tier_pages: Option<TierPages>,
    /// Bytes that its memory controllers moved.
    pub dram: DramBytes,
    /// See [`NodeRaw`].
    pub kswapd_pages: u64,
    pub direct_pages: u64,
    pub node_reclaims: u64,
    /// Pages that NUMA balancing brought here and took away.
    pub pages_in: u64,
    pub pages_out: u64,
}

sums!(NodeCounts { pages, tier_pages, dram, kswapd_pages, direct_pages, node_reclaims, pages_in, pages_out });

/// Page allocations of a node in the interval, as numastat(8) names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaPages {
    pub numa_hit: u64,
    pub numa_miss: u64,
    pub numa_foreign: u64,
    pub interleave_hit: u64,
    pub local_node: u64,
    pub other_node: u64,
}

sums!(NumaPages { numa_hit, numa_miss, numa_foreign, interleave_hit, local_node, other_node });

impl NumaPages {
    fn between(before: &NodeRaw, now: &NodeRaw, number: impl Fn(u64, u64) -> u64) -> NumaPages {
        NumaPages {
            numa_hit: number(now.numa_hit, before.numa_hit),
            numa_miss: number(now.numa_miss, before.numa_miss),
            numa_foreign: number(now.numa_foreign, before.numa_foreign),
            interleave_hit: number(now.interleave_hit, before.interleave_hit),
            local_node: number(now.local_node, before.local_node),
            other_node: number(now.other_node, before.other_node),
        }
    }

    /// Totals, unless one went back.
    fn since_boot(before: &NodeRaw, now: &NodeRaw) -> Option<NumaPages> {
        let fell = NumaPages::between(before, now, |now, before| u64::from(now < before));
        (fell == NumaPages::default()).then(|| NumaPages::between(before, now, |now, _| now))
    }
}

/// Pages that came from swap and went to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swapped {
    pub pages_in: u64,
    pub pages_out: u64,
}

sums!(Swapped { pages_in, pages_out });

/// Events of the whole machine in an interval; `None` where the kernel does not measure it.
#[derive(Clone, Debug, Default)]
pub struct MachineCounts {
    pub pressure: Option<Pressure>,
    pub swapped: Option<Swapped>,
    /// Hinting faults.
    pub hints: Option<Hints>,
}

sums!(MachineCounts { pressure, swapped, hints });

/// The machine in the interval, without rows of tasks and containers.
pub(super) fn machine(host: &Arc<HostFacts>, previous: Option<&Sample>, current: &Sample) -> Snapshot {
    let cpus = cpus::deltas(previous, current);
    let interval_ns = previous.map(|previous| current.mono_ns.saturating_sub(previous.mono_ns));
    let silent = cpus::roles(host, current);
    let is_open = |event: &Event| !host.missing.contains_key(&event.name) && !silent.contains(&event.role);
    let own_before = previous.map_or(current.own.cpu_ns, |sample| sample.own.cpu_ns);
    let mut sets = cpu_sets(&host.topology, &cpus);
    if let Some(previous) = previous {
        let [before, now] = [previous, current].map(|sample| &*sample.inputs.place_moves);
        add_moves(&host.topology, before, now, &mut sets);
    }
    for set in sets.iter_mut().filter(|set| set.kind == SetKind::Socket) {
        let of = |sample: &'_ Sample| sample.inputs.socket_dram.get(&set.id).cloned();
        set.dram = DramBytes::between(previous.and_then(of).as_deref(), of(current).as_deref());
    }
    let mut snapshot = Snapshot {
        host: Arc::clone(host),
        wall_ns: current.wall_ns,
        mono_ns: current.mono_ns,
        boot_ns: current.boot_ns,
        interval_ns,
        grain: RowKind::Processes,
        tasks: Vec::new(),
        row_uses: Vec::new(),
        sharers: Vec::new(),
        containers: Vec::new(),
        nodes: nodes(previous, current, &cpus),
        place_sets: PlaceSets::of(&host.topology, &sets),
        cpu_sets: sets,
        flows: flows(previous, current, |sample| &sample.flows),
        page_flows: Vec::new(),
        inputs: current.inputs.clone(),
        disk_traffic: disk_traffic(previous, current, ..).collect(),
        socket_traffic: socket_traffic(previous, current).collect(),
        accesses: Accesses::default(),
        room: Room::of(current, interval_ns.unwrap_or(0)),
        on_cpus: OnCpus::of(&cpus),
        counts: MachineCounts {
            pressure: pressure(previous, current),
            swapped: swapped(previous, current),
            hints: hints(previous, current),
        },
        machine: current.machine,
        zone_reclaim_mode: current.vm.and_then(|vm| vm.zone_reclaim_mode),
        online_cpus: current.cpus.iter().filter(|cpu| cpu.online).count() as u32,
        cpus: Vec::new(),
        open_slots: host.events.iter().map(is_open).collect(),
        silent,
        own: Own { raw: current.own.clone(), cpu_ns: current.own.cpu_ns.saturating_sub(own_before) },
        lost: current.lost.clone(),
        exit_lost_ns: sum(&current.exit_lost_ns),
        names: Arc::clone(&current.names),
        notes: current.notes.clone(),
        hot: None,
        overhead: None,
    };
    snapshot.page_flows = page_flows(previous, current, &mut snapshot.nodes);
    snapshot.cpus = cpus;
    snapshot
}

fn flows(previous: Option<&Sample>, current: &Sample, of: fn(&Sample) -> &[Flow]) -> Vec<Flow> {
    let Some(previous) = previous else { return Vec::new() };
    let before: HashMap<_, _> = of(previous).iter().map(|flow| ((flow.from, flow.to), flow.count)).collect();
    let delta = |flow: &Flow| {
        let count = flow.count.saturating_sub(before.get(&(flow.from, flow.to)).copied().unwrap_or(0));
        Flow { count, ..*flow }
    };
    of(current).iter().map(delta).collect()
}

/// Pages that went from node to node; each node has its share of them.
fn page_flows(previous: Option<&Sample>, current: &Sample, nodes: &mut [Node]) -> Vec<Flow> {
    let flows = flows(previous, current, |sample| &sample.page_flows);
    let at: HashMap<NodeId, usize> =
        nodes.iter().enumerate().map(|(at, node)| (NodeId(node.raw.id), at)).collect();
    for flow in &flows {
        if let Some(from) = at.get(&flow.from) {
            add(&mut nodes[*from].counts.pages_out, flow.count);
        }
        if let Some(to) = at.get(&flow.to) {
            add(&mut nodes[*to].counts.pages_in, flow.count);
        }
    }
    flows
}

fn tier_pages(previous: Option<&Sample>, current: &Sample, node: NodeId) -> Option<TierPages> {
    let of = |sample: &Sample| sample.inputs.tier_pages.get(&node).map(|pages| **pages);
    Some(of(current)?.since(&of(previous?)?))
}

fn dram(previous: Option<&Sample>, current: &Sample, node: NodeId) -> DramBytes {
    let before = previous.and_then(|sample| sample.inputs.node_dram.get(&node));
    let now = current.inputs.node_dram.get(&node);
    DramBytes::between(before.map(|traffic| &**traffic), now.map(|traffic| &**traffic))
}

/// Traffic of these senders in the interval, as far as they sent anything.
pub(super) fn disk_traffic<'a>(
    previous: Option<&'a Sample>,
    current: &'a Sample,
    senders: impl RangeBounds<DiskSender> + Clone + 'a,
) -> impl Iterator<Item = (DiskSender, DiskTraffic)> + 'a {
    previous.into_iter().flat_map(move |previous| {
        traffic::between(&previous.inputs.disk_traffic, &current.inputs.disk_traffic, senders.clone())
    })
}

/// Traffic of IP sockets of processes in the interval, as far as they have any.
fn socket_traffic<'a>(
    previous: Option<&'a Sample>,
    current: &'a Sample,
) -> impl Iterator<Item = (ProcessId, SocketTraffic)> + 'a {
    previous.into_iter().flat_map(|previous| {
        traffic::between(&previous.inputs.socket_traffic, &current.inputs.socket_traffic, ..)
    })
}

fn swapped(previous: Option<&Sample>, current: &Sample) -> Option<Swapped> {
    let (before, now) = (previous?.vm?, current.vm?);
    Some(Swapped {
        pages_in: now.swapped_in.saturating_sub(before.swapped_in),
        pages_out: now.swapped_out.saturating_sub(before.swapped_out),
    })
}

fn pressure(previous: Option<&Sample>, current: &Sample) -> Option<Pressure> {
    Some(current.machine?.pressure?.since(previous?.machine?.pressure?))
}

fn hints(previous: Option<&Sample>, current: &Sample) -> Option<Hints> {
    Some(current.vm?.hints?.since(previous?.vm?.hints?))
}

fn nodes(previous: Option<&Sample>, current: &Sample, cpus: &[CpuDelta]) -> Vec<Node> {
    let row = |raw: &NodeRaw| {
        let before =
            previous.and_then(|sample| sample.nodes.iter().find(|node| node.id == raw.id)).unwrap_or(raw);
        let online = current.cpus.iter().filter(|cpu| cpu.online && cpu.node == raw.id).count() as u32;
        Node {
            raw: raw.clone(),
            cpus: online,
            on_cpus: OnCpus::of(cpus.iter().filter(|cpu| cpu.node == raw.id)),
            counts: NodeCounts {
                kswapd_pages: raw.kswapd_pages.saturating_sub(before.kswapd_pages),
                direct_pages: raw.direct_pages.saturating_sub(before.direct_pages),
                node_reclaims: raw.node_reclaims.saturating_sub(before.node_reclaims),
                pages: NumaPages::between(before, raw, u64::saturating_sub),
                tier_pages: tier_pages(previous, current, NodeId(raw.id)),
                dram: dram(previous, current, NodeId(raw.id)),
                // Flows tell these.
                pages_in: 0,
                pages_out: 0,
            },
            pages_since_boot: NumaPages::since_boot(before, raw),
            remote: Remote::default(),
        }
    };
    current.nodes.iter().map(row).collect()
}
