//! Limits of this process: getrlimit(2).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that this process may have open now; `None` without a limit.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the number of files that this process may have open to `needed`, as far as the hard limit allows.
/// Returns the new limit; `None` without one. The hard limit does not change: an administrator may have set
/// it on purpose.
pub fn raise_open_files(needed: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let current = Some(maximum.map_or(needed, |maximum| needed.min(maximum)));
        // A refusal, which only a filter of system calls can cause, leaves the limit as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
    open_files()
}

/// Bytes of address space that this process may have; `None` without a limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Processes and threads that the user of this process may have; `None` without a limit. Root is not bound by it.
pub fn threads() -> Option<u64> {
    getrlimit(Resource::Nproc).current
}
