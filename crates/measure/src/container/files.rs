//! Reading files that a container's owner may have put there: no links, no devices, no endless files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::process::geteuid;

/// The content of the regular file `name` below the directory `dir`, at most `max` bytes long. The way to
/// `dir` itself is trusted (administrators move it with links); nothing below it may be a link.
///
/// # Errors
/// The errno of open(2), openat2(2) (Linux 5.6) or read(2); `InvalidData` for a file that is too long or
/// not a regular one.
pub(super) fn read_below(dir: &Path, name: &str, max: u64) -> io::Result<Vec<u8>> {
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(dir)?;
    let file = open_below(&dir, Path::new(name))?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file, or too large"));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    // It may grow while it is read.
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As [`read_below`], for a file in the home of the user `uid`. The file must belong to that user, and a list
/// longer than `max` bytes is a separate error. Waits for filesystems of that user.
///
/// # Errors
/// As those of [`read_below`]; `FileTooLarge` for a file that is too long, `PermissionDenied` for one of another user.
pub(super) fn read_of_user(home: &Path, name: &str, max: u64, uid: u32) -> io::Result<Vec<u8>> {
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(home)?;
    let file = open_below(&dir, Path::new(name))?;
    let meta = file.metadata()?;
    if !meta.is_file() || ![0, uid, geteuid().as_raw()].contains(&meta.uid()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a regular file owned by this user"));
    }
    if meta.len() > max {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_below(dir: &File, name: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a FIFO would block until a writer opens it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(dir, name, flags, Mode::empty(), resolve)?.into())
}

/// Names in the directory `dir`, at most `max` of them; none when it cannot be read.
pub(super) fn list(dir: &Path, max: usize) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.take(max).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    #[test]
    fn links_devices_and_long_files_are_refused() {
        let dir = std::env::temp_dir().join(format!("numatop-files-{}", std::process::id()));
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/short"), "abc").unwrap();
        symlink("/etc/passwd", dir.join("link")).unwrap();
        symlink("sub", dir.join("way")).unwrap();
        mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read_below(&dir, "sub/short", 3).unwrap(), b"abc");
        for (name, max) in [
            ("sub/short", 2),
            ("link", 1 << 20),
            ("way/short", 3),
            ("fifo", 3),
            ("sub", 3),
            ("../x", 3),
            ("no", 3),
        ] {
            assert!(read_below(&dir, name, max).is_err(), "{name}");
        }
        assert_eq!(list(&dir, 10).len(), 4);
        assert_eq!(list(&dir, 2).len(), 2);
        fs::remove_dir_all(&dir).unwrap();
    }
}
