//! Findings of made-up machines: each rule, each of its guards, and the promises of the engine. No clock, no sleep.

mod document;
mod healthy;
mod hostile;
mod infos;
mod machine_rules;
mod memory;
mod placement;
mod properties;
mod report;
mod world;
