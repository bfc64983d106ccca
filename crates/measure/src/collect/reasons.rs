//! Reasons for which probes that do not start, or stop to work, measure nothing.

use std::collections::BTreeMap;

use crate::model::facility::Facility;
use crate::model::sample::Missing;

/// The first reason for a facility is kept: the facility is missing for good.
#[derive(Debug, Default)]
pub struct Reasons(BTreeMap<Facility, Missing>);

impl Reasons {
    /// Notes why `facility` is missing.
    pub fn add(&mut self, facility: Facility, why: &Missing) {
        self.0.entry(facility).or_insert_with(|| why.clone());
    }

    /// All that are missing.
    pub fn by_facility(&self) -> &BTreeMap<Facility, Missing> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stands() {
        let mut reasons = Reasons::default();
        let why = Missing::Unsupported("loading: no".to_owned());
        reasons.add(Facility::Reclaim, &why);
        reasons.add(Facility::Reclaim, &Missing::Lost("later".to_owned()));
        assert_eq!(reasons.by_facility().iter().collect::<Vec<_>>(), [(&Facility::Reclaim, &why)]);
    }
}
