//! Mappings of made-up processes, and samples of their use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Actor;
use crate::collect::mappings::{Mapping, Mappings};
use crate::model::access::answers::AccessClass;
use crate::model::access::lines::{ContendedLine, ContendedLines, LineSide, Object};
use crate::model::access::{AccessSource, ByNodes, MappingUse, MemoryUse, MemoryUses, SampledEvent};
use crate::model::process::ProcessId;
use crate::model::stacks::Function;
use crate::model::units::NodeId;
use crate::text;

/// Samples of a busy CPU in the window.
const WINDOW_S: f64 = 10.0;
const SAMPLES: f64 = 97.0 * WINDOW_S;
/// Cycles of a load from memory, near and far.
const CYCLES: [u32; 2] = [230, 390];
/// One sample in this many is a load that a PMU sampled.
const LOADS: f64 = 4.0;
/// Error of mappings whose pages were picked at random.
const ERROR_POINTS: f64 = 2.9;

/// A mapping, with the parts of its process's memory and of its accesses.
struct Piece {
    start: u64,
    bytes: u64,
    name: String,
    used: f64,
}

/// The name of the program.
fn program(actor: &Actor) -> String {
    text::clean(actor.comm.bytes())
}

/// The mappings of a process: shared memory, anonymous memory, the heap, files.
fn pieces(actor: &Actor) -> Vec<Piece> {
    let resident = actor.resident();
    let heap = resident.anon_bytes / 8;
    let main = if resident.shmem_bytes > 0 { [0.8, 0.1] } else { [0.0, 0.9] };
    let piece = |start, bytes, name: String, used| Piece { start, bytes, name, used };
    let pieces = [
        piece(0x7e00_0000_0000, resident.shmem_bytes, format!("/dev/shm/{}", program(actor)), main[0]),
        piece(0x7f20_0000_0000, resident.anon_bytes - heap, String::new(), main[1]),
        piece(0x5580_4000_0000, heap, "[heap]".into(), 0.08),
        piece(0x5580_0000_0000, resident.file_bytes, format!("/usr/bin/{}", program(actor)), 0.02),
    ];
    pieces.into_iter().filter(|piece| piece.bytes > 0).collect()
}

/// Shares by node, of parts.
fn shares<T: Copy + Into<f64>>(parts: impl Iterator<Item = (u32, T)> + Clone) -> Vec<(NodeId, f64)> {
    let all: f64 = parts.clone().map(|(_, part)| part.into()).sum();
    let share = |(node, part): (u32, T)| (NodeId(node), part.into() / all.max(1e-9));
    parts.map(share).filter(|(_, share)| *share > 0.0).collect()
}

fn memory(actor: &Actor) -> Vec<(NodeId, f64)> {
    shares((0..).zip(actor.memory.iter().copied()))
}

/// The mappings of a process; `exact`: as a look at every page finds them.
pub fn mappings(actor: &Actor, exact: bool) -> Mappings {
    let mut by_node = vec![0.0; actor.memory.len()];
    memory(actor).iter().for_each(|(node, share)| by_node[node.0 as usize] = *share);
    let row = |Piece { start, bytes, name, .. }: Piece| Mapping {
        start,
        bytes,
        name,
        policy: exact.then(|| "default".into()),
        by_node: by_node.iter().map(|share| share * bytes as f64).collect(),
    };
    let mut rows: Vec<Mapping> = pieces(actor).into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    Mappings { error_points: (!exact).then_some(ERROR_POINTS), count: rows.len(), rows }
}

/// Memory that all processes use.
pub fn uses(actors: &[Actor]) -> MemoryUses {
    let mut threads: BTreeMap<u32, Vec<&Actor>> = BTreeMap::new();
    actors.iter().for_each(|actor| threads.entry(actor.pid).or_default().push(actor));
    let mut processes: BTreeMap<ProcessId, Arc<MemoryUse>> = BTreeMap::new();
    for threads in threads.values() {
        let Some(leader) = threads.iter().find(|actor| actor.pid == actor.tid) else { continue };
        let mut runs: BTreeMap<u32, f64> = BTreeMap::new();
        threads
            .iter()
            .flat_map(|actor| &actor.runs)
            .for_each(|(node, pct)| *runs.entry(*node).or_default() += pct);
        if !runs.is_empty() && !leader.memory.is_empty() {
            processes.insert((leader.pid, leader.leader_start_ns()), Arc::new(one(leader, &runs)));
        }
    }
    let of_all = processes.values().map(|found| found.samples).sum();
    processes.values_mut().for_each(|found| Arc::make_mut(found).of_all = of_all);
    let event = Some(SampledEvent { source: AccessSource::Ibs, threshold: None });
    MemoryUses { source: AccessSource::Clock, event, window_s: WINDOW_S, processes }
}

