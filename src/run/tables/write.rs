//! Files while they are written. Each gets its name when it is complete, because without its footer it cannot
//! be read.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result};
use parquet::errors::ParquetError;
use rustix::fs::Mode;

use super::parts::WantedPart;
use crate::options::Tables;
use crate::program::guard::{Folder, Owner};
use crate::tables::{Fold, Table, parquet as format};
use crate::text::clean_str;

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
