//! Containers, pods, machines and services: what a cgroup is, and what people call it.

mod component;
mod files;
pub mod names;
pub mod patterns;
