//! Moments at which the tool has shown everything that the kernel has counted: all counts have stopped
//! changing.

use std::fmt::Debug;

use crate::cases::Stop;
use crate::intervals::Totals;
use crate::setting::Setting;
use crate::tool::Batch;
use crate::work::Work;

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Intervals in which nothing is counted. In one the tool may have looked before the kernel's last count and been read
/// after it.
const STILL: usize = 2;
/// Intervals after which waiting ends.
const PATIENCE: usize = 60;

/// Adds intervals to `totals` until the result of `read` stops changing; returns that result.
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

/// The switch of NUMA balancing, which is as it was before when this is dropped.
pub struct Balancing(Setting);

impl Balancing {
    pub fn on() -> Result<Balancing, String> {
        Ok(Balancing(Setting::begin(BALANCING, "1")?))
    }

    pub fn off() -> Result<Balancing, String> {
        Ok(Balancing(Setting::begin(BALANCING, "0")?))
    }

    /// Lets it do `work` for some seconds, from one moment of rest to another. Returns the counts of `read`
    /// and the tool's numbers in between. Fails if the tool gives a reason for lacking `metric`.
    pub fn work_on<const N: usize>(
        &self,
        mut work: Work,
        mut batch: Batch,
        metric: Option<&str>,
        read: impl Fn() -> Result<[u64; N], String>,
    ) -> Result<([u64; N], Totals), Stop> {
        // It looks at the switch when it starts.
        batch.next()?;
        self.set(false)?;
        let start = come_to_rest(&mut batch, &mut Totals::default(), &read)?;
        let mut totals = Totals::default();
        let mark = batch.follow(&mut totals, 1)?;
        if let Some((metric, why)) =
            metric.and_then(|metric| Some((metric, mark["missing"][metric].as_str()?)))
        {
            return Err(Stop::fail(format!("no {metric}: {why}")));
        }
        self.set(true)?;
        work.go();
        batch.follow(&mut totals, 16)?;
        self.set(false)?;
        work.stop()?;
        let end = come_to_rest(&mut batch, &mut totals, &read)?;
        batch.stop()?;
        Ok((std::array::from_fn(|at| end[at] - start[at]), totals))
    }

    /// Faults on pages that it has marked go on for a while after it was switched off.
    pub fn get(&self) -> Result<String, String> {
        self.0.get()
    }

    pub fn set(&self, on: bool) -> Result<(), String> {
        self.0.set(if on { "1" } else { "0" })
    }
}
