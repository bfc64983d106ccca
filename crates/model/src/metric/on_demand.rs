//! The metrics of a process that are read only on request: its command line, its bindings, and its share of
//! memory in huge pages.

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value, allowed, no};
use crate::model::process::{Asked, ProcFields};
use crate::model::sample::Reading;
use crate::snapshot::{Snapshot, Task};

/// Fields that these columns need.
pub fn asked<'a>(columns: impl IntoIterator<Item = &'a &'static Metric<Task>>) -> Asked {
    let mut asked = Asked::default();
    for metric in columns {
        asked.huge |= metric.id == HUGE_PCT.id;
        asked.texts |= [CMDLINE.id, CPUS_ALLOWED.id, allowed::MEMS_ALLOWED.id].contains(&metric.id);
    }
    asked
}

fn about(task: &Task) -> Reading<&ProcFields> {
    match task.about() {
        Some(Ok(about)) => Ok(about),
        Some(Err(why)) => Err(why.clone()),
        None if task.exited => Err(no("the task has ended")),
        None if task.raw.kthread => Err(no("kernel threads have none")),
        None => Err(no("read in turns, only for columns that are shown (or --columns); not recorded")),
    }
}

/// Each thread has its own: the reading is of the main thread.
fn about_main_thread(task: &Task) -> Reading<&ProcFields> {
    match task.tid {
        Some(tid) if tid != task.raw.pid => Err(no("read for main threads only")),
        _ => about(task),
    }
}

const fn text(
    id: &'static str,
    (title, width): (&'static str, u16),
    group: Group,
    help: &'static str,
    value: fn(&Task, &Snapshot) -> Reading<Value>,
) -> Metric<Task> {
    Metric::new(id, (title, width), (group, Unit::Text, Order::Ascending), help, value)
}

pub const CMDLINE: Metric<Task> = text(
    "cmdline",
    ("CMDLINE", 32),
    Group::Identity,
    "Command line, up to 4 KiB of it (/proc/PID/cmdline). Read on demand; recorded with --record-cmdline.",
    |task, _| Ok(Value::Text(about(task)?.texts.clone()?.cmdline.clone()?)),
);

pub const CPUS_ALLOWED: Metric<Task> = text(
    "cpus_allowed",
    ("CPUS", 10),
    Group::Running,
    "CPUs that it may use, as a list: its affinity (taskset(1)) within its cpuset. Of the main thread. Read on demand.",
    |task, _| Ok(Value::Text(about_main_thread(task)?.texts.clone()?.cpus_allowed.clone()?)),
);

/// Nodes that the main thread may take memory from, as a list.
///
/// # Errors
/// They have not been read.
pub(super) fn mems_allowed(task: &Task) -> Reading<String> {
    about_main_thread(task)?.texts.clone()?.mems_allowed.clone()
}

pub const HUGE_PCT: Metric<Task> = Metric {
    id: "huge_pct",
    title: "HUGE%",
    width: 6,
    group: Group::Memory,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of its resident memory in huge pages (mapped by PMD, 2 MiB on x86, or hugetlbfs), from \
           /proc/PID/smaps_rollup. Read on demand: the kernel walks every page table.",
    value: |task, _| Ok(Value::F64(about(task)?.huge_pct.clone()?)),
    over: Over::Level,
    traits: Traits::NONE,
};
