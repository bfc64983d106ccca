//! Limits of this process: getrlimit(2).

use rustix::process::{Resource, getrlimit};

/// Files that this process may have open now; `None` without a limit.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Bytes of address space that this process may have; `None` without a limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Processes and threads that the user of this process may have; `None` without a limit. Root is not bound by it.
pub fn threads() -> Option<u64> {
    getrlimit(Resource::Nproc).current
}
