//! Amounts: quantities for consumers that add up, which are columns of tables and families of the exporter. One
//! line for each: those of tasks and of containers, and those of nodes.

use super::counters;
use crate::metric::node::*;
use crate::metric::over::Located;
use crate::metric::{
    Metric, accelerators, balancing, cache_use, dram, free_blocks, needs, pages, placement, sockets, tiers,
};
use crate::model::counters::{COUNTERS, Counter, NR_COUNTERS};
use crate::model::event::Role;
use crate::model::sample::{NodeRaw, Slot};
use crate::model::sockets::SocketSums;
use crate::model::turns::TierPages;
use crate::snapshot::{Container, Node, Snapshot, Task};
use FamilyOver::{Kernel, Level, Sum};
use Value::{Events, Of};

/// Seconds of a nanosecond.
pub const NS: f64 = 1e-9;

/// An amount: exact, or scaled, as counts of events and shares of time are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Whole(u64),
    Scaled(f64),
}

impl Number {
    /// The next number with a fraction.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Whole(whole) => whole as f64,
            Number::Scaled(scaled) => scaled,
        }
    }
}

impl From<u64> for Number {
    fn from(whole: u64) -> Number {
        Number::Whole(whole)
    }
}

impl From<u32> for Number {
    fn from(whole: u32) -> Number {
        Number::Whole(whole.into())
    }
}

impl From<f64> for Number {
    fn from(scaled: f64) -> Number {
        Number::Scaled(scaled)
    }
}

/// The count of the events of a role; `None` where they were not counted.
pub fn events(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Option<f64> {
    let count = match role {
        Role::Lma => counters::lma(slots, snapshot),
        role => counters::count(slots, snapshot, role),
    };
    count.ok()
}

/// A task, a sum of tasks, or a container in an interval.
#[derive(Clone, Copy)]
pub struct RowNow<'a> {
    pub row: AmountRow<'a>,
    pub snapshot: &'a Snapshot,
    /// Of the host of the snapshot.
    pub counted: &'a Counted,
    /// CPU time for which the place of its memory is known.
    pub located: Option<Located>,
}

/// The owner of an amount.
#[derive(Clone, Copy)]
pub enum AmountRow<'a> {
    Task(&'a Task),
    Container(&'a Container),
}

/// The counters that a host counts, found once for all rows.
pub struct Counted([bool; NR_COUNTERS]);

impl Counted {
    /// The counters of the host of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Counted {
        Counted(std::array::from_fn(|at| {
            needs::missing_counters(COUNTERS[at].counter, &snapshot.host.missing).is_none()
        }))
    }

    /// The count of a task or of a sum of tasks; `None` where it was not counted.
    pub fn count(&self, task: &Task, counter: Counter) -> Option<u64> {
        self.0[counter as usize].then(|| task.delta[counter])
    }
}

impl<'a> RowNow<'a> {
    /// The task, or the sum of the tasks of the container.
    fn task(self) -> &'a Task {
        match self.row {
            AmountRow::Task(task) => task,
            AmountRow::Container(container) => &container.sum,
        }
    }
}

fn run_ns(now: RowNow<'_>) -> Option<Number> {
    Some(Number::Whole(now.task().run_ns()))
}

fn located_ns(now: RowNow<'_>) -> Option<Number> {
    now.located.map(|located| Number::Scaled(located.run_ns))
}

fn remote_ns(now: RowNow<'_>) -> Option<Number> {
    now.located.map(|located| Number::Scaled(located.remote_ns))
}

/// The least part of its located time that moving could make remote, ns.
fn remote_best_ns(now: RowNow<'_>) -> Option<Number> {
    let located = now.located?;
    let snapshot = now.snapshot;
    let best = match now.row {
        AmountRow::Task(task) => placement::REMOTE_BEST_PCT.read(task, snapshot),
        AmountRow::Container(row) => placement::CONTAINER_REMOTE_BEST_PCT.read(row, snapshot),
    };
    let best = best.ok()?.number()?;
    Some(Number::Scaled((best / 100.0 * located.run_ns).min(located.remote_ns)))
}

