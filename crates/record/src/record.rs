//! Samples in files: what a recording looks like, how it is written and how it is read back.
//!
//! A recording is a row of frames (`frame`), each with its own checksums. Frames that others depend on (the
//! head with the facts of the host, a keyframe each minute) are written again some frames later (`writer`).
//! Frames in between hold the rows that changed in the last few samples (`rows`), not only in the last
//! one. So frames after a damaged one bridge it, and damage costs only the sample in that frame.

pub mod aggregate;
pub mod columns;
pub mod command_lines;
pub mod dir;
pub mod format;
pub mod frame;
mod machine;
mod memory_use;
mod names;
pub mod pack;
pub mod payload;
pub mod placement;
pub mod reader;
pub mod recorder;
pub mod rows;
pub mod scan;
mod sections;
mod stacks;
pub mod time;
pub mod verify;
pub mod writer;

pub use crate::model::coded::varint;
