//! Columns that are shown without being named: their order on the screen, and the order in which they get room.
//!
//! Metrics that these lists leave out are shown where a user names them.

use super::{balancing, cache_use, container, cpu_set, dram, identity, node, pages, placement, task};

/// Columns of tasks in their order on the screen.
pub const TASK_ORDER: &[&str] = &[
    identity::PID.id,
    identity::TID.id,
    identity::USER.id,
    identity::STATE.id,
    identity::THREADS.id,
    task::CPU.id,
    task::CPU_PCT.id,
    task::HOME_NODE.id,
    task::RUN_PCT_BY_NODE.id,
    placement::MEM_PCT_BY_NODE.id,
    placement::REMOTE_PCT.id,
    task::PREFERRED_NODE.id,
    task::IPC.id,
    task::GHZ.id,
    task::NODE_MIGRATIONS_PER_S.id,
    task::LLC_MIGRATIONS_PER_S.id,
    task::SMT_BUSY_PCT.id,
    task::RUNQ_WAIT_PCT.id,
    task::SWITCHES_PER_S.id,
    task::MINOR_FAULTS_PER_S.id,
    task::MAJOR_FAULTS_PER_S.id,
    pages::CROSS_NODE_FAULTS.id,
    pages::PAGES_MIGRATED.id,
    task::CPU_NS.id,
    task::RSS_BYTES.id,
    identity::CONTAINER.id,
    identity::COMM.id,
];

/// The same in the order in which they get room: where a task runs and what it costs come first.
pub const TASK_PRIORITY: &[&str] = &[
    identity::COMM.id,
    identity::PID.id,
    task::CPU_PCT.id,
    task::HOME_NODE.id,
    identity::STATE.id,
    task::RUN_PCT_BY_NODE.id,
    placement::REMOTE_PCT.id,
    task::IPC.id,
    task::NODE_MIGRATIONS_PER_S.id,
    placement::MEM_PCT_BY_NODE.id,
    task::RUNQ_WAIT_PCT.id,
    task::RSS_BYTES.id,
    identity::USER.id,
    task::SWITCHES_PER_S.id,
    task::CPU_NS.id,
    task::SMT_BUSY_PCT.id,
    identity::THREADS.id,
    task::LLC_MIGRATIONS_PER_S.id,
    task::MINOR_FAULTS_PER_S.id,
    task::MAJOR_FAULTS_PER_S.id,
    task::GHZ.id,
    pages::CROSS_NODE_FAULTS.id,
    pages::PAGES_MIGRATED.id,
    task::PREFERRED_NODE.id,
    identity::CONTAINER.id,
];

/// Columns of tasks in a text table.
pub const TASK_TEXT: &[&str] = &[
    identity::PID.id,
    identity::USER.id,
    identity::STATE.id,
    task::CPU_PCT.id,
    task::HOME_NODE.id,
    task::IPC.id,
    task::NODE_MIGRATIONS_PER_S.id,
    task::RUNQ_WAIT_PCT.id,
    task::SWITCHES_PER_S.id,
    task::RSS_BYTES.id,
    identity::COMM.id,
];

/// Columns of containers in the order in which they get room.
pub const CONTAINER_PRIORITY: &[&str] = &[
    task::CPU_PCT.id,
    container::KIND.id,
    task::HOME_NODE.id,
    container::MEM_BYTES.id,
    task::IPC.id,
    container::PROCESSES.id,
    task::RUN_PCT_BY_NODE.id,
    placement::CONTAINER_REMOTE_PCT.id,
    container::MEM_BYTES_BY_NODE.id,
    container::CPUS_ALLOWED.id,
    container::THROTTLED_PCT.id,
    task::NODE_MIGRATIONS_PER_S.id,
    task::RUNQ_WAIT_PCT.id,
    container::CPU_QUOTA_PCT.id,
    container::MEM_LIMIT_BYTES.id,
    container::MEMS_ALLOWED.id,
    container::POD.id,
    container::SMT_SHARED_CPUS.id,
    task::SWITCHES_PER_S.id,
    task::CPU_NS.id,
    container::ENGINE.id,
    identity::THREADS.id,
];