/// Traffic of IP sockets; not of threads.
fn sockets(now: RowNow<'_>, of: fn(&SocketSums) -> u64) -> Option<Number> {
    let sums = match now.row {
        AmountRow::Task(task) => {
            sockets::RECEIVED.read(task, now.snapshot).ok()?;
            sockets::sums(task, now.snapshot).ok()?
        }
        AmountRow::Container(row) => {
            sockets::CONTAINER_RECEIVED.read(row, now.snapshot).ok()?;
            row.sockets
        }
    };
    Some(Number::Whole(of(&sums)))
}

/// Throttled time of the interval, ns. Files of groups are read in turns: the time between two readings is
/// spread over the intervals that it covers.
fn throttled_ns(now: RowNow<'_>) -> Option<Number> {
    let AmountRow::Container(row) = now.row else { return None };
    let raw = row.raw.as_deref()?;
    let (then, before) = raw.throttled_before?;
    let over = raw.read_ns.checked_sub(then).filter(|over| *over > 0)?;
    let throttled = raw.throttled_ns.as_ref().ok()?.saturating_sub(before);
    let interval_ns = now.snapshot.interval_ns?;
    Some(Number::Scaled(throttled as f64 * interval_ns as f64 / over as f64))
}

/// Time of what holds accelerators whose nodes are all known: on other nodes than theirs, and all of it, ns.
fn accelerator_ns(now: RowNow<'_>, of: fn((u64, u64)) -> u64) -> Option<Number> {
    let both = match now.row {
        AmountRow::Task(task) => accelerators::far_and_all_ns(task, now.snapshot),
        AmountRow::Container(row) => accelerators::container_far_and_all_ns(row),
    };
    both.ok().map(of).map(Number::Whole)
}

/// An amount of tasks or of containers in an interval.
#[derive(Clone, Copy)]
pub struct RowAmount {
    /// Its column in tables.
    pub column: &'static str,
    /// Tables that have the column.
    tables: Tables,
    value: Value,
    /// Its series in the exporter.
    pub family: Option<RowFamily>,
}

/// Tables of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    Tasks,
    Containers,
    Both,
}

#[derive(Clone, Copy)]
enum Value {
    Counter(Counter),
    Events(Role),
    Of(for<'a> fn(RowNow<'a>) -> Option<Number>),
}

/// Families of series, which are counters.
#[derive(Clone, Copy)]
pub struct RowFamily {
    /// Of containers, without `_total`.
    pub container: &'static str,
    /// Of programs; `None`: they have none.
    pub program: Option<&'static str>,
    pub help: &'static str,
    /// The amount times this is the value.
    pub factor: f64,
}

const fn amount(tables: Tables, column: &'static str, value: Value) -> RowAmount {
    RowAmount { column, tables, value, family: None }
}

const fn both(column: &'static str, value: Value) -> RowAmount {
    amount(Tables::Both, column, value)
}

const fn tasks(column: &'static str, value: Value) -> RowAmount {
    amount(Tables::Tasks, column, value)
}

impl RowAmount {
    const fn of_programs(
        self,
        container: &'static str,
        program: &'static str,
        factor: f64,
        help: &'static str,
    ) -> RowAmount {
        RowAmount { family: Some(RowFamily { container, program: Some(program), help, factor }), ..self }
    }

    const fn of_containers(self, container: &'static str, help: &'static str) -> RowAmount {
        RowAmount { family: Some(RowFamily { container, program: None, help, factor: 1.0 }), ..self }
    }

    /// In the interval; `None` where it is not known.
    pub fn value(&self, now: RowNow<'_>) -> Option<Number> {
        match self.value {
            Value::Counter(counter) => now.counted.count(now.task(), counter).map(Number::Whole),
            Value::Events(role) => events(&now.task().delta.slots, now.snapshot, role).map(Number::Scaled),
            Value::Of(of) => of(now),
        }
    }

