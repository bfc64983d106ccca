//! Known loads: work whose size, place and counts are known by construction. Facts and work, no policy.

pub mod asm;
pub mod chase;
pub mod counted;
pub mod idle;
pub mod pages;
pub mod pair;
pub mod random;
pub mod step;
pub mod stream;
