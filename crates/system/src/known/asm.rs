//! Loads in assembly for x86-64 and arm64, so that no compiler changes how many instructions, loads or bytes they have.
//!
//! The second of the two places with unsafe code: every function here is safe to call.
#![expect(unsafe_code, reason = "assembly")]

mod cycle;
mod loops;
mod streams;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("loads with known counts exist for x86-64 and arm64 only");

pub use self::loops::Calls;
pub use cycle::{Cycle, Far, LOADS};
pub use loops::{Work, work};
pub use streams::{BLOCK, copy, read, triad, write, write_past_caches};
