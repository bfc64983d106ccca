//! Guards that rules about placement share: whether it is known, used, settled, large, and meant so.

use super::rule::{Blindness, Reason, Unmet};
use super::view::{SubjectRef, View};
use super::{Evidence, Note};
use crate::metric::access::MEM_TIME_REMOTE_PCT;
use crate::metric::balancing::{HINT_FAULTS, HINT_REMOTE_PCT};
use crate::metric::placement::{OWN_POLICY_PCT, REMOTE_ERROR_POINTS, REMOTE_PCT, REMOTE_SOURCE};
use crate::metric::task::{LMA_PER_S, NODE_MIGRATIONS_PER_S, RMA_PER_S};
use crate::metric::{Value, cache_use, dram, node};
use crate::model::counters::Counter;
use crate::model::sample::MemPolicy;
use crate::model::share::{Bounded, bounded, wilson_farther};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Task, counted_twice, large_bytes};

const MIB: f64 = (1u64 << 20) as f64;

/// The largest error of a placement that counts as known, in points, and its largest age.
const ERROR_MAX: f64 = 10.0;
const AGE_MAX_NS: u64 = 45_000_000_000;

/// Share of a container's time whose placement may be unknown.
const UNKNOWN_MAX: f64 = 0.2;

/// Memory that NUMA balancing scans at a time.
const SCAN_BYTES: f64 = 256.0 * MIB;
/// Maximum memory that one of its faults represents: a huge page.
pub const FAULT_BYTES: f64 = 2.0 * MIB;

/// Modes of memory policies: include/uapi/linux/mempolicy.h
/// Takes memory from these nodes only.
pub const POLICY_BIND: u16 = 2;
const POLICY_INTERLEAVE: u16 = 3;
const POLICY_PREFERRED_MANY: u16 = 5;
const POLICY_WEIGHTED: u16 = 6;

/// Where something ran and where its memory is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// Time by node id, ns.
    pub run: Vec<f64>,
    /// Memory by node id, bytes.
    pub bytes: Vec<f64>,
    /// Shares of memory are this near the truth in 95 of 100 cases, in points.
    pub error: f64,
}

impl Placed {
    /// All memory, bytes.
    pub fn memory(&self) -> f64 {
        self.bytes.iter().sum()
    }

    /// Share of the time on these nodes, in percent.
    pub fn run_pct(&self, nodes: &[NodeId]) -> f64 {
        share(&self.run, nodes)
    }

    /// Share of the memory on these nodes, in percent.
    pub fn memory_pct(&self, nodes: &[NodeId]) -> f64 {
        share(&self.bytes, nodes)
    }

    /// Memory on other nodes than these, bytes.
    pub fn outside(&self, nodes: &[NodeId]) -> f64 {
        self.memory() * (100.0 - self.memory_pct(nodes)) / 100.0
    }

    /// Nodes other than these with at least `least` percent of its memory, ascending.
    pub fn holders(&self, except: &[NodeId], least: f64) -> Vec<NodeId> {
        let shares = shares(&self.bytes).filter(|(node, _)| !except.contains(node));
        shares.filter(|(_, share)| *share >= least.max(1e-9)).map(|(node, _)| node).collect()
    }

    /// Nodes other than these with a twentieth of its memory or more, ascending. If they have less than nine
    /// tenths of the memory elsewhere, it is in many small parts, and all of them count.
    pub fn sources(&self, except: &[NodeId]) -> Vec<NodeId> {
        let holders = self.holders(except, 5.0);
        let elsewhere = 100.0 - self.memory_pct(except);
        if self.memory_pct(&holders) >= 0.9 * elsewhere { holders } else { self.holders(except, 0.5) }
    }

    /// The one of these nodes with most of its memory.
    pub fn most(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let has = |node: &NodeId| self.bytes.get(node.index()).copied().unwrap_or(0.0);
        nodes.iter().copied().max_by(|a, b| has(a).total_cmp(&has(b)).then(b.cmp(a)))
    }

    /// Nodes with at least `share` percent of its time, or of its memory beyond the error, ascending.
    pub fn used(&self, share: f64) -> Vec<NodeId> {
        let ran: Vec<f64> = shares(&self.run).map(|(_, share)| share).collect();
        let has: Vec<f64> = shares(&self.bytes).map(|(_, share)| share).collect();
        let is_used = |at: &usize| {
            ran.get(*at).is_some_and(|its| *its >= share)
                || has.get(*at).is_some_and(|its| *its >= share + self.error)
        };
        (0..ran.len().max(has.len())).filter(is_used).map(|at| NodeId(at as u32)).collect()
    }