/// Columns of containers in a text table.
pub const CONTAINER_TEXT: &[&str] = &[
    container::CONTAINER.id,
    container::KIND.id,
    container::PROCESSES.id,
    task::CPU_PCT.id,
    task::HOME_NODE.id,
    task::IPC.id,
    container::MEM_BYTES.id,
    container::MEM_BYTES_BY_NODE.id,
    container::CPUS_ALLOWED.id,
];

/// Columns of sockets and L3 domains in the order in which they get room.
pub const CPU_SET_PRIORITY: &[&str] = &[
    cpu_set::PLACE.id,
    cpu_set::CPU_PCT.id,
    cpu_set::NODES.id,
    cpu_set::IPC.id,
    cpu_set::LLC_MPKI.id,
    cpu_set::TASKS.id,
    cpu_set::MOVES_IN_PER_S.id,
    cpu_set::MOVES_OUT_PER_S.id,
    cpu_set::CPU_LIST.id,
    cpu_set::CORES.id,
    cpu_set::RMA_PER_S.id,
    cpu_set::LMA_PER_S.id,
    cache_use::OCCUPANCY.id,
    cache_use::MBM.id,
    cache_use::MBM_LOCAL.id,
    dram::SET_READ.id,
    dram::SET_WRITE.id,
    dram::SET_BUSY.id,
    cpu_set::IRQ_PCT.id,
    cpu_set::LLC_SIZE_BYTES.id,
    cpu_set::GHZ.id,
    cpu_set::CPUS.id,
    cpu_set::SOCKETS.id,
];

/// Columns of nodes in the order in which they get room.
pub const NODE_PRIORITY: &[&str] = &[
    node::NODE.id,
    node::CPUS.id,
    node::CPU_PCT.id,
    node::MEM_FREE_BYTES.id,
    node::WATERMARK_DISTANCE_PCT.id,
    node::NUMA_MISS_PER_S.id,
    node::OTHER_NODE_PER_S.id,
    node::IPC.id,
    placement::NODE_REMOTE_PCT.id,
    node::IRQ_PCT.id,
    balancing::NODE_HINT_FAULTS.id,
    node::RMA_PER_S.id,
    node::LMA_PER_S.id,
    node::MEM_FILE_BYTES.id,
    node::MEM_ANON_BYTES.id,
    node::MEM_TOTAL_BYTES.id,
    node::DIRECT_RECLAIM_PAGES_PER_S.id,
    node::KSWAPD_PAGES_PER_S.id,
    pages::PAGES_IN.id,
    pages::PAGES_OUT.id,
    node::NODE_RECLAIM_PER_S.id,
    node::LOCAL_NODE_PER_S.id,
    node::NUMA_HIT_PER_S.id,
    node::NUMA_FOREIGN_PER_S.id,
    node::MEM_SLAB_BYTES.id,
    node::HUGE_FREE.id,
    node::HUGE_TOTAL.id,
    node::INTERLEAVE_HIT_PER_S.id,
];

#[cfg(test)]
mod tests {
    use super::super::{container, node, task};
    use super::*;

    #[test]
    fn every_column_is_a_metric_of_its_rows() {
        let tasks = TASK_ORDER.iter().chain(TASK_PRIORITY).chain(TASK_TEXT);
        assert!(tasks.clone().all(|id| task::by_id(id).is_some()), "{:?}", tasks.collect::<Vec<_>>());
        for id in CONTAINER_PRIORITY.iter().chain(CONTAINER_TEXT) {
            assert!(container::by_id(id).is_some(), "{id}");
        }
        for id in CPU_SET_PRIORITY {
            assert!(cpu_set::CPU_SET_METRICS.iter().any(|metric| metric.id == *id), "{id}");
        }
        for id in NODE_PRIORITY {
            assert!(node::by_id(id).is_some(), "{id}");
        }
    }

    #[test]
    fn every_column_with_a_priority_has_its_place() {
        assert!(TASK_PRIORITY.iter().all(|id| TASK_ORDER.contains(id)));
    }
}
