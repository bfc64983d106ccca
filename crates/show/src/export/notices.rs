//! Notes while nothing else is shown: each once until it changes.

use std::io::{self, Write};

use super::Export;
use crate::snapshot::Snapshot;
use crate::text::clean_str;
use crate::text::rfc3339;

/// Writes what the snapshots say in words, and no numbers.
#[derive(Default)]
pub struct Quiet {
    said: Vec<String>,
}

impl Export for Quiet {
    fn wants_containers(&self) -> bool {
        false
    }

    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()> {
        // "… 12 samples not recorded" grows with every interval: the text before the count is written once.
        let gist = |note: &String| note.split(';').next().unwrap_or_default().to_string();
        for note in &snapshot.notes {
            if !self.said.contains(&gist(note)) {
                writeln!(out, "numatop-ng: {}: {}", rfc3339(snapshot.wall_ns), clean_str(note))?;
            }
        }
        self.said = snapshot.notes.iter().map(gist).collect();
        out.flush()
    }
}
