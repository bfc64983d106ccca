//! Limits of this process: setrlimit(2).

use rustix::process::{Resource, getrlimit};

/// Files that this process may have open now; `None` without a limit.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
