//! Work of a calibration, planned before it starts: cells, CPUs, memory and seconds. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::job::Limits;
use super::machine::Facts;
use crate::known::chase::{GROUP, ORDERS, Shape};
use crate::known::idle::may_take;
use crate::model::topology::Cpu;
use crate::model::units::CpuId;

/// Bytes of a walk that is flushed: its size is of no importance, because no line is found in a cache.
const WALK: u64 = 16 << 20;

/// Bytes of a walk where flushing may leave lines in a cache of the whole system (arm64).
const LONG_WALK: u64 = 256 << 20;

/// Bytes of a huge page.
const HUGE: u64 = GROUP as u64;

/// Maximum part of the memory of a walk that its order takes while it is made: a word of 4 bytes for each
/// line of 256 bytes, in 8 orders.
const ORDER_PART: u64 = 7;

/// Bytes of the walks that tell the cost of a page walk.
const PAGES: u64 = 256 << 20;

/// Huge pages that are measured one by one.
const EACH: u64 = 256;

/// Rounds of latency, and the fewest that a shorter time leaves.
const ROUNDS: u32 = 5;
const LEAST_ROUNDS: u32 = 3;

/// Length of a round of latency, and of a window of bandwidth, ms.
pub const ROUND_MS: u32 = 20;
pub const WINDOW_MS: u32 = 50;

/// Windows of bandwidth of a cell.
const WINDOWS: u32 = 5;

/// Length of a line's way between two CPUs: of one of each kind, of each of all, and of a look, ms.
pub const LINE_MS: u32 = 20;
pub const EACH_LINE_MS: u32 = 5;
pub const LOOK_MS: u32 = 3;

/// Looks at how far two CPUs are from each other.
pub const LOOKS: u32 = 20;

/// Time of everything, if none is asked for, s.
pub const MOST_SECONDS: f64 = 120.0;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Latency,
    Bandwidth,
    Cores,
    Smt,
    Pages,
    Loaded,
}

impl Stage {
    /// All stages with their words on the command line.
    pub const ALL: [(Stage, &str); 6] = [
        (Stage::Latency, "latency"),
        (Stage::Bandwidth, "bandwidth"),
        (Stage::Cores, "cores"),
        (Stage::Smt, "smt"),
        (Stage::Pages, "pages"),
        (Stage::Loaded, "loaded"),
    ];

    /// Stages without being asked for.
    pub const USUAL: [Stage; 5] = [Stage::Latency, Stage::Bandwidth, Stage::Cores, Stage::Smt, Stage::Pages];

    /// The stage of this word.
    pub fn by_word(word: &str) -> Option<Stage> {
        Stage::ALL.iter().find(|(_, known)| *known == word).map(|(stage, _)| *stage)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        Stage::ALL.iter().find(|(stage, _)| *stage == self).map_or("", |(_, word)| word)
    }
}

/// Wishes of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Stages.
    pub only: BTreeSet<Stage>,
    /// Nodes of the CPUs; `None`: all.
    pub from: Option<BTreeSet<u32>>,
    /// Nodes of the memory; `None`: all.
    pub to: Option<BTreeSet<u32>>,
    /// Every pair of cores.
    pub every_core: bool,
    /// Seconds of everything.
    pub seconds: Option<f64>,
    /// Percent of a node's free memory.
    pub memory_pct: f64,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked {
            only: Stage::USUAL.into(),
            from: None,
            to: None,
            every_core: false,
            seconds: None,
            memory_pct: 10.0,
        }
    }
}

/// A node whose CPUs measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixRow {
    pub node: u32,
    /// A CPU of each core that may be used; the one with the fewest interrupts first.
    pub cpus: Vec<u32>,
}

/// A node whose memory is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub node: u32,
    /// A CPU that touches it: of the node, or of the nearest that has any.
    pub touched_by: u32,
    /// The part that may be used, in bytes.
    pub bytes: u64,
    pub limits: Limits,
}

