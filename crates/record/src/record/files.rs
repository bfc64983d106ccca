//! Files of a ring of recordings: the place of the next one, and old ones that go.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::dir::{self, Dir, Entry, ring_name};

/// Files that may begin in the same second, and rotations of a single file.
const TURNS: u32 = 1000;

/// One file and the files it is rotated to, or a ring of files by the hour.
pub(super) enum Files {
    /// When it is rotated others are made beside it: `name`, `name.1`, `name.2`, …
    One {
        dir: Dir,
        name: PathBuf,
    },
    Ring {
        dir: Dir,
    },
}

/// The limits of a ring.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of all its files together.
    pub bytes: u64,
    /// Since they were written last.
    pub age: Option<Duration>,
}

impl Files {
    /// Checks the place without writing to it, except that the directory of a ring is made. `path` is a ring
    /// ([`dir::is_ring`]), or else a file that must not exist.
    ///
    /// # Errors
    /// The place cannot be used; gives the reason.
    pub(super) fn open(path: &Path) -> Result<Files> {
        if dir::is_ring(path) {
            Dir::make(path)?;
            return Ok(Files::Ring { dir: Dir::for_ring(path)? });
        }
        let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
        if path.symlink_metadata().is_ok() {
            bail!(
                "{} exists, and recordings are never overwritten: choose another name, or a directory",
                path.display()
            );
        }
        let dir = Dir::for_file(path.parent().unwrap_or(Path::new(".")))?;
        Ok(Files::One { dir, name: name.into() })
    }

    pub(super) fn is_ring(&self) -> bool {
        matches!(self, Files::Ring { .. })
    }

    pub(super) fn dir(&self) -> &Dir {
        let (Files::One { dir, .. } | Files::Ring { dir }) = self;
        dir
    }

    /// Makes the next file, and returns its name.
    ///
    /// # Errors
    /// It cannot be made, or all its names are taken.
    pub(super) fn create(&self, wall_ns: i64, first: bool) -> Result<(File, PathBuf)> {
        let dir = self.dir();
        for turn in self.turns(first) {
            let name = match self {
                Files::Ring { .. } => ring_name(wall_ns, turn),
                Files::One { name, .. } if turn == 0 => name.clone(),
                Files::One { name, .. } => {
                    let mut numbered = name.clone().into_os_string();
                    numbered.push(format!(".{turn}"));
                    numbered.into()
                }
            };
            match dir.create(&name) {
                Ok(file) => return Ok((file, name)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("making {}", dir.path().join(name).display()));
                }
            }
        }
        bail!("all names for the next file exist already")
    }

    /// A ring counts within the second; a single file keeps its own name for the first.
    fn turns(&self, first: bool) -> Range<u32> {
        match self {
            Files::Ring { .. } => 0..TURNS,
            Files::One { .. } if first => 0..1,
            Files::One { .. } => 1..TURNS,
        }
    }

    /// Removes the oldest files of a ring until it is within `limits`. The current one stays; its name and
    /// bytes are given. Returns the bytes of the others; `None` if unknown. Troubles are added to `words`.
    pub(super) fn trim(
        &self,
        (current, current_bytes): (&Path, u64),
        limits: Limits,
        wall_ns: i64,
        words: &mut Vec<String>,
    ) -> Option<u64> {
        let Files::Ring { dir } = self else { return None };
        let others: Vec<Entry> = match dir.recordings() {
            Ok(all) => all.into_iter().filter(|entry| entry.name != current).collect(),
            Err(error) => {
                words.push(format!(
                    "{} cannot be listed to remove old recordings: {error}",
                    dir.path().display()
                ));
                return None;
            }
        };
        let oldest_s = limits.age.map(|age| wall_ns / 1_000_000_000 - age.as_secs() as i64);
        let mut bytes: u64 = others.iter().map(|entry| entry.bytes).sum();
        let mut remove = |entry: &Entry| match dir.remove(&entry.name) {
            Ok(()) => entry.bytes,
            Err(error) => {
                words.push(format!("removing the old recording {}: {error}", entry.name.display()));
                0
            }
        };
        // Their order is that of their names; one that was copied is younger than its name.
        let is_old = |entry: &&Entry| oldest_s.is_some_and(|oldest| entry.modified_s < oldest);
        let (old, rest): (Vec<&Entry>, Vec<&Entry>) = others.iter().partition(is_old);
        for entry in old {
            bytes -= remove(entry);
        }
        for entry in rest {
            if bytes + current_bytes <= limits.bytes {
                break;
            }
            bytes -= remove(entry);
        }
        Some(bytes)
    }
}
