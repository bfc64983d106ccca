//! Formats of batch output, and the parts of an interval that each has a place for.

use clap::ValueEnum;

/// A format of batch output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BatchFormat {
    Text,
    Json,
    Csv,
}

/// Parts of an interval beside its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Containers beside tasks; `--by-container` has them instead of tasks.
    Containers,
    HotSpots,
    /// CPU time of each of our own BPF programs.
    Overhead,
}

impl BatchFormat {
    /// Whether output in this format has a place for `part`.
    pub fn carries(self, part: Part) -> bool {
        match (self, part) {
            (BatchFormat::Json, Part::Containers | Part::HotSpots | Part::Overhead) => true,
            // A table has rows of one kind.
            (BatchFormat::Text | BatchFormat::Csv, Part::Containers | Part::HotSpots | Part::Overhead) => {
                false
            }
        }
    }

    /// Whether programs read it: all metrics unless columns are named, and an id in each row.
    pub fn machine_readable(self) -> bool {
        match self {
            BatchFormat::Json | BatchFormat::Csv => true,
            BatchFormat::Text => false,
        }
    }
}
