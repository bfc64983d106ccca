//! The sockets that serve the page: one thread, bounded in connections, bytes and time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Shutdown, SocketType, sockopt};

use super::Shared;
use super::request::{REQUEST_MAX, answer};
use crate::program::sockets::Bound;

/// Maximum connections at a time, in total and of one peer (an address, or a user of this machine). If a peer
/// has more, one of its connections is closed.
const CONNECTIONS: usize = 64;
const OF_A_PEER: usize = 8;
/// Bytes that are still read behind a request, and time for them: closing with unread bytes would take the answer back.
const REST_MAX: usize = 1 << 20;
const REST_WITHIN: Duration = Duration::from_secs(2);
/// Time in which a request has to be there, and its answer taken.
const READ_WITHIN: Duration = Duration::from_secs(5);
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Net(SocketAddr),
    /// A separate socket in the file system, for its owner and group.
    Unix(PathBuf),
}

enum Listener {
    Net(TcpListener),
    /// With its path, if this process must remove it.
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file when it is dropped")] Option<Bound>),
}

impl Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Net(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        Ok(match self {
            Listener::Net(listener) => {
                let (stream, from) = listener.accept()?;
                stream.set_nonblocking(true)?;
                (Box::new(stream), Peer::Address(network(from.ip())))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let user = sockopt::socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw());
                (Box::new(stream), Peer::User(user))
            }
        })
    }
}

trait Stream: Read + Write + AsFd + Send {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Peer {
    Address(IpAddr),
    /// A user of this machine; `None`: not known.
    User(Option<u32>),
}

struct Connection {
    peer: Peer,
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// The rest of the answer; `None` until the request is whole.
    answer: Option<(Vec<u8>, usize)>,
    /// The answer is written: bytes that may still be read.
    rest: Option<usize>,
    until: Instant,
}

impl Connection {
    /// Reads or writes what can be now. False: it is over.
    fn go_on(&mut self, page: &Shared) -> io::Result<bool> {
        if let Some(rest) = &mut self.rest {
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes)?;
            *rest = rest.saturating_sub(count);
            return Ok(count > 0 && *rest > 0);
        }
        if self.answer.is_none() {
            let mut bytes = [0; 4096];
            let room = (REQUEST_MAX - self.received.len()).min(bytes.len());
            let count = self.stream.read(&mut bytes[..room])?;
            if count == 0 {
                return Ok(false);
            }
            self.received.extend_from_slice(&bytes[..count]);
            let page = page.read().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(bytes) = answer(&self.received, &page, now_wall_ns()) else { return Ok(true) };
            self.answer = Some((bytes, 0));
            self.until = Instant::now() + WRITE_WITHIN;
        }
        let Some((bytes, written)) = &mut self.answer else { return Ok(true) };
        *written += self.stream.write(&bytes[*written..])?;
        if *written < bytes.len() {
            return Ok(true);
        }
        rustix::net::shutdown(&self.stream, Shutdown::Write)?;
        self.rest = Some(REST_MAX);
        self.until = Instant::now() + REST_WITHIN;
        Ok(true)
    }
}

fn now_wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// Listening sockets.
pub struct Server {
    listeners: Vec<Listener>,
}

impl Server {
    /// Listens at each address. A socket in the file system that was left behind is replaced, a file is not.
    ///
    /// # Errors
    /// The errno of the first address that cannot be used, with its name.
    pub fn listen(addresses: &[Address]) -> io::Result<Server> {
        let mut listeners = Vec::new();
        for address in addresses {
            let (listener, name) = match address {
                Address::Net(at) => (net(*at), at.to_string()),
                Address::Unix(path) => (unix(path), crate::text::clean_str(&path.to_string_lossy())),
            };
            let said =
                |error: io::Error| io::Error::new(error.kind(), format!("listening at {name}: {error}"));
            listeners.push(listener.map_err(said)?);
        }
        Ok(Server { listeners })
    }

