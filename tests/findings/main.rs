//! Findings of made-up machines: each rule, each of its guards, and the promises of the engine. No clock, no sleep.

mod balancing;
mod cores;
mod devices;
mod disks;
mod document;
mod field_cases;
#[path = "../common/fixture.rs"]
mod fixture;
mod healthy;
mod healthy_long;
mod hostile;
mod huge_pages;
mod infos;
mod large;
mod loops;
mod machine_rules;
mod memory;
mod neighbours;
mod nodes;
mod page_sizes;
mod placement;
mod properties;
mod redact;
mod report;
mod scheduling;
mod sharing;
mod sick_rest;
mod sick_worlds;
mod sockets;
mod tiers;
mod time_bar;
mod verdict;
mod world;
