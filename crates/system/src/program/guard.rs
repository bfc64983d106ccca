//! Opening and making files at paths that another user may have prepared: the only way to do that (`tests/layers.rs`).
//!
//! Links on the way are followed only if the system or the caller made them. Only regular files of a limited
//! size are read, and nothing is waited for. Files in a directory of the user behind sudo are made as that
//! user. So is everything behind a link of that user: this grants them no more than their own programs can
//! do.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::asked_file;
use super::served::{self, Mount};
use crate::sys;

/// Links followed on one way (`MAXSYMLINKS` of Linux).
const LINKS_MAX: usize = 40;

/// A user, and the group of that user.
pub type Ids = (u32, u32);

/// The user and group who called sudo, when we are root through it.
pub fn sudo_user() -> Option<Ids> {
    if !geteuid().is_root() {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
    (uid != 0).then_some((uid, gid))
}

/// While it lives, this thread accesses the file system as another user: new files belong to that user, and
/// access denied to that user fails. Changing the owner afterwards would follow a file put there meanwhile.
pub struct FsIdentity {
    uid: u32,
    gid: u32,
}

impl FsIdentity {
    /// Takes the identity of a user.
    pub fn take((uid, gid): Ids) -> FsIdentity {
        let (uid, gid) = sys::set_fs_ids(uid, gid);
        FsIdentity { uid, gid }
    }
}

impl Drop for FsIdentity {
    fn drop(&mut self) {
        sys::set_fs_ids(self.uid, self.gid);
    }
}

/// Whose the files in a directory are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user behind sudo in a directory of that user; else ours.
    Caller,
    /// The owner of the directory, any user: for files that belong to a home directory.
    OfFolder,
}

/// A directory, held open so that it cannot be replaced by another.
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    owner: Option<Ids>,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn refused(text: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// The file or directory at the end of a path.
struct Found {
    /// Opened with `O_PATH`.
    fd: OwnedFd,
    /// A link of the user behind sudo was on the way.
    through_caller: bool,
}

/// Follows `path` as far as trusted links lead. Directories that are not there are made with `make`.
fn follow(path: &Path, make: Option<(Mode, Owner)>) -> io::Result<Found> {
    let place = OFlags::PATH | OFlags::CLOEXEC;
    let at = |path: &str| openat(CWD, path, place | OFlags::DIRECTORY, Mode::empty());
    let mut fd = at(if path.is_absolute() { "/" } else { "." })?;
    let mut left: VecDeque<OsString> = parts(path);
    let (mut links, mut through_caller) = (0, false);
    let mut identity = None;
    let mut way = Way::new(path)?;
    while let Some(part) = left.pop_front() {
        way.enter(&part)?;
        let open = || openat(&fd, &part, place | OFlags::NOFOLLOW, Mode::empty());
        let next = match (open(), make) {
            (Err(Errno::NOENT), Some((mode, owner))) => {
                make_folder(&fd, &part, mode, owner_in(&fd, owner, through_caller)?)?;
                open()?
            }
            (opened, _) => opened?,
        };
        let stat = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            fd = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        // The owner of the directory decides which links are in it.
        let trusted = |uid: u32| [0, geteuid().as_raw()].contains(&uid);
        let holder = rustix::fs::fstat(&fd)?.st_uid;
        let maker = if trusted(holder) { stat.st_uid } else { holder };
        if !trusted(maker) {
            let Some(caller) = sudo_user().filter(|(uid, _)| *uid == maker) else {
                let name = crate::text::clean(part.as_bytes());
                return Err(refused(format!("{name} is a symbolic link made by user {maker}")));
            };
            through_caller = true;
            identity.get_or_insert_with(|| FsIdentity::take(caller));
        }
        // Links of /proc lead to open files, which may have lost their path.
        if rustix::fs::fstatfs(&fd)?.f_type == rustix::fs::PROC_SUPER_MAGIC {
            fd = openat(&fd, &part, place, Mode::empty())?;
            continue;
        }
        let target = PathBuf::from(OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes()));
        way.leave();
        if target.is_absolute() {
            fd = at("/")?;
            way.place = "/".into();
        }
        for part in parts(&target).into_iter().rev() {
            left.push_front(part);
        }
    }
    drop(identity);
    Ok(Found { fd, through_caller })
}

/// Set in a helper process, which may wait for a file system.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Mounts that have answered, and when: they are not asked again for a while.
static ANSWERED: Mutex<Vec<(PathBuf, Instant)>> = Mutex::new(Vec::new());
const ANSWERS_FOR: Duration = Duration::from_secs(10);

