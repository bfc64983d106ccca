//! Containers, pods, machines and services: what a cgroup is, and what people call it.

pub mod asked;
mod data_roots;
mod files;
pub mod group;
pub mod groups;
pub mod limits;
pub mod names;
pub mod patterns;
pub mod runtime;
pub mod scope;
pub mod select;
pub mod visible;
