//! With any bytes in a recording, no reader panics, hangs or takes more memory than its limit.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use numatop_ng::analysis::filter::RowFilter;
use numatop_ng::export::json::JsonLines;
use numatop_ng::export::{Export, Selection};
use numatop_ng::metric::task::TASK_METRICS;
use numatop_ng::model::process::Asked;
use numatop_ng::record::verify::verify;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use super::{input, memory};

/// Every value of every row.
fn all() -> Selection {
    Selection {
        filter: RowFilter::default(),
        columns: TASK_METRICS.iter().collect(),
        sort: &TASK_METRICS[0],
        reversed: false,
        asked: Asked::default(),
        with_events: false,
    }
}

/// Does the work of `verify`, `replay`, `export` and the time bar with the file described by `bytes`. Returns
/// its number of samples.
pub fn read(bytes: &[u8]) -> usize {
    let file = memory::file(&input::file(bytes));
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let _ = verify(&path);
    let Ok(mut recording) = Recording::open(&path) else { return 0 };
    let span = recording.span();
    let (mut samples, mut previous) = (0, None);
    while let Ok(Some(sample)) = recording.next() {
        let before = previous.as_ref().filter(|_| recording.continues());
        for grain in [RowKind::Processes, RowKind::Threads] {
            let snapshot = derive(&recording.host(), before, &sample, grain);
            let _ = JsonLines::new(all()).write(&mut std::io::sink(), &snapshot);
        }
        previous = Some(sample);
        samples += 1;
    }
    if let Some((first, last)) = span {
        for at in [first, last, first.wrapping_add(last) / 2] {
            if recording.seek(at).is_ok() {
                let _ = recording.next();
            }
        }
        let _ = recording.step_back();
        let _ = recording.next();
    }
    samples
}
