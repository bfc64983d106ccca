//! All of the fuzz targets but their calls. Tests of the crate above have these modules too (`tests/worlds/fuzzed.rs`,
//! `tests/recordings/fuzzed.rs`).

pub mod access;
pub mod cgroups;
pub mod elf;
pub mod input;
pub mod listing;
pub mod memory;
pub mod proc;
pub mod reader;
pub mod seeds;
pub mod spe;
pub mod tables;
pub mod tree;
