//! Containers, pods, machines and services: what a cgroup is, and what people call it.

mod component;
mod disks;
mod files;
pub mod glob;
pub mod group;
pub mod groups;
pub mod limits;
pub mod names;
pub mod patterns;
pub mod runtime;
pub mod scope;
pub mod select;
pub mod visible;
