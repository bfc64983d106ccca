//! The metrics of the resident memory of a process by kind.

use super::{Group, Metric, Order, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::sample::{Reading, Resident};
use crate::snapshot::{Snapshot, Task};

pub const ANON: Metric<Task> = kind(
    "rss_anon_bytes",
    ("ANON", 7),
    "Anonymous part of the resident memory of its process (RssAnon of /proc/PID/status).",
    |task, _| of(task, |resident| resident.anon_bytes),
);

pub const FILE: Metric<Task> = kind(
    "rss_file_bytes",
    ("FILE", 7),
    "Resident pages of mapped files (RssFile), which are also in the page cache.",
    |task, _| of(task, |resident| resident.file_bytes),
);

pub const SHMEM: Metric<Task> = kind(
    "rss_shmem_bytes",
    ("SHMEM", 7),
    "Resident pages of tmpfs and shared memory (RssShmem), which other processes can share.",
    |task, _| of(task, |resident| resident.shmem_bytes),
);

pub const SWAP: Metric<Task> = kind(
    "swap_bytes",
    ("SWAPPED", 7),
    "Anonymous memory of its process that is in swap (VmSwap), and therefore not resident.",
    |task, _| of(task, |resident| resident.swap_bytes),
);

fn of(task: &Task, kind: fn(&Resident) -> u64) -> Reading<Value> {
    let resident = task.resident.as_ref().ok_or_else(|| no("the task has no memory of its own"))?;
    Ok(Value::U64(kind(resident)))
}

const fn kind(
    id: &'static str,
    (title, width): (&'static str, u16),
    help: &'static str,
    value: fn(&Task, &Snapshot) -> Reading<Value>,
) -> Metric<Task> {
    let kind = (Group::Memory, Unit::Bytes, Order::Descending);
    Metric::new(id, (title, width), kind, help, value).with(Traits::NONE.needs(&[Facility::ResidentKinds]))
}