    /// Nodes that do so much of the work, in percent, and have next to none of the memory, ascending.
    pub fn workers_without_memory(&self, works_pct: f64) -> Vec<NodeId> {
        const NONE_PCT: f64 = 1.0;
        let ran = shares(&self.run).filter(|(_, share)| *share >= works_pct);
        let nodes = ran.map(|(node, _)| node);
        nodes.filter(|node| self.memory() > 0.0 && self.memory_pct(&[*node]) < NONE_PCT).collect()
    }

    /// The part of its accesses that are remote if it uses its pages alike, 0 to 1.
    pub fn remote_part(&self) -> f64 {
        let ids = (0..).map(NodeId).take(self.run.len());
        let local = ids.map(|node| self.run_pct(&[node]) * self.memory_pct(&[node]) / 1e4);
        (1.0 - local.sum::<f64>()).clamp(0.0, 1.0)
    }

    /// The node with most of its time.
    pub fn home(&self) -> Option<NodeId> {
        let ran = (0..).map(NodeId).zip(&self.run).filter(|(_, ns)| **ns > 0.0);
        ran.max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a))).map(|(node, _)| node)
    }
}

/// The share of each node, ascending by node, in percent.
fn shares(amounts: &[f64]) -> impl Iterator<Item = (NodeId, f64)> {
    let all: f64 = amounts.iter().sum();
    (0..)
        .map(NodeId)
        .zip(amounts)
        .map(move |(node, on)| (node, if all > 0.0 { on * 100.0 / all } else { 0.0 }))
}

fn share(amounts: &[f64], nodes: &[NodeId]) -> f64 {
    let all: f64 = amounts.iter().sum();
    let on: f64 = nodes.iter().filter_map(|node| amounts.get(node.index())).sum();
    if all > 0.0 { on * 100.0 / all } else { 0.0 }
}

/// Where a process or a container ran in the window and where its memory is.
///
/// # Errors
/// That is not known well enough.
pub fn placed(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Placed, Unmet> {
    let unknown = |words: &'static str| Unmet::Blind(Blindness::new(Reason::PlacementUnknown, words));
    match of {
        SubjectRef::Process(task) | SubjectRef::Group(task, _) => {
            let (bytes, error) = known(view, task).map_err(unknown)?;
            let run = task.delta.run_ns.iter().map(|ns| *ns as f64).collect();
            Ok(Placed { run, bytes: bytes.to_vec(), error })
        }
        SubjectRef::Container(row) => {
            let (mut sum, mut time, mut lost) = (Placed::default(), 0.0, 0.0);
            for task in view.members(row.id) {
                let ran = task.run_ns() as f64;
                match known(view, task) {
                    Ok((bytes, error)) => {
                        if sum.bytes.len() < bytes.len() {
                            sum.bytes.resize(bytes.len(), 0.0);
                        }
                        sum.bytes.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
                        sum.error += error * ran;
                        time += ran;
                    }
                    Err(_) => lost += ran,
                }
            }
            if time <= 0.0 || lost > UNKNOWN_MAX * (time + lost) {
                return Err(unknown("the memory of its processes has not been located yet"));
            }
            sum.error /= time;
            for (bytes, twice) in sum.bytes.iter_mut().zip(counted_twice(view.members(row.id).into_iter())) {
                *bytes = (*bytes - twice).max(0.0);
            }
            sum.run = row.sum.delta.run_ns.iter().map(|ns| *ns as f64).collect();
            Ok(sum)
        }
        _ => Err(Unmet::Quiet),
    }
}

fn known<'a>(view: &View<'_>, task: &'a Task) -> Result<(&'a [f64], f64), &'static str> {
    match task.memory() {
        None => Err("its memory has not been located yet"),
        Some((_, Err(_))) => Err("its memory could not be located"),
        Some((read_ns, Ok(memory))) => {
            if view.snapshot.mono_ns.saturating_sub(*read_ns) > AGE_MAX_NS {
                Err("its memory was located too long ago")
            } else if memory.error_points > ERROR_MAX {
                Err("its memory has been located, but the error is too large")
            } else if memory.bytes() <= 0.0 {
                Err("none of its pages was found")
            } else {
                Ok((&memory.bytes_by_node, memory.error_points))
            }
        }
    }
}

