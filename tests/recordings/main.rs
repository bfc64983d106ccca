//! Recordings: does everything that was written come back, and does damage cost only what it hits?

mod any;
mod damage;
mod machine;
mod roundtrip;
mod scratch;
