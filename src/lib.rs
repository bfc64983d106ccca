//! numatop-ng: a live profiler for NUMA machines.

// All that leaves the process goes through program/output.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the library only.
#![warn(unreachable_pub)]

// Every module of the lower crates, under the name that it has there.
pub use numatop_ng_findings::finding;
pub use numatop_ng_measure::{calibrate, collect, container, pmu, symbolize};
pub use numatop_ng_model::{access, entity, hot, metric, model, overhead, snapshot, text};
pub use numatop_ng_record::record;
pub use numatop_ng_show::{analysis, diff, export, exporter, outcome, report, tables, traces};
pub use numatop_ng_system::{host, known, program, sys};

pub mod cli;
pub mod doctor;
pub mod error;
#[cfg(test)]
#[path = "../tests/common/fixture.rs"]
mod fixture;
pub mod list;
pub mod options;
pub mod run;
pub mod selftest;
pub mod settings;
pub mod source;
pub mod tui;
