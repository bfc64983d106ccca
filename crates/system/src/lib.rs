//! The kernel, files, sockets and processes: safe calls, facts about the host, guarded files, known loads.

// All that leaves the process goes through program/output.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]
// `expect` gives the reason why it cannot fail.
#![warn(clippy::unwrap_used)]
// Tests and benchmarks are crates whose public items nothing reaches, so that the lint is for the libraries only.
#![warn(unreachable_pub)]

// Paths that begin with `crate::` name modules of lower crates, too.
use numatop_ng_model::{model, text};

pub mod host;
pub mod known;
pub mod program;
pub mod sys;
#[cfg(test)]
#[path = "../../../tests/common/tree.rs"]
#[allow(dead_code, reason = "one of several users")]
mod tree;
