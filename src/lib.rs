//! numatop-ng: a live profiler for NUMA machines.

// All that leaves the process goes through program/say.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the library only.
#![warn(unreachable_pub)]

pub mod access;
pub mod analysis;
pub mod calibrate;
pub mod cli;
pub mod collect;
pub mod container;
pub mod diff;
pub mod doctor;
pub mod entity;
pub mod error;
pub mod export;
pub mod exporter;
pub mod finding;
#[cfg(test)]
#[path = "../tests/common/fixture.rs"]
mod fixture;
pub mod host;
pub mod hot;
pub mod known;
pub mod list;
pub mod metric;
pub mod model;
pub mod options;
pub mod outcome;
pub mod pmu;
pub mod program;
pub mod record;
pub mod report;
pub mod run;
#[cfg(test)]
#[path = "../tests/common/scratch.rs"]
mod scratch;
pub mod selftest;
pub mod settings;
pub mod snapshot;
pub mod source;
pub mod symbolize;
pub mod sys;
pub mod tables;
pub mod text;
pub mod traces;
pub mod tui;
