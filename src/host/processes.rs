//! The process that a task id belongs to, as `/proc` says.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The process (thread group) of the task with this id, from `proc/ID/status` below `root`; `None` when there is no
/// such task. Ids of threads have a directory too, which listing `/proc` does not show (proc(5)).
///
/// # Errors
/// The file cannot be read for another reason, or does not say.
pub fn process_of(root: &Path, id: u32) -> io::Result<Option<u32>> {
    let text = match fs::read_to_string(root.join(format!("proc/{id}/status"))) {
        Ok(text) => text,
        // ESRCH: it ended between being opened and being read.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            // Where /proc is mounted with hidepid, it is there and cannot be seen.
            return if root == Path::new("/") && answers(id) { Err(hidden()) } else { Ok(None) };
        }
        Err(error) => return Err(error),
    };
    let process = text.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no Tgid"))
}

/// Whether the kernel knows a process or thread of this id, whoever may see it (kill(2) with signal 0).
fn answers(id: u32) -> bool {
    let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return false };
    matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM))
}

fn hidden() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "/proc hides it (mounted with hidepid)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let root = Path::new("/");
        assert_eq!(process_of(root, own).unwrap(), Some(std::process::id()));
        assert_eq!(process_of(root, u32::MAX).unwrap(), None);
    }
}
