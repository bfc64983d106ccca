//! One process whose pages are read: its files in /proc, and move_pages(2).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

use crate::collect::proc_details::is_process;
use crate::host::processes;
use crate::model::sample::Missing;
use crate::sys;

/// A process that cannot be mistaken for another one: its directory in /proc is open, and after the process
/// has ended nothing can be opened there.
pub struct Target {
    /// Its id in our own pid namespace, as system calls take it.
    pub pid: u32,
    dir: OwnedFd,
}

impl Target {
    /// Process `pid` that started at `start_ns` since boot, below `root` (`/`).
    ///
    /// # Errors
    /// ESRCH: it has ended, or another one has its id now.
    pub fn open(root: &Path, pid: u32, start_ns: u64) -> io::Result<Target> {
        let dir = File::open(root.join(format!("proc/{pid}")))?;
        let target = Target { pid: processes::own_id(root, pid).ok_or_else(gone)?, dir: dir.into() };
        let mut stat = target.file(c"stat")?;
        if is_process(&mut stat, start_ns)? { Ok(target) } else { Err(gone()) }
    }

    /// Opens a file of its directory.
    ///
    /// # Errors
    /// The errno of openat(2); ESRCH when it has ended.
    pub fn file(&self, name: &std::ffi::CStr) -> io::Result<File> {
        Ok(openat(&self.dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Whether it is still there. When it is, everything that its id answered before was its own answer.
    ///
    /// # Errors
    /// ESRCH: it has ended.
    pub fn check(&self) -> io::Result<()> {
        self.file(c"comm").and_then(|mut comm| io::Read::read(&mut comm, &mut [0; 1])).map(|_| ())
    }

    /// The nodes of pages (numbers of `page_size` bytes), or a negative errno for each that is not there. Moves nothing.
    ///
    /// # Errors
    /// The errno of move_pages(2).
    pub fn nodes(&self, pages: &[u64], page_size: u64) -> io::Result<Vec<i32>> {
        let addresses: Vec<u64> = pages.iter().map(|page| page * page_size).collect();
        sys::nodes_of_pages(self.pid, &addresses)
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// The reason why its placement is unavailable, from an error while `doing` something.
pub fn reason(doing: &str, error: &io::Error) -> Missing {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => {
            Missing::Lost("the process ended while its pages were looked up".into())
        }
        Some(libc::EPERM | libc::EACCES) => Missing::NotPermitted(format!(
            "{doing}: {error}; pages of other users' processes need CAP_SYS_PTRACE"
        )),
        Some(libc::ENOSYS) => {
            Missing::Unsupported(format!("{doing}: {error}; the kernel has no page migration"))
        }
        _ => Missing::Lost(format!("{doing}: {error}")),
    }
}