/// Whether this amount of memory can be a problem: more than 300 MiB or a twentieth of a node, and more than
/// the caches of the nodes where it runs.
pub fn is_large(view: &View<'_>, placed: &Placed) -> bool {
    placed.memory() >= large_bytes(view.topology())
        && placed.memory() >= view.rows.near(view.snapshot).cache_bytes(&placed.used(5.0))
}

/// Whether its placement is changing: its remote share falls, or more than a hundredth of its memory was moved.
pub fn is_moving(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed) -> bool {
    const PAGE: f64 = 4096.0;
    let fell = view.trend.is_some_and(|(first, last)| first - last >= 5.0);
    let seconds = view.over_ns() as f64 / 1e9;
    let moved = of.task().map_or(0.0, |task| task.delta[Counter::MigratedPages] as f64 * PAGE);
    // In the last ten seconds; over a longer window as many in proportion.
    fell || moved * 10.0 / seconds.max(10.0) > placed.memory() * 0.01
}

/// Whether its own policy spreads memory over nodes.
pub fn is_interleaved(policy: MemPolicy) -> bool {
    matches!(policy.mode, POLICY_INTERLEAVE | POLICY_WEIGHTED)
}

/// Whether its own policy names nodes, and names other ones than these.
pub fn names_others(policy: MemPolicy, nodes: &[NodeId]) -> bool {
    let names = matches!(policy.mode, MemPolicy::PREFERRED | POLICY_BIND | POLICY_PREFERRED_MANY);
    let mask = nodes.iter().filter(|node| node.0 < 64).fold(0, |mask, node| mask | 1u64 << node.0);
    names && policy.nodes & !mask != 0
}

/// Nodes of a mask.
pub fn nodes_of(mask: u64) -> Vec<NodeId> {
    (0..64).filter(|node| mask >> node & 1 == 1).map(NodeId).collect()
}

/// Share of its resident memory that others share, in percent; `None` where that is not known.
pub fn shared_pct(task: &Task) -> Option<f64> {
    let resident = task.resident?;
    let shared = resident.shmem_bytes as f64;
    let all = resident.anon_bytes as f64 + resident.file_bytes as f64 + shared;
    (all > 0.0).then(|| shared * 100.0 / all)
}

/// Whether little of its memory is shared with processes that are not looked at with it; `None` where that is not known.
pub fn is_own_memory(of: &SubjectRef<'_>) -> Option<bool> {
    match of {
        // All processes that share are in it.
        SubjectRef::Container(_) | SubjectRef::Group(..) => Some(true),
        SubjectRef::Process(task) => match task.by_policy() {
            Some(pages) => pages.shared_pct(),
            None => shared_pct(task),
        }
        .map(|pct| pct < 20.0),
        _ => None,
    }
}

/// Memory outside some nodes, by the policy that placed it there, in percent of all of its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elsewhere {
    /// Placed by the kernel, or on nodes that its policy does not name.
    pub kernel: f64,
    /// On nodes that its policy names.
    pub meant: f64,
    /// Both are this near the truth in 95 of 100 cases, in points.
    pub error: f64,
}

impl Elsewhere {
    /// The part that is intended to be there, 0 to 1.
    pub fn stays(&self) -> f64 {
        let all = self.kernel + self.meant;
        if all > 0.0 { self.meant / all } else { 0.0 }
    }
}

/// The share from which on memory that is meant to be elsewhere keeps a finding an info, in percent.
const MEANT_MAX: f64 = 20.0;