    /// It is in the table of tasks.
    pub fn is_of_tasks(&self) -> bool {
        self.tables != Tables::Containers
    }

    /// It is in the table of containers.
    pub fn is_of_containers(&self) -> bool {
        self.tables != Tables::Tasks
    }
}

/// All of them but counters without a line ([`others`]), in the order of columns and of families.
pub static ROW_AMOUNTS: &[RowAmount] = &[
    both("cpu_ns", Of(run_ns)).of_programs(
        "numatop_container_cpu_seconds",
        "numatop_program_cpu_seconds",
        NS,
        "CPU time of its tasks.",
    ),
    both("wait_ns", Value::Counter(Counter::RunDelayNs)).of_programs(
        "numatop_container_runqueue_wait_seconds",
        "numatop_program_runqueue_wait_seconds",
        NS,
        "Time for which its runnable tasks waited for a CPU.",
    ),
    amount(Tables::Containers, "throttled_ns", Of(throttled_ns)),
    tasks("dispatches", Value::Counter(Counter::RunCount)),
    tasks("voluntary", Value::Counter(Counter::Nvcsw)),
    tasks("involuntary", Value::Counter(Counter::Nivcsw)),
    tasks("cpu_moves", Value::Counter(Counter::CpuMigrations)),
    tasks("llc_moves", Value::Counter(Counter::LlcMoves)),
    both("node_moves", Value::Counter(Counter::NodeMoves))
        .of_containers("numatop_container_node_migrations", "Moves of its tasks between nodes."),
    tasks("smt_busy_ns", Value::Counter(Counter::SmtBusyNs)),
    both("cycles", Events(Role::Cycles)).of_programs(
        "numatop_container_cycles",
        "numatop_program_cycles",
        1.0,
        "CPU cycles of its tasks.",
    ),
    both("instructions", Events(Role::Instructions)).of_programs(
        "numatop_container_instructions",
        "numatop_program_instructions",
        1.0,
        "Instructions of its tasks.",
    ),
    both("lma", Events(Role::Lma)),
    both("rma", Events(Role::Rma)),
    tasks("stall_frontend", Events(Role::StallFrontend)),
    tasks("stall_backend", Events(Role::StallBackend)),
    tasks("llc_misses", Events(Role::Llc)),
    both("located_ns", Of(located_ns)).of_programs(
        "numatop_container_located_cpu_seconds",
        "numatop_program_located_cpu_seconds",
        NS,
        "CPU time of its tasks whose memory nodes are known.",
    ),
    both("remote_ns", Of(remote_ns)).of_programs(
        "numatop_container_remote_cpu_seconds",
        "numatop_program_remote_cpu_seconds",
        NS,
        "CPU time of tasks whose memory nodes are known, multiplied by the share of their memory on other \
         nodes.",
    ),
    both("remote_best_ns", Of(remote_best_ns)),
    tasks("minor_faults", Value::Counter(Counter::MinFlt))
        .of_containers("numatop_container_minor_faults", "Minor page faults, which need no disk read."),
    tasks("major_faults", Value::Counter(Counter::MajFlt))
        .of_containers("numatop_container_major_faults", "Major page faults, which need a disk read."),
    tasks("allocs", Value::Counter(Counter::UserAllocs)),
    tasks("cross_allocs", Value::Counter(Counter::CrossAllocs)),
    both("pages_migrated", Value::Counter(Counter::MigratedPages)).of_containers(
        "numatop_container_pages_migrated",
        "Pages that moved between nodes while its tasks ran, whether or not the tasks requested this.",
    ),
    tasks("pages_balanced", Value::Counter(Counter::BalancedPages)),
    tasks("pages_asked", Value::Counter(Counter::AskedPages)),
    tasks("hint_faults", Value::Counter(Counter::HintFaults)),
    tasks("hint_remote", Value::Counter(Counter::HintRemote)),
    tasks("balancing_ns", Value::Counter(Counter::BalancingNs)),
    both("accelerator_far_ns", Of(|now| accelerator_ns(now, |(far, _)| far))).of_programs(
        "numatop_container_accelerator_far_cpu_seconds",
        "numatop_program_accelerator_far_cpu_seconds",
        NS,
        "CPU time on nodes other than those of the accelerators that the process holds.",
    ),
    both("accelerator_ns", Of(|now| accelerator_ns(now, |(_, all)| all))).of_programs(
        "numatop_container_accelerator_cpu_seconds",
        "numatop_program_accelerator_cpu_seconds",
        NS,
        "CPU time of processes that hold accelerators whose nodes are known.",
    ),
    both("net_recv_bytes", Of(|now| sockets(now, |sums| sums.all.received))).of_containers(
        "numatop_container_net_receive_bytes",
        "Bytes that its processes received from IP sockets, without loopback.",
    ),
    both("net_reads", Of(|now| sockets(now, |sums| sums.all.reads))),
    both("net_sent_bytes", Of(|now| sockets(now, |sums| sums.all.sent))).of_containers(
        "numatop_container_net_send_bytes",
        "Bytes that its processes sent through IP sockets, without loopback.",
    ),
    both("net_known_bytes", Of(|now| sockets(now, |sums| sums.known))),
    both("net_far_bytes", Of(|now| sockets(now, |sums| sums.far))).of_containers(
        "numatop_container_net_far_receive_bytes",
        "Received bytes with packets processed on a node other than the reader's.",
    ),
];

