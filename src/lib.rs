//! numatop-ng: a live profiler for NUMA machines.

// All that leaves the process goes through say.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` says what makes it true.
#![warn(clippy::unwrap_used)]

pub mod access;
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
pub mod marks;
pub mod metric;
pub mod metrics_cmd;
pub mod model;
pub mod modes;
pub mod options;
pub mod overhead;
pub mod pace;
pub mod pmu;
pub mod record;
pub mod remote;
pub mod replay;
pub mod say;
pub mod signals;
pub mod snapshot;
pub mod source;
pub mod symbolize;
pub mod sys;
pub mod text;
pub mod topology_cmd;
pub mod tui;
