//! Recordings on the disk: files that are ours, how they are made, the place of the next one of a ring, and the ones that may go.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstat, linkat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::format::FrameKind;
use super::frame::{FrameHead, HEAD_LEN};
use crate::program::guard::{Folder, Owner};

/// Recordings hold names of other people's programs: for their owner only.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The end of the name of a file in a ring.
const SUFFIX: &str = ".nrec";

/// The file that is locked in the directory of a ring which other users can read.
const LOCK: &str = ".numatop-ng.lock";

/// A directory that recordings are made in, held open so that it cannot be replaced by another.
pub struct Dir {
    folder: Folder,
    /// Locked where other users can read the directory, because they could lock that: only its owner opens this file.
    lock: Option<File>,
}

impl Drop for Dir {
    /// A process that reads `/proc/PID/fd` holds the open directory for a moment (fs/proc/fd.c). The lock of
    /// a ring would outlive the close by as long, and the next recorder would be refused.
    fn drop(&mut self) {
        let _ = flock(&self.folder, FlockOperation::Unlock);
        if let Some(lock) = &self.lock {
            let _ = flock(lock, FlockOperation::Unlock);
        }
    }
}

impl Dir {
    /// The directory that a single file is to be made in. Anybody's will do: the file must not exist yet.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn for_file(path: &Path) -> Result<Dir> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Dir::open(path)
    }

    /// The directory of a ring, in which old files are removed. It must be ours, no other user may have write
    /// access, and no other recorder may be at work.
    ///
    /// # Errors
    /// It cannot be opened or is not such a directory.
    pub fn for_ring(path: &Path) -> Result<Dir> {
        let mut dir = Dir::open(path)?;
        let stat = fstat(&dir.folder)?;
        let (owner, mode) = (stat.st_uid, stat.st_mode);
        let euid = geteuid().as_raw();
        let user = dir.folder.owner().map_or(euid, |(uid, _)| uid);
        if owner != euid && owner != user {
            bail!(
                "{} belongs to user {owner}, not to the recording user {euid}: choose another directory",
                path.display(),
            );
        }
        if mode & 0o022 != 0 {
            bail!(
                "other users can write to {} (mode {:04o}): run chmod go-w on the directory, or choose another",
                path.display(),
                mode & 0o7777
            );
        }
        let locking = || format!("locking {}", path.display());
        let locked = if mode & 0o055 == 0 {
            flock(&dir.folder, FlockOperation::NonBlockingLockExclusive)
        } else {
            let lock = dir.lock_file().with_context(locking)?;
            let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
            dir.lock = Some(lock);
            locked
        };
        match locked {
            Ok(()) => Ok(dir),
            Err(Errno::WOULDBLOCK) => {
                bail!(
                    "another recorder is writing to {}: stop it, or choose another directory",
                    path.display()
                )
            }
            Err(error) => Err(io::Error::from(error)).with_context(locking),
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        let _identity = self.folder.identity();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.folder, LOCK, flags, MODE)?))
    }

    /// Makes the directory of a ring unless it exists: for its owner only, who is the user behind sudo in his
    /// own directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(path: &Path) -> Result<()> {
        let making = || format!("creating the directory {}", path.display());
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else { return Ok(()) };
        let parent = Dir::for_file(path.parent().unwrap_or(Path::new("."))).with_context(making)?;
        let _identity = parent.folder.identity();
        match mkdirat(&parent.folder, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(io::Error::from(error)).with_context(making),
        }
    }

    fn open(path: &Path) -> Result<Dir> {
        let opened = Folder::open(path, Owner::Caller);
        let folder = opened.with_context(|| format!("opening the directory {}", path.display()))?;
        Ok(Dir { folder, lock: None })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a file that must not exist, for its owner only, and locks it for as long as it is open.
    ///
    /// # Errors
    /// The errno of openat(2); `AlreadyExists` for any existing entry, symbolic links included.
    pub fn create(&self, name: &Path) -> io::Result<File> {
        let name = plain(name)?;
        let _identity = self.folder.identity();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, name, flags, MODE)?);
        // The lock shows readers that more will come; without locks only that is unknown.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(file)
    }

    /// Makes a file with this content that must not exist, readable as the umask allows. It appears when it
    /// is complete.
    ///
    /// # Errors
    /// The errno of openat(2), write(2) or linkat(2); `AlreadyExists` for any existing entry, symbolic links
    /// included.
    pub fn publish(&self, name: &Path, content: &[u8]) -> io::Result<()> {
        self.place(name, content, |begun, name| {
            let made = linkat(&self.folder, begun, &self.folder, name, AtFlags::empty());
            // It has its name, or nothing refers to it.
            unlinkat(&self.folder, begun, AtFlags::empty())?;
            Ok(made?)
        })
    }

    /// The same, replacing any existing file: a symbolic link is replaced, and not followed.
    ///
    /// # Errors
    /// The errno of openat(2), write(2) or renameat(2).
    pub fn replace(&self, name: &Path, content: &[u8]) -> io::Result<()> {
        self.place(name, content, |begun, name| Ok(renameat(&self.folder, begun, &self.folder, name)?))
    }

    /// Writes a file beside the place that it is for, and has `give_name` take it there.
    fn place(
        &self,
        name: &Path,
        content: &[u8],
        give_name: impl FnOnce(&OsStr, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = plain(name)?;
        let _identity = self.folder.identity();
        let mut begun = name.as_os_str().to_owned();
        begun.push(format!(".{}.part", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = MODE | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        let mut file = File::from(openat(&self.folder, &begun, flags, mode)?);
        if let Err(error) = file.write_all(content).and_then(|()| file.sync_data()) {
            unlinkat(&self.folder, &begun, AtFlags::empty())?;
            return Err(error);
        }
        give_name(&begun, name)
    }

    /// The recordings in it by name, which is by time, with their sizes. Only what we wrote: the name is
    /// one of ours, it is a regular file, and it begins as a recording does.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn recordings(&self) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        // Not through the path: another directory may be there by now.
        for entry in std::fs::read_dir(self.folder.held_path())? {
            let name = PathBuf::from(entry?.file_name());
            if is_ring_name(&name)
                && let Ok(entry) = self.look(name)
            {
                found.extend(entry);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn look(&self, name: PathBuf) -> io::Result<Option<Entry>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&self.folder, plain(&name)?, flags, Mode::empty())?);
        let meta = file.metadata()?;
        let ours = meta.is_file() && begins_as_recording(&file);
        Ok(ours.then_some(Entry { name, bytes: meta.len(), modified_s: meta.mtime() }))
    }

    /// Removes a recording that [`Dir::recordings`] listed, or that [`Dir::create`] has made.
    ///
    /// # Errors
    /// The errno of unlinkat(2).
    pub fn remove(&self, name: &Path) -> io::Result<()> {
        let name = plain(name)?;
        let _identity = self.folder.identity();
        unlinkat(&self.folder, name, AtFlags::empty())?;
        Ok(())
    }
}

/// A recording in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: PathBuf,
    pub bytes: u64,
    /// Last written, seconds since 1970.
    pub modified_s: i64,
}

