//! `numatop-ng selftest`: whether the numbers of this tool are true on this machine.

pub mod counters;
pub mod counts;
pub mod expected;
pub mod judge;
mod reasons;
pub mod report;
pub mod run;
pub mod show;
mod show_counters;
pub mod software;
pub mod stored;
pub mod verdicts;
