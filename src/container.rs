//! Containers, pods, machines and services: what a cgroup is, and what people call it.

mod component;
mod files;
pub mod glob;
pub mod group;
pub mod names;
pub mod path;
pub mod patterns;
pub mod runtime;
pub mod select;
