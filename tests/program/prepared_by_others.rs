//! Sockets, files and words that others have prepared, and modes that need no privilege.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::CommandBuilder;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::program;
use crate::scratch::Scratch;
use crate::terminal::Terminal;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");

/// A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A run, ended with its test.
struct Run(Child);

impl Run {
    fn start(command: &mut Command) -> Run {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Run(command.spawn().unwrap())
    }

    /// Its exit code after SIGTERM.
    fn terminated(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        until("the end after SIGTERM", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ran(words: &[&str]) -> Output {
    Command::new(program::path()).args(words).stdin(Stdio::null()).output().unwrap()
}

/// The address that an exporter reports.
fn address(run: &mut Run) -> SocketAddr {
    let mut said = String::new();
    let stderr = run.0.stderr.as_mut().unwrap();
    let mut byte = [0];
    while !said.contains("/metrics\n") {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{said}");
        said.push(byte[0] as char);
    }
    said.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap()
}

fn fetched(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_manager_that_reads_nothing_stops_neither_recorder_nor_exporter() {
    let place = Scratch::new();
    let socket = place.join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    until("a full queue", || filler.send_to(b"STATUS=full", &socket).is_err());
    let managed = |words: &[&str]| {
        let mut command = Command::new(program::path());
        command.args(words).env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "60000");
        Run::start(&mut command)
    };
    let file = place.join("a.nrec");
    let words = ["--demo", "-b", "-d", "0.1", "--record", file.to_str().unwrap()];
    let mut recorder = managed(&words);
    let size = || file.metadata().map_or(0, |meta| meta.len());
    until("a recording", || size() > 0);
    let begun = size();
    until("samples although nobody reads", || size() > begun + 20_000);
    assert_eq!(recorder.terminated(), Some(0));
    let mut exporter =
        managed(&["exporter", "--from-recording", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let address = address(&mut exporter);
    until("a page", || fetched(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert_eq!(exporter.terminated(), Some(0));
    drop(manager);
}

#[test]
fn a_socket_with_a_full_queue_is_taken_and_not_waited_for() {
    let place = Scratch::new();
    let path = place.join("metrics.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut queue = Vec::new();
    let flags = rustix::net::SocketFlags::NONBLOCK;
    until("a full queue", || {
        let kind = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket_with(kind.0, kind.1, flags, None).unwrap();
        let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
        let is_full = rustix::net::connect(&socket, &address).is_err();
        queue.push(socket);
        is_full
    });
    let listen = format!("unix:{}", path.display());
    let mut run = Run::start(Command::new(program::path()).args([
        "exporter",
        "--from-recording",
        FIXTURE,
        "--listen",
        &listen,
    ]));
    until("an end by itself", || run.0.try_wait().unwrap().is_some());
    let mut said = String::new();
    run.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("in use"), "{said}");
    drop(listener);
}

#[test]
fn a_request_that_is_too_long_has_its_answer() {
    let run = ["exporter", "--from-recording", FIXTURE, "--listen", "127.0.0.1:0"];
    let mut run = Run::start(Command::new(program::path()).args(run));
    let address = address(&mut run);
    for length in [9_000, 60_000] {
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(length));
        let answer = fetched(address, long.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let post = format!("POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n{}", "x".repeat(9000));
    assert!(fetched(address, post.as_bytes()).starts_with("HTTP/1.1 405 "));
}

#[test]
fn words_of_a_manager_for_another_process_are_none_for_us() {
    for pid in ["x", "", "99999999999999999999", "-1"] {
        let done = Command::new(program::path())
            .arg("--version")
            .env("LISTEN_PID", pid)
            .env("LISTEN_FDS", "y")
            .output();
        assert_eq!(done.unwrap().status.code(), Some(0), "{pid}");
    }
}

#[test]
fn a_line_feed_in_a_name_begins_no_line() {
    let place = Scratch::new();
    let name = place.join("a\nprod.nrec: intact");
    fs::copy(FIXTURE, &name).unwrap();
    let none = place.join("b\nnumatop-ng: done");
    for words in [
        ["verify", name.to_str().unwrap()],
        ["verify", none.to_str().unwrap()],
        ["report", none.to_str().unwrap()],
    ] {
        let done = ran(&words);
        for text in [done.stdout, done.stderr] {
            let text = String::from_utf8(text).unwrap();
            assert!(
                !text.lines().any(|line| line.starts_with("prod.nrec") || line.ends_with("ng: done")),
                "{text}"
            );
        }
    }
}

#[test]
fn an_export_that_is_not_whole_is_not_there() {
    let place = Scratch::new();
    for format in ["json", "csv"] {
        let out = place.join(format);
        // 512 bytes.
        let script = "ulimit -f 1; exec \"$0\" export \"$1\" --format \"$2\" -o \"$3\"";
        let done = Command::new("sh")
            .args(["-c", script, program::path(), FIXTURE, format])
            .arg(&out)
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        assert!(!out.exists(), "{format}");
    }
}

/// The made-up machine on a screen, with these settings.
fn screen(settings: &std::path::Path) -> Terminal {
    let mut command = CommandBuilder::new(program::path());
    command.args(["--demo"]);
    command.env("NUMATOP_NG_CONFIG", settings);
    let mut terminal = Terminal::run(command, 24, 120).unwrap().0;
    terminal.until("table", |text| text.contains("postgres")).unwrap();
    terminal
}

#[test]
fn settings_that_are_no_file_or_have_no_end_keep_no_screen_waiting() {
    let place = Scratch::new();
    let (pipe, endless, long) = (place.join("pipe"), place.join("endless"), place.join("long"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("/dev/zero", &endless).unwrap();
    fs::write(&long, "# a comment\n".repeat(10_000)).unwrap();
    for path in [pipe, endless, long] {
        let mut terminal = screen(&path);
        terminal.press("q").unwrap();
        assert!(terminal.ended().unwrap().success());
    }
}

#[test]
fn a_file_without_a_setting_of_ours_is_left_as_it_is() {
    let place = Scratch::new();
    let path = place.join("hosts.deny");
    fs::write(&path, "# ALL: PARANOID\n").unwrap();
    let mut terminal = screen(&path);
    terminal.press("Wy").unwrap();
    terminal.until("a reason", |text| text.contains("no setting of numatop-ng")).unwrap();
    terminal.press("q").unwrap();
    assert!(terminal.ended().unwrap().success());
    assert_eq!(fs::read_to_string(&path).unwrap(), "# ALL: PARANOID\n");
}

/// A terabyte that was never written is skipped, and a signal ends the search through written parts.
#[test]
fn a_file_without_frames_is_searched_no_longer_than_asked() {
    let root = Scratch::new();
    let sparse = root.join("sparse.nrec");
    fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let sparse = sparse.to_str().unwrap();
    let began = Instant::now();
    for words in [vec!["report", sparse], vec!["verify", sparse], vec!["diff", sparse, FIXTURE]] {
        assert_eq!(ran(&words).status.code(), Some(1), "{words:?}");
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());

    // A debug build takes seconds for it.
    let full = root.join("full.nrec");
    fs::write(&full, vec![1; 256 << 20]).unwrap();
    let mut run = Run::start(Command::new(program::path()).arg("report").arg(&full));
    let fds = format!("/proc/{}/fd", run.0.id());
    until("the file is open", || {
        let open = fs::read_dir(&fds).into_iter().flatten().flatten();
        let mut open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        open.any(|path| path == full) || run.0.try_wait().unwrap().is_some()
    });
    assert_eq!(run.terminated(), Some(1));
}
