//! Metrics by their inputs.

use std::collections::{BTreeMap, BTreeSet};

use super::Metric;
use super::container::CONTAINER_METRICS;
use super::host::HOST_METRICS;
use super::matrix::PAIR_METRICS;
use super::node::NODE_METRICS;
use super::task::TASK_METRICS;
use crate::model::facility::Facility;
use crate::model::sample::Missing;

/// The facilities needed by shown or recorded metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Every metric: recordings, JSON, and the live view, which shows any of them at a key.
    #[default]
    Everything,
    Only(BTreeSet<Facility>),
}

impl Demand {
    /// The needs of these columns, and of others that rows are sorted by.
    pub fn of<'a, R: 'static>(columns: impl IntoIterator<Item = &'a &'static Metric<R>>) -> Demand {
        let needs = columns.into_iter().flat_map(|metric| metric.traits.needs);
        Demand::Only(needs.copied().collect())
    }

    pub fn includes(&self, facility: Facility) -> bool {
        match self {
            Demand::Everything => true,
            Demand::Only(facilities) => facilities.contains(&facility),
        }
    }
}

/// A metric id, and what it needs beside [`Facility::ESSENTIAL`].
type Need = (&'static str, &'static [Facility]);

/// All metrics of tasks and nodes, the ones that a plan judges. Ids of both are listed twice.
fn of_tasks_and_nodes() -> impl Iterator<Item = Need> {
    let tasks = TASK_METRICS.iter().map(|metric| (metric.missing_as(), metric.traits.needs));
    tasks.chain(NODE_METRICS.iter().map(|metric| (metric.missing_as(), metric.traits.needs)))
}

/// All metrics; pairs of nodes by the name of the host's reason for missing them.
fn all() -> impl Iterator<Item = Need> {
    let containers = CONTAINER_METRICS.iter().map(|metric| (metric.missing_as(), metric.traits.needs));
    let hosts = HOST_METRICS.iter().map(|metric| (metric.id, metric.needs));
    let pairs = PAIR_METRICS.iter().map(|metric| (metric.missing_as, metric.needs));
    of_tasks_and_nodes().chain(containers).chain(hosts).chain(pairs)
}

/// The needs of the metrics that need `facility`, this included.
pub fn of_those_with(facility: Facility) -> impl Iterator<Item = &'static [Facility]> {
    all().map(|(_, needs)| needs).filter(move |needs| needs.contains(&facility))
}

/// Adds why metrics are missing, because `facility` is; a reason that is known already stays.
pub fn add_missing(missing: &mut BTreeMap<String, Missing>, facility: Facility, why: &Missing) {
    for (id, _) in all().filter(|(_, needs)| needs.contains(&facility)) {
        missing.entry(id.to_string()).or_insert_with(|| why.clone());
    }
}

/// Why metrics of tasks and nodes are missing: `why` returns the reason for the needs of one of them.
pub fn missing(why: impl Fn(&[Facility]) -> Option<Missing>) -> BTreeMap<String, Missing> {
    of_tasks_and_nodes().filter_map(|(id, needs)| Some((id.to_string(), why(needs)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::pages::{CROSS_NODE_FAULTS, PAGES_MIGRATED};
    use crate::metric::task::CPU_PCT;

    #[test]
    fn a_demand_is_what_its_columns_need() {
        let demand = Demand::of([&&CPU_PCT, &&PAGES_MIGRATED]);
        assert!(demand.includes(Facility::MovedPages));
        assert!(!demand.includes(Facility::NewPages));
        assert!(Demand::of([&&CROSS_NODE_FAULTS]).includes(Facility::NewPages));
        assert!(Demand::default().includes(Facility::NewPages));
    }
}
