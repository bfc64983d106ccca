//! Handlers of signals that only note them.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

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
    use super::*;

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
