//! From the kernel to a [`crate::model::sample::Sample`]: BPF objects and the files of /proc and /sys.

pub mod about;
pub mod access;
pub mod attach;
pub mod check;
pub mod hot;
pub mod inspect;
pub mod interrupts;
pub mod libbpf_log;
pub mod machine;
pub mod mappings;
pub mod mm_reader;
pub mod nodes;
mod object;
pub mod own;
pub mod pairs;
pub mod placement;
pub mod plan;
pub mod probes;
pub mod reasons;
pub mod records;
pub mod sched;
pub mod stats;
pub mod table;
pub mod tasks;
pub mod vmstat;
pub mod zones;

/// Skeletons of the BPF objects: build.rs makes a module for each `bpf/*.bpf.c`.
mod skel {
    #![allow(warnings, clippy::all, unsafe_code, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));
}
