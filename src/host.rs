//! What this machine is: facts read from an injectable root, no decisions.

pub mod cgroups;
pub mod kernel;
pub mod topology;
pub mod users;
