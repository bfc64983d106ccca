//! Recordings: everything that was written comes back, and damage costs only what it hits.

mod any;
mod bytes;
mod commands;
mod cost;
mod damage;
#[path = "../common/fixture.rs"]
mod fixture;
mod fold;
mod format_1;
mod fuzzed;
mod hostile;
mod killed;
mod machine;
mod memory_use;
mod pack;
#[path = "../common/program.rs"]
mod program;
mod recorder;
mod replay;
mod roundtrip;
#[path = "../common/scratch.rs"]
mod scratch;
mod torture;