/// Memory of a process or a group on other nodes than these, by policy; `None` where policies are not known.
pub fn elsewhere(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    here: &[NodeId],
) -> Option<Elsewhere> {
    let outside = |by_node: &[f64]| -> f64 {
        (0..).map(NodeId).zip(by_node).filter(|(node, _)| !here.contains(node)).map(|(_, on)| on).sum()
    };
    let split = |all: f64, outside: f64, meant: f64, error: f64| Elsewhere {
        kernel: (outside - meant).max(0.0) * 100.0 / all,
        meant: meant * 100.0 / all,
        error,
    };
    match of {
        SubjectRef::Group(_, group) => {
            let (all, meant) = (placed.memory(), outside(&group.meant));
            Some(split(all, placed.outside(here), meant, placed.error))
        }
        SubjectRef::Process(task) => {
            if let Some(pages) = task.by_policy().filter(|pages| pages.explicit_pct().is_ok()) {
                let counts = |list: &[u32]| list.iter().map(|pages| f64::from(*pages)).collect::<Vec<f64>>();
                let [all, meant] = [counts(&pages.by_node), counts(&pages.meant)];
                let (out, meant, all) = (outside(&all), outside(&meant), all.iter().sum::<f64>());
                let (_, error) = wilson_farther(out - meant, all)?;
                return Some(split(all, out, meant, error));
            }
            // A walk over its mappings shows how much has a policy, but not where that is.
            let own = view.number(&OWN_POLICY_PCT, of).ok().filter(|pct| *pct < OWN_POLICY_MAX);
            own.map(|_| split(100.0, 100.0 - placed.memory_pct(here), 0.0, placed.error))
        }
        _ => None,
    }
}

/// Bytes that an access to memory moves: a cache line of every CPU with the monitors and controllers that are read.
const LINE_BYTES: f64 = 64.0;

/// Memory accesses of a process or a sum of them, per second: as counted, or else those of its nodes in proportion to its part of
/// their CPU time; 0 where nothing counts them.
pub fn accesses_per_s(view: &View<'_>, of: &SubjectRef<'_>) -> f64 {
    let counted = [&LMA_PER_S, &RMA_PER_S].map(|metric| view.number(metric, of));
    if counted.iter().any(Result::is_ok) {
        return counted.into_iter().flatten().sum();
    }
    let Some(task) = of.task() else { return 0.0 };
    let of_node = |node: &Node| {
        let run_ns = task.delta.run_ns.get(node.raw.id as usize).copied().unwrap_or(0);
        let part = run_ns as f64 / node.on_cpus.busy_ns.max(run_ns).max(1) as f64;
        node_accesses_per_s(view, node).unwrap_or(0.0) * part
    };
    view.window.nodes.iter().map(of_node).sum()
}

/// Memory accesses of the CPUs of a node, per second: as counted, or as the monitors of its L3 caches see them, or else what its
/// memory controllers serve.
pub fn node_accesses_per_s(view: &View<'_>, node: &Node) -> Option<f64> {
    let of = |metric| view.node_number(metric, node).ok();
    let counted = of(&node::LMA_PER_S).zip(of(&node::RMA_PER_S)).map(|(local, remote)| local + remote);
    let lines = |bytes| bytes / LINE_BYTES;
    let served = || of(&dram::READ).zip(of(&dram::WRITE)).map(|(read, written)| lines(read + written));
    counted.or_else(|| of(&cache_use::NODE_MBM).map(lines)).or_else(served)
}

/// Whether memory elsewhere is known to be the kernel's choice in so large a part that it is worth a warning.
pub fn is_misplaced(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    elsewhere: &Elsewhere,
    best: f64,
    least: f64,
) -> bool {
    if elsewhere.meant >= MEANT_MAX || elsewhere.kernel < least {
        return false;
    }
    let low = || match remote_accesses(view, of) {
        Some((pct, error)) => Some(pct - error),
        None => time_elsewhere(view, of).map(|time| time.low),
    };
    let by_far = || low().is_some_and(|low| low - best >= 2.0 * least);
    elsewhere.kernel - elsewhere.error >= least || by_far()
}

/// The share of its memory in mappings with a policy of their own that is still little, in percent.
pub const OWN_POLICY_MAX: f64 = 20.0;

/// Evidence that the kernel places its memory: little is in mappings with their own policy, which may be
/// intended. `None` if it is more, or unknown.
pub fn kernel_places(view: &View<'_>, of: &SubjectRef<'_>) -> Option<Evidence> {
    let pct = view.number(&OWN_POLICY_PCT, of).ok().filter(|pct| *pct < OWN_POLICY_MAX)?;
    let own = view.evidence(OWN_POLICY_PCT.id, of.subject(), pct);
    Some(own.limit(OWN_POLICY_MAX).note(Note::AtMost))
}

/// Hinting faults of two minutes from which on their nodes are meaningful.
const HINTS_LEAST: u64 = 100;