/// The name of the file of a ring that begins at this time: `numatop-20261121T031200Z-000.nrec`. `turn`
/// separates those of one second.
pub fn ring_name(wall_ns: i64, turn: u32) -> PathBuf {
    let time = jiff::Timestamp::from_second(wall_ns.div_euclid(1_000_000_000))
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .strftime("%Y%m%dT%H%M%SZ");
    PathBuf::from(format!("numatop-{time}-{turn:03}{SUFFIX}"))
}

/// Whether a recording at `path` is a directory of files: it is one now, or ends with a slash.
pub fn is_ring(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Whether [`ring_name`] makes such names.
pub fn is_ring_name(name: &Path) -> bool {
    const SHAPE: &[u8] = b"numatop-00000000T000000Z-000.nrec";
    let name = name.as_os_str().as_bytes();
    name.len() == SHAPE.len()
        && name.iter().zip(SHAPE).all(|(have, want)| match want {
            b'0' => have.is_ascii_digit(),
            _ => have == want,
        })
}

fn begins_as_recording(file: &File) -> bool {
    let mut bytes = [0; HEAD_LEN];
    file.read_exact_at(&mut bytes, 0).is_ok()
        && FrameHead::from_bytes(&bytes).is_some_and(|head| head.kind == FrameKind::Head)
}

/// True when a recorder has the file open.
pub fn is_locked(file: &File) -> bool {
    let taken = flock(file, FlockOperation::NonBlockingLockShared);
    if taken.is_ok() {
        let _ = flock(file, FlockOperation::Unlock);
    }
    taken == Err(Errno::WOULDBLOCK)
}

/// The name, which names nothing in another directory.
fn plain(name: &Path) -> io::Result<&Path> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file name contains a slash"));
    }
    Ok(name)
}

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
    /// ([`is_ring`]), or else a file that must not exist.
    ///
    /// # Errors
    /// The place cannot be used; gives the reason.
    pub(super) fn open(path: &Path) -> Result<Files> {
        if is_ring(path) {
            Dir::make(path)?;
            return Ok(Files::Ring { dir: Dir::for_ring(path)? });
        }
        let name = path.file_name().with_context(|| format!("{} does not name a file", path.display()))?;
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
        bail!("every name for the next file is already in use")
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
                words.push(format!("the old recording {} cannot be removed: {error}", entry.name.display()));
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_lock_ends_with_us_whoever_holds_the_directory() {
        let path = std::env::temp_dir().join(format!("numatop-dir-{}", std::process::id()));
        Dir::make(&path).unwrap();
        let first = Dir::for_ring(&path).unwrap();
        let _held = first.folder.as_fd().try_clone_to_owned().unwrap();
        assert!(Dir::for_ring(&path).is_err());
        drop(first);
        let second = Dir::for_ring(&path).map(drop);
        std::fs::remove_dir(&path).unwrap();
        second.unwrap();
    }

    #[test]
    fn names_of_a_ring_sort_by_time() {
        let name = ring_name(1_763_683_199_123_456_789, 0);
        assert_eq!(name, Path::new("numatop-20251120T235959Z-000.nrec"));
        assert!(name < ring_name(1_763_683_199_999_999_999, 1));
        assert!(ring_name(1_763_683_199_000_000_000, 7) < ring_name(1_763_683_200_000_000_000, 0));
    }

    #[test]
    fn only_exact_names_are_ours() {
        assert!(is_ring_name(&ring_name(0, 999)));
        for name in [
            "numatop-20251120T235959Z-000.nrec.gz",
            "my-numatop-20251120T235959Z-000.nrec",
            "numatop-2025112xT235959Z-000.nrec",
            "notes.nrec",
            "",
        ] {
            assert!(!is_ring_name(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_reader_of_the_directory_locks_nobody_out() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("numatop-dir-lock-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let reader = File::open(&path).unwrap();
        flock(&reader, FlockOperation::NonBlockingLockExclusive).unwrap();
        let first = Dir::for_ring(&path);
        let second = Dir::for_ring(&path).is_err();
        let is_first = first.is_ok();
        drop(first);
        std::fs::remove_dir_all(&path).unwrap();
        assert!(is_first && second);
    }
}
