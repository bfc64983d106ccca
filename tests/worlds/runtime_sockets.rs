//! Names that a runtime gives over its socket: one that answers, and others that hang, misbehave or never
//! stop.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use numatop_ng::container::names::{ContainerNames, Name};
use numatop_ng::container::runtime::{ANSWER_MAX, DEADLINE, containers, parse};
use numatop_ng::model::group::Engine;
use proptest::prelude::*;

const ID: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";

/// Far longer than any wait for an answer, on a busy machine too.
const FOREVER: Duration = Duration::from_secs(60);

/// Where a runtime listens; removed with the test.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A runtime that does `answer` on each connection, after it has read the question.
fn runtime(name: &str, answer: impl Fn(&mut UnixStream) + Send + 'static) -> Socket {
    let socket = std::env::temp_dir().join(format!("numatop-runtime-{}-{name}", std::process::id()));
    // Of a run before with the same process id.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut question = [0; 1024];
            let read = stream.read(&mut question).unwrap();
            assert!(question[..read].starts_with(b"GET /containers/json?all=1 HTTP/1.0\r\n"));
            answer(&mut stream);
        }
    });
    Socket(socket)
}

fn list(body: &str) -> Vec<u8> {
    format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}").into_bytes()
}

fn answering(name: &str, answer: Vec<u8>) -> Socket {
    runtime(name, move |stream| stream.write_all(&answer).unwrap())
}

#[test]
fn a_container_that_no_file_names_is_asked_for() {
    let socket = answering("web", list(&format!(r#"[{{"Id":"{ID}","Names":["/web"],"Image":"x"}}]"#)));
    let mut book = ContainerNames::new("/nonexistent".as_ref()).asking(std::slice::from_ref(&socket.0));
    let name = book.container(Engine::Docker, ID, None);
    assert_eq!(name, Some(Name { name: "web".into(), ..Name::default() }));
    assert!(book.take_troubles().is_empty());
}

#[test]
fn nobody_is_asked_unless_told() {
    let mut book = ContainerNames::new("/nonexistent".as_ref());
    assert_eq!(book.container(Engine::Docker, ID, None), None);
}

#[test]
fn one_answer_is_enough_for_a_while() {
    let (asked, questions) = channel();
    let socket = runtime("once", move |stream| {
        asked.send(()).unwrap();
        stream.write_all(&list("[]")).unwrap();
    });
    let mut book = ContainerNames::new("/nonexistent".as_ref()).asking(std::slice::from_ref(&socket.0));
    for _ in 0..3 {
        assert_eq!(book.container(Engine::Podman, ID, None), None);
    }
    assert_eq!(questions.try_iter().count(), 1);
    assert!(!book.is_due(), "asked again at once");
}

#[test]
fn names_are_cut_and_cleaned() {
    let long = "x".repeat(1000);
    let body = format!(
        r#"[{{"Id":"{ID}","Names":["/\u001b[2J{long}"]}},{{"Id":"../../x","Names":["y"]}},{{"Id":"{}"}}]"#,
        ID.replace('3', "4")
    );
    let names = parse(&list(&body)).unwrap();
    assert_eq!(names.len(), 1);
    let name = &names[ID].name;
    assert!(name.starts_with("\\x1b[2Jxxx") && name.chars().count() <= 128, "{name}");
}

#[test]
fn a_runtime_that_hangs_is_left_alone() {
    let socket = runtime("hang", |_| thread::sleep(FOREVER));
    let mut book = ContainerNames::new("/nonexistent".as_ref()).asking(std::slice::from_ref(&socket.0));
    for _ in 0..5 {
        assert_eq!(book.container(Engine::Docker, ID, None), None);
    }
    // Each timeout is reported.
    let said = book.take_troubles();
    let limit = format!("no response within {} s", DEADLINE.as_secs());
    assert!(said.len() == 1 && said[0].contains("hang") && said[0].contains(&limit), "{said:?}");
}

#[test]
fn a_byte_now_and_then_buys_no_time() {
    let socket = runtime("drip", |stream| {
        // Until we hang up, or bought what would be forever.
        let began = Instant::now();
        while began.elapsed() < FOREVER && stream.write_all(b"H").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let error = containers(&socket.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let socket = runtime("flood", |stream| while stream.write_all(&[b' '; 1 << 16]).is_ok() {});
    let error = containers(&socket.0).unwrap_err();
    assert!(error.to_string().contains(&ANSWER_MAX.to_string()), "{error}");
}

#[test]
fn what_is_no_list_is_refused_with_a_reason() {
    for (answer, said) in [
        ("", "no HTTP"),
        ("SSH-2.0-x\r\n\r\n", "no HTTP"),
        ("HTTP/1.0 403 Forbidden\r\n\r\n", "HTTP/1.0 403 Forbidden"),
        ("HTTP/1.0 200 OK\r\n\r\n{}", "cannot be parsed"),
        ("HTTP/1.0 200 OK\r\n\r\n[{\"Id\":1}]", "cannot be parsed"),
    ] {
        let error = parse(answer.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(said), "{answer}: {error}");
    }
    let error = containers("/nonexistent/docker.sock".as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

proptest! {
    #[test]
    fn no_answer_makes_trouble(bytes in proptest::collection::vec(any::<u8>(), 0..300), json in "[\\[\\]{}\",:a-zA-Z0-9]{0,200}") {
        let _ = parse(&bytes);
        let names: HashMap<String, Name> = parse(&list(&json)).unwrap_or_default();
        prop_assert!(names.values().all(|name| name.name.chars().count() <= 128));
    }
}