/// Counters of tasks without a line in [`ROW_AMOUNTS`], under the names that they have in recordings.
pub fn others() -> impl Iterator<Item = RowAmount> {
    let has_line = |counter: Counter| {
        ROW_AMOUNTS.iter().any(|amount| matches!(amount.value, Value::Counter(own) if own == counter))
    };
    let others = COUNTERS.iter().filter(move |info| !has_line(info.counter));
    others.map(|info| tasks(info.name, Value::Counter(info.counter)))
}

/// The amounts with families in the exporter. CPU time is the first.
pub fn families() -> impl Iterator<Item = (&'static RowAmount, RowFamily)> {
    ROW_AMOUNTS.iter().filter_map(|amount| Some((amount, amount.family?)))
}

/// A node in an interval, with the amounts known from the rows of its tasks.
#[derive(Clone, Copy)]
pub struct NodeNow<'a> {
    pub node: &'a Node,
    pub snapshot: &'a Snapshot,
    /// CPU time of tasks on the node whose memory is located.
    pub located: Option<Located>,
    /// CPU time of tasks, seconds.
    pub cpu_s: Option<f64>,
}

/// A quantity of a node.
pub struct NodeAmount {
    /// Its column in the table of nodes: a sum over the interval, or a level. It is empty where the host cannot measure the metric.
    pub column: Option<(&'static str, Option<&'static Metric<Node>>)>,
    /// Its series in the exporter. Lines of one family stand together.
    pub family: Option<NodeFamily>,
    /// In the interval, or as of now; `None` where it is not known.
    pub value: fn(NodeNow<'_>) -> Option<Number>,
}

/// A family of series by node.
#[derive(Clone, Copy)]
pub struct NodeFamily {
    /// Without `_total`.
    pub name: &'static str,
    pub help: &'static str,
    /// The label of this line beside the node.
    pub label: Option<(&'static str, &'static str)>,
    pub over: FamilyOver,
}

/// The value of a series.
#[derive(Clone, Copy)]
pub enum FamilyOver {
    /// The value as of now: a gauge.
    Level,
    /// The sum over intervals times a factor: a counter.
    Sum(f64),
    /// A counter that the kernel adds up itself.
    Kernel(fn(&NodeRaw) -> u64),
}

/// A line is a value, its column (of a metric), and its family: the value of its series, its name and help (and a label).
macro_rules! amounts {
    ($($value:expr
        $(, column $column:literal $(of $metric:path)?)?
        $(, family $over:expr => $name:literal $help:literal $(with $label:literal = $word:literal)?)?;)*) => {
        &[$(NodeAmount {
            column: amounts!(@option $(($column, amounts!(@option $(&$metric)?)))?),
            family: amounts!(@option $(NodeFamily {
                name: $name,
                help: $help,
                label: amounts!(@option $(($label, $word))?),
                over: $over,
            })?),
            value: $value,
        }),*]
    };
    (@option) => { None };
    (@option $some:expr) => { Some($some) };
}

/// A field of a node.
macro_rules! of {
    ($($field:ident).+) => { |now| Some(Number::from(now.node.$($field).+)) };
}

fn counted(now: NodeNow<'_>, role: Role) -> Option<f64> {
    events(&now.node.on_cpus.slots, now.snapshot, role)
}

fn lma(now: NodeNow<'_>) -> Option<f64> {
    counted(now, Role::Lma)
}

fn rma(now: NodeNow<'_>) -> Option<f64> {
    counted(now, Role::Rma)
}

fn moved(now: NodeNow<'_>, pages: fn(&TierPages) -> Option<u64>) -> Option<Number> {
    now.node.counts.tier_pages.as_ref().and_then(pages).map(Number::Whole)
}

/// Bytes in the interval, of a rate.
fn bytes_of(now: NodeNow<'_>, rate: &Metric<Node>) -> Option<Number> {
    let rate = rate.read(now.node, now.snapshot).ok()?.number()?;
    Some(Number::Scaled(rate * now.snapshot.interval_ns? as f64 * NS))
}

fn huge_free(now: NodeNow<'_>) -> Option<Number> {
    free_blocks::of(now.node, now.snapshot).ok()?.huge_bytes_free().map(Number::Scaled)
}

/// `None` where the kernel does not say: both are zero then.
fn watermark(now: NodeNow<'_>, bytes: u64) -> Option<Number> {
    let raw = &now.node.raw;
    (raw.low_watermark_bytes > 0 || raw.managed_bytes > 0).then_some(Number::Whole(bytes))
}

/// All of them, in the order of columns and of families. New columns go to the end.
pub static NODE_AMOUNTS: &[NodeAmount] = amounts! {
    of!(cpus), column "cpus", family Level => "numatop_node_cpus" "Number of online CPUs.";
    of!(on_cpus.busy_ns), column "busy_ns";
    |now| now.cpu_s.map(Number::Scaled), family Sum(1.0) => "numatop_node_cpu_seconds" "CPU time of tasks on the node.";
    |now| now.node.on_cpus.irq_ns.get().map(Number::Whole), column "irq_ns" of IRQ_PCT, family Sum(NS) => "numatop_node_irq_seconds" "Time in interrupts on the node's CPUs.";
    |now| counted(now, Role::Cycles).map(Number::Scaled), column "cycles", family Sum(1.0) => "numatop_node_cycles" "CPU cycles of tasks on the node.";
    |now| counted(now, Role::Instructions).map(Number::Scaled), column "instructions",
        family Sum(1.0) => "numatop_node_instructions" "Instructions of tasks on the node.";
    |now| lma(now).map(Number::Scaled), column "lma";
    |now| rma(now).map(Number::Scaled), column "rma";
    // Each is known where both are.
    |now| rma(now).and_then(|_| lma(now)).map(Number::Scaled),
        family Sum(1.0) => "numatop_node_memory_accesses" "Memory accesses counted by the CPUs." with "target" = "local";
    |now| lma(now).and_then(|_| rma(now)).map(Number::Scaled),
        family Sum(1.0) => "numatop_node_memory_accesses" "Memory accesses counted by the CPUs." with "target" = "remote";
    |now| now.located.map(|located| Number::Scaled(located.run_ns)), column "located_ns",
        family Sum(NS) => "numatop_node_located_cpu_seconds"
        "CPU time on the node, of tasks whose memory nodes are known.";
    |now| now.located.map(|located| Number::Scaled(located.remote_ns)), column "remote_ns",
        family Sum(NS) => "numatop_node_remote_cpu_seconds"
        "CPU time of tasks whose memory nodes are known, multiplied by the share of their memory on other \
         nodes.";
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.faults.saturating_sub(hints.remote))),
        family Sum(1.0) => "numatop_node_hint_faults" "NUMA hinting faults on the node." with "page" = "local";
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.remote)),
        family Sum(1.0) => "numatop_node_hint_faults" "NUMA hinting faults on the node." with "page" = "remote";
    of!(raw.mem_total_bytes), column "mem_total_bytes" of MEM_TOTAL_BYTES,
        family Level => "numatop_node_memory_total_bytes" "Total memory of the node.";
    of!(raw.mem_free_bytes), column "mem_free_bytes" of MEM_FREE_BYTES,
        family Level => "numatop_node_memory_free_bytes" "Free memory.";
    of!(raw.mem_file_bytes), column "mem_file_bytes" of MEM_FILE_BYTES,
        family Level => "numatop_node_memory_file_bytes" "Page cache.";
    of!(raw.mem_anon_bytes), column "mem_anon_bytes" of MEM_ANON_BYTES,
        family Level => "numatop_node_memory_anon_bytes" "Anonymous memory.";
    of!(raw.mem_slab_bytes), column "mem_slab_bytes" of MEM_SLAB_BYTES,
        family Level => "numatop_node_memory_slab_bytes" "Memory of the node used for kernel objects.";
    |now| watermark(now, now.node.raw.low_watermark_bytes), column "low_watermark_bytes" of WATERMARK_DISTANCE_PCT;
    |now| watermark(now, now.node.raw.managed_bytes), column "managed_bytes" of WATERMARK_DISTANCE_PCT;
    |now| watermark_distance(&now.node.raw).ok().map(|pct| Number::Scaled(pct / 100.0)),
        family Level => "numatop_node_watermark_distance_ratio"
        "Free memory above the low watermark, in % of the memory that can be allocated. At 0, new pages go \
         to other nodes.";
    of!(counts.pages.numa_hit), column "numa_hit" of NUMA_HIT_PER_S,
        family Kernel(|raw| raw.numa_hit) => "numatop_node_numa_hit_pages" "Pages allocated on this node as intended.";
    of!(counts.pages.numa_miss), column "numa_miss" of NUMA_MISS_PER_S,
        family Kernel(|raw| raw.numa_miss) => "numatop_node_numa_miss_pages"
        "Pages allocated on this node although another node was preferred.";
    of!(counts.pages.numa_foreign), column "numa_foreign" of NUMA_FOREIGN_PER_S,
        family Kernel(|raw| raw.numa_foreign) => "numatop_node_numa_foreign_pages" "Pages intended for this node but allocated on another.";
    of!(counts.pages.interleave_hit), column "interleave_hit" of INTERLEAVE_HIT_PER_S,
        family Kernel(|raw| raw.interleave_hit) => "numatop_node_numa_interleave_hit_pages"
        "Interleaved pages allocated on this node as intended.";
    of!(counts.pages.local_node), column "local_node" of LOCAL_NODE_PER_S,
        family Kernel(|raw| raw.local_node) => "numatop_node_numa_local_pages" "Pages allocated on this node by tasks that run on it.";
    of!(counts.pages.other_node), column "other_node" of OTHER_NODE_PER_S,
        family Kernel(|raw| raw.other_node) => "numatop_node_numa_other_pages" "Pages allocated on this node by tasks that run on other nodes.";
    of!(counts.kswapd_pages), column "kswapd_pages" of KSWAPD_PAGES_PER_S,
        family Kernel(|raw| raw.kswapd_pages) => "numatop_node_reclaimed_pages"
        "Pages of the node that were freed by reclaim, in the background (kswapd) or directly by tasks." with "by" = "kswapd";
    of!(counts.direct_pages), column "direct_pages" of DIRECT_RECLAIM_PAGES_PER_S,
        family Kernel(|raw| raw.direct_pages) => "numatop_node_reclaimed_pages"
        "Pages of the node that were freed by reclaim, in the background (kswapd) or directly by tasks." with "by" = "direct";
    of!(counts.node_reclaims), column "node_reclaims" of NODE_RECLAIM_PER_S;
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.faults)),
        column "hint_faults" of balancing::NODE_HINT_FAULTS;
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.remote)),
        column "hint_remote" of balancing::NODE_HINT_REMOTE_PCT;
    of!(counts.pages_in), column "pages_in" of pages::PAGES_IN;
    of!(counts.pages_out), column "pages_out" of pages::PAGES_OUT;
    huge_free, column "free_huge_bytes" of free_blocks::HUGE_FREE_PCT,
        family Level => "numatop_node_memory_free_huge_bytes" "Free memory in blocks of at least one \
                                                               transparent huge page.";
    |now| moved(now, |pages| pages.promoted), column "promoted_pages" of tiers::PROMOTED,
        family Sum(1.0) => "numatop_node_promoted_pages" "Pages promoted to this node from a slower memory \
                                                          tier.";
    |now| moved(now, |pages| pages.demoted), column "demoted_pages" of tiers::DEMOTED,
        family Sum(1.0) => "numatop_node_demoted_pages" "Pages demoted from this node to a slower memory tier.";
    |now| bytes_of(now, &cache_use::NODE_MBM), column "mbm_bytes" of cache_use::NODE_MBM,
        family Sum(1.0) => "numatop_node_mbm_bytes"
        "Bytes transferred between the L3 caches of the node and all memory, as monitored by the CPU \
         (resctrl).";
    |now| bytes_of(now, &cache_use::NODE_MBM_LOCAL), column "mbm_local_bytes" of cache_use::NODE_MBM_LOCAL,
        family Sum(1.0) => "numatop_node_mbm_local_bytes"
        "Bytes transferred between the L3 caches of the node and its own memory, as monitored by the CPU \
         (resctrl).";
    |now| now.node.counts.dram.read.get().map(Number::Whole), column "dram_read_bytes" of dram::READ,
        family Sum(1.0) => "numatop_node_dram_read_bytes" "Bytes that the node's memory controllers read.";
    |now| now.node.counts.dram.write.get().map(Number::Whole), column "dram_write_bytes" of dram::WRITE,
        family Sum(1.0) => "numatop_node_dram_write_bytes" "Bytes that the node's memory controllers wrote.";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_one_column() {
        let mut columns: Vec<&str> = ROW_AMOUNTS
            .iter()
            .map(|amount| amount.column)
            .chain(others().map(|other| other.column))
            .collect();
        columns.sort_unstable();
        assert!(columns.windows(2).all(|two| two[0] != two[1]), "{columns:?}");
        let counters = ROW_AMOUNTS.iter().copied().chain(others());
        let counters = counters.filter(|amount| matches!(amount.value, Value::Counter(_)));
        assert_eq!(counters.count(), NR_COUNTERS);
    }

    #[test]
    fn time_on_cpus_ranks_rows() {
        assert_eq!(families().next().unwrap().0.column, "cpu_ns");
    }

    #[test]
    fn lines_of_one_family_stand_together_and_agree() {
        let families: Vec<&NodeFamily> =
            NODE_AMOUNTS.iter().filter_map(|amount| amount.family.as_ref()).collect();
        let mut seen = std::collections::BTreeMap::new();
        for (at, family) in families.iter().enumerate() {
            let is_level = matches!(family.over, FamilyOver::Level);
            let first = *seen.entry(family.name).or_insert((at, family.help, is_level));
            assert!(first.0 == at || families[at - 1].name == family.name, "{}", family.name);
            assert_eq!((first.1, first.2), (family.help, is_level), "{}", family.name);
        }
    }
}
