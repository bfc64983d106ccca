//! Samples in files: what a recording looks like, how it is written and how it is read back.
//!
//! A recording is a row of frames (`frame`), each with checksums of its own. A frame names the one frame
//! it needs (its keyframe, or the head with the facts of the host), and those are written twice, so that
//! damage anywhere costs the frame it hits and nothing else.

pub mod columns;
pub mod dir;
pub mod fold;
pub mod format;
pub mod frame;
pub mod payload;
pub mod reader;
pub mod recorder;
pub mod seek;
pub mod time;
pub mod varint;
pub mod verify;
pub mod writer;