/// From now on this process waits for file systems that others serve.
pub fn wait_for_all() {
    WAITS.store(true, Ordering::Relaxed);
}

/// The place of a walk along a path. A file system that others serve is entered only after a helper got an
/// answer from it.
struct Way {
    /// Mounts that others serve; without any nothing is looked at.
    served: Vec<Mount>,
    mounts: Vec<Mount>,
    place: PathBuf,
}

impl Way {
    fn new(path: &Path) -> io::Result<Way> {
        let mounts = if WAITS.load(Ordering::Relaxed) { Vec::new() } else { served::own_mounts() };
        let served: Vec<Mount> = mounts.iter().filter(|mount| mount.served).cloned().collect();
        let mut way = Way { served, mounts, place: "/".into() };
        if !way.served.is_empty() && path.is_relative() {
            way.place = std::env::current_dir()?;
            way.ask()?;
        }
        Ok(way)
    }

    fn enter(&mut self, part: &OsStr) -> io::Result<()> {
        if self.served.is_empty() {
            return Ok(());
        }
        if part == ".." {
            self.leave();
        } else {
            self.place.push(part);
        }
        self.ask()
    }

    /// Back to the directory above.
    fn leave(&mut self) {
        self.place.pop();
    }

    fn ask(&mut self) -> io::Result<()> {
        let Some(mount) = served::mount_of(&self.place, &self.mounts).filter(|mount| mount.served) else {
            return Ok(());
        };
        let mut answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
        answered.retain(|(_, at)| at.elapsed() < ANSWERS_FOR);
        if !answered.iter().any(|(known, _)| *known == mount.at) {
            asked_file::probe(&self.place)?;
            answered.push((mount.at.clone(), Instant::now()));
        }
        Ok(())
    }
}

/// Whether a file system on the way to `path` does not answer.
pub fn is_silent(path: &Path) -> bool {
    follow(path, None).is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}

fn make_folder(above: &OwnedFd, name: &OsStr, mode: Mode, owner: Option<Ids>) -> io::Result<()> {
    let _identity = owner.map(FsIdentity::take);
    match mkdirat(above, name, mode) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

/// Whose a new file in this directory is; `None`: ours.
fn owner_in(folder: &OwnedFd, owner: Owner, through_caller: bool) -> io::Result<Option<Ids>> {
    let stat = rustix::fs::fstat(folder)?;
    let caller = sudo_user();
    if through_caller {
        return Ok(caller);
    }
    Ok(match owner {
        Owner::Caller => caller.filter(|(uid, _)| *uid == stat.st_uid),
        Owner::OfFolder => (geteuid().is_root() && stat.st_uid != 0).then_some((stat.st_uid, stat.st_gid)),
    })
}

/// The name at the end of a path, which names nothing in another directory.
fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "not a file name"))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Folder {
    /// An existing directory.
    ///
    /// # Errors
    /// The errno of openat(2); `PermissionDenied` where a link of another user is on the way.
    pub fn open(path: &Path, owner: Owner) -> io::Result<Folder> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Folder::held(path, follow(path, None)?, owner)
    }

    /// A directory, created with its parents if it is missing.
    ///
    /// # Errors
    /// As those of [`Folder::open`], and the errno of mkdirat(2).
    pub fn make(path: &Path, mode: Mode, owner: Owner) -> io::Result<Folder> {
        Folder::held(path, follow(path, Some((mode, owner)))?, owner)
    }

    /// The directory that a file at `path` is in.
    ///
    /// # Errors
    /// As those of [`Folder::open`].
    pub fn of(path: &Path, owner: Owner) -> io::Result<Folder> {
        Folder::open(folder_of(path), owner)
    }

    fn held(path: &Path, found: Found, owner: Owner) -> io::Result<Folder> {
        let ids = owner_in(&found.fd, owner, found.through_caller)?;
        let identity = found.through_caller.then(|| ids.map(FsIdentity::take));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // To write in it, looking at it need not be allowed.
        let fd = openat(&found.fd, ".", flags, Mode::empty()).or_else(|error| match error {
            Errno::ACCESS => Ok(found.fd),
            error => Err(error),
        })?;
        drop(identity);
        Ok(Folder { fd, path: path.to_owned(), owner: ids })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose new files in it are; `None`: ours.
    pub fn owner(&self) -> Option<Ids> {
        self.owner
    }

    /// Acts as the owner of new files.
    pub fn identity(&self) -> Option<FsIdentity> {
        self.owner.map(FsIdentity::take)
    }

    /// Makes a file that was not there, open for writing.
    ///
    /// # Errors
    /// The errno of openat(2); `AlreadyExists` for any existing entry, links included.
    pub fn create_new(&self, name: &OsStr, mode: Mode) -> io::Result<File> {
        let _identity = self.identity();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, mode)?))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The errno of unlinkat(2).
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        let _identity = self.identity();
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Renames a file, replacing any file of that name.
    ///
    /// # Errors
    /// The errno of renameat(2).
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let _identity = self.identity();
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Whether an entry of this name exists, links included.
    pub fn has(&self, name: &OsStr) -> bool {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Replaces a file by one with `text`, as a whole: a reader never sees half of either.
    ///
    /// # Errors
    /// The errno of the write beside it, or of the rename; nothing is left behind then.
    pub fn replace(&self, name: &OsStr, text: &[u8], mode: u32) -> io::Result<()> {
        let mut beside = name.to_owned();
        beside.push(format!(".{}.tmp", std::process::id()));
        let make = || self.create_new(&beside, Mode::RUSR | Mode::WUSR);
        let mut file = match make() {
            // Of another user, who knows the name, or of a process of this id: removed, and never written to.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.remove(&beside)?;
                make()?
            }
            made => made?,
        };
        let written = file
            .set_permissions(Permissions::from_mode(mode))
            .and_then(|()| file.write_all(text))
            .and_then(|()| file.sync_data());
        written.and_then(|()| self.rename(&beside, name)).inspect_err(|_| {
            let _ = self.remove(&beside);
        })
    }

    /// A path to it that leads to no other, whatever has its name now.
    pub fn held_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// The errno of openat(2); `PermissionDenied` if a link of another user is on the way; `InvalidInput` for
