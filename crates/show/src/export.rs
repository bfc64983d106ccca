//! Formats of batch output: one table of them, and a writer for each in a separate file.

pub mod access;
pub mod csv;
mod hot;
pub mod json;
mod rows;
pub mod text;

use std::io::{self, Write};
use std::sync::Arc;

use crate::finding::Engine;
use crate::metric::needs::Demand;
use crate::model::process::{Asked, ProcessId};
use crate::model::sample::{HostFacts, Sample};
use crate::program::output::Form;
use crate::snapshot::{RowKind, Snapshot, derive, derive_both, derive_tasks};
use crate::text::{clean_str, rfc3339};

pub use self::rows::{ContainerSelection, PlaceSelection, Rows, Selection, Whole, all_columns};

/// All formats, in the order in which `--format` lists them. The first is in use unless another is named.
pub static FORMATS: [&Format; 3] = [&text::FORMAT, &json::FORMAT, &csv::FORMAT];

/// A format of batch output.
#[derive(Debug)]
pub struct Format {
    /// The value of `--format`.
    pub name: &'static str,
    /// Parts of an interval that it has a place for, beside its rows.
    pub parts: &'static [Part],
    /// Whether programs read it: all metrics unless columns are named, and an id in each row.
    pub machine_readable: bool,
    /// The way in which it is kept harmless to a terminal.
    pub form: Form,
    /// Makes a writer with rows of tasks.
    pub tasks: fn(Selection) -> Writer,
    /// Makes a writer with rows of containers. `None` for a format that has tasks and containers side by side, where
    /// `--by-container` changes nothing.
    pub containers: Option<fn(ContainerSelection) -> Writer>,
    /// The same with rows of sockets or L3 domains.
    pub places: Option<fn(PlaceSelection) -> Writer>,
}

/// A writer that a separate thread may own.
pub type Writer = Box<dyn Export + Send>;

/// Parts of an interval beside its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Functions in which processes were sampled (`--hot`).
    HotSpots,
    /// CPU time of each of our own BPF programs (`--overhead`).
    Overhead,
}

impl Format {
    /// The format with this name.
    pub fn named(name: &str) -> Option<&'static Format> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Whether it has containers beside tasks; others have them instead of tasks, with `--by-container`.
    pub fn has_both(&self) -> bool {
        self.containers.is_none()
    }

    /// Whether output in this format has a place for `part`.
    pub fn carries(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

/// The flags that choose a format with a place for `part`, as in `--format json`.
pub fn flags_that_carry(part: Part) -> String {
    let formats = FORMATS.iter().filter(|format| format.carries(part));
    let flags: Vec<String> = formats.map(|format| format!("--format {}", format.name)).collect();
    flags.join(" or ")
}

/// Derives an interval for this writer, which looks for findings in it where it writes them.
pub fn derive_for(
    export: &mut (dyn Export + '_),
    host: &Arc<HostFacts>,
    previous: &Sample,
    current: &Sample,
    grain: RowKind,
) -> Snapshot {
    match (export.engine().is_some(), export.wants_containers()) {
        (false, containers) => derive_rows(containers, host, previous, current, grain),
        // Rules look at containers, whatever is written.
        (true, _) if grain == RowKind::Processes => {
            let snapshot = derive(host, Some(previous), current, grain);
            export.diagnose(&snapshot);
            snapshot
        }
        (true, containers) => {
            let (snapshot, processes) = derive_both(host, Some(previous), current, containers);
            export.diagnose(&processes);
            snapshot
        }
    }
}

/// Derives an interval without a look for findings, with rows of containers where they are wanted.
pub fn derive_rows(
    containers: bool,
    host: &Arc<HostFacts>,
    previous: &Sample,
    current: &Sample,
    grain: RowKind,
) -> Snapshot {
    let derive = if containers { derive } else { derive_tasks };
    derive(host, Some(previous), current, grain)
}

/// Writes snapshots one after the other.
pub trait Export {
    /// True when it writes [`Snapshot::containers`].
    fn wants_containers(&self) -> bool;

    /// Whether hot spots are written where there are some.
    fn wants_hot(&self) -> bool {
        false
    }

    /// The engine whose findings it writes; `None` where no findings are written.
    fn engine(&mut self) -> Option<&mut Engine> {
        None
    }

    /// Looks for findings in the interval that is written next, in rows of processes whatever is written.
    fn diagnose(&mut self, processes: &Snapshot) {
        if let Some(engine) = self.engine() {
            engine.take(processes);
        }
    }

    /// Writes one interval.
    ///
    /// # Errors
    /// The errno of the output.
    fn write(&mut self, out: &mut dyn Write, snapshot: &Snapshot) -> io::Result<()>;

    /// The facilities that what it writes needs: probes for others are not started.
    fn demand(&self) -> Demand {
        Demand::Everything
    }

    /// Fields of processes in its output that are read on demand only.
    fn asked(&self) -> Asked {
        Asked::default()
    }

    /// The processes of the rows written last, empty where no row matched; `None` when no row was left out.
    /// These are measured first, where processes take turns.
    fn shown(&self) -> Option<&[ProcessId]> {
        None
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_a_name_of_its_own_and_each_part_a_format() {
        for format in FORMATS {
            assert!(std::ptr::eq(Format::named(format.name).unwrap(), format), "{}", format.name);
        }
        for part in [Part::HotSpots, Part::Overhead] {
            assert_eq!(flags_that_carry(part), "--format json", "{part:?}");
        }
    }
}
