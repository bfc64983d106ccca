//! Moments at which the tool has shown all that the kernel has counted: whatever is counted has come to rest.

use std::fmt::Debug;
use std::fs;

use crate::cases::Stop;
use crate::intervals::Totals;
use crate::tool::Batch;

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Intervals in which nothing is counted. In one the tool may have looked before the kernel's last count and been read
/// after it.
const STILL: usize = 2;
/// Intervals after which nobody waits any longer.
const PATIENCE: usize = 60;

/// Adds intervals to `totals` until nothing moves any more in what `read` reads; gives that.
pub fn come_to_rest<T: PartialEq + Debug>(
    batch: &mut Batch,
    totals: &mut Totals,
    read: impl Fn() -> Result<T, String>,
) -> Result<T, Stop> {
    let (mut before, mut still) = (read()?, 0);
    for _ in 0..PATIENCE {
        batch.follow(totals, 1)?;
        let now = read()?;
        still = if now == before { still + 1 } else { 0 };
        if still == STILL {
            return Ok(now);
        }
        before = now;
    }
    Err(Stop::fail(format!("after {PATIENCE} intervals it still counts: {before:?}")))
}

/// NUMA balancing, which is as it was before when this is dropped.
pub struct Balancing {
    before: String,
}

impl Balancing {
    /// Switches it on.
    pub fn on() -> Result<Balancing, String> {
        let before =
            fs::read_to_string(BALANCING).map_err(|error| format!("reading {BALANCING}: {error}"))?;
        let balancing = Balancing { before };
        balancing.set(true)?;
        Ok(balancing)
    }

    /// Faults on pages that it has marked go on for a while after it was switched off.
    pub fn set(&self, on: bool) -> Result<(), String> {
        let value = if on { "1" } else { "0" };
        fs::write(BALANCING, value).map_err(|error| format!("writing {value} to {BALANCING}: {error}"))
    }
}

impl Drop for Balancing {
    fn drop(&mut self) {
        let _ = fs::write(BALANCING, self.before.trim());
    }
}