/// anything but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_for(path, Owner::Caller)
}

fn open_for(path: &Path, owner: Owner) -> io::Result<File> {
    let found = follow(path, None)?;
    let stat = rustix::fs::fstat(&found.fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the file is not a regular file"));
    }
    let ids = match owner {
        _ if found.through_caller => sudo_user(),
        Owner::Caller => None,
        // A hard link of a user to a file of root is in a directory of that user.
        Owner::OfFolder => owner_in(&follow(folder_of(path), None)?.fd, owner, false)?,
    };
    let _identity = ids.map(FsIdentity::take);
    // Not blocking: another process may hold a lease on it (fcntl(2), F_SETLEASE).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let held = format!("/proc/self/fd/{}", found.fd.as_raw_fd());
    Ok(File::from(openat(CWD, held, flags, Mode::empty())?))
}

/// The content of a regular file of `max` bytes at most; with the rights of the owner of its directory for `OfFolder`.
///
/// # Errors
/// As those of [`open`]; `FileTooLarge` for one that is longer.
pub fn read(path: &Path, max: u64, owner: Owner) -> io::Result<Vec<u8>> {
    let file = open_for(path, owner)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("the file is longer than {max} bytes")));
    }
    Ok(bytes)
}

/// As [`read`], for text.
///
/// # Errors
/// As those of [`read`]; `InvalidData` for a text that is not UTF-8.
pub fn read_text(path: &Path, max: u64, owner: Owner) -> io::Result<String> {
    String::from_utf8(read(path, max, owner)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file is not UTF-8"))
}

/// Creates a new file for its owner and, as the umask allows, for others.
///
/// # Errors
/// As those of [`Folder::create_new`].
pub fn create_new(path: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    Folder::of(path, Owner::Caller)?.create_new(name_of(path)?, mode)
}

/// Removes a file.
///
/// # Errors
/// As those of [`Folder::remove`].
pub fn remove(path: &Path) -> io::Result<()> {
    Folder::of(path, Owner::Caller)?.remove(name_of(path)?)
}

/// Puts a file of `text` in the place of `path`. Everybody may read it.
///
/// # Errors
/// As those of [`Folder::replace`].
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    Folder::of(path, Owner::Caller)?.replace(name_of(path)?, text.as_bytes(), 0o644)
}

