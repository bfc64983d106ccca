//! Files of tables: parts of the recordings of a host by time, whether their files exist, and files while they are written.
//! Each gets its name when it is complete, because without its footer it cannot be read.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result};
use parquet::errors::ParquetError;
use rustix::fs::Mode;

use super::Host;
use crate::model::sample::HostFacts;
use crate::options::{Layout, Tables};
use crate::program::guard::{Folder, Owner};
use crate::tables::place::Part;
use crate::tables::{Fold, Table, parquet as format};
use crate::text::clean_str;

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

/// The files of one part, one for each table.
pub(super) struct Files {
    part: Arc<WantedPart>,
    fold: Fold,
    files: Vec<(Table, Begun)>,
}

/// A file that is not whole yet.
struct Begun {
    content: format::File<Arc<File>>,
    file: Arc<File>,
    temporary: Temporary,
}

/// A name with a leading dot, which engines ignore; the file is removed with it unless it is kept.
struct Temporary {
    folder: Folder,
    name: OsString,
    target: PathBuf,
    is_kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.folder.remove(&self.name);
        }
    }
}

impl Files {
    /// Begins them.
    ///
    /// # Errors
    /// One cannot be made.
    pub(super) fn new(part: Arc<WantedPart>, version: &str, choices: &Tables) -> Result<Files> {
        let tables: Vec<Table> = part.files.iter().map(|(table, _)| *table).collect();
        let host = &part.host;
        let facts = [
            ("hostname", clean_str(&host.hostname)),
            ("boot_id", clean_str(&host.boot_id)),
            ("kernel", clean_str(&host.kernel)),
            ("cpu_model", clean_str(&host.cpu_model)),
            ("version", version.to_owned()),
            ("rows", if choices.threads { "threads" } else { "processes" }.to_owned()),
        ];
        let begin = |(table, target): &(Table, PathBuf)| -> Result<(Table, Begun)> {
            let (file, temporary) = Temporary::make(target)?;
            let file = Arc::new(file);
            let content = format::File::new(Arc::clone(&file), *table, &facts);
            let content = content.map_err(|error| writing(error, target))?;
            Ok((*table, Begun { content, file, temporary }))
        };
        let files = part.files.iter().map(begin).collect::<Result<_>>()?;
        let fold = Fold::new(&tables, choices.all, version.to_owned());
        Ok(Files { part, fold, files })
    }

    /// The part that they are of.
    pub(super) fn part(&self) -> &Arc<WantedPart> {
        &self.part
    }

    /// Has `add` add rows, and writes groups of rows that are full.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn take(&mut self, add: impl FnOnce(&mut Fold)) -> Result<()> {
        add(&mut self.fold);
        self.write(false)
    }

    fn write(&mut self, all: bool) -> Result<()> {
        for (table, rows) in self.fold.groups().iter_mut() {
            if !all && !rows.is_full() {
                continue;
            }
            let begun = self.files.iter_mut().find(|(own, _)| *own == table);
            let (_, begun) = begun.expect("each table has rows and a file");
            begun.content.write(rows).map_err(|error| writing(error, &begun.temporary.target))?;
            rows.clear();
        }
        Ok(())
    }

    /// Completes them. Returns their number.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn finish(mut self) -> Result<usize> {
        self.fold.finish();
        self.write(true)?;
        let count = self.files.len();
        for (_, Begun { content, file, temporary }) in self.files {
            content.finish().map_err(|error| writing(error, &temporary.target))?;
            file.sync_all().map_err(|error| writing(error.into(), &temporary.target))?;
            temporary.keep()?;
        }
        Ok(count)
    }
}

impl Temporary {
    /// Makes the file beside its target, in a folder that is made, too.
    fn make(target: &Path) -> Result<(File, Temporary)> {
        let making = || format!("making {}", target.display());
        let parent = target.parent().unwrap_or(Path::new("."));
        let folder = Folder::make(parent, Mode::from_raw_mode(0o777), Owner::Caller).with_context(making)?;
        let mut name = OsString::from(format!(".tmp-{}-", std::process::id()));
        name.push(target.file_name().unwrap_or_default());
        let make = || folder.create_new(&name, Mode::from_raw_mode(0o666));
        let file = match make() {
            // Of a process with the same id that was killed; a link of others is removed and not followed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                folder.remove(&name).with_context(making)?;
                make()
            }
            made => made,
        };
        let file = file.with_context(making)?;
        Ok((file, Temporary { folder, name, target: target.to_owned(), is_kept: false }))
    }

    /// Gives the file its name, for good.
    fn keep(mut self) -> Result<()> {
        let keeping = || format!("making {}", self.target.display());
        let name = self.target.file_name().unwrap_or_default();
        self.folder.rename(&self.name, name).with_context(keeping)?;
        rustix::fs::fsync(&self.folder).map_err(io::Error::from).with_context(keeping)?;
        self.is_kept = true;
        Ok(())
    }
}

/// An error of writing a file, in the words of the system where it is one of its errors.
fn writing(error: ParquetError, path: &Path) -> Error {
    let error = match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => Error::from(*error),
            Err(source) => Error::from(ParquetError::External(source)),
        },
        error => Error::from(error),
    };
    error.context(format!("writing {}", path.display()))
}
