//! Data that all layers share. Nothing here reads the machine or a clock.

#![warn(missing_docs)]

pub mod accelerators;
pub mod access;
pub mod cgroup_path;
pub mod coded;
pub mod counters;
pub mod counts;
pub mod demo;
pub mod disks;
pub mod event;
pub mod facility;
pub mod free_blocks;
pub mod group;
pub mod group_files;
pub mod inputs;
pub mod interrupts;
pub mod machine;
pub mod memory;
pub mod object_nodes;
pub mod place_moves;
pub mod process;
pub mod profile;
pub mod sample;
pub mod scheduler;
pub mod share;
pub mod slots;
pub mod sockets;
pub mod stacks;
pub mod sums;
pub mod task;
pub mod tiers;
pub mod topology;
pub mod traffic;
pub mod units;
pub mod wire;
