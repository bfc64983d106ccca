//! All of the fuzz target but its call: a test of the crate above has this module too (`tests/recordings/fuzzed.rs`).

pub mod input;
pub mod reader;
pub mod seeds;
