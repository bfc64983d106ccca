//! Recordings as other tools open them: a trace for Perfetto, profiles for flame graphs and pprof.
//!
//! Pure: values come from snapshots and stacks, and bytes go to a writer. Messages are written by hand.
//! Protocol buffers are numbers, lengths and text, and the numbers of the few fields in use never change.

pub mod folded;
pub mod perfetto;
pub mod pprof;
mod proto;
pub mod stacks;
pub mod tracks;

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Counters and slices over time: a trace of Perfetto (ui.perfetto.dev), TracePacket by TracePacket.
    Perfetto,
    /// A line for each stack and its samples: flamegraph.pl, inferno, speedscope.
    Folded,
    /// A compressed profile.proto: go tool pprof, Pyroscope, Parca, speedscope.
    Pprof,
}

impl TraceFormat {
    /// All of them, in the order in which `--format` lists them.
    pub const ALL: [TraceFormat; 3] = [TraceFormat::Perfetto, TraceFormat::Folded, TraceFormat::Pprof];

    /// The value of `--format`.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Perfetto => "perfetto",
            TraceFormat::Folded => "folded",
            TraceFormat::Pprof => "pprof",
        }
    }

    /// Whether it is something else than text.
    pub fn is_binary(self) -> bool {
        self != TraceFormat::Folded
    }

    /// The end of the names of its files.
    pub fn extension(self) -> &'static str {
        match self {
            TraceFormat::Perfetto => "pftrace",
            TraceFormat::Folded => "folded",
            TraceFormat::Pprof => "pb.gz",
        }
    }
}