fn one(leader: &Actor, runs: &BTreeMap<u32, f64>) -> MemoryUse {
    let samples = (SAMPLES * runs.values().sum::<f64>() / 100.0).round();
    let cpus = shares(runs.iter().map(|(node, pct)| (*node, *pct)));
    let pairs = |samples: f64| -> ByNodes {
        let pages = memory(leader);
        let pair = |(page, of_page): &(NodeId, f64)| {
            let (page, of_page) = (*page, *of_page);
            cpus.iter().map(move |(cpu, of_cpu)| ((Some(page), Some(*cpu)), samples * of_page * of_cpu))
        };
        pages.iter().flat_map(pair).collect()
    };
    let mapping = |Piece { start, bytes, name, used }: Piece| {
        let by_node = pairs(samples * used);
        let mut found = MappingUse {
            start,
            bytes,
            name,
            next_by_node: ByNodes::new(),
            answers: Default::default(),
            by_node,
        };
        let (far, all) = found.remote();
        for (remote, loads) in [(false, all - far), (true, far)] {
            let class = AccessClass::Dram { remote };
            (0..(loads / LOADS) as u64)
                .for_each(|_| found.answers.add(class, None, Some(CYCLES[usize::from(remote)])));
        }
        found
    };
    let mut mappings: Vec<MappingUse> = pieces(leader).into_iter().map(mapping).collect();
    mappings.sort_by(|one, other| other.samples().total_cmp(&one.samples()));
    let mut found =
        MemoryUse { samples: samples as u64, with_address: (samples * 0.97) as u64, ..MemoryUse::default() };
    mappings.iter().for_each(|mapping| found.answers.add_all(&mapping.answers));
    found.objects = objects(leader, &mappings);
    found.lines = lines(leader, &cpus);
    MemoryUse { mappings, ..found }
}

fn function(leader: &Actor, name: &str) -> Arc<Function> {
    Arc::new(Function { name: Some(name.into()), module: program(leader), kernel: false })
}

/// The function that filled the largest mapping, with its caller.
fn objects(leader: &Actor, mappings: &[MappingUse]) -> Vec<Object> {
    let by = match program(leader).as_str() {
        "postgres" => ["InitBufferPool", "CreateSharedMemoryAndSemaphores"],
        "java" => ["G1RegionsLargerThanCommitSizeMapper", "G1CollectedHeap::expand"],
        "memcached" => ["memory_allocate", "slabs_init"],
        "train" | "python3" => ["PyArray_Zeros", "load_dataset"],
        _ => ["calloc", "main"],
    };
    let touched = memory(leader).iter().map(|(node, share)| (*node, (share * 400.0) as u64)).collect();
    let object = |mapping: &MappingUse| Object {
        functions: by.map(|name| function(leader, name)).into(),
        touched_on: touched,
        mapping: mapping.name.clone(),
        by_node: mapping.by_node.clone(),
        next_by_node: ByNodes::new(),
    };
    mappings.first().map(object).into_iter().collect()
}

/// A counter and a lock that threads of the shop write on all of its nodes; other programs share no lines.
fn lines(leader: &Actor, cpus: &[(NodeId, f64)]) -> ContendedLines {
    let [(one, _), (other, _), ..] = cpus else { return ContendedLines::default() };
    if program(leader) != "java" {
        return ContendedLines::default();
    }
    let side = |store, name, offset, node: &NodeId, samples, far| LineSide {
        store,
        function: Some(function(leader, name)),
        offset,
        cpu_node: Some(*node),
        samples,
        far,
    };
    let counter = ContendedLine {
        mapping: String::new(),
        page_node: Some(*one),
        loads: 143,
        far: 96,
        stores: 210,
        sides: vec![
            side(false, "Orders.total", 0, one, 96, 96),
            side(false, "Orders.total", 0, other, 47, 0),
            side(true, "Orders.count", 8, other, 210, 0),
        ],
    };
    let lock = ContendedLine {
        loads: 31,
        far: 12,
        sides: vec![side(false, "ObjectMonitor::TrySpin", 24, other, 31, 12)],
        ..counter.clone()
    };
    ContendedLines { loads: 174, listed: vec![counter, ContendedLine { stores: 0, ..lock }] }
}
