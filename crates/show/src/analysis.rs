//! Questions to snapshots: rows that are wanted, and moments worth a look. Pure.

pub mod curve;
pub mod filter;
pub mod highlights;
pub mod summary;
