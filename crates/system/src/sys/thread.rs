//! The calling thread and its process: rights, events, CPUs, and handlers of signals that only note them.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::{io, ptr};

use super::{WORD, checked};

/// Sets the user and group as which this thread meets the file system. Returns those before. The kernel ignores what it
/// does not permit.
pub fn set_fs_ids(uid: u32, gid: u32) -> (u32, u32) {
    // SAFETY: both take any number, and change ids of this thread only. The group comes first: a thread that is another
    // user may not change it.
    let before = unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
    (before.1 as u32, before.0 as u32)
}

/// Closes all descriptors except the standard streams in the next program that this process executes. Linux
/// before 5.11 lacks this call, and inherited ones stay open there.
pub fn close_on_exec() {
    // SAFETY: a flag of descriptors changes, and none is closed as long as this program runs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Events of a thread or of a process since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadEvents {
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because another task ran instead.
    pub involuntary: u64,
    /// Page faults that read nothing from a disk.
    pub minor_faults: u64,
}

/// Events of the calling thread (getrusage(2) with RUSAGE_THREAD).
pub fn thread_events() -> ThreadEvents {
    events_of(libc::RUSAGE_THREAD)
}

/// Events of all threads of this process, ended ones included (RUSAGE_SELF).
pub fn process_events() -> ThreadEvents {
    events_of(libc::RUSAGE_SELF)
}

fn events_of(whose: c_int) -> ThreadEvents {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure that is passed; zeros are valid, should it not.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
    ThreadEvents {
        voluntary: usage.ru_nvcsw as u64,
        involuntary: usage.ru_nivcsw as u64,
        minor_faults: usage.ru_minflt as u64,
    }
}

/// CPU time of a process, ended threads included, ns (clock_getcpuclockid(3)).
///
/// # Errors
/// ESRCH if the process does not exist, EINVAL where it has been reaped meanwhile.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let mut clock = 0;
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the call fills the number that is passed.
    match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) } {
        0 => {}
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    // SAFETY: the kernel fills the structure that is passed; zeros are valid, should it not.
    let time = unsafe {
        checked(libc::clock_gettime(clock, time.as_mut_ptr()).into())?;
        time.assume_init()
    };
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// The errno of sched_setaffinity(2): EINVAL where none of them is online and in the cpuset.
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    const BITS: u32 = u64::BITS;
    let words = cpus.iter().max().map_or(1, |most| most / BITS + 1) as usize;
    let mut mask = vec![0u64; words];
    cpus.iter().for_each(|cpu| mask[(cpu / BITS) as usize] |= 1 << (cpu % BITS));
    // SAFETY: the mask has the size that is passed, and outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, words * WORD, mask.as_ptr()) }).map(drop)
}

/// Gives the calling thread, and the threads it makes, the least weight of all: nice 19, SCHED_BATCH. If the
/// kernel refuses, nothing changes.
pub fn stand_back() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, and both calls change this thread only.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter);
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}

/// The CPU that the calling thread runs on at this moment.
pub fn current_cpu() -> Option<u32> {
    // SAFETY: takes nothing.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Does `work` while this thread gets no signals.
pub fn with_signals_held<T>(work: impl FnOnce() -> T) -> T {
    /// Puts the mask back, also when `work` panics.
    struct Before(libc::sigset_t);

    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: the set is initialised: the kernel wrote it.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
        }
    }

    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: sigfillset initialises `all`, and both sets outlive the calls. A zeroed set is a valid, empty one.
    let _before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        Before(before.assume_init())
    };
    work()
}

/// From now on `signal` is noted in `first` if that is 0, and sends its number to the other end of `wake`.
///
/// # Errors
/// No handler can be set for it.
pub fn note_signal(signal: c_int, first: &'static AtomicI32, wake: &'static UnixStream) -> io::Result<()> {
    let fd = wake.as_raw_fd();
    let note = move || {
        let _ = first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        // SAFETY: errno is a variable of this thread, the byte outlives the call, and the descriptor stays open, as
        // the socket is borrowed for good. A full socket is readable already.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::send(fd, [signal as u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            *errno = before;
        }
    };
    // SAFETY: an atomic and send(2) are all the handler does, both async-signal-safe, and errno is as it was.
    unsafe { signal_hook::low_level::register(signal, note) }?;
    Ok(())
}

/// From now on `count` goes up with each `signal`.
///
/// # Errors
/// No handler can be set for it.
pub fn count_signal(signal: c_int, count: &'static AtomicU64) -> io::Result<()> {
    let note = || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: an atomic is all the handler touches, which is async-signal-safe.
    unsafe { signal_hook::low_level::register(signal, note) }?;
    Ok(())
}

/// From now on `signal` does nothing.
pub fn ignore_signal(signal: c_int) {
    // SAFETY: no function is handed over; a signal that cannot be ignored is refused.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Restores the default action of `signal`.
pub fn default_signal(signal: c_int) {
    // SAFETY: no function is handed over; a signal without another action is refused.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Sends `signal` to one thread of this process; nothing happens when it has ended.
pub fn signal_thread(tid: i32, signal: c_int) {
    // SAFETY: tgkill(2) takes any numbers, and reaches threads of this process only.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id() as libc::pid_t, tid, signal) };
}

#[cfg(test)]
mod tests {
    use super::super::{PageAdvice, Region, WORD};
    use super::*;

    #[test]
    fn a_thread_knows_its_faults_and_its_cpu() {
        let cpu = current_cpu().unwrap();
        run_on(&[cpu]).unwrap();
        assert_eq!(current_cpu(), Some(cpu));
        assert!(run_on(&[]).is_err());
        let mut region = Region::new(1).unwrap();
        region.advise(PageAdvice::Small).unwrap();
        let before = thread_events();
        let step = rustix::param::page_size() / WORD;
        region.words_mut()[..16 * step].iter_mut().step_by(step).for_each(|word| *word = 1);
        assert!(thread_events().minor_faults - before.minor_faults >= 16);
    }

    #[test]
    fn signals_wait_while_they_are_held() {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        count_signal(libc::SIGURG, &COUNT).unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        with_signals_held(|| {
            signal_thread(tid, libc::SIGURG);
            assert_eq!(COUNT.load(Ordering::SeqCst), 0);
        });
        assert_eq!(COUNT.load(Ordering::SeqCst), 1);
    }
}
