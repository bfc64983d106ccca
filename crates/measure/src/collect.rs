//! From the kernel to a [`crate::model::sample::Sample`]: BPF objects and the files of /proc and /sys.

pub mod access;
pub mod attach;
pub mod bpf_stats;
pub mod check;
pub mod cpu_masks;
pub mod cpu_states;
pub mod cpu_times;
pub mod host_state;
pub mod hot;
pub mod isolated;
mod kept_file;
pub mod libbpf_log;
pub mod machine;
pub mod mappings;
pub mod marks;
pub mod mm_reader;
pub mod node_matrix;
pub mod nodes;
mod object;
pub mod overdue;
pub mod parsed;
pub mod place_moves;
pub mod placement;
pub mod plan;
pub mod probes;
pub mod proc_details;
pub mod proc_fields;
pub mod reasons;
pub mod records;
pub mod round;
mod sampler;
pub mod sched;
pub mod self_usage;
pub mod table;
pub mod tasks;
pub mod turns;
pub mod vmstat;
pub mod watermarks;

/// Skeletons of the BPF objects: build.rs makes a module for each `bpf/*.bpf.c`.
mod skel {
    #![allow(warnings, clippy::all, unsafe_code, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));
}
