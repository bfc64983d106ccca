//! A child between its start and its end: what it inherits, where it may be, as whom it runs, what it used.

use std::ffi::{CString, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr;
use std::time::Duration;

use super::{checked, owned};

/// CPU time of a process, by the mode of the CPU (getrusage(2)). The kernel splits an exact sum by ticks unless it was built
/// to split exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTimes {
    fn of(usage: &libc::rusage) -> CpuTimes {
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        CpuTimes { user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }
}

/// CPU times of this process.
pub fn own_cpu_times() -> CpuTimes {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure that is passed; zeros are valid, should it not.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    CpuTimes::of(&usage)
}

/// Waits for the end of a child. Returns its status, and the CPU times of it and of all descendants that were
/// waited for.
///
/// # Errors
/// ECHILD if the child does not exist, or was waited for.
pub fn wait_for(pid: u32) -> io::Result<(ExitStatus, CpuTimes)> {
    let mut status: c_int = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: the kernel fills both that are passed.
        let waited = unsafe { libc::wait4(pid as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr()) };
        match checked(waited.into()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    // SAFETY: zeros are valid, and so is what the kernel wrote.
    let usage = unsafe { usage.assume_init() };
    Ok((ExitStatus::from_raw(status), CpuTimes::of(&usage)))
}

/// A descriptor that the parent of this process left open for it, closed in whatever program this process executes next.
/// To be called once for a number, before this process opens anything.
///
/// # Errors
/// EBADF where it is not open.
pub fn inherited(fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes any number, and changes a flag of this process's own table.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: it is open, and nothing in this process owns it: it was inherited.
    Ok(unsafe { owned(fd) })
}

/// Whether the program that started this one left `signal` ignored.
pub fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set; the call fills the structure that is passed, for which zeros are valid, should it not.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Makes this process and its children take memory from these nodes only (MPOL_BIND of set_mempolicy(2)).
///
/// # Errors
/// EINVAL where none of them is online and in the cpuset, ENOSYS without CONFIG_NUMA.
pub fn allocate_on(nodes: &[u32]) -> io::Result<()> {
    const BITS: u32 = u64::BITS;
    let words = nodes.iter().max().map_or(1, |most| most / BITS + 1) as usize;
    let mut mask = vec![0u64; words];
    nodes.iter().for_each(|node| mask[(node / BITS) as usize] |= 1 << (node % BITS));
    let bits = words * BITS as usize + 1;
    // SAFETY: the mask has the bits that are passed (the kernel takes one less), and outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), bits) }).map(drop)
}

/// Makes this process one of another user for good, with the groups of that user. It must have only one
/// thread.
///
/// # Errors
/// EPERM without CAP_SETUID and CAP_SETGID.
pub fn become_user(name: Option<&str>, uid: u32, gid: u32) -> io::Result<()> {
    let name = name.map(CString::new).transpose()?;
    // SAFETY: the name ends with NUL and outlives the call; the other calls take any number.
    unsafe {
        let groups = match &name {
            Some(name) => libc::initgroups(name.as_ptr(), gid),
            None => libc::setgroups(0, ptr::null()),
        };
        checked(groups.into())?;
        checked(libc::setresgid(gid, gid, gid).into())?;
        checked(libc::setresuid(uid, uid, uid).into()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_leaves_its_status_and_its_times() {
        let words = ["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7"];
        let mut child = Command::new("sh").args(words).spawn().unwrap();
        let (status, used) = wait_for(child.id()).unwrap();
        assert!(child.wait().is_err(), "it was waited for");
        assert_eq!(status.code(), Some(7));
        assert!(used.user > Duration::ZERO);
        assert_eq!(wait_for(child.id()).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn no_memory_comes_from_nowhere() {
        assert_eq!(allocate_on(&[]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(inherited(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
