//! The process that a task id belongs to, as `/proc` says.

use std::fs;
use std::io;
use std::path::Path;

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
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let process = text.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no Tgid"))
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
