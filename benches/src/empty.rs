//! Programs that do nothing: the least that a hook can cost.

pub use skel::{EmptySkel, EmptySkelBuilder};

mod skel {
    #![allow(warnings, clippy::all, unsafe_code, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}