    /// Serves at sockets that listen already, and outlive this process: those of a service manager.
    ///
    /// # Errors
    /// A descriptor is not a stream socket of the network or the file system, or does not listen; the error
    /// names it.
    pub fn inherit(sockets: Vec<OwnedFd>) -> io::Result<Server> {
        let all = sockets.into_iter().enumerate();
        let listeners = all.map(|(at, socket)| {
            inherited(socket).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("socket {} passed by the service manager: {error}", at + 1),
                )
            })
        });
        Ok(Server { listeners: listeners.collect::<io::Result<_>>()? })
    }

    /// The addresses of the network that it listens at: with port 0 the kernel has chosen one.
    pub fn ports(&self) -> Vec<SocketAddr> {
        let port = |listener: &Listener| match listener {
            Listener::Net(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        };
        self.listeners.iter().filter_map(port).collect()
    }

    /// Serves `page` until `stop` is readable or closed at its other end.
    ///
    /// # Errors
    /// The errno of poll(2).
    pub fn serve(self, page: &Shared, stop: &OwnedFd) -> io::Result<()> {
        let mut connections: Vec<Connection> = Vec::new();
        loop {
            let now = Instant::now();
            connections.retain(|connection| connection.until > now);
            let until = connections.iter().map(|connection| connection.until).min();
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            for listener in &self.listeners {
                fds.push(PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN));
            }
            let listening = fds.len();
            for connection in &connections {
                let writes = connection.answer.is_some() && connection.rest.is_none();
                let flags = if writes { PollFlags::OUT } else { PollFlags::IN };
                fds.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), flags));
            }
            let wait = until.and_then(|until| Timespec::try_from(until.saturating_duration_since(now)).ok());
            match poll(&mut fds, wait.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[0] {
                return Ok(());
            }
            let mut at = listening;
            connections.retain_mut(|connection| {
                let is_ready = ready[at];
                at += 1;
                !is_ready || goes_on(connection.go_on(page))
            });
            for (listener, _) in self.listeners.iter().zip(&ready[1..listening]).filter(|(_, ready)| **ready)
            {
                // The peer may have left again, or descriptors are short: the next round shows it.
                if let Ok((stream, peer)) = listener.accept() {
                    make_room(&mut connections, peer);
                    let until = Instant::now() + READ_WITHIN;
                    let (received, answer, rest) = (Vec::new(), None, None);
                    connections.push(Connection { peer, stream, received, answer, rest, until });
                }
            }
        }
    }
}

/// The network of an address that one reader may have: all of IPv4, the first 64 bits of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        },
        v4 => v4,
    }
}

/// Closes a connection where there are too many: one of `peer` if that has many, or of the peer that has most.
fn make_room(connections: &mut Vec<Connection>, peer: Peer) {
    let count = |peer: Peer| connections.iter().filter(|connection| connection.peer == peer).count();
    let closed = if count(peer) >= OF_A_PEER {
        Some(peer)
    } else if connections.len() >= CONNECTIONS {
        connections.iter().map(|connection| connection.peer).max_by_key(|peer| count(*peer))
    } else {
        None
    };
    // A reader sends its request at once, and gets the answer at once: connections without a request are
    // closed first.
    let rank = |one: &Connection| match (&one.answer, one.rest) {
        (None, _) => 0,
        (Some(_), Some(_)) => 1,
        (Some(_), None) => 2,
    };
    let of_peer = |peer| {
        let own = connections.iter().enumerate().filter(|(_, one)| one.peer == peer);
        own.min_by_key(|(at, one)| (rank(one), *at)).map(|(at, _)| at)
    };
    if let Some(at) = closed.and_then(of_peer) {
        connections.remove(at);
    }
}

/// A connection whose turn has not come continues; a failed one does not.
fn goes_on(done: io::Result<bool>) -> bool {
    match done {
        Ok(goes_on) => goes_on,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}

/// A socket that another process has made and keeps.
fn inherited(socket: OwnedFd) -> io::Result<Listener> {
    let unfit = |why: &str| io::Error::new(ErrorKind::InvalidInput, why.to_owned());
    if sockopt::socket_type(&socket)? != SocketType::STREAM || !sockopt::socket_acceptconn(&socket)? {
        return Err(unfit("not a listening stream socket: use ListenStream= and Accept=no"));
    }
    match sockopt::socket_domain(&socket)? {
        AddressFamily::INET | AddressFamily::INET6 => {
            let listener = TcpListener::from(socket);
            listener.set_nonblocking(true)?;
            Ok(Listener::Net(listener))
        }
        AddressFamily::UNIX => {
            let listener = UnixListener::from(socket);
            listener.set_nonblocking(true)?;
            Ok(Listener::Unix(listener, None))
        }
        _ => Err(unfit("neither TCP nor Unix: use ListenStream= with a port or a path")),
    }
}

fn net(address: SocketAddr) -> io::Result<Listener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Listener::Net(listener))
}

fn unix(path: &Path) -> io::Result<Listener> {
    let (listener, bound) = Bound::listen(path, 0o660)?;
    Ok(Listener::Unix(listener, Some(bound)))
}
