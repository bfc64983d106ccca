//! Performance counters: from a name to an open event on every CPU.

pub mod event;
pub mod open;
