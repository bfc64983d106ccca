//! The metrics of pages of a node since boot, as numastat(8) shows them.

use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::model::facility::Facility;
use crate::model::sample::{Missing, NodeRaw, Reading};
use crate::snapshot::{Node, NumaPages, Snapshot};

/// Makes a metric of each number of pages, and [`of`], which has all of them.
macro_rules! metrics {
    ($($name:ident $id:literal $title:literal $field:ident $help:literal;)*) => {
        $(pub const $name: Metric<Node> = metric($id, $title, $help, |node, _| pages(node, |pages| pages.$field));)*

        /// Ids and values of a node; `None` where its numastat cannot be read.
        pub fn of(node: Option<&NodeRaw>) -> impl Iterator<Item = (&'static str, Option<u64>)> {
            let known = node.filter(|node| is_known(node));
            [$(($id, known.map(|node| node.$field))),*].into_iter()
        }
    };
}

metrics! {
    NUMA_HIT "numa_hit_boot" "HIT" numa_hit "Pages allocated on this node as intended, since boot.";
    NUMA_MISS "numa_miss_boot" "MISS" numa_miss
        "Pages allocated on this node although another node was preferred, since boot.";
    NUMA_FOREIGN "numa_foreign_boot" "FOREIGN" numa_foreign
        "Pages intended for this node but allocated on another, since boot.";
    INTERLEAVE_HIT "interleave_hit_boot" "ILEAVE" interleave_hit
        "Interleaved pages allocated on this node as intended, since boot.";
    LOCAL_NODE "local_node_boot" "LOCAL" local_node "Pages allocated on this node by a task that ran on it, since boot.";
    OTHER_NODE "other_node_boot" "OTHER" other_node
        "Pages allocated on this node by a task that ran on another node, since boot.";
}

/// Whether its numastat was read: a node with memory has handed out pages.
fn is_known(node: &NodeRaw) -> bool {
    node.mem_total_bytes == 0 || node.local_node > 0 || node.other_node > 0
}

fn pages(node: &Node, of: fn(&NumaPages) -> u64) -> Reading<Value> {
    if !is_known(&node.raw) {
        return Err(Missing::Unsupported("the node's numastat file counts no pages".into()));
    }
    let pages = node.pages_since_boot.as_ref();
    let back = || {
        Missing::Lost("a count decreased: the counter wrapped, or the node went offline and came back".into())
    };
    pages.map(|pages| Value::U64(of(pages))).ok_or_else(back)
}

const fn metric(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let kind = (Group::Node, Unit::Count, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(Traits::NONE.needs(&[Facility::NodePages]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_numastat_has_no_number() {
        let read = NodeRaw { mem_total_bytes: 1 << 30, local_node: 5, ..NodeRaw::default() };
        let unread = NodeRaw { local_node: 0, ..read.clone() };
        let empty = NodeRaw::default();
        assert!(of(Some(&read)).all(|(_, pages)| pages.is_some()));
        assert!(
            of(Some(&empty)).all(|(_, pages)| pages == Some(0)),
            "a node without memory hands out nothing"
        );
        assert!(of(Some(&unread)).chain(of(None)).all(|(_, pages)| pages.is_none()));
    }
}
