//! Which metrics cannot be measured here, and why: what probes that do not start, or stop to work, leave behind.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::sample::Missing;

/// The first reason for a metric stands: it is missing for good.
#[derive(Debug, Default)]
pub struct Reasons(BTreeMap<&'static str, Missing>);

impl Reasons {
    /// The probe that measures these metrics; if it did not start, that is why they are missing.
    pub fn started<P>(&mut self, probe: Result<P>, ids: &[&'static str]) -> Option<P> {
        probe.map_err(|error| self.add(ids, &Missing::Unsupported(format!("{error:#}")))).ok()
    }

    /// Notes why these metrics cannot be measured.
    pub fn add(&mut self, ids: &[&'static str], why: &Missing) {
        for id in ids {
            self.0.entry(id).or_insert_with(|| why.clone());
        }
    }

    /// Metric id → why it cannot be measured.
    pub fn by_metric(&self) -> &BTreeMap<&'static str, Missing> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_does_not_start_is_why_its_metrics_are_missing() {
        let mut reasons = Reasons::default();
        assert_eq!(reasons.started(Ok(1), &["a"]), Some(1));
        assert_eq!(reasons.started::<u32>(Err(anyhow!("no").context("loading")), &["b", "c"]), None);
        reasons.add(&["c"], &Missing::Lost("later".to_owned()));
        let why = Missing::Unsupported("loading: no".to_owned());
        assert_eq!(reasons.by_metric().iter().collect::<Vec<_>>(), [(&"b", &why), (&"c", &why)]);
    }
}
