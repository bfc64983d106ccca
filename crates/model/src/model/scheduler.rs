//! A scheduler that a BPF program provides (sched_ext).

use crate::model::coded::coded;

/// A sched_ext scheduler that is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedExt {
    /// It schedules all tasks of normal policies, and not only those of SCHED_EXT; `None` where the kernel does not say.
    pub switch_all: Option<bool>,
    /// Tasks that it refused to schedule, since it was loaded; `None` where the kernel does not say.
    pub rejected: Option<u64>,
}

coded!(SchedExt { switch_all, rejected });
