//! From the kernel to a [`crate::model::sample::Sample`]: BPF objects and the files of /proc and /sys.

pub mod access;
pub mod attach;
pub mod check;
pub mod cpu_masks;
pub mod cpu_states;
pub mod host_state;
pub mod hot;
pub mod isolated;
pub mod machine;
pub mod mappings;
pub mod maps;
pub mod mm_reader;
pub mod nodes;
pub mod object;
pub mod overdue;
pub mod parsed;
pub mod placement;
pub mod plan;
pub mod probes;
pub mod proc_details;
pub mod proc_fields;
pub mod round;
mod sampler;
pub mod sched;
pub mod table;
pub mod tasks;
pub mod turns;

/// Skeletons of the BPF objects: build.rs makes a module for each `bpf/*.bpf.c`.
mod skel {
    #![allow(warnings, clippy::all, unsafe_code, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));
}
