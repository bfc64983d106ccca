//! Counters of tasks that a host or a recording does not have, by the metrics that are made of them.

use std::collections::BTreeMap;

use super::task::{self, TASK_METRICS};
use super::{Metric, pages};
use crate::model::counters::{COUNTERS, Counter};
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::snapshot::Task;

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
pub fn missing(counter: Counter, host: &BTreeMap<String, Missing>) -> Option<&Missing> {
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
        assert_eq!(missing(Counter::HintFaults, &host), None);
        let why = Missing::NotCollected("off".into());
        super::super::needs::add_missing(&mut host, Facility::HintFaults, &why);
        assert_eq!(missing(Counter::HintFaults, &host), Some(&why));
        assert_eq!(missing(Counter::BalancingNs, &host), None);
    }
}
