//! Formats of `export`: those of batch output, those of other tools, and tables.

use crate::export::{FORMATS, Format};
use crate::traces::TraceFormat;

/// A format of `export`.
#[derive(Clone, Copy, Debug)]
pub enum ExportFormat {
    /// One of batch output.
    Batch(&'static Format),
    /// One of another tool.
    Trace(TraceFormat),
    /// Tables in Parquet files.
    Parquet,
}

impl ExportFormat {
    /// All of them, in the order in which help lists them.
    pub fn all() -> Vec<ExportFormat> {
        let batch = FORMATS.into_iter().map(ExportFormat::Batch);
        let traces = TraceFormat::ALL.map(ExportFormat::Trace);
        batch.chain(traces).chain([ExportFormat::Parquet]).collect()
    }

    /// The value of `--format`.
    pub fn name(&self) -> &'static str {
        match self {
            ExportFormat::Batch(format) => format.name,
            ExportFormat::Trace(format) => format.name(),
            ExportFormat::Parquet => "parquet",
        }
    }
}
