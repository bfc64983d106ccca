//! The metrics of free memory of a node by the size of its blocks.

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::model::turns::FreeBlocks;
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};

pub const FREE_BLOCKS_BY_ORDER: Metric<Node> = Metric {
    id: "free_blocks_by_order",
    title: "FREEBLOCKS",
    width: 24,
    group: Group::Node,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Free blocks by size: 1 page, 2 pages, 4 pages, and so on; all zones of the node (/proc/buddyinfo).",
    value: |node, snapshot| {
        let blocks: Vec<String> = of(node, snapshot)?.by_order.iter().map(u64::to_string).collect();
        Ok(Value::Text(blocks.join(" ")))
    },
    over: Over::Newest,
    traits: Traits::NONE.needs(&[Facility::FreeBlocks]),
};

pub const HUGE_FREE_PCT: Metric<Node> = Metric {
    id: "huge_free_pct",
    title: "HFREE%",
    width: 6,
    group: Group::Node,
    unit: Unit::Percent,
    order: Order::Ascending,
    help: "Share of the node's free memory in blocks of at least one transparent huge page. A small share means \
           fragmentation: huge pages need compaction first.",
    value: |node, snapshot| huge(node, snapshot).map(Quotient::value).map(Value::F64),
    over: Over::Level,
    traits: Traits::NONE.needs(&[Facility::FreeBlocks]).better(Better::High),
};

fn huge(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    let free = of(node, snapshot)?;
    let huge = free.huge_bytes_free();
    let huge = huge.ok_or_else(|| Missing::Unsupported("the kernel has no transparent huge pages".into()))?;
    if free.bytes() > 0.0 {
        Ok(Quotient::pct(huge, free.bytes()))
    } else {
        Err(no("the node has no free memory"))
    }
}

/// Free blocks of a node.
///
/// # Errors
/// They were not read, or its lines cannot be understood.
pub fn of<'s>(node: &Node, snapshot: &'s Snapshot) -> Reading<&'s FreeBlocks> {
    let free = snapshot.inputs.free_blocks.get(&NodeId(node.raw.id));
    free.map(|free| &**free).ok_or_else(|| no("/proc/buddyinfo has no valid line for the node"))
}
