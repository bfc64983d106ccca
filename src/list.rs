//! Lists that a user asks for and no sample is needed for: events, metrics, and the machine itself.

pub mod measured;
pub mod registers;
pub mod topology;
