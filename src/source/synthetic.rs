//! Samples that nobody measured, from a list: for tests of everything downstream of a source.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Result;

use super::Source;
use crate::sample::{HostFacts, Sample};

/// Hands out given samples in order, then ends.
pub struct Synthetic {
    host: Arc<HostFacts>,
    samples: VecDeque<Sample>,
}

impl Synthetic {
    pub fn new(host: HostFacts, samples: impl IntoIterator<Item = Sample>) -> Synthetic {
        Synthetic { host: Arc::new(host), samples: samples.into_iter().collect() }
    }
}

impl Source for Synthetic {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.host)
    }

    fn next(&mut self) -> Result<Option<Sample>> {
        Ok(self.samples.pop_front())
    }
}
