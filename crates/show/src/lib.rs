//! Output for people and programs: analysis, reports, diffs, tables, traces, exports and the exporter.

// All that leaves the process goes through program/output.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the libraries only.
#![warn(unreachable_pub)]

// Paths that begin with `crate::` name modules of lower crates, too.
use numatop_ng_findings::finding;
use numatop_ng_model::{access, entity, hot, metric, model, overhead, snapshot, text};
use numatop_ng_record::record;
use numatop_ng_system::{host, program};

pub mod analysis;
pub mod diff;
pub mod export;
pub mod exporter;
pub mod outcome;
pub mod report;
pub mod tables;
pub mod traces;
