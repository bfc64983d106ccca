//! Data that all layers share. Nothing here reads the machine or a clock.

#![warn(missing_docs)]

pub mod accelerators;
pub mod access;
pub mod coded;
pub mod counters;
pub mod counts;
pub mod demo;
pub mod disks;
pub mod event;
pub mod facility;
pub mod group;
pub mod inputs;
pub mod machine;
pub mod memory;
pub mod process;
pub mod profile;
pub mod sample;
pub mod share;
pub mod sockets;
pub mod stacks;
pub mod sums;
pub mod task;
pub mod topology;
pub mod traffic;
pub mod turns;
pub mod units;
pub mod wire;