/// A pair of CPUs between which a line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub kind: PairKind,
    pub cpus: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairKind {
    /// Threads of one core.
    Core,
    /// Cores of one last-level cache.
    Llc,
    /// Caches of one node.
    Node,
    /// Nodes, by their places among the rows of the machine.
    Nodes(usize, usize),
    /// Any, asked for by `--cores`.
    Every,
}

/// All work.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub rows: Vec<MatrixRow>,
    pub columns: Vec<Column>,
    pub walk_bytes: u64,
    /// Bytes that it would have without a limit of memory.
    pub walk_wanted: u64,
    /// Orders of a walk, one after the other.
    pub orders: u32,
    /// Bytes of a walk on the first column that no cache holds, where they may be taken: the same cell without flushing.
    pub evicted_bytes: Option<u64>,
    /// Bytes of streams that a node's threads share, before its limit; 0 without that stage.
    pub stream_bytes: BTreeMap<u32, u64>,
    pub rounds: u32,
    pub windows: u32,
    pub pairs: Vec<Pair>,
    /// Threads of a core.
    pub siblings: Option<(u32, u32)>,
    /// Their node, where its memory may be measured.
    pub siblings_node: Option<u32>,
    /// Two CPUs that should be near each other, where a hypervisor may move them.
    pub wanders: Option<(u32, u32)>,
    /// Huge pages are measured one by one.
    pub hidden: bool,
    /// Stages with their seconds, in order.
    pub stages: Vec<(Stage, f64)>,
    /// Stages for which there is not enough time, with the reason in words.
    pub left_out: Vec<(Stage, String)>,
    /// Stages that this machine has nothing for, with the reason: no fault of a measurement.
    pub absent: Vec<(Stage, String)>,
    /// Why cells have no number, by their key.
    pub missing: BTreeMap<String, String>,
}

impl Plan {
    /// Seconds of everything.
    pub fn seconds(&self) -> f64 {
        const START: f64 = 0.2;
        START + self.stages.iter().map(|(_, seconds)| seconds).sum::<f64>()
    }

