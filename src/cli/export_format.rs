//! Formats of `export`: those of batch output, and those of other tools.

use crate::export::{FORMATS, Format};
use crate::traces::TraceFormat;

/// A format of `export`.
#[derive(Clone, Copy, Debug)]
pub enum ExportFormat {
    /// One of batch output.
    Batch(&'static Format),
    /// One of another tool.
    Trace(TraceFormat),
}

impl ExportFormat {
    /// All of them, in the order in which help lists them.
    pub fn all() -> Vec<ExportFormat> {
        let batch = FORMATS.into_iter().map(ExportFormat::Batch);
        batch.chain(TraceFormat::ALL.map(ExportFormat::Trace)).collect()
    }

    /// The value of `--format`.
    pub fn name(&self) -> &'static str {
        match self {
            ExportFormat::Batch(format) => format.name,
            ExportFormat::Trace(format) => format.name(),
        }
    }
}
