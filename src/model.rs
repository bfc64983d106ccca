//! Data that all layers share. Nothing here reads the machine or a clock.

pub mod counters;
pub mod facility;
