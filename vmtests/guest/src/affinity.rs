//! Where threads run: pinning, names, and the CPU time they used.

use std::io;
use std::time::Duration;

/// Binds the calling thread to these CPUs.
pub fn pin(cpus: &[u32]) -> io::Result<()> {
    pin_task(0, cpus)
}

/// Binds a thread to these CPUs; 0 is the calling one.
pub fn pin_task(tid: i32, cpus: &[u32]) -> io::Result<()> {
    // SAFETY: a zeroed set is an empty one; CPU_SET stays inside it because of the check.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            if cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            libc::CPU_SET(cpu as usize, &mut set);
        }
        match libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Names the calling thread; the kernel keeps 15 bytes.
pub fn name(name: &str) {
    let mut bytes = [0u8; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    // SAFETY: the kernel reads 16 valid bytes; the last one is zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

pub fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

pub fn current_cpu() -> u32 {
    // SAFETY: sched_getcpu has no preconditions.
    unsafe { libc::sched_getcpu() as u32 }
}

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the calling process, its ended threads included.
pub fn process_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time reported by wait4(2), user and system, in whole microseconds.
pub fn cpu_time(usage: &libc::rusage) -> Duration {
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a valid place for the answer.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
