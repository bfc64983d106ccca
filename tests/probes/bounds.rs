//! Two bounds of the count in a sample, while the truth changes during the sample.
//!
//! The truth is read before and after each of two samples. However long a sample has to wait, its count is
//! between the shortest and the longest span between readings.

use anyhow::{Result, ensure};

/// Readings of several truths before and after something was done.
pub struct Around {
    before: Vec<u64>,
    after: Vec<u64>,
}

/// Does `work`, and reads the truths before and after.
pub fn around<T>(
    truths: impl Fn() -> Result<Vec<u64>>,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Around)> {
    let before = truths()?;
    let done = work()?;
    Ok((done, Around { before, after: truths()? }))
}

impl Around {
    /// The increase of each truth from here to `later`, at least and at most.
    pub fn to(&self, later: &Around) -> Vec<Bounds> {
        let least = later.before.iter().zip(&self.after).map(|(to, from)| to.saturating_sub(*from));
        let most = later.after.iter().zip(&self.before).map(|(to, from)| to - from);
        least.zip(most).map(|(least, most)| Bounds { least, most }).collect()
    }
}

/// The least and the most that can be true.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub least: u64,
    pub most: u64,
}

impl Bounds {
    /// Of a truth that stood still while it was read.
    pub fn exactly(truth: u64) -> Bounds {
        Bounds { least: truth, most: truth }
    }

    /// `got` is within the bounds, plus or minus a part of the truth and `floor`.
    pub fn hold(self, what: &str, got: u64, tolerance: f64, floor: u64) -> Result<()> {
        let Bounds { least, most } = self;
        let allowed = (most as f64 * tolerance) as u64 + floor;
        println!("{what}: {got}, truth {least} to {most}, allowed ±{allowed}");
        ensure!(
            (least.saturating_sub(allowed)..=most + allowed).contains(&got),
            "{what}: counted {got}, truth {least} to {most}, allowed ±{allowed}"
        );
        Ok(())
    }
}
