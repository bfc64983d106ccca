//! Signals from the first moment of the program on: which of them end it, and which was the first to come.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use signal_hook::low_level;

/// The first signal that asked the program to end; 0 before that.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Times the program was continued.
static CONTINUED: AtomicU64 = AtomicU64::new(0);

/// Both ends of what becomes readable when the program is asked to end.
static STOP: OnceLock<(UnixStream, UnixStream)> = OnceLock::new();

/// Signals that ask the program to end: all that would end it by default, but for those of a program that is broken
/// (SIGSEGV and the like), and those that are about writing (SIGPIPE, SIGXFSZ), which are errors of the write.
pub fn ending() -> impl Iterator<Item = i32> {
    let named = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGXCPU,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
    ];
    named.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// From now on signals end the program only where it looks for them: [`ended_by`], [`stop`]. SIGUSR1 does nothing until
/// there is a recording that it rotates, and a file that has reached the limit of its size (SIGXFSZ) is an error of the
/// write. To be called once, before anything else.
///
/// # Errors
/// No pair of sockets could be made, or a signal cannot be caught.
pub fn catch() -> io::Result<()> {
    let (read, write) = UnixStream::pair()?;
    let fd = write.as_raw_fd();
    // Never closed: the handlers write to it.
    if STOP.set((read, write)).is_err() {
        return Ok(());
    }
    // A signal that came between a handler and what it is to do would be lost.
    held(|| register(fd))
}

/// Does `work` while signals wait.
fn held<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: zeroed sets are valid, they outlive the calls, and the mask of this thread is put back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let done = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

fn register(fd: i32) -> io::Result<()> {
    for signal in ending() {
        let note = move || {
            let _ = FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
            wake(fd);
        };
        // SAFETY: an atomic and send(2) are all it does, and errno is as it was.
        unsafe { low_level::register(signal, note) }?;
    }
    let continued = || {
        CONTINUED.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: an atomic is all it does.
    unsafe { low_level::register(libc::SIGCONT, continued) }?;
    for signal in [libc::SIGUSR1, libc::SIGXFSZ] {
        // SAFETY: both signals may be ignored, and no handler is replaced.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    Ok(())
}

/// Makes `fd` readable at its other end. Called by signal handlers.
fn wake(fd: i32) {
    // SAFETY: errno is a variable of this thread, and the byte outlives the call. A full socket is readable already.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::send(fd, [0u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        *errno = before;
    }
}

/// From now on signals end the program at once, as they would end any other; also one that has come already.
pub fn release() {
    for signal in ending() {
        // SAFETY: the default of a signal takes no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    if let Some(signal) = ended_by() {
        let _ = low_level::raise(signal);
    }
}

/// The first signal that asked the program to end.
pub fn ended_by() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Readable from the moment on at which a signal asks the program to end. `None` before [`catch`].
pub fn stop() -> Option<BorrowedFd<'static>> {
    STOP.get().map(|(read, _)| read.as_fd())
}

/// Times the program was continued after it had been stopped, or told to continue when it was not.
pub fn continued() -> u64 {
    CONTINUED.load(Ordering::SeqCst)
}

/// The exit code of a program that `signal` ended, as a shell reports it.
pub fn exit_code(signal: i32) -> u8 {
    // Signals are numbered up to 64.
    128 | signal as u8
}
