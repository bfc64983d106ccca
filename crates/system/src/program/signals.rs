//! Signals from the first moment of the program on: which of them end it, and which was the first to come.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use signal_hook::low_level;

use crate::sys;

/// The first signal that asked the program to end; 0 before that.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Bit `signal - 1`: the parent of the program made it ignore this signal, as nohup(1) does.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Times the program was continued.
static CONTINUED: AtomicU64 = AtomicU64::new(0);

/// Signals end the program at once again.
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

/// Both ends of the socket pair that becomes readable when the program is asked to end.
static STOP: OnceLock<(UnixStream, UnixStream)> = OnceLock::new();

/// Signals that ask the program to end: all that would end it by default, with two exceptions. One are those
/// of a broken program (SIGSEGV and the like). The other are those about writing (SIGPIPE, SIGXFSZ), which
/// are errors of the write.
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

/// From now on signals end the program only where it checks for them: [`ended_by`], [`stop`]. SIGUSR1 does
/// nothing until a recording exists that it rotates. A file at the limit of its size (SIGXFSZ) is an error of
/// the write. To be called once, before anything else.
///
/// # Errors
/// No pair of sockets could be made, or a signal cannot be caught.
pub fn catch() -> io::Result<()> {
    let (read, write) = UnixStream::pair()?;
    // Never closed: the handlers write to it.
    if STOP.set((read, write)).is_err() {
        return Ok(());
    }
    let (_, wake) = STOP.get().expect("set above");
    let of_program = ending().chain([libc::SIGUSR1, libc::SIGXFSZ]);
    let ignored = of_program.filter(|signal| sys::is_ignored(*signal));
    IGNORED.store(ignored.fold(0, |bits, signal| bits | 1 << (signal - 1)), Ordering::SeqCst);
    // A signal that came between a handler and what it is to do would be lost.
    sys::with_signals_held(|| register(wake))
}

fn register(wake: &'static UnixStream) -> io::Result<()> {
    for signal in ending() {
        match sys::note_signal(signal, &FIRST, wake) {
            // Valgrind keeps the last one for itself.
            Err(error) if signal == libc::SIGRTMAX() && error.raw_os_error() == Some(libc::EINVAL) => {}
            noted => noted?,
        }
    }
    sys::count_signal(libc::SIGCONT, &CONTINUED)?;
    sys::ignore_signal(libc::SIGUSR1);
    sys::ignore_signal(libc::SIGXFSZ);
    Ok(())
}

/// From now on signals end the program at once, as they would end any other; also one that has come already.
pub fn release() {
    IS_RELEASED.store(true, Ordering::SeqCst);
    for signal in ending() {
        sys::default_signal(signal);
    }
    if let Some(signal) = ended_by() {
        let _ = low_level::raise(signal);
    }
}

/// The first signal that asked the program to end.
pub fn ended_by() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Readable from the moment on at which a signal asks the program to end. `None` before [`catch`] and after [`release`].
pub fn stop() -> Option<BorrowedFd<'static>> {
    STOP.get().filter(|_| !IS_RELEASED.load(Ordering::SeqCst)).map(|(read, _)| read.as_fd())
}

/// Signals that the program was started with as ignored ones: a command of the user is to be, too.
pub fn ignored_at_start() -> Vec<i32> {
    let bits = IGNORED.load(Ordering::SeqCst);
    (1..=64).filter(|signal| bits >> (signal - 1) & 1 == 1).collect()
}

/// The next signal that asked the program to end and has not been taken. Once all are taken, [`stop`] is not readable
/// until another comes.
pub fn take() -> Option<i32> {
    let (read, _) = STOP.get()?;
    let mut byte = [0];
    match rustix::net::recv(read, &mut byte, rustix::net::RecvFlags::DONTWAIT) {
        Ok((1, _)) => Some(byte[0].into()),
        _ => None,
    }
}

/// Times the program was continued after a stop, or got SIGCONT without one.
pub fn continued() -> u64 {
    CONTINUED.load(Ordering::SeqCst)
}

/// The exit code of a program that `signal` ended, as a shell reports it.
pub fn exit_code(signal: i32) -> u8 {
    // Signals are numbered up to 64.
    128 | signal as u8
}
