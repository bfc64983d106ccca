//! Unix sockets that another user may have made: nothing is waited for, and what listens is known by its user.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

use super::guard::{Folder, Owner, sudo_user};

fn connected(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, address)?;
    Ok(socket)
}

/// The user of the process that listens at an abstract address; `None` where none takes a connection now.
pub fn owner_of_abstract(name: &str) -> Option<u32> {
    let socket = connected(&SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
    Some(rustix::net::sockopt::socket_peercred(&socket).ok()?.uid.as_raw())
}

/// A socket in the file system, removed when this is dropped unless another has its name by then.
pub struct Bound {
    folder: Folder,
    path: PathBuf,
    /// Device and number.
    file: (u64, u64),
}

impl Bound {
    /// Listens at `path`, with these permissions. A leftover socket of this user or of the user behind sudo
    /// is replaced; any other entry is not.
    ///
    /// # Errors
    /// The errno of bind(2); `AddrInUse` where another process listens, or does not say.
    pub fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, Bound)> {
        let folder = Folder::of(path, Owner::Caller)?;
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let held = folder.held_path().join(name);
        let _identity = folder.identity();
        let look = || statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = |uid| uid == geteuid().as_raw() || sudo_user().is_some_and(|(caller, _)| caller == uid);
        if let Ok(found) = look()
            && FileType::from_raw_mode(found.st_mode) == FileType::Socket
            && ours(found.st_uid)
            // Any other result means that a process has it, possibly with a full queue (EAGAIN).
            && connected(&address_of(&held)?).err() == Some(Errno::CONNREFUSED)
        {
            folder.remove(name)?;
        }
        let listener = UnixListener::bind(&held)?;
        let found = look()?;
        let bound = Bound { folder, path: path.to_owned(), file: (found.st_dev, found.st_ino) };
        bound.allow(mode)?;
        listener.set_nonblocking(true)?;
        Ok((listener, bound))
    }

    /// Sets the permissions of that very socket.
    fn allow(&self, mode: u32) -> io::Result<()> {
        let name = self.path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.folder, name, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&fd)?;
        if (found.st_dev, found.st_ino) != self.file {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another socket replaced it"));
        }
        let held = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(rustix::fs::chmodat(CWD, held, Mode::from_raw_mode(mode), AtFlags::empty())?)
    }
}

fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path.as_os_str().as_bytes())?)
}

impl Drop for Bound {
    fn drop(&mut self) {
        let Some(name) = self.path.file_name() else { return };
        let now = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| (now.st_dev, now.st_ino) == self.file) {
            let _ = self.folder.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_socket_that_was_left_behind_is_replaced_and_one_with_a_full_queue_is_not() {
        let tree = Tree::new("bound");
        let path = tree.root().join("a");
        drop(UnixListener::bind(&path).unwrap());
        let (listener, bound) = Bound::listen(&path, 0o660).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(Bound::listen(&path, 0o660).err().unwrap().kind(), ErrorKind::AddrInUse);
        let mut queue = Vec::new();
        let address = address_of(&path).unwrap();
        while let Ok(one) = connected(&address) {
            queue.push(one);
            assert!(queue.len() < 100_000, "the group has no memory limit");
        }
        assert_eq!(Bound::listen(&path, 0o660).err().unwrap().kind(), ErrorKind::AddrInUse);
        drop((listener, bound));
        assert!(UnixStream::connect(&path).is_err() && !path.exists());
    }
}
