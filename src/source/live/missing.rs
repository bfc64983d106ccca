//! Reasons why metrics are missing now: they change with counters, CPUs and switches of the kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{LiveSource, ROOT};
use crate::collect::check::HostCheck;
use crate::collect::plan::{Plan, plan};
use crate::collect::probes::PROBES;
use crate::host::fact::Fact;
use crate::host::kernel;
use crate::metric::needs::{self, Demand};
use crate::model::access::lines::{CONTENDED_LINES, OBJECTS};
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::source::access::Access;

/// The plan for a host whose NUMA balancing is on, or may be switched on while we watch.
pub(super) fn with_balancing(check: &HostCheck) -> Plan {
    let mut check = check.clone();
    if check.kernel.numa_balancing.is(&0) {
        check.kernel.numa_balancing = Fact::Known(1);
    }
    plan(&check)
}

impl LiveSource {
    /// Has the host say what cannot be measured now.
    pub(super) fn say_missing(&mut self) {
        let missing = self.missing();
        self.lacking = self.failed();
        // Other facts begin a new part of a recording.
        if missing != self.host.missing {
            Arc::make_mut(&mut self.host).missing = missing;
        }
    }

    /// Called before each sample: NUMA balancing that was off may have been switched on. Its work is counted from
    /// the start in any case; once it has been on, its rates are 0 while it rests.
    pub(super) fn follow_balancing(&mut self) {
        if !self.check.kernel.numa_balancing.is(&0) {
            return;
        }
        let now = kernel::numa_balancing(Path::new(ROOT));
        // Not known is not on: it is asked again with the next sample.
        if now.known().is_none_or(|mode| *mode == 0) {
            return;
        }
        self.check.kernel.numa_balancing = now;
        self.notes.push("NUMA balancing was switched on".into());
        self.say_missing();
    }

    /// Called after each sample: some files turn out not to be readable, and some probes not to count, while we watch.
    pub(super) fn note_missing(&mut self) {
        if self.failed() != self.lacking {
            self.say_missing();
        }
    }

    fn failed(&self) -> usize {
        self.machine.missing().len()
            + self.machine.absent().count()
            + self.probes.missing().len()
            + self.turns.missing().len()
    }

    /// The rules' reason wins: it comes with advice.
    fn missing(&self) -> BTreeMap<String, Missing> {
        let plan = plan(&self.check);
        let mut missing = needs::missing(|needs| Some(plan.obstacle(needs)?.missing.clone()));
        missing.extend(self.check.pmu.refused());
        for of_probes in [self.machine.missing(), self.probes.missing(), self.turns.missing()] {
            for (facility, why) in of_probes {
                needs::add_missing(&mut missing, *facility, why);
            }
        }
        missing.extend(self.machine.absent().map(|(id, why)| (id.to_owned(), why.clone())));
        if let Some(why) = &self.accesses.refused {
            needs::add_missing(&mut missing, Facility::MemoryUse, why);
            needs::add_missing(&mut missing, Facility::MemoryEvents, why);
        }
        for (facility, why) in self.accesses.running.iter().flat_map(Access::missing) {
            needs::add_missing(&mut missing, facility, &why);
        }
        let no_lines = self.accesses.running.as_ref().and_then(Access::no_lines);
        missing.extend(no_lines.map(|why| (CONTENDED_LINES.to_owned(), why)));
        let no_touches = self.accesses.running.as_ref().and_then(Access::no_touches);
        missing.extend(no_touches.map(|why| (OBJECTS.to_owned(), why)));
        let not_asked = Missing::NotCollected(match self.demand {
            Demand::Screen(_) => "not collected on one node unless --columns names it".into(),
            _ => "not collected: no visible column needs it".into(),
        });
        for probe in PROBES.iter().filter(|probe| !self.demand.includes(probe.facility)) {
            needs::add_missing(&mut missing, probe.facility, &not_asked);
        }
        for (slot, event) in self.sched.events().iter().enumerate() {
            if !self.sched.wants(slot) {
                let why = Missing::NotCollected("a different set of events is counted now (key E)".into());
                missing.insert(event.name.clone(), why);
            }
        }
        missing.extend(self.fresh.names.iter().map(|name| (name.clone(), Missing::FirstInterval)));
        missing
    }
}
