//! Walls around the symbolizer: no capability, no new file, no new program, little memory.
//!
//! Hostile files can make it crash, hang or starve, and that costs the names in those files. If one made it run other
//! code, that code could compute and answer, and nothing else.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Bytes of private memory that it may have.
const MEMORY: u64 = 48 << 20;
/// Its socket, standard output and error, and the file that came with a question.
const FILES: u64 = 16;

/// System calls that it may make: all others fail with EPERM.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_pread64,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Gives up all rights that answering questions does not need, for good. The process must have one thread.
///
/// # Errors
/// The kernel refused one of the walls: nothing hostile may be looked at then.
pub(super) fn confine() -> Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).context("PR_SET_DUMPABLE")?;
    for (resource, most) in
        [(Resource::Core, 0), (Resource::Fsize, 0), (Resource::Data, MEMORY), (Resource::Nofile, FILES)]
    {
        // A limit that is lower already cannot be raised without CAP_SYS_RESOURCE, and need not be.
        let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).with_context(|| format!("setrlimit {resource:?}"))?;
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).context("capset")?;
    seccompiler::apply_filter(&filter()?).context("seccomp")
}

fn filter() -> Result<BpfProgram> {
    let rules: BTreeMap<i64, Vec<_>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().context("seccomp on this architecture")?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}
