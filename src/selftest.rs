//! `numatop-ng selftest`: whether the numbers of this tool are true on this machine.

pub mod judge;
pub mod report;
pub mod run;
pub mod show;
pub mod software;
