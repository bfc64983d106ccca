//! The metrics of the sched_ext scheduler that is loaded.

use super::host::HostMetric;
use super::{Value, no};
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::model::turns::SchedExt;
use crate::snapshot::Snapshot;

pub const NAME: HostMetric = HostMetric {
    id: "sched_ext",
    title: "SCHEDULER",
    help: "Name of the loaded sched_ext scheduler: a BPF program that places tasks.",
    value: |snapshot| of(snapshot).map(|(name, _)| Value::Text(name.to_owned())),
    share_of_time: None,
    needs: &[Facility::SchedExt],
};

pub const SWITCH_ALL: HostMetric = HostMetric {
    id: "sched_ext_switch_all",
    title: "SCXALL",
    help: "1 if the sched_ext scheduler runs all tasks of normal policies, 0 if it runs only those of policy \
           SCHED_EXT.",
    value: |snapshot| number(snapshot, |scheduler| scheduler.switch_all.map(u64::from)),
    share_of_time: None,
    needs: &[Facility::SchedExt],
};

pub const REJECTED: HostMetric = HostMetric {
    id: "sched_ext_nr_rejected",
    title: "SCXREJECT",
    help: "Tasks that the sched_ext scheduler has refused since it was loaded. The kernel's own scheduler \
           runs them.",
    value: |snapshot| number(snapshot, |scheduler| scheduler.rejected),
    share_of_time: None,
    needs: &[Facility::SchedExt],
};

fn of(snapshot: &Snapshot) -> Reading<(&str, &SchedExt)> {
    snapshot.scheduler().ok_or_else(|| no("no sched_ext scheduler is loaded"))
}

fn number(snapshot: &Snapshot, of_it: fn(&SchedExt) -> Option<u64>) -> Reading<Value> {
    let number = of_it(of(snapshot)?.1);
    number.map(Value::U64).ok_or_else(|| Missing::Unsupported("/sys/kernel/sched_ext lacks this file".into()))
}