/// The share of remote accesses of a process in percent, with its error in points, where accesses were counted or sampled.
pub fn remote_accesses(view: &View<'_>, of: &SubjectRef<'_>) -> Option<(f64, f64)> {
    let (SubjectRef::Process(task) | SubjectRef::Group(task, _)) = of else { return None };
    let source = REMOTE_SOURCE.read(task, view.window);
    if !matches!(&source, Ok(Value::Text(source)) if matches!(source.as_str(), "counted" | "sampled")) {
        return None;
    }
    Some((view.number(&REMOTE_PCT, of).ok()?, view.number(&REMOTE_ERROR_POINTS, of).ok()?))
}

/// Time at memory of other nodes, from samples of a clock that have the address of the access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeElsewhere {
    /// Share of CPU time in user mode at instructions that access memory, in percent.
    pub at_memory: f64,
    /// Of that time, the remote part of the samples with an address, in percent, and half of its 95 % interval.
    pub remote: f64,
    /// See `remote`.
    pub error: f64,
    /// The least that the remote part can be: samples without an address count as local.
    pub low: f64,
    /// The most that it can be: they count as remote.
    pub high: f64,
}

impl TimeElsewhere {
    /// Share of all CPU time in user mode at memory of other nodes, at most, in percent.
    pub fn cpu_pct(&self) -> f64 {
        self.at_memory * self.high / 100.0
    }
}

/// Samples in user mode that a conclusion about time at memory needs: half of the 95 % interval is then 5 points or less.
const SAMPLES_LEAST: u64 = 400;

/// Time at memory of other nodes of a process, or of all members of a group; `None` where it is not sampled, or too little.
pub fn time_elsewhere(view: &View<'_>, of: &SubjectRef<'_>) -> Option<TimeElsewhere> {
    if !matches!(of, SubjectRef::Process(_) | SubjectRef::Group(..)) || view.topology().nodes.len() < 2 {
        return None;
    }
    let (mut samples, mut at_memory, mut remote, mut known) = (0, 0, 0.0, 0.0);
    for task in view.processes_of(of) {
        let Some(sampled) = task.memory_use().filter(|sampled| sampled.found.complete().is_ok()) else {
            continue;
        };
        let (away, placed) = sampled.found.remote();
        samples += sampled.found.samples;
        at_memory += sampled.found.at_memory() + sampled.found.nowhere;
        (remote, known) = (remote + away, known + placed);
    }
    if samples < SAMPLES_LEAST {
        return None;
    }
    let all = (at_memory as f64).max(known);
    // Where none has an address nothing is known of where.
    let nothing = Bounded { pct: 0.0, error: 0.0, range: (0.0, if all > 0.0 { 100.0 } else { 0.0 }) };
    let Bounded { pct, error, range: (low, high) } = bounded(remote, known, all).unwrap_or(nothing);
    Some(TimeElsewhere { at_memory: 100.0 * all / samples as f64, remote: pct, error, low, high })
}

/// Counted, sampled or faulted accesses that show that memory on other nodes is used.
pub fn witness_of_use(view: &View<'_>, of: &SubjectRef<'_>) -> Option<Evidence> {
    if !matches!(of, SubjectRef::Process(_) | SubjectRef::Group(..) | SubjectRef::Container(_)) {
        return None;
    }
    let subject = of.subject();
    if let Some((pct, error)) = remote_accesses(view, of) {
        return Some(view.evidence(REMOTE_PCT.id, subject, pct).error(error).note(Note::Witness));
    }
    if let Some(time) = time_elsewhere(view, of).filter(|time| time.low >= 20.0) {
        let seen = view.evidence(MEM_TIME_REMOTE_PCT.id, subject, time.remote);
        return Some(seen.error(time.error).limit(20.0).note(Note::Witness));
    }
    if view.snapshot.host_missing(HINT_FAULTS.id).is_some() {
        return None;
    }
    let hints = view.hints(of);
    let pct = hints.remote as f64 * 100.0 / hints.faults.max(1) as f64;
    (hints.faults >= HINTS_LEAST && pct >= 20.0)
        .then(|| view.evidence(HINT_REMOTE_PCT.id, subject, pct).limit(20.0).note(Note::Witness))
}

/// The share of its time that a process must run on a node without any of its memory to use memory of other
/// nodes there, in percent.
const WORKS_PCT: f64 = 20.0;

