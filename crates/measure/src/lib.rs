//! Measurement on a live machine: PMU, containers, BPF programs, symbols, calibration.

// All that leaves the process goes through program/output.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the libraries only.
#![warn(unreachable_pub)]

// Paths that begin with `crate::` name modules of lower crates, too.
use numatop_ng_model::{access, metric, model, overhead, text};
use numatop_ng_system::{host, known, program, sys};

pub mod calibrate;
pub mod collect;
pub mod container;
#[cfg(test)]
#[path = "../../../tests/common/fixture.rs"]
mod fixture;
pub mod pmu;
#[cfg(test)]
#[path = "../../../tests/common/scratch.rs"]
mod scratch;
pub mod symbolize;
#[cfg(test)]
#[path = "../../../tests/common/tree.rs"]
mod tree;
