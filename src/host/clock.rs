//! Clocks of the kernel, as samples have them.

use std::time::Duration;

use rustix::time::ClockId;

/// The time that a clock shows.
pub fn clock(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// CLOCK_MONOTONIC, as samples have it.
pub fn mono_ns() -> u64 {
    clock(ClockId::Monotonic).as_nanos() as u64
}

/// CLOCK_BOOTTIME, as samples have it.
pub fn boot_ns() -> u64 {
    clock(ClockId::Boottime).as_nanos() as u64
}
