//! A counter of the kernel on both sides of a sample of the tool.
//!
//! On a busy host seconds may pass between the tool's look at the machine and a case's look at it, and other
//! tasks run meanwhile. So the case looks twice, and the tool's number must be in between.

use jiff::Timestamp;

use crate::cases::Stop;
use crate::intervals::Totals;
use crate::tool::{Batch, seen_at};

/// CPU time of tasks in ns at the two looks of the case, on either side of a sample of the tool.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    before_ns: u64,
    after_ns: u64,
}

/// Reads before the tool takes a sample and after. The sample is added to `totals`, and becomes the mark if
/// none is set.
pub fn around(
    batch: &mut Batch,
    totals: &mut Totals,
    read_ns: impl Fn() -> Result<u64, String>,
) -> Result<Span, Stop> {
    loop {
        let before_ns = read_ns()?;
        let asked = Timestamp::now();
        let interval = batch.next()?;
        let new = seen_at(&interval)? > asked;
        if new || totals.marked() {
            totals.add(interval)?;
        }
        if new {
            return Ok(Span { before_ns, after_ns: read_ns()? });
        }
    }
}

impl Span {
    /// The least and the most that ran, in seconds, from a sample to a later one.
    pub fn until(self, later: Span) -> (f64, f64) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        (seconds(self.after_ns, later.before_ns), seconds(self.before_ns, later.after_ns))
    }
}
