//! Memory in use: from samples of a clock to the addresses that instructions access.
//!
//! Pure: samples come from `collect/access.rs`, pages and their nodes from `collect/access/`. A clock
//! interrupts a CPU after the instruction that it was stalled on, with the registers as that instruction left
//! them. So the address that it accessed can be computed. docs/memory-in-use.md has the limits,
//! benches/results/access.md the evidence.

pub mod code_x86;
pub mod decode_a64;
pub mod decode_x86;
pub mod follow;
pub mod governor;
pub mod lines;
pub mod next_runs;
pub mod objects;
pub mod sample;
pub mod self_check;
pub mod touches;
pub mod window;