/// Evidence that memory on other nodes is used: its use itself, threads that move, working nodes without any
/// of it, or one place for all of its time.
pub fn witness(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed) -> Option<Evidence> {
    if let Some(used) = witness_of_use(view, of) {
        return Some(used);
    }
    let subject = of.subject();
    if let Ok(moves) = view.node_moves_per_s(of)
        && moves > 0.0
        && moves >= 0.1 * view.cpus(of)
    {
        return Some(view.evidence(NODE_MIGRATIONS_PER_S.id, subject, moves).note(Note::Witness));
    }
    if let Some(node) = placed.workers_without_memory(WORKS_PCT).first() {
        let works = placed.run_pct(&[*node]);
        return Some(
            view.evidence("run_pct_by_node", subject, works).on(*node).limit(WORKS_PCT).note(Note::Witness),
        );
    }
    let home = placed.home()?;
    let on_home = placed.run_pct(&[home]);
    (on_home >= 95.0)
        .then(|| view.evidence("run_pct_by_node", subject, on_home).on(home).limit(95.0).note(Note::Witness))
}

/// The answer of accesses, or of the kernel's own scans, to the question whether memory on other nodes is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseElsewhere {
    /// Next to no access leaves the node; or scans met that memory and found it unused.
    Cold,
    /// They met too little of that memory in the window, and found next to no use.
    TooLittle,
    /// It is used, or nothing scans it.
    NotCold,
}

/// Percent of accesses, counted or sampled, with their error, below which memory on other nodes is next to
/// unused. It is the least share of memory that a rule is about.
const USED_PCT: f64 = 10.0;

/// Percent of CPU time at memory of other nodes below which its place costs next to nothing.
const COLD_CPU_PCT: f64 = 5.0;

/// Faults that a scan must be able to find for their absence to be meaningful.
const FAULTS: f64 = 100.0;

/// The answer about memory on other nodes.
pub fn use_elsewhere(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed) -> UseElsewhere {
    let (SubjectRef::Process(task) | SubjectRef::Group(task, _)) = of else { return UseElsewhere::NotCold };
    if remote_accesses(view, of).is_some_and(|(pct, error)| pct + error < USED_PCT) {
        return UseElsewhere::Cold;
    }
    let time = time_elsewhere(view, of);
    if time.is_some_and(|time| time.cpu_pct() < COLD_CPU_PCT) {
        return UseElsewhere::Cold;
    }
    let off =
        view.snapshot.machine.and_then(|machine| machine.numa_balancing).is_some_and(|mode| mode & 1 == 0);
    if off || task.raw.scan_period_ms == 0 || !task.raw.mempolicy.is_default() {
        return UseElsewhere::NotCold;
    }
    if view.number(&HINT_FAULTS, of).is_err() {
        return UseElsewhere::NotCold;
    }
    let Some(home) = placed.home() else { return UseElsewhere::NotCold };
    let scans = view.over_ns() as f64 / 1e6 / f64::from(task.raw.scan_period_ms);
    let away = placed.outside(&[home]);
    // A scan wraps around: it meets at most the whole memory.
    let met = (scans * SCAN_BYTES * away / placed.memory().max(1.0)).min(away);
    let faults = met / FAULT_BYTES;
    let found = task.delta[Counter::HintRemote] as f64;
    match (found < faults * 0.01, faults >= FAULTS) {
        (true, true) => UseElsewhere::Cold,
        (true, false) => UseElsewhere::TooLittle,
        _ if found == 0.0 => UseElsewhere::TooLittle,
        _ => UseElsewhere::NotCold,
    }
}

/// Whether next to nothing uses the memory on other nodes, by accesses or by the kernel's own scans.
pub fn is_cold(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed) -> bool {
    use_elsewhere(view, of, placed) == UseElsewhere::Cold
}

/// Whether fewer than a tenth of the hinting faults in two minutes found their page on another node; false with too few faults.
pub fn faults_are_local(view: &View<'_>, of: &SubjectRef<'_>) -> bool {
    let hints = view.hints(of);
    hints.faults >= HINTS_LEAST && (hints.remote as f64) < hints.faults as f64 * USED_PCT / 100.0
}

/// Blindness about memory that nothing uses.
pub fn cold() -> Unmet {
    Unmet::Blind(Blindness::new(Reason::Cold, "its memory on other nodes is not being used"))
}
