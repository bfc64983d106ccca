//! Names of containers from a container runtime that listens on a socket. Only sockets that the user has
//! named are asked, rarely and with a time limit: a runtime that hangs or misbehaves must not delay the tool.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::names::Name;
use crate::model::group::is_id;

/// The longest that an answer is waited for.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// Bytes of an answer, its head included.
pub const ANSWER_MAX: u64 = 16 << 20;
/// Between two questions: containers without a name may come many at a time.
const PAUSE: Duration = Duration::from_secs(5);
/// After a failure.
const REST: Duration = Duration::from_secs(60);

/// Docker's API, which podman speaks too. HTTP/1.0: the answer comes in one piece and ends with the connection.
const REQUEST: &[u8] =
    b"GET /containers/json?all=1 HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n";

type Names = HashMap<String, Name>;

/// True if the path is something other than a socket. A missing path is not: the runtime may start later.
pub fn is_no_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| !meta.file_type().is_socket())
}

/// A runtime and its last answer.
pub struct Runtime {
    socket: PathBuf,
    names: Names,
    /// A question that has not been answered in time.
    pending: Option<Receiver<io::Result<Names>>>,
    not_before: Option<Instant>,
    /// It would have been asked, but not so soon after the time before.
    postponed: bool,
}

impl Runtime {
    /// Docker or podman listening on `socket`. Asks nothing yet.
    pub fn new(socket: PathBuf) -> Runtime {
        Runtime { socket, names: Names::new(), pending: None, not_before: None, postponed: false }
    }

    /// The name of the container with this full id. Takes [`DEADLINE`] at most.
    ///
    /// # Errors
    /// The reason why the runtime could not be asked, in words; returned once for each failure.
    pub fn name(&mut self, id: &str) -> Result<Option<Name>, String> {
        if let Some(name) = self.names.get(id) {
            return Ok(Some(name.clone()));
        }
        self.postponed = !self.may_ask();
        if !self.postponed {
            self.ask()?;
        }
        Ok(self.names.get(id).cloned())
    }

    /// True when a question was put off that may be put now.
    pub fn is_due(&self) -> bool {
        self.postponed && self.may_ask()
    }

    fn may_ask(&self) -> bool {
        self.not_before.is_none_or(|at| Instant::now() >= at)
    }

    fn ask(&mut self) -> Result<(), String> {
        let answer = self.pending.take().unwrap_or_else(|| {
            let (send, answer) = channel();
            let socket = self.socket.clone();
            // A separate thread: connect(2) to a runtime that accepts nothing has no time limit.
            thread::spawn(move || send.send(containers(&socket)));
            answer
        });
        let got = answer.recv_timeout(DEADLINE);
        let rest = if matches!(got, Ok(Ok(_))) { PAUSE } else { REST };
        self.not_before = Some(Instant::now() + rest);
        let why = match got {
            Ok(Ok(names)) => {
                self.names = names;
                return Ok(());
            }
            Ok(Err(error)) => error.to_string(),
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some(answer);
                late()
            }
            Err(RecvTimeoutError::Disconnected) => "the request could not be sent".to_string(),
        };
        Err(format!("{} provides no names of containers: {why}", self.socket.display()))
    }
}

/// The reason for an incomplete or late answer, on whichever side it is noticed first.
fn late() -> String {
    format!("no response within {} s", DEADLINE.as_secs())
}

/// Names by full id, as reported by the runtime at `socket`.
///
/// # Errors
/// The errno of connect(2), read(2) or write(2); `TimedOut` after [`DEADLINE`]; `InvalidData` for an answer
/// that is too long or not understood.
pub fn containers(socket: &Path) -> io::Result<Names> {
    let until = Instant::now() + DEADLINE;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(DEADLINE))?;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    let mut piece = [0; 1 << 14];
    loop {
        // A byte now and then does not buy more time.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, late()));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            // The errno of a read that ran out of time.
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > ANSWER_MAX {
            return Err(invalid(&format!("the response is longer than {ANSWER_MAX} bytes")));
        }
    }
    parse(&answer)
}

/// Takes an answer apart. Names are cleaned and cut like those from files.
///
/// # Errors
/// `InvalidData`: it is not HTTP, not a success, or not a list of containers.
pub fn parse(answer: &[u8]) -> io::Result<Names> {
    #[derive(Deserialize)]
    struct Container {
        #[serde(rename = "Id")]
        id: String,
        #[serde(rename = "Names", default)]
        names: Option<Vec<String>>,
    }
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = end.map(|at| (&answer[..at], &answer[at + 4..])).ok_or_else(|| invalid("no HTTP"))?;
    let status = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = status.split(|byte| *byte == b' ');
    if !words.next().is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Err(invalid("no HTTP"));
    }
    if words.next() != Some(b"200") {
        let status = crate::text::clean_str(&String::from_utf8_lossy(&status[..status.len().min(80)]));
        return Err(invalid(&format!("it answers '{status}'")));
    }
    let list: Vec<Container> = serde_json::from_slice(body)
        .map_err(|error| invalid(&format!("the list cannot be parsed: {error}")))?;
    let named = |container: Container| {
        let name = Name::new(container.names?.first()?)?;
        is_id(&container.id).then_some((container.id, name))
    };
    Ok(list.into_iter().filter_map(named).collect())
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
