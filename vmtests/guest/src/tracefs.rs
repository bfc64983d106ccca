//! The kernel's own tracers, as a truth for the counts of the tool's programs.

use std::fs;
use std::path::Path;

use crate::cases::Stop;

const TRACEFS: &str = "/sys/kernel/tracing";

/// Mounts the tracers if need be.
///
/// # Errors
/// A reason to skip: the kernel has none.
pub fn mount() -> Result<(), Stop> {
    if !Path::new(TRACEFS).join("trace").exists() {
        let to = std::ffi::CString::new(TRACEFS).expect("no NUL in it");
        // SAFETY: all are strings that end; the file system needs no data.
        unsafe { libc::mount(c"tracefs".as_ptr(), to.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null()) };
    }
    read("available_tracers").map(drop).map_err(Stop::skip)
}

/// The content of a file of theirs.
pub fn read(file: &str) -> Result<String, String> {
    let path = Path::new(TRACEFS).join(file);
    fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))
}

/// Writes to a file of theirs.
pub fn set(file: &str, value: &str) -> Result<(), String> {
    let path = Path::new(TRACEFS).join(file);
    fs::write(&path, value).map_err(|error| format!("writing {value:?} to {}: {error}", path.display()))
}
