//! Rules that judge snapshots, their evidence and their advice. Pure.

// All that leaves the process goes through program/output.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the libraries only.
#![warn(unreachable_pub)]

// Paths that begin with `crate::` name modules of lower crates, too.
use numatop_ng_model::{metric, model, snapshot, text};

pub mod finding;
#[cfg(test)]
#[path = "../../../tests/common/fixture.rs"]
mod fixture;
