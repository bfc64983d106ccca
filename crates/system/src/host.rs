//! Facts about this machine, read below an injectable root. No decisions.

pub mod accelerators;
pub mod btf;
pub mod cgroup_walk;
pub mod cgroups;
pub mod clock;
pub mod disks;
pub mod fact;
pub mod isolation;
pub mod kernel;
pub mod page_nodes;
pub mod privileges;
pub mod processes;
pub mod roots;
pub mod topology;
pub mod types;
pub mod users;
