//! A row of the wire as the task that it describes.

use crate::model::counters::Scalars;
use crate::model::sample::{Comm, Counts, MemPolicy, Resident, Slot, TaskRaw};
use crate::model::units::{CpuId, NodeId};
use crate::model::wire::{REC_CROSSED, ROW_KTHREAD, ROW_LEFT, ROW_NO_NUMA, WireRow};

/// A row of the wire, taken apart.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub task: TaskRaw,
    /// It left the scope: no further rows until it returns. In a final row: it left earlier.
    pub leaves: bool,
    /// Threads of its process that have not begun to exit.
    pub group_live: u32,
    /// `None` if all its CPU time is charged, or if a scope ended within the uncharged part.
    pub uncharged: Option<Uncharged>,
}

/// Time that a task has run by the scheduler's account, and that no switch or flush has charged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncharged {
    /// Where it runs.
    pub cpu: CpuId,
    pub ns: u64,
}

/// The task that a row of the wire describes. `nodes` has the node of each place; it is empty where places are the nodes.
pub fn parse(row: &WireRow<'_>, page_size: u64, nodes: &[u32]) -> Parsed {
    let (task, rec) = (&row.task, &row.rec);
    let slot = |at: usize| Slot {
        count: rec.slot[at],
        enabled_ns: rec.slot_enabled_ns[at],
        running_ns: rec.slot_running_ns[at],
    };
    let (run_ns, by_place) = run_times(row, nodes);
    let counts = Counts {
        run_ns,
        by_place,
        scalars: Scalars::new(&rec.counters, &task.lifetime),
        slots: std::array::from_fn(slot).into(),
        by_node: row.node_counts().collect(),
        pages: row.pages().collect(),
        by_sibling: row.sibling_counts().unwrap_or_default(),
    };
    let numa = task.flags & ROW_NO_NUMA == 0;
    let [file_bytes, anon_bytes, swap_bytes, shmem_bytes] = task.mm_pages.map(|pages| pages * page_size);
    let resident = Resident { anon_bytes, file_bytes, shmem_bytes, swap_bytes };
    let raw = TaskRaw {
        serial: rec.serial,
        pid: task.pid,
        tid: task.tid,
        ppid: task.ppid,
        uid: task.uid,
        start_ns: task.start_ns,
        leader_start_ns: task.leader_start_ns,
        cgroup_id: task.cgroup_id,
        comm: Comm(task.comm),
        state: task.state,
        exit_state: task.exit_state,
        policy: task.policy,
        nice: task.nice,
        cpu: if rec.last_cpu == u32::MAX { task.cpu } else { rec.last_cpu },
        cpus_allowed: task.cpus_allowed,
        cpu_nodes: known_nodes(task.cpu_nodes),
        mem_nodes: known_nodes(task.mem_nodes),
        kthread: task.flags & ROW_KTHREAD != 0,
        rss_bytes: resident.anon_bytes + resident.file_bytes + resident.shmem_bytes,
        resident: Some(resident),
        exec_ns: task.exec_ns,
        preferred_node: (numa && task.preferred_nid >= 0).then_some(NodeId(task.preferred_nid as u32)),
        scan_period_ms: task.scan_period_ms,
        numa_group: task.numa_group,
        mempolicy: MemPolicy {
            mode: task.mempolicy as u16,
            flags: (task.mempolicy >> 16) as u16,
            nodes: task.mempolicy_nodes,
        },
        counts,
    };
    let uncharged = Uncharged { cpu: CpuId(task.cpu), ns: task.exec_ns.saturating_sub(rec.exec_seen_ns) };
    Parsed {
        task: raw,
        leaves: task.flags & ROW_LEFT != 0,
        group_live: task.group_live,
        uncharged: (uncharged.ns > 0 && rec.in_scope & REC_CROSSED == 0).then_some(uncharged),
    }
}

/// On-CPU time by node and by place, ns; none by place where places are the nodes.
fn run_times(row: &WireRow<'_>, nodes: &[u32]) -> (Vec<u64>, Vec<u64>) {
    if nodes.is_empty() {
        return (row.run_ns().collect(), Vec::new());
    }
    let by_place: Vec<u64> = row.run_ns().collect();
    let mut by_node = vec![0; row.task.nodes.into()];
    for (ns, node) in by_place.iter().zip(nodes) {
        if let Some(sum) = by_node.get_mut(*node as usize) {
            *sum += ns;
        }
    }
    (by_node, by_place)
}

/// The bits of nodes; none at all say nothing.
fn known_nodes(bits: u64) -> Option<u64> {
    (bits != 0).then_some(bits)
}
