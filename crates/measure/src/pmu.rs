//! Performance counters: their names and what they count on this CPU, opening them.

pub mod arm_events;
pub mod budget;
pub mod catalog;
pub mod controllers;
pub mod data_src;
pub mod device;
pub mod facts;
pub mod memory_event;
pub mod open;
pub mod sets;
pub mod spe;
pub mod table;
pub mod typed;
