//! Metrics by their inputs, and by the counters that a host or a recording does not have.

use std::collections::{BTreeMap, BTreeSet};

use super::container::CONTAINER_METRICS;
use super::host::HOST_METRICS;
use super::matrix::PAIR_METRICS;
use super::node::NODE_METRICS;
use super::task::{self, TASK_METRICS};
use super::{Metric, pages};
use crate::model::counters::{COUNTERS, Counter};
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::snapshot::Task;

/// The facilities needed by shown or recorded metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Every metric: recordings and JSON.
    #[default]
    Everything,
    /// The live view, which shows any metric at a key. With one node, programs at each request to a disk or a socket run only for
    /// columns that are named at the start, which need these.
    Screen(BTreeSet<Facility>),
    Only(BTreeSet<Facility>),
}

impl Demand {
    /// The needs of these columns, and of others that rows are sorted by.
    pub fn of<'a, R: 'static>(columns: impl IntoIterator<Item = &'a &'static Metric<R>>) -> Demand {
        Demand::Only(needs_of(columns))
    }

    /// The demand of a live view with these columns, sorted by one of them or another.
    pub fn screen<'a>(columns: impl IntoIterator<Item = &'a &'static Metric<Task>>) -> Demand {
        Demand::Screen(needs_of(columns))
    }

    /// The same demand, once it is known how many nodes the machine has.
    #[must_use]
    pub fn with_nodes(self, nodes: usize) -> Demand {
        if nodes > 1 && matches!(self, Demand::Screen(_)) { Demand::Everything } else { self }
    }

    pub fn includes(&self, facility: Facility) -> bool {
        match self {
            Demand::Everything => true,
            Demand::Screen(named) => !AT_EACH_REQUEST.contains(&facility) || named.contains(&facility),
            Demand::Only(facilities) => facilities.contains(&facility),
        }
    }
}

fn needs_of<'a, R: 'static>(columns: impl IntoIterator<Item = &'a &'static Metric<R>>) -> BTreeSet<Facility> {
    columns.into_iter().flat_map(|metric| metric.traits.needs).copied().collect()
}

/// Facilities of programs that run at each request to a disk or a socket. Findings look at them where there are several nodes.
const AT_EACH_REQUEST: [Facility; 2] = [Facility::DiskTraffic, Facility::SocketTraffic];

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

/// Counters whose metric has a more precise reason than the facility that they need.
static OWN: [(Counter, &Metric<Task>); 11] = [
    (Counter::RunDelayNs, &task::RUNQ_WAIT_PCT),
    (Counter::RunCount, &task::RUNQ_WAIT_US),
    (Counter::Nvcsw, &task::SWITCHES_PER_S),
    (Counter::Nivcsw, &task::INVOLUNTARY_PER_S),
    (Counter::CpuMigrations, &task::CPU_MIGRATIONS_PER_S),
    (Counter::LlcMoves, &task::LLC_MIGRATIONS_PER_S),
    (Counter::NodeMoves, &task::NODE_MIGRATIONS_PER_S),
    (Counter::SmtBusyNs, &task::SMT_BUSY_PCT),
    (Counter::MinFlt, &task::MINOR_FAULTS_PER_S),
    (Counter::MajFlt, &task::MAJOR_FAULTS_PER_S),
    (Counter::UserAllocs, &pages::CROSS_NODE_FAULT_PCT),
];

/// The reason for which a counter is not counted, of those of a host ([`crate::model::sample::HostFacts::missing`]); `None`: it is.
pub fn missing_counters(counter: Counter, host: &BTreeMap<String, Missing>) -> Option<&Missing> {
    if let Some((_, metric)) = OWN.iter().find(|(own, _)| *own == counter) {
        return host.get(metric.id);
    }
    host.get(teller(COUNTERS[counter as usize].added_for?)?.id)
}

/// The metric whose absence shows that a facility is absent: the one with the fewest other needs.
fn teller(facility: Facility) -> Option<&'static Metric<Task>> {
    let with = TASK_METRICS.iter().filter(|metric| metric.traits.needs.contains(&facility));
    with.min_by_key(|metric| metric.traits.needs.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::disks::PROCESS_BYTES_PER_S;
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

    #[test]
    fn on_one_node_a_screen_asks_for_traffic_only_by_name() {
        let screen = |columns: &[&'static Metric<Task>], nodes| {
            let demand = Demand::screen(columns).with_nodes(nodes);
            AT_EACH_REQUEST.map(|facility| demand.includes(facility))
        };
        assert_eq!(screen(&[&CPU_PCT], 1), [false, false]);
        assert_eq!(screen(&[&PROCESS_BYTES_PER_S], 1), [true, false]);
        assert_eq!(screen(&[&CPU_PCT], 2), [true, true]);
        assert!(Demand::screen(&[]).includes(Facility::NewPages));
    }

    #[test]
    fn every_facility_of_a_counter_has_a_metric() {
        for info in COUNTERS.iter().filter(|info| OWN.iter().all(|(own, _)| *own != info.counter)) {
            let Some(facility) = info.added_for else { continue };
            assert!(teller(facility).is_some(), "{}", info.name);
        }
    }

    #[test]
    fn a_counter_is_missing_with_its_facility() {
        let mut host = BTreeMap::new();
        assert_eq!(missing_counters(Counter::HintFaults, &host), None);
        let why = Missing::NotCollected("off".into());
        super::super::needs::add_missing(&mut host, Facility::HintFaults, &why);
        assert_eq!(missing_counters(Counter::HintFaults, &host), Some(&why));
        assert_eq!(missing_counters(Counter::BalancingNs, &host), None);
    }
}
