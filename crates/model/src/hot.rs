//! Hot spots, the functions in which tasks spend their time: from stacks and the names of their frames to shares.
//!
//! Pure: stacks come from `collect/hot.rs`, names from `symbolize.rs`.

pub mod frame_names;
pub mod profile;
