//! A process in an uninterruptible sleep: it waits for a child as vfork(2) makes the parent wait.

use serde_json::{Value, json};

use super::{wait_for_end, wait_for_go};
use crate::affinity;

/// Touches `mib` MiB, and waits in the kernel until standard input ends.
pub fn run(mib: u64) -> Result<Value, String> {
    let memory = vec![1u8; (mib as usize) << 20];
    wait_for_go(&json!({"pid": std::process::id()}));
    // SAFETY: as fork(2), in a process with one thread: the child has separate memory, and only waits and
    // ends. On both architectures the flags are the first argument, and a stack of zero is that of the
    // parent.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD, 0, 0, 0, 0) };
    match child {
        -1 => return Err(format!("cloning: {}", std::io::Error::last_os_error())),
        0 => {
            wait_for_end();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: no place for the status is given.
        child => unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), 0) },
    };
    Ok(
        json!({"bytes": std::hint::black_box(memory).len(), "cpu_ns": affinity::process_time().as_nanos() as u64}),
    )
}
