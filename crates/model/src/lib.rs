//! Measurements as data: samples, counters, snapshots and metrics. Pure: no file, no clock.

// All that leaves the process goes through program/output.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the libraries only.
#![warn(unreachable_pub)]

pub mod access;
pub mod entity;
pub mod hot;
pub mod metric;
pub mod model;
pub mod overhead;
pub mod snapshot;
pub mod text;
