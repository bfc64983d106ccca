//! Findings of made-up machines: each rule, each of its guards, and the promises of the engine. No clock, no sleep.

mod balancing;
mod document;
mod healthy;
mod hostile;
mod infos;
mod machine_rules;
mod memory;
mod nodes;
mod placement;
mod properties;
mod report;
mod scheduling;
mod world;
