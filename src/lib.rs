//! numatop-ng: a live profiler for NUMA machines.

pub mod host;
pub mod topology_cmd;
pub mod units;
