//! The metrics that say which task it is, whose, and how the scheduler treats it. Some are of a process and read only on
//! request: its command line, its bindings, and its share of memory in huge pages.

use super::Group::{self, Identity};
use super::Order::{self, Ascending, Descending};
use super::over::Over;
use super::{Metric, Stands, Traits, Unit, Value, allowed, no};
use crate::model::facility::Facility;
use crate::model::group::{self, GroupKind};
use crate::model::process::{Asked, ProcFields};
use crate::model::sample::{Missing, Reading};
use crate::snapshot::{Snapshot, Task};
use crate::text;

pub const PID: Metric<Task> = Metric {
    id: "pid",
    title: "PID",
    width: 8,
    group: Identity,
    unit: Unit::Id,
    order: Ascending,
    help: "Process id (thread group) in the host's pid namespace.",
    value: |task, _| Ok(Value::U64(task.raw.pid.into())),
    over: Over::Newest,
    traits: Traits::NONE.least_width(7).stands(Stands::Plain),
};

pub const TID: Metric<Task> = Metric {
    id: "tid",
    title: "TID",
    width: 8,
    group: Identity,
    unit: Unit::Id,
    order: Ascending,
    help: "Thread id; 0 is the sum of a process's ended threads. Only in the view of threads.",
    value: |task, _| {
        task.tid.map(|tid| Value::U64(tid.into())).ok_or_else(|| no("the row is a process, not a thread"))
    },
    over: Over::Newest,
    traits: Traits::NONE.least_width(7).stands(Stands::Plain),
};

pub const PPID: Metric<Task> = Metric {
    id: "ppid",
    title: "PPID",
    width: 8,
    group: Identity,
    unit: Unit::Id,
    order: Ascending,
    help: "Parent process id.",
    value: |task, _| Ok(Value::U64(task.raw.ppid.into())),
    over: Over::Newest,
    traits: Traits::NONE.least_width(7).stands(Stands::Plain),
};

