//! Made-up machines and machines made of files, as the library reads, derives and draws them.

mod balancing;
mod batch;
mod cgroup_paths;
#[path = "../common/mod.rs"]
mod common;
mod container_keys;
mod containers;
mod counters;
mod decoder;
mod demo_metrics;
mod diff;
mod doctor;
mod documented_keys;
mod edges;
mod engine_names;
mod exporter;
mod fake_hosts;
#[path = "../common/fixture.rs"]
mod fixture;
mod fixtures;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[expect(unsafe_code, reason = "calls ptrace(2)")]
mod follower;
mod fuzzed;
mod highlights;
mod host_metrics;
mod hosts;
mod interference;
mod keys;
mod layers;
mod metric_table;
mod page_migrations;
mod picture;
mod placement_truth;
mod plan;
mod pmu_tables;
mod process_sums;
mod prose;
mod reported_hosts;
mod runtime_sockets;
mod sampled_nodes;
#[path = "../common/scratch.rs"]
#[allow(dead_code, reason = "one of several users")]
mod scratch;
mod screens;
mod sums;
