//! Sockets and messages between the program and a service manager: the test is the manager.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program;
use crate::scratch;
use rustix::process::{Pid, Signal, kill_process};
use scratch::Scratch;

/// A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives descriptors 0 and 1 away as 3 and 4, as a service manager does.
const HAND_OVER: &str = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"";

/// The same without descriptors, watched every 300 ms.
const WATCH: &str = "WATCHDOG_PID=$$ exec \"$0\" \"$@\"";

/// A minute of the made-up machine, which takes a minute to serve.
fn recording(place: &Scratch) -> String {
    let file = place.join("minute.nrec").to_str().unwrap().to_owned();
    let words = ["--demo", "-b", "-n", "60", "--record", &file];
    let made = Command::new(program::path()).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    file
}

/// A run, ended with its test.
struct Run(Child);

impl Run {
    fn activated(words: &[&str], sockets: [OwnedFd; 2]) -> Run {
        let [first, second] = sockets;
        let mut command = Command::new("sh");
        command.args(["-c", HAND_OVER, program::path()]).args(words).env("LISTEN_FDS", "2");
        Run(command.stdin(first).stdout(second).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn end(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
    }

    /// The exit code, and standard error.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn answer(stream: &mut (impl Read + Write)) -> String {
    stream.write_all(b"GET /-/healthy HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn the_page_is_served_at_sockets_that_were_handed_over_and_they_stay() {
    let place = Scratch::new();
    let path = place.join("metrics.sock");
    let (port, address) = loopback();
    let keeps = (port.try_clone().unwrap(), UnixListener::bind(&path).unwrap());
    // Before anything runs: the manager's queue keeps the reader.
    let mut early = TcpStream::connect(address).unwrap();
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    let file = recording(&place);
    let words = ["exporter", "--from-recording", &file];
    let mut run = Run::activated(&words, [port.into(), keeps.1.try_clone().unwrap().into()]);
    assert!(answer(&mut early).starts_with("HTTP/1.1 "), "{:?}", run.ended());
    let mut later = UnixStream::connect(&path).unwrap();
    later.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(answer(&mut later).starts_with("HTTP/1.1 "));
    run.end();
    let (code, said) = run.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("serving http://{address}/metrics")), "{said}");
    assert!(!said.contains("anyone who can connect"), "{said}");
    // The manager listens on: both exist, and queue readers for the next start.
    assert!(path.exists());
    TcpStream::connect(address).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn addresses_beside_sockets_that_were_handed_over_are_wrong_usage() {
    let place = Scratch::new();
    let file = recording(&place);
    let ((one, _), (two, _)) = (loopback(), loopback());
    let words = ["exporter", "--from-recording", &file, "--listen", "127.0.0.1:0"];
    let (code, said) = Run::activated(&words, [one.into(), two.into()]).ended();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--listen") && said.contains("LISTEN_FDS"), "{said}");
}

#[test]
fn a_socket_that_does_not_listen_is_refused_by_its_number() {
    let place = Scratch::new();
    let file = recording(&place);
    let (port, _) = loopback();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let words = ["exporter", "--from-recording", &file];
    let (code, said) = Run::activated(&words, [port.into(), datagrams.into()]).ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("socket 2 passed by the service manager") && said.contains("ListenStream="),
        "{said}"
    );
}

#[test]
fn descriptors_that_are_not_there_are_an_error_and_those_of_another_process_are_not_ours() {
    let run = |pid: &str| {
        let script = format!("LISTEN_PID={pid} exec \"$0\" \"$@\"");
        let words = ["-c", &script, program::path(), "generate", "fish"];
        Command::new("sh").args(words).env("LISTEN_FDS", "7").stdin(Stdio::null()).output().unwrap()
    };
    let wrong = run("$$");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("sockets of the service manager"), "{wrong:?}");
    let other = run("1");
    assert_eq!(other.status.code(), Some(0), "{other:?}");
}

/// Lines of messages until they are as `wanted`.
fn until(manager: &UnixDatagram, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut message = [0; 4096];
    let began = Instant::now();
    while !wanted(&all) {
        // The watchdog's messages never end.
        assert!(began.elapsed() < PATIENCE, "{all:?}");
        let count = manager.recv(&mut message).unwrap_or_else(|error| panic!("{error} after {all:?}"));
        all.extend(String::from_utf8_lossy(&message[..count]).lines().map(str::to_owned));
    }
    all
}

/// The manager of a run with these words, and the run.
fn managed(place: &Scratch, words: &[&str]) -> (UnixDatagram, Run) {
    let path = place.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", WATCH, program::path()])
        .args(words)
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "300000");
    let run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    (manager, Run(run))
}

fn beats(all: &[String]) -> usize {
    all.iter().filter(|line| *line == "WATCHDOG=1").count()
}

#[test]
fn a_recorder_is_ready_after_its_first_sample_alive_between_samples_and_says_that_it_stops() {
    let place = Scratch::new();
    let file = place.join("a.nrec");
    // The made-up machine goes through the same loop as this one. Its intervals are longer than the watchdog's.
    let words = ["--demo", "-b", "-d", "2", "--record", file.to_str().unwrap()];
    let (manager, mut run) = managed(&place, &words);
    let all = until(&manager, |all| all.iter().any(|line| line.ends_with("B recorded")));
    assert_eq!(all[0], "READY=1", "{all:?}");
    assert!(file.exists(), "ready before there is a recording");
    let status = all.last().unwrap();
    assert!(status.starts_with("STATUS=1 interval, "), "{all:?}");
    // Two seconds have room for twenty; a machine with other work has fewer.
    assert!(beats(&all) > 2, "{all:?}");
    run.end();
    until(&manager, |all| all.iter().any(|line| line == "STOPPING=1"));
    let (code, said) = run.ended();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn an_exporter_of_a_recording_is_ready_and_alive() {
    let place = Scratch::new();
    let file = recording(&place);
    let words = ["exporter", "--from-recording", &file, "--listen", "127.0.0.1:0"];
    let (manager, run) = managed(&place, &words);
    let all = until(&manager, |all| beats(all) == 3);
    assert_eq!(all[0], "READY=1", "{all:?}");
    run.end();
    until(&manager, |all| all.iter().any(|line| line == "STOPPING=1"));
}
