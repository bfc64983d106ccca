//! numatop-ng: a live profiler for NUMA machines.

pub mod batch;
pub mod cli;
pub mod collect;
pub mod container;
pub mod doctor;
pub mod error;
pub mod events_cmd;
pub mod export;
pub mod filter;
pub mod host;
pub mod hot;
pub mod metric;
pub mod options;
pub mod overhead;
pub mod pmu;
pub mod record;
pub mod replay;
pub mod sample;
pub mod snapshot;
pub mod source;
pub mod symbolize;
pub mod text;
pub mod topology_cmd;
pub mod tui;
pub mod units;