/// Puts a file of `text` in the place that `path` leads to, links of the caller followed, and makes the folders that it is in.
/// Everybody may read it. Returns its place.
///
/// # Errors
/// As those of [`Folder::make`] and [`Folder::replace`].
pub fn replace_in_place(path: &Path, text: &str, owner: Owner) -> io::Result<PathBuf> {
    let (real, through_caller) = match follow(path, None) {
        Ok(found) => {
            let real = std::fs::read_link(format!("/proc/self/fd/{}", found.fd.as_raw_fd()))?;
            (real, found.through_caller)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => (path.to_owned(), false),
        Err(error) => return Err(error),
    };
    let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    let _identity = if through_caller { sudo_user().map(FsIdentity::take) } else { None };
    let mut folder = Folder::make(folder_of(&real), mode, owner)?;
    if through_caller {
        folder.owner = sudo_user();
    }
    folder.replace(name_of(&real)?, text.as_bytes(), 0o644)?;
    Ok(real)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};

    use super::*;
    use crate::tree::Tree;

    const OTHER: u32 = 54_321;
    const MAX: u64 = 1 << 16;

    /// A directory of another user; `None` where we may not hand one over.
    fn of_other(tree: &Tree, name: &str) -> Option<PathBuf> {
        let path = tree.root().join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(OTHER), Some(OTHER)).ok().map(|()| path)
    }

    #[test]
    fn links_of_others_are_not_followed() {
        let tree = Tree::with("guard-links", [("target", "secret"), ("mine/file", "text")]);
        symlink("target", tree.root().join("own")).unwrap();
        let read = |path: &Path| super::read(path, MAX, Owner::Caller);
        assert_eq!(read(&tree.root().join("own")).unwrap(), b"secret");
        let Some(theirs) = of_other(&tree, "theirs") else { return };
        for (link, target) in [("file", "../target"), ("folder", "../mine")] {
            let link = theirs.join(link);
            symlink(target, &link).unwrap();
            lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
        }
        for path in ["file", "folder/file"] {
            assert_eq!(read(&theirs.join(path)).unwrap_err().kind(), ErrorKind::PermissionDenied, "{path}");
        }
        assert!(create_new(&theirs.join("folder/new")).is_err());
        assert!(replace(&theirs.join("folder/new"), "text").is_err());
        assert!(!tree.root().join("mine/new").exists());
    }

    #[test]
    fn what_is_made_for_a_home_is_of_its_user_and_nothing_of_root_is_reached() {
        let tree = Tree::with("guard-home", [("root/kept", "# of root\n")]);
        let Some(home) = of_other(&tree, "home") else { return };
        fs::set_permissions(tree.root().join("root"), Permissions::from_mode(0o700)).unwrap();
        let folder = Folder::make(&home.join(".config/tool"), Mode::RWXU, Owner::OfFolder).unwrap();
        folder.replace(OsStr::new("settings"), b"a", 0o644).unwrap();
        for path in [".config", ".config/tool", ".config/tool/settings"] {
            assert_eq!(home.join(path).symlink_metadata().unwrap().uid(), OTHER, "{path}");
        }
        let link = home.join("link");
        symlink(tree.root().join("root"), &link).unwrap();
        assert!(Folder::make(&link.join("sub"), Mode::RWXU, Owner::OfFolder).is_err(), "it is in a home");
        lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
        assert!(Folder::make(&link.join("new"), Mode::RWXU, Owner::OfFolder).is_err());
        fs::hard_link(tree.root().join("root/kept"), home.join("hard")).unwrap();
        fs::set_permissions(home.join("hard"), Permissions::from_mode(0o600)).unwrap();
        assert!(super::read(&home.join("hard"), MAX, Owner::OfFolder).is_err());
    }

    #[test]
    fn only_regular_files_of_a_size_are_read() {
        let tree = Tree::with("guard-kinds", [("file", "12345")]);
        let fifo = tree.root().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("/dev/zero", tree.root().join("zero")).unwrap();
        symlink("loop", tree.root().join("loop")).unwrap();
        let read =
            |name: &str, max| super::read(&tree.root().join(name), max, Owner::Caller).map_err(|e| e.kind());
        assert_eq!(read("file", 5).unwrap(), b"12345");
        assert_eq!(read("file", 4).unwrap_err(), ErrorKind::FileTooLarge);
        assert_eq!(read("none", 4).unwrap_err(), ErrorKind::NotFound);
        for name in ["fifo", "zero", ""] {
            assert_eq!(read(name, 5).unwrap_err(), ErrorKind::InvalidInput, "{name}");
        }
        assert!(read("loop", 5).is_err());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_never_through_a_link() {
        let tree = Tree::with("guard-replace", [("target", "theirs")]);
        let path = tree.root().join("a.prom");
        symlink("target", tree.root().join(format!("a.prom.{}.tmp", std::process::id()))).unwrap();
        replace(&path, "ours").unwrap();
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((text(&tree.root().join("target")), text(&path)), ("theirs".into(), "ours".into()));
        assert!(create_new(&path).is_err());
    }
}
