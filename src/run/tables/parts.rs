//! Parts of the recordings of a host by time, and whether their files exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::Host;
use crate::model::sample::HostFacts;
use crate::options::{Layout, Tables};
use crate::tables::Table;
use crate::tables::place::Part;

/// Numbers of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Made.
    pub written: usize,
    /// There already.
    pub left: usize,
}

/// A part whose files are to be made.
pub(super) struct WantedPart {
    /// The host at its first sample.
    pub host: Arc<HostFacts>,
    /// Tables without a file, and the file that each is to have.
    pub files: Vec<(Table, PathBuf)>,
}

/// The part that a sample is in.
pub(super) enum Of {
    /// Its files are to be made.
    Wanted(Arc<WantedPart>),
    /// Its files exist.
    Left,
    /// The same, at the first sample of the part, which ends there.
    LeftFrom { end_ns: i64 },
    /// It and all later ones are still being recorded.
    Later,
}

/// The parts of the recordings of one host, which come one after the other.
pub(super) struct Parts<'a> {
    host: &'a Host,
    choices: &'a Tables,
    /// The oldest files of a ring go, so that a part may lose its beginning after its files were made.
    of_ring: bool,
    /// The begin of the part of the last sample, ns since 1970, and the part; `None`: its files exist.
    current: Option<(i64, Option<Arc<WantedPart>>)>,
    left: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn new(host: &'a Host, choices: &'a Tables, of_ring: bool) -> Parts<'a> {
        Parts { host, choices, of_ring, current: None, left: 0 }
    }

    /// Files that were there.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The part of the next sample.
    ///
    /// # Errors
    /// The folder of its files cannot be read.
    pub(super) fn of(&mut self, facts: &Arc<HostFacts>, wall_ns: i64) -> Result<Of> {
        let period_ns = match self.choices.layout {
            Layout::Flat => return self.flat(facts),
            Layout::Hive { period_ns } => period_ns,
        };
        let mut from_ns = Part::begin(wall_ns, period_ns);
        if let Some((current_ns, part)) = &self.current {
            // A clock that was set back makes no part that was before.
            from_ns = from_ns.max(*current_ns);
            if *current_ns == from_ns {
                return Ok(part.as_ref().map_or(Of::Left, |part| Of::Wanted(Arc::clone(part))));
            }
        }
        if self.host.recorded_from.is_some_and(|from| from_ns >= Part::begin(from, period_ns)) {
            return Ok(Of::Later);
        }
        let part = Part {
            hostname: self.host.name.clone(),
            boot_id: self.host.boot_id.clone(),
            from_ns,
            period_ns,
            first_ns: wall_ns,
        };
        let files = self.files(|table| {
            let folder = self.choices.out.join(part.folder(table));
            let is_there = self.of_ring && has_one(&folder, |name| part.is_in(name))?;
            Ok((folder.join(part.name()), is_there))
        })?;
        let end_ns = from_ns.saturating_add(period_ns);
        let wanted = self.wanted(facts, files);
        self.current = Some((from_ns, wanted.clone()));
        Ok(wanted.map_or(Of::LeftFrom { end_ns }, Of::Wanted))
    }

    fn flat(&mut self, facts: &Arc<HostFacts>) -> Result<Of> {
        if let Some((_, part)) = &self.current {
            return Ok(part.as_ref().map_or(Of::Left, |part| Of::Wanted(Arc::clone(part))));
        }
        let of = |table: Table| Ok((self.choices.out.join(format!("{}.parquet", table.name())), false));
        let files = self.files(of)?;
        let wanted = self.wanted(facts, files);
        self.current = Some((0, wanted.clone()));
        Ok(wanted.map_or(Of::LeftFrom { end_ns: i64::MAX }, Of::Wanted))
    }

    /// The file of each table, and whether it exists.
    fn files(&self, of: impl Fn(Table) -> Result<(PathBuf, bool)>) -> Result<Vec<(Table, PathBuf, bool)>> {
        let file = |table: &Table| {
            let (path, is_there) = of(*table)?;
            let is_there = is_there || path.symlink_metadata().is_ok();
            Ok((*table, path, is_there))
        };
        self.choices.tables.iter().map(file).collect()
    }

    /// The part, where files are missing; others are counted.
    fn wanted(
        &mut self,
        facts: &Arc<HostFacts>,
        files: Vec<(Table, PathBuf, bool)>,
    ) -> Option<Arc<WantedPart>> {
        self.left += files.iter().filter(|(_, _, is_there)| *is_there).count();
        let missing = files.into_iter().filter(|(_, _, is_there)| !is_there);
        let files: Vec<(Table, PathBuf)> = missing.map(|(table, path, _)| (table, path)).collect();
        (!files.is_empty()).then(|| Arc::new(WantedPart { host: Arc::clone(facts), files }))
    }
}

/// Whether a folder has a file with such a name.
fn has_one(folder: &Path, is_one: impl Fn(&str) -> bool) -> Result<bool> {
    let reading = || format!("reading {}", folder.display());
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        entries => entries.with_context(reading)?,
    };
    for entry in entries {
        if entry.with_context(reading)?.file_name().to_str().is_some_and(&is_one) {
            return Ok(true);
        }
    }
    Ok(false)
}
