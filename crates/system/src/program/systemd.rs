//! The protocol of a service manager: sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3). Outside a unit
//! nothing is sent, and no socket is found.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use sd_notify::NotifyState;

use crate::sys;

/// The stack of the thread: the usual one would count 2 MiB against a limit on data.
const STACK_BYTES: usize = 512 << 10;

/// Sockets that [`take_over`] found, until [`sockets`] hands them on.
static HANDED_OVER: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Status lines follow each other at this distance at least: each wakes the service manager.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// Messages that wait to be sent; others are dropped.
const MESSAGES_MAX: usize = 16;
/// The last message is waited for this long.
const LAST_WORD: Duration = Duration::from_millis(200);
/// Signs of life follow each other at this distance at least.
const SIGN_EVERY: Duration = Duration::from_millis(20);

/// Makes the sockets that the service manager handed over those of this process. To be called before anything else opens a
/// descriptor.
///
/// # Errors
/// LISTEN_PID is this process and LISTEN_FDS is no number, or a descriptor that it names is not open.
pub fn take_over() -> io::Result<()> {
    let sockets = sys::inherited_sockets()?;
    *HANDED_OVER.lock().unwrap_or_else(PoisonError::into_inner) = sockets;
    Ok(())
}

/// The sockets that the service manager handed over, in the order of the unit; none at the second call.
pub fn sockets() -> Vec<OwnedFd> {
    std::mem::take(&mut HANDED_OVER.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reports that the service works. Without a manager nothing happens.
pub fn ready(status: &str) {
    let _ = tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the service is ending.
pub fn stopping() {
    if let Some(sent) = tell(&[NotifyState::Stopping]) {
        // The process may end before the thread that sends has its turn.
        let _ = sent.recv_timeout(LAST_WORD);
    }
}

/// A message, and whom to tell that it was sent or dropped.
type Message = (String, Sender<()>);

/// Messages to the service manager. Only the thread behind it touches the socket: the manager may not read
/// it, and its path may be on a file system that does not answer.
static MESSAGES: OnceLock<Option<SyncSender<Message>>> = OnceLock::new();

/// Hands a message on, and waits for nothing. Returns what receives once it was sent or dropped.
fn tell(states: &[NotifyState<'_>]) -> Option<Receiver<()>> {
    let messages = MESSAGES.get_or_init(start_sender).as_ref()?;
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    let (sent, receiver) = channel();
    messages.try_send((text, sent)).ok().map(|()| receiver)
}

/// `None` without a manager.
fn start_sender() -> Option<SyncSender<Message>> {
    let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddrUnix::new_abstract_name(abstract_name),
        path => SocketAddrUnix::new(path),
    };
    let address = address.ok()?;
    let (messages, received) = sync_channel::<Message>(MESSAGES_MAX);
    let work = move || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) else {
            return;
        };
        for (text, sent) in received {
            // A manager that does not read misses it.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::sendto(&socket, text.as_bytes(), flags, &address);
            let _ = sent.send(());
        }
    };
    thread::Builder::new().name("notify".into()).stack_size(STACK_BYTES).spawn(work).ok()?;
    Some(messages)
}

/// Signs of life for a unit with `WatchdogSec=`, and its status line.
pub struct Watchdog {
    /// Time between two signs of life: a third of the manager's timeout; `None` if it does not watch.
    every: Option<Duration>,
    due: Instant,
    status_due: Instant,
}

impl Watchdog {
    /// From the environment of this process.
    pub fn new() -> Watchdog {
        Watchdog::within(sd_notify::watchdog_enabled())
    }

    fn within(period: Option<Duration>) -> Watchdog {
        let now = Instant::now();
        // A period of 0 is an error to sd_watchdog_enabled(3), which sd_notify hands on.
        let every = period.filter(|period| !period.is_zero()).map(|period| (period / 3).max(SIGN_EVERY));
        Watchdog { every, due: now, status_due: now }
    }

    /// Gives a sign of life if it is time, and the status.
    pub fn beat(&mut self, status: impl FnOnce() -> String) {
        let now = Instant::now();
        self.sign(now);
        if now >= self.status_due {
            self.status_due = now + STATUS_EVERY;
            let _ = tell(&[NotifyState::Status(&status())]);
        }
    }

    fn sign(&mut self, now: Instant) {
        if let Some(every) = self.every.filter(|_| now >= self.due) {
            self.due = now + every;
            let _ = tell(&[NotifyState::Watchdog]);
        }
    }

    /// Waits until `due` with `wait`, which may be called several times so that signs of life are in time.
    /// `wait` gets a moment, and returns whether to stop.
    ///
    /// # Errors
    /// Errors of `wait`.
    pub fn wait<E>(
        &mut self,
        due: Instant,
        mut wait: impl FnMut(Instant) -> Result<bool, E>,
    ) -> Result<bool, E> {
        while self.every.is_some() && self.due < due {
            if wait(self.due)? {
                return Ok(true);
            }
            self.sign(Instant::now());
        }
        wait(due)
    }
}

impl Default for Watchdog {
    fn default() -> Watchdog {
        Watchdog::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moments, in ms from now, that a wait of a second is cut into.
    fn pieces(period: Option<Duration>) -> Vec<u128> {
        let begin = Instant::now();
        let mut watchdog = Watchdog::within(period);
        let mut all = Vec::new();
        let stopped = watchdog.wait(begin + Duration::from_millis(100), |until| {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            all.push(until.saturating_duration_since(begin).as_millis());
            Ok::<_, ()>(false)
        });
        assert_eq!(stopped, Ok(false));
        all
    }

    #[test]
    fn a_wait_is_whole_where_nobody_watches_and_in_pieces_below_the_period_otherwise() {
        assert_eq!(pieces(None), [100]);
        let watched = pieces(Some(Duration::from_millis(90)));
        assert!(watched.len() >= 3 && watched.last() == Some(&100), "{watched:?}");
        assert!(watched.is_sorted(), "{watched:?}");
    }

    #[test]
    fn a_wait_that_is_told_to_stop_does() {
        let mut watchdog = Watchdog::within(Some(Duration::from_millis(3)));
        let mut calls = 0;
        let stopped = watchdog.wait(Instant::now() + Duration::from_secs(3600), |_| {
            calls += 1;
            Ok::<_, ()>(calls == 2)
        });
        assert_eq!((stopped, calls), (Ok(true), 2));
    }

    #[test]
    fn a_period_of_nothing_is_none_and_a_short_one_keeps_no_cpu_busy() {
        let every = |us| Watchdog::within(Some(Duration::from_micros(us))).every;
        assert_eq!((every(0), every(1)), (None, Some(SIGN_EVERY)));
        assert!(every(u64::MAX).is_some());
    }
}
