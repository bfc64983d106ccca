//! Questions to snapshots: rows that are wanted, and moments worth a look. Pure.

pub mod curve;
pub mod episodes;
pub mod filter;
pub mod highlights;
pub mod sampling;
pub mod summary;