pub const USER: Metric<Task> = Metric {
    id: "user",
    title: "USER",
    width: 9,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Owner (real user id), by name if /etc/passwd has an entry.",
    value: |task, snapshot| Ok(Value::Text(user(task.raw.uid, snapshot))),
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const STATE: Metric<Task> = Metric {
    id: "state",
    title: "S",
    width: 1,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Scheduler state as in ps(1): R running or runnable, S sleeping, D uninterruptible, T stopped, t traced, \
           I idle kernel thread, P parked kernel thread, Z zombie, X ended. Tasks frozen by cgroup v1 are in state \
           D, by v2 in S.",
    value: |task, _| Ok(Value::Text(state(task).to_string())),
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const POLICY: Metric<Task> = Metric {
    id: "policy",
    title: "POLICY",
    width: 8,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Scheduling policy, as in sched(7).",
    value: |task, _| Ok(Value::Text(policy(task.raw.policy))),
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const NICE: Metric<Task> = Metric {
    id: "nice",
    title: "NI",
    width: 3,
    group: Identity,
    unit: Unit::Id,
    order: Ascending,
    help: "Nice value, -20 (favoured) to 19.",
    value: |task, _| Ok(Value::I64(task.raw.nice.into())),
    over: Over::Newest,
    traits: Traits::NONE.stands(Stands::Plain),
};

pub const THREADS: Metric<Task> = Metric {
    id: "threads",
    title: "THR",
    width: 5,
    group: Identity,
    unit: Unit::Count,
    order: Descending,
    help: "Number of live threads of the process.",
    value: |task, _| Ok(Value::U64(task.threads.into())),
    over: Over::Level,
    traits: Traits::NONE,
};

pub const START_NS: Metric<Task> = Metric {
    id: "start_ns",
    title: "START",
    width: 10,
    group: Identity,
    unit: Unit::Nanoseconds,
    order: Descending,
    help: "Start time since boot (CLOCK_BOOTTIME). pid and start_ns together identify a process uniquely.",
    value: |task, _| {
        // The leader may have ended before the other threads, and its row with it.
        Ok(Value::U64(if task.tid.is_some() { task.raw.start_ns } else { task.raw.leader_start_ns }))
    },
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const CGROUP: Metric<Task> = Metric {
    id: "cgroup",
    title: "CGROUP",
    width: 24,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Control group (cgroup) path.",
    value: |task, snapshot| cgroup_path_of(task.raw.cgroup_id, snapshot),
    over: Over::Newest,
    traits: Traits::NONE,
};

/// The path of the cgroup with this id.
pub(super) fn cgroup_path_of(cgroup: u64, snapshot: &Snapshot) -> Reading<Value> {
    match snapshot.names.cgroups.get(&cgroup) {
        Some(path) => Ok(Value::Text(group::show(path))),
        None => Err(Missing::Lost(format!("cgroup {cgroup} was removed before its path was read"))),
    }
}

pub const CONTAINER: Metric<Task> = Metric {
    id: "container",
    title: "CONTAINER",
    width: 16,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Name of its container, or the short id if the name is unknown.",
    value: |task, snapshot| match snapshot.names.groups.get(&task.raw.cgroup_id) {
        Some(group) if matches!(group.kind, GroupKind::Container | GroupKind::Machine) => {
            Ok(Value::Text(group.name.clone()))
        }
        _ => Err(no("the task is in no container")),
    },
    over: Over::Newest,
    traits: Traits::NONE.needs(&[Facility::CgroupNames]),
};

pub const POD: Metric<Task> = Metric {
    id: "pod",
    title: "POD",
    width: 20,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Its Kubernetes or podman pod: the name if the kubelet's files contain it, otherwise the uid.",
    value: |task, snapshot| {
        let group = snapshot.names.groups.get(&task.raw.cgroup_id);
        let pod = group.and_then(|group| group.pod.clone());
        pod.map(Value::Text).ok_or_else(|| no("the container is in no pod"))
    },
    over: Over::Newest,
    traits: Traits::NONE.needs(&[Facility::CgroupNames]),
};

/// A name needs this many cells to be recognized.
pub const NAME_LEAST: u16 = 14;

pub const COMM: Metric<Task> = Metric {
    id: "comm",
    title: "COMMAND",
    width: 16,
    group: Identity,
    unit: Unit::Text,
    order: Ascending,
    help: "Name of the task in the kernel: up to 15 bytes; unprintable bytes are escaped.",
    value: |task, _| Ok(Value::Text(text::clean(task.raw.comm.bytes()))),
    over: Over::Newest,
    traits: Traits::NONE.least_width(NAME_LEAST),
};

/// The name of a user, or his number.
pub fn user(uid: u32, snapshot: &Snapshot) -> String {
    snapshot.names.users.get(&uid).map_or_else(|| uid.to_string(), |name| text::clean_str(name))
}

/// State letter as ps(1) and fs/proc/array.c give it.
pub fn state(task: &Task) -> char {
    match task.ended() {
        true => 'X',
        false => state_letter(task.raw.state, task.raw.exit_state),
    }
}

/// `task_state_index` of include/linux/sched.h, as of Linux 6.18.
fn state_letter(state: u32, exit: u32) -> char {
    /// Waits for a lock that sleeps (PREEMPT_RT).
    const TASK_RTLOCK_WAIT: u32 = 0x1000;
    /// Frozen by the freezer of cgroup v1, or because the machine is being suspended; those of a frozen cgroup v2 sleep.
    /// Older kernels call it R in /proc, though it neither runs nor waits for a CPU.
    const TASK_FROZEN: u32 = 0x8000;
    /// Uninterruptible without load.
    const TASK_IDLE: u32 = 0x402;
    if state & (TASK_RTLOCK_WAIT | TASK_FROZEN) != 0 {
        return 'D';
    }
    if state & TASK_IDLE == TASK_IDLE {
        return 'I';
    }
    // Bits of `TASK_REPORT`; the highest one counts.
    match u32::BITS - ((state | exit) & 0x7f).leading_zeros() {
        0 => 'R',
        1 => 'S',
        2 => 'D',
        3 => 'T',
        4 => 't',
        5 => 'X',
        6 => 'Z',
        _ => 'P',
    }
}

/// `SCHED_*` of include/uapi/linux/sched.h without the prefix, in lower case.
pub fn policy(number: u32) -> String {
    match number {
        0 => "other".into(),
        1 => "fifo".into(),
        2 => "rr".into(),
        3 => "batch".into(),
        5 => "idle".into(),
        6 => "deadline".into(),
        7 => "ext".into(),
        other => other.to_string(),
    }
}

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
        None if task.raw.kthread => Err(no("not available for kernel threads")),
        None => Err(no("it is read in turns, only for shown columns (or --columns), and not recorded")),
    }
}

/// Each thread has its own: the reading is of the main thread.
fn about_main_thread(task: &Task) -> Reading<&ProcFields> {
    match task.tid {
        Some(tid) if tid != task.raw.pid => Err(no("available for main threads only")),
        _ => about(task),
    }
}

const fn read_text(
    id: &'static str,
    (title, width): (&'static str, u16),
    group: Group,
    help: &'static str,
    value: fn(&Task, &Snapshot) -> Reading<Value>,
) -> Metric<Task> {
    Metric::new(id, (title, width), (group, Unit::Text, Order::Ascending), help, value)
}

pub const CMDLINE: Metric<Task> = read_text(
    "cmdline",
    ("CMDLINE", 32),
    Group::Identity,
    "Command line (/proc/PID/cmdline), up to 4 KiB. Read on demand; recorded with --record-cmdline.",
    |task, _| Ok(Value::Text(about(task)?.texts.clone()?.cmdline.clone()?)),
);

pub const CPUS_ALLOWED: Metric<Task> = read_text(
    "cpus_allowed",
    ("CPUS", 10),
    Group::Running,
    "Its allowed CPUs, as a list: its affinity (taskset(1)) within its cpuset. A process shows those of its \
     main thread. Read on demand.",
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
           /proc/PID/smaps_rollup. Read on demand, because the kernel reads every page table.",
    value: |task, _| Ok(Value::F64(about(task)?.huge_pct.clone()?)),
    over: Over::Level,
    traits: Traits::NONE,
};

#[cfg(test)]
mod tests {
    use super::state_letter;

    #[test]
    fn states_are_those_of_proc() {
        let letters = [
            // Running, waking, new.
            (0, 0, 'R'),
            (0x200, 0, 'R'),
            (0x800, 0, 'R'),
            (0x1, 0, 'S'),
            // One that the freezer may freeze.
            (0x2001, 0, 'S'),
            (0x2, 0, 'D'),
            // Killable.
            (0x102, 0, 'D'),
            (0x402, 0, 'I'),
            (0x2402, 0, 'I'),
            (0x104, 0, 'T'),
            (0x8, 0, 't'),
            (0x40, 0, 'P'),
            (0x80, 0x20, 'Z'),
            (0x80, 0x10, 'X'),
        ];
        for (state, exit, letter) in letters {
            assert_eq!(state_letter(state, exit), letter, "{state:#x} {exit:#x}");
        }
    }

    #[test]
    fn a_frozen_task_does_not_run() {
        assert_eq!(state_letter(0x8000, 0), 'D');
    }

    #[test]
    fn a_task_that_waits_for_a_sleeping_lock_does_not_run() {
        assert_eq!(state_letter(0x1000, 0), 'D');
    }
}
