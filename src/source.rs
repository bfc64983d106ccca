//! Where samples come from. Everything downstream is the same for all sources.

pub mod live;
pub mod synthetic;

use std::sync::Arc;

use anyhow::Result;

use crate::sample::{HostFacts, Sample};

/// A stream of samples of one host.
pub trait Source {
    /// What does not change while the source is open.
    fn host(&self) -> Arc<HostFacts>;

    /// The next sample, or `None` at the end of a finite source.
    ///
    /// # Errors
    /// The source cannot go on.
    fn next(&mut self) -> Result<Option<Sample>>;
}
