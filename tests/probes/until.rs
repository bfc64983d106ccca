//! Waits for conditions that are seen, never for seconds.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// A limit for hangs, not a measurement. A busy machine takes many times as long as an idle one, and sampling
/// that is too dear there pauses for 60 s.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Between what a task is seen to have done and its last switch there are microseconds of kernel code, which nothing
/// shows.
pub const A_MOMENT: Duration = Duration::from_millis(20);

/// Waits until `is` returns true.
///
/// # Errors
/// It did not within [`PATIENCE`], or `is` failed.
pub fn until(what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
    let limit = Instant::now() + PATIENCE;
    while !is()? {
        ensure!(Instant::now() < limit, "waited {} s in vain: {what}", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
