//! Lists that a user asks for and no sample is needed for: events, metrics, and the machine itself.

pub mod events;
pub mod findings;
pub mod measured;
pub mod metrics;
pub mod tiers;
pub mod topology;
