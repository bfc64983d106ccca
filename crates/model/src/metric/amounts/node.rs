//! Amounts of nodes.

use super::{NS, Number, events};
use crate::metric::located::Located;
use crate::metric::node::*;
use crate::metric::{Metric, balancing, free_blocks, page_migrations, tiers};
use crate::model::event::Role;
use crate::model::sample::NodeRaw;
use crate::model::tiers::TierPages;
use crate::snapshot::{Node, Snapshot};

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

use FamilyOver::{Kernel, Level, Sum};

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
    of!(cpus), column "cpus", family Level => "numatop_node_cpus" "CPUs that are online.";
    of!(on_cpus.busy_ns), column "busy_ns";
    |now| now.cpu_s.map(Number::Scaled), family Sum(1.0) => "numatop_node_cpu_seconds" "CPU time of tasks.";
    |now| now.node.on_cpus.irq_ns.get().map(Number::Whole), column "irq_ns" of IRQ_PCT, family Sum(NS) => "numatop_node_irq_seconds" "Time in interrupts.";
    |now| counted(now, Role::Cycles).map(Number::Scaled), column "cycles", family Sum(1.0) => "numatop_node_cycles" "CPU cycles of tasks.";
    |now| counted(now, Role::Instructions).map(Number::Scaled), column "instructions",
        family Sum(1.0) => "numatop_node_instructions" "Instructions of tasks.";
    |now| lma(now).map(Number::Scaled), column "lma";
    |now| rma(now).map(Number::Scaled), column "rma";
    // Each is known where both are.
    |now| rma(now).and_then(|_| lma(now)).map(Number::Scaled),
        family Sum(1.0) => "numatop_node_memory_accesses" "Accesses that the CPUs counted." with "target" = "local";
    |now| lma(now).and_then(|_| rma(now)).map(Number::Scaled),
        family Sum(1.0) => "numatop_node_memory_accesses" "Accesses that the CPUs counted." with "target" = "remote";
    |now| now.located.map(|located| Number::Scaled(located.run_ns)), column "located_ns",
        family Sum(NS) => "numatop_node_located_cpu_seconds"
        "CPU time on the node of tasks whose memory is located.";
    |now| now.located.map(|located| Number::Scaled(located.remote_ns)), column "remote_ns",
        family Sum(NS) => "numatop_node_remote_cpu_seconds"
        "CPU time of tasks whose memory is located, times the share of it on other nodes.";
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.faults.saturating_sub(hints.remote))),
        family Sum(1.0) => "numatop_node_hint_faults" "NUMA hinting faults." with "page" = "local";
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.remote)),
        family Sum(1.0) => "numatop_node_hint_faults" "NUMA hinting faults." with "page" = "remote";
    of!(raw.mem_total_bytes), column "mem_total_bytes" of MEM_TOTAL_BYTES,
        family Level => "numatop_node_memory_total_bytes" "Memory of the node.";
    of!(raw.mem_free_bytes), column "mem_free_bytes" of MEM_FREE_BYTES,
        family Level => "numatop_node_memory_free_bytes" "Free memory.";
    of!(raw.mem_file_bytes), column "mem_file_bytes" of MEM_FILE_BYTES,
        family Level => "numatop_node_memory_file_bytes" "Page cache.";
    of!(raw.mem_anon_bytes), column "mem_anon_bytes" of MEM_ANON_BYTES,
        family Level => "numatop_node_memory_anon_bytes" "Anonymous memory.";
    of!(raw.mem_slab_bytes), column "mem_slab_bytes" of MEM_SLAB_BYTES,
        family Level => "numatop_node_memory_slab_bytes" "Memory of kernel objects.";
    |now| watermark(now, now.node.raw.low_watermark_bytes), column "low_watermark_bytes" of WATERMARK_DISTANCE_PCT;
    |now| watermark(now, now.node.raw.managed_bytes), column "managed_bytes" of WATERMARK_DISTANCE_PCT;
    |now| watermark_distance(&now.node.raw).ok().map(|pct| Number::Scaled(pct / 100.0)),
        family Level => "numatop_node_watermark_distance_ratio"
        "Free memory above the low watermark, of the memory that can be allocated; kswapd is woken below 0.";
    of!(counts.pages.numa_hit), column "numa_hit" of NUMA_HIT_PER_S,
        family Kernel(|raw| raw.numa_hit) => "numatop_node_numa_hit_pages" "Pages allocated here as intended.";
    of!(counts.pages.numa_miss), column "numa_miss" of NUMA_MISS_PER_S,
        family Kernel(|raw| raw.numa_miss) => "numatop_node_numa_miss_pages"
        "Pages allocated here although another node was preferred.";
    of!(counts.pages.numa_foreign), column "numa_foreign" of NUMA_FOREIGN_PER_S,
        family Kernel(|raw| raw.numa_foreign) => "numatop_node_numa_foreign_pages" "Pages wanted here but allocated on another node.";
    of!(counts.pages.interleave_hit), column "interleave_hit" of INTERLEAVE_HIT_PER_S,
        family Kernel(|raw| raw.interleave_hit) => "numatop_node_numa_interleave_hit_pages"
        "Interleaved pages allocated here as intended.";
    of!(counts.pages.local_node), column "local_node" of LOCAL_NODE_PER_S,
        family Kernel(|raw| raw.local_node) => "numatop_node_numa_local_pages" "Pages allocated here by tasks running here.";
    of!(counts.pages.other_node), column "other_node" of OTHER_NODE_PER_S,
        family Kernel(|raw| raw.other_node) => "numatop_node_numa_other_pages" "Pages allocated here by tasks running on other nodes.";
    of!(counts.kswapd_pages), column "kswapd_pages" of KSWAPD_PAGES_PER_S,
        family Kernel(|raw| raw.kswapd_pages) => "numatop_node_reclaimed_pages"
        "Pages freed by reclaim, in the background (kswapd) or by tasks directly." with "by" = "kswapd";
    of!(counts.direct_pages), column "direct_pages" of DIRECT_RECLAIM_PAGES_PER_S,
        family Kernel(|raw| raw.direct_pages) => "numatop_node_reclaimed_pages"
        "Pages freed by reclaim, in the background (kswapd) or by tasks directly." with "by" = "direct";
    of!(counts.node_reclaims), column "node_reclaims" of NODE_RECLAIM_PER_S;
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.faults)),
        column "hint_faults" of balancing::NODE_HINT_FAULTS;
    |now| now.node.on_cpus.hints.map(|hints| Number::Whole(hints.remote)),
        column "hint_remote" of balancing::NODE_HINT_REMOTE_PCT;
    of!(counts.pages_in), column "pages_in" of page_migrations::PAGES_IN;
    of!(counts.pages_out), column "pages_out" of page_migrations::PAGES_OUT;
    huge_free, column "free_huge_bytes" of free_blocks::HUGE_FREE_PCT,
        family Level => "numatop_node_memory_free_huge_bytes" "Free memory in blocks of a transparent huge page or more.";
    |now| moved(now, |pages| pages.promoted), column "promoted_pages" of tiers::PROMOTED,
        family Sum(1.0) => "numatop_node_promoted_pages" "Pages that came from a slower memory tier.";
    |now| moved(now, |pages| pages.demoted), column "demoted_pages" of tiers::DEMOTED,
        family Sum(1.0) => "numatop_node_demoted_pages" "Pages that left for a slower memory tier.";
};

#[cfg(test)]
mod tests {
    use super::*;

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
