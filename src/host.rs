//! What this machine is: facts read from an injectable root, no decisions.

pub mod topology;