    /// Bytes that are taken of each node at most.
    pub fn memory(&self) -> BTreeMap<u32, u64> {
        let has = |stage| self.stages.iter().any(|(known, _)| *known == stage);
        let of_column = |column: &Column| {
            let is_first = self.columns.first().is_some_and(|first| first.node == column.node);
            let evicted = self.evicted_bytes.filter(|_| is_first).unwrap_or(0);
            let threads =
                if self.siblings_node == Some(column.node) { 2 * self.thread_bytes(column) } else { 0 };
            // Each stage gives its memory back.
            let of_stages = [
                (Stage::Latency, self.walk_bytes + evicted),
                (Stage::Bandwidth, self.streams_of(column)),
                (Stage::Smt, threads),
                (Stage::Pages, if is_first { self.pages_of(column).max(self.each_of(column)) } else { 0 }),
                (Stage::Loaded, self.walk_bytes + self.traffic_of(column)),
            ];
            let most = of_stages.into_iter().filter(|(stage, _)| has(*stage)).map(|(_, bytes)| bytes).max();
            let most = most.unwrap_or(0).min(column.bytes);
            (column.node, most + most / ORDER_PART)
        };
        self.columns.iter().map(of_column).filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Bytes of the streams on a node: as many as the caches of any row need, up to the limit.
    pub fn streams_of(&self, column: &Column) -> u64 {
        let wanted = self.stream_bytes.values().max().copied().unwrap_or(0);
        wanted.min(column.bytes)
    }

    /// Bytes of the streams beside a walk.
    pub fn traffic_of(&self, column: &Column) -> u64 {
        self.streams_of(column).max(64 << 20).min(column.bytes / 2)
    }

    /// Bytes that each of two threads of a core walks through.
    pub fn thread_bytes(&self, column: &Column) -> u64 {
        WALK.min(column.bytes / 2 / HUGE * HUGE)
    }

    /// Bytes of the walks that tell the cost of a page walk.
    pub fn pages_of(&self, column: &Column) -> u64 {
        PAGES.min(column.bytes)
    }

    /// Bytes of the huge pages that are measured one by one; 0 where they are too few to have two peaks.
    pub fn each_of(&self, column: &Column) -> u64 {
        const FEWEST: u64 = 20;
        let bytes = (EACH * HUGE).min(column.bytes);
        if self.hidden && bytes >= FEWEST * HUGE { bytes } else { 0 }
    }

    /// Whether a stage is to be done.
    pub fn has(&self, stage: Stage) -> bool {
        self.stages.iter().any(|(known, _)| *known == stage)
    }
}

/// The work for these wishes on this machine.
pub fn plan(asked: &Asked, facts: &Facts) -> Plan {
    let mut missing = BTreeMap::new();
    let rows = rows(asked, facts, &mut missing);
    let columns = columns(asked, facts, &rows, &mut missing);
    // No other architecture that we measure lacks the bit of a hypervisor.
    let arm = facts.key.cpu.starts_with("Arm") || facts.key.hypervisor.is_none();
    let caches: u64 = facts.cache_bytes.values().sum();
    let shape = Shape::of(facts.key.line_bytes as usize, true);
    let walk_wanted = if arm { LONG_WALK.max(shape.memory_for(4 * caches)) } else { WALK };
    let least_room = columns.iter().map(|column| column.bytes).min().unwrap_or(0);
    // Half of the room stays for traffic beside it.
    let walk_bytes = walk_wanted.min(least_room / 2 / HUGE * HUGE).max(HUGE);
    let stream_bytes = rows
        .iter()
        .map(|row| {
            (row.node, (4 * facts.cache_bytes.get(&row.node).copied().unwrap_or(8 << 20)).max(64 << 20))
        })
        .collect();
    let virtual_machine = facts.key.hypervisor != Some(false);
    let siblings = siblings(facts, &rows, &columns);
    let near = nearest(facts);
    let first = columns.first().filter(|_| !arm && asked.only.contains(&Stage::Latency));
    let evicted_bytes = first.and_then(|column| {
        let wanted = shape.memory_for(4 * facts.cache_bytes.get(&column.node)?);
        (wanted <= column.bytes.saturating_sub(walk_bytes)).then_some(wanted)
    });
    let mut plan = Plan {
        walk_bytes,
        walk_wanted,
        orders: if arm { ORDERS as u32 } else { 1 },
        evicted_bytes,
        stream_bytes,
        rounds: ROUNDS,
        windows: WINDOWS,
        pairs: pairs(asked, facts, &rows, siblings.map(|(cpus, _)| cpus)),
        siblings: siblings.map(|(cpus, _)| cpus),
        siblings_node: siblings.and_then(|(_, node)| node),
        wanders: near.filter(|_| virtual_machine),
        hidden: virtual_machine || facts.topology.sockets as usize > facts.topology.nodes.len(),
        stages: Vec::new(),
        left_out: Vec::new(),
        absent: Vec::new(),
        missing,
        rows,
        columns,
    };
    if plan.rows.is_empty() || plan.columns.is_empty() {
        return plan;
    }
    let mut stages: BTreeSet<Stage> = asked.only.clone();
    let mut leave = |stages: &mut BTreeSet<Stage>, stage: Stage, why: &str| {
        if stages.remove(&stage) {
            plan.absent.push((stage, why.to_string()));
        }
    };
    if siblings.is_none() {
        leave(&mut stages, Stage::Smt, "no core has two CPUs that this process is allowed to use");
    }
    if plan.pairs.is_empty() {
        leave(&mut stages, Stage::Cores, "fewer than two cores can be used");
    }
    let limit = asked.seconds.unwrap_or(MOST_SECONDS);
    cut(&mut plan, stages, limit);
    plan
}

/// Leaves out work that does not fit into the time: loaded, cores, pages, rounds of bandwidth, rounds of
/// latency.
fn cut(plan: &mut Plan, mut stages: BTreeSet<Stage>, limit: f64) {
    let set = |plan: &mut Plan, stages: &BTreeSet<Stage>| {
        plan.stages = stages.iter().map(|stage| (*stage, seconds(plan, *stage))).collect();
    };
    set(plan, &stages);
    for stage in [Stage::Loaded, Stage::Cores, Stage::Pages] {
        if plan.seconds() > limit && stages.len() > 1 && stages.remove(&stage) {
            plan.left_out.push((stage, format!("does not fit into {limit} s: raise --time")));
            set(plan, &stages);
        }
    }
    if plan.seconds() > limit {
        plan.evicted_bytes = None;
        set(plan, &stages);
    }
    while plan.seconds() > limit && plan.windows > 1 {
        plan.windows -= 1;
        set(plan, &stages);
    }
    while plan.seconds() > limit && plan.rounds > LEAST_ROUNDS {
        plan.rounds -= 1;
        set(plan, &stages);
    }
    for stage in [Stage::Smt, Stage::Bandwidth] {
        if plan.seconds() > limit && stages.len() > 1 && stages.remove(&stage) {
            plan.left_out.push((stage, format!("does not fit into {limit} s: raise --time")));
            set(plan, &stages);
        }
    }
}

/// Seconds that a stage takes. The constants are of a machine at 2.5 GHz, and are no promise.
fn seconds(plan: &Plan, stage: Stage) -> f64 {
    const TOUCHED: f64 = 1.5e9;
    let (rows, columns) = (plan.rows.len() as f64, plan.columns.len() as f64);
    let cells = rows * columns;
    let remote = cells - rows.min(columns);
    // Half as long again: lines are flushed, and pages looked up.
    let round = 1.5 * f64::from(ROUND_MS) / 1e3;
    let window = f64::from(WINDOW_MS) / 1e3;
    let touched = |bytes: u64| bytes as f64 / TOUCHED;
    match stage {
        Stage::Latency => {
            let walks = columns * (0.01 + 2.0 * touched(plan.walk_bytes)) + 0.05 * rows;
            let evicted = plan.evicted_bytes.map_or(0.0, |bytes| 2.0 * touched(bytes) + round);
            walks + evicted + f64::from(plan.rounds) * cells * round + remote * round + 2.0 * round + 0.2
        }
        Stage::Bandwidth => {
            let memory: f64 = plan.columns.iter().map(|column| touched(plan.streams_of(column))).sum();
            let matrix = cells * (0.03 + f64::from(plan.windows) * window);
            let counts: f64 = plan.rows.iter().map(|row| f64::from(row.cpus.len().max(1).ilog2() + 1)).sum();
            memory + matrix + (counts + 4.0 * rows) * (0.03 + window) + 0.2
        }
        Stage::Cores => {
            let each = plan.pairs.iter().map(|pair| match pair.kind {
                PairKind::Every => f64::from(EACH_LINE_MS + 6),
                _ => f64::from(LINE_MS + 6),
            });
            let looks = plan.wanders.map_or(0.0, |_| f64::from(LOOKS * (LOOK_MS + 6)));
            (each.sum::<f64>() + f64::from(LINE_MS + 6) + looks) / 1e3 + 0.4
        }
        // A look at the machine after each load takes 0.2 s at least.
        Stage::Smt => 0.8 + 4.0 * touched(2 * WALK),
        Stage::Pages => {
            let first = plan.columns.first();
            let each = first.map_or(0, |column| plan.each_of(column));
            let hidden = (each / HUGE) as f64 * 0.009 + 2.0 * touched(each);
            4.0 * touched(PAGES) + 6.0 * round + 0.5 + hidden
        }
        Stage::Loaded => {
            let counts = plan.rows.first().map_or(0, |row| row.cpus.len().max(1).ilog2() + 2);
            2.0 * f64::from(counts) * 3.0 * (round + 0.05) + 0.5
        }
    }
}

/// A CPU of each core that may be used, by node; first siblings, the fewest interrupts first, CPU 0 last.
fn rows(asked: &Asked, facts: &Facts, missing: &mut BTreeMap<String, String>) -> Vec<MatrixRow> {
    let mut rows = Vec::new();
    for node in &facts.topology.nodes {
        if asked.from.as_ref().is_some_and(|from| !from.contains(&node.id.0)) || node.cpus.is_empty() {
            continue;
        }
        let mut cores: BTreeMap<u32, u32> = BTreeMap::new();
        for cpu in node.cpus.iter().filter(|cpu| facts.cpus.contains(&cpu.0)) {
            if let Some(core) = facts.topology.cpu(*cpu) {
                cores.entry(core.core).or_insert(cpu.0);
            }
        }
        let mut cpus: Vec<u32> = cores.into_values().collect();
        cpus.sort_by_key(|cpu| (*cpu == 0, facts.interrupts.get(cpu).copied().unwrap_or(0), *cpu));
        match cpus.is_empty() {
            true => drop(missing.insert(
                format!("latency_ns.{}", node.id),
                "its CPUs are outside the allowed CPUs (cpuset, taskset)".into(),
            )),
            false => rows.push(MatrixRow { node: node.id.0, cpus }),
        }
    }
    rows
}

fn columns(
    asked: &Asked,
    facts: &Facts,
    rows: &[MatrixRow],
    missing: &mut BTreeMap<String, String>,
) -> Vec<Column> {
    /// The least that is worth measuring.
    const LEAST: u64 = 2 * HUGE;
    let nodes = facts.topology.nodes.iter().filter(|node| {
        asked.to.as_ref().is_none_or(|to| to.contains(&node.id.0)) && node.mem_total_bytes > 0
    });
    let nodes: Vec<_> = nodes.collect();
    // A quarter of the cgroup's remaining memory, shared by all nodes.
    let of_group = facts.cgroup_bytes.map_or(u64::MAX, |bytes| bytes / 4 / nodes.len().max(1) as u64);
    let mut columns = Vec::new();
    for node in nodes {
        let key = format!("latency_ns.*.{}", node.id);
        if facts.nodes.as_ref().is_some_and(|nodes| !nodes.contains(&node.id.0)) {
            missing.insert(key, "its memory is outside the allowed nodes (cpuset)".into());
            continue;
        }
        let room = facts.usage.nodes.get(&node.id.0).copied().unwrap_or_default();
        let free = may_take(room, facts.page_bytes, asked.memory_pct);
        let most = free.min(of_group);
        let bytes = (most - most.div_ceil(ORDER_PART + 1)) / HUGE * HUGE;
        let near = facts.topology.nodes.iter().find(|row| row.id == node.id).into_iter();
        let mut by_distance: Vec<&MatrixRow> = rows.iter().collect();
        by_distance
            .sort_by_key(|row| facts.topology.distance(crate::model::units::NodeId(row.node), node.id));
        let own = near.flat_map(|node| &node.cpus).find(|cpu| facts.cpus.contains(&cpu.0)).map(|cpu| cpu.0);
        let touched_by = own.or_else(|| by_distance.first().and_then(|row| row.cpus.first().copied()));
        match touched_by {
            Some(touched_by) if bytes >= LEAST => columns.push(Column {
                node: node.id.0,
                touched_by,
                bytes,
                limits: Limits {
                    line_bytes: facts.key.line_bytes,
                    keep_bytes: room.high.saturating_mul(2 * facts.page_bytes),
                },
            }),
            _ => drop(missing.insert(key, format!("not enough free memory: {} MiB", bytes >> 20))),
        }
    }
    columns
}

fn usable(facts: &Facts) -> Vec<&Cpu> {
    facts.topology.online_cpus().filter(|cpu| facts.cpus.contains(&cpu.id.0)).collect()
}

/// Two threads of a core: of the last core of the first node that has them, and that node, if its memory is measured. A
/// node whose memory is not is the last choice.
fn siblings(facts: &Facts, rows: &[MatrixRow], columns: &[Column]) -> Option<((u32, u32), Option<u32>)> {
    let of_core = |cpu: &u32| {
        let cpu = facts.topology.cpu(CpuId(*cpu))?;
        let other = cpu.siblings.iter().find(|other| **other > cpu.id && facts.cpus.contains(&other.0))?;
        Some((cpu.id.0, other.0))
    };
    let measured = |row: &MatrixRow| columns.iter().any(|column| column.node == row.node);
    let mut found: Vec<((u32, u32), Option<u32>)> = rows
        .iter()
        .filter_map(|row| {
            let cpus = row.cpus.iter().max_by_key(|cpu| (of_core(cpu).is_some(), **cpu))?;
            Some((of_core(cpus)?, measured(row).then_some(row.node)))
        })
        .collect();
    found.sort_by_key(|(_, node)| node.is_none());
    found.first().copied()
}

/// The two CPUs that should be nearest to each other.
fn nearest(facts: &Facts) -> Option<(u32, u32)> {
    let cpus = usable(facts);
    let same = |llc: bool| {
        cpus.iter().enumerate().find_map(|(at, a)| {
            let other = cpus[at + 1..].iter().find(|b| !llc || a.llc == b.llc)?;
            Some((a.id.0, other.id.0))
        })
    };
    let threads = cpus.iter().rev().find_map(|cpu| {
        let other = cpu.siblings.iter().find(|other| **other > cpu.id && facts.cpus.contains(&other.0))?;
        Some((cpu.id.0, other.0))
    });
    threads.or_else(|| same(true)).or_else(|| same(false))
}

/// One pair of each kind that exists, or all pairs of cores as well.
fn pairs(asked: &Asked, facts: &Facts, rows: &[MatrixRow], siblings: Option<(u32, u32)>) -> Vec<Pair> {
    let cpus = usable(facts);
    let mut found = Vec::new();
    found.extend(siblings.map(|cpus| Pair { kind: PairKind::Core, cpus }));
    let first = |kind: PairKind, fits: &dyn Fn(&Cpu, &Cpu) -> bool| {
        // CPU 0 has more interrupts than others: from the end.
        let pair = cpus.iter().rev().find_map(|a| {
            cpus.iter()
                .rev()
                .find(|b| b.core != a.core && b.id < a.id && fits(a, b))
                .map(|b| (b.id.0, a.id.0))
        });
        pair.map(|cpus| Pair { kind, cpus })
    };
    found.extend(first(PairKind::Llc, &|a, b| a.llc == b.llc));
    found.extend(first(PairKind::Node, &|a, b| a.llc != b.llc && a.node == b.node));
    for (at, from) in rows.iter().enumerate() {
        for (to_at, to) in rows.iter().enumerate().filter(|(to_at, _)| *to_at != at) {
            found.push(Pair { kind: PairKind::Nodes(at, to_at), cpus: (from.cpus[0], to.cpus[0]) });
        }
    }
    if asked.every_core {
        let firsts: Vec<u32> = rows.iter().flat_map(|row| row.cpus.iter().copied()).collect();
        for (at, a) in firsts.iter().enumerate() {
            let others = firsts[at + 1..].iter();
            found.extend(others.map(|b| Pair { kind: PairKind::Every, cpus: (*a.min(b), *a.max(b)) }));
        }
    }
    found
}

#[cfg(test)]
mod tests;
