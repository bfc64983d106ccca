//! Text from outside that is more than text to a terminal: in recordings, names of files, arguments, event
//! tables. None of it may leave the process unescaped, in any mode.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::program;
use crate::recorded_machine as machine;
use machine::Machine;
use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::model::event::TableInUse;
use numatop_ng::model::sample::{Comm, HostFacts, Missing, Names, Sample};
use numatop_ng::record::frame::{FrameHead, HEAD_LEN};
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

/// A title, a cleared screen, a C1 introducer, an override of the direction, a tab, a carriage return, DEL.
const HOSTILE: &str = "x\x1b]0;PWN\x07\x1b[2J\u{9b}31m\u{202e}\u{2066}\t\r\u{7f}y";

/// A folder whose own name is hostile; removed with its test.
struct Folder {
    top: PathBuf,
    path: PathBuf,
}

impl Folder {
    fn new(name: &str) -> Folder {
        let top = std::env::temp_dir().join(format!("numatop-printed-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        let path = top.join(OsStr::from_bytes(&[HOSTILE.as_bytes(), b"\xff"].concat()));
        fs::create_dir_all(&path).unwrap();
        Folder { top, path }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.top);
    }
}

fn host() -> HostFacts {
    let mut host = machine::host();
    for text in [
        &mut host.hostname,
        &mut host.kernel,
        &mut host.arch,
        &mut host.cpu_model,
        &mut host.boot_id,
        &mut host.scope,
    ] {
        *text = HOSTILE.into();
    }
    for event in &mut host.events {
        (event.name, event.counts) = (format!("{}{HOSTILE}", event.name), HOSTILE.into());
    }
    for metric in ["smt_busy_pct", HOSTILE] {
        host.missing.insert(metric.into(), Missing::Unsupported(HOSTILE.into()));
    }
    let text = || HOSTILE.to_string();
    host.tables = vec![TableInUse {
        id: text(),
        name: text(),
        origin: text(),
        cpu: text(),
        pmu: text(),
        ..TableInUse::default()
    }];
    host
}

fn sample(machine: &mut Machine) -> Sample {
    let mut sample = machine.tick();
    let cgroups: BTreeMap<u64, String> =
        [(1, "/".to_string()), (7, format!("/{HOSTILE}")), (8, format!("/{HOSTILE}/docker-{HOSTILE}.scope"))]
            .into();
    sample.names = Arc::new(Names {
        users: [(0, HOSTILE.to_string()), (33, HOSTILE.to_string())].into(),
        groups: describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent"))),
        cgroups,
    });
    for task in &mut sample.tasks {
        Arc::make_mut(task).comm = Comm::new("\x1b]0;P\x07\u{9b}\u{202e}\t\n");
    }
    sample.notes.push(HOSTILE.into());
    sample.lost.insert(HOSTILE.into(), 3);
    sample
}

/// A recording with something hostile wherever it has text.
fn recording(path: &Path) {
    let options = RecordOptions::every(Duration::from_secs(1));
    let mut recorder = Recorder::open(path, options).unwrap();
    let (host, mut machine) = (Arc::new(host()), Machine::new(5));
    for _ in 0..3 {
        recorder.record(&host, &sample(&mut machine)).unwrap();
    }
    recorder.finish().unwrap();
}

/// The same with a word in its head that no program knows: the error of the JSON library quotes it.
fn with_an_unknown_word(good: &Path, path: &Path) {
    let bytes = fs::read(good).unwrap();
    let head = FrameHead::from_bytes(&bytes).unwrap();
    let mut payload = Vec::new();
    head.open(&bytes[HEAD_LEN..head.len() as usize], &mut payload).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    for missing in json["host"]["missing"].as_object_mut().unwrap().values_mut() {
        missing["kind"] = HOSTILE.into();
    }
    let payload = serde_json::to_vec(&json).unwrap();
    let head = FrameHead {
        compressed: false,
        stored: payload.len() as u32,
        raw: payload.len() as u32,
        payload_crc: crc32fast::hash(&payload),
        ..head
    };
    fs::write(path, [&head.to_bytes()[..], &payload].concat()).unwrap();
}

fn os(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// Both outputs of a run, with its arguments.
struct Ran {
    words: Vec<OsString>,
    out: Vec<u8>,
    err: Vec<u8>,
}

fn run(words: &[&OsStr]) -> Ran {
    let output = Command::new(program::path()).args(words).stdin(Stdio::null()).output().unwrap();
    Ran { words: words.iter().map(OsString::from).collect(), out: output.stdout, err: output.stderr }
}

/// Fails if a terminal would take anything in it for more than text. CSV ends its lines with CR LF.
fn assert_harmless(ran: &Ran) {
    let csv = ran.words.iter().any(|word| word == "csv");
    for (name, bytes) in [("output", &ran.out), ("error", &ran.err)] {
        let text =
            std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{:?}: {name}: {error}", ran.words));
        let text = if csv && name == "output" { text.replace("\r\n", "\n") } else { text.to_string() };
        let direction = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || direction(*c));
        assert_eq!(bad, None, "{:?}: in standard {name}: {text:?}", ran.words);
    }
}

#[test]
fn a_recording_is_text_in_every_mode_and_format() {
    let folder = Folder::new("modes");
    let file = folder.path.join("file.nrec");
    recording(&file);
    for format in ["text", "csv", "json"] {
        for words in [
            &["replay", "-b"][..],
            &["replay", "-b", "--threads"],
            &["replay", "-b", "--by-container"],
            &["export"],
            &["export", "--threads"],
        ] {
            let mut all: Vec<&OsStr> = words.iter().map(|word| os(word)).collect();
            all.extend([os("--format"), os(format), file.as_os_str()]);
            let ran = run(&all);
            let text = String::from_utf8_lossy(&ran.out);
            // It appears, escaped.
            assert!(
                text.contains("P") && text.contains("2J") || format == "csv",
                "{words:?} {format}: {text}"
            );
            assert_harmless(&ran);
            if format == "json" {
                let rows = text.lines().map(serde_json::from_str::<serde_json::Value>);
                assert!(rows.map(|row| row.unwrap()).all(|row| row["schema"] == 2), "{text}");
            }
        }
    }
    let out = folder.path.join("out");
    let ran = run(&[os("export"), os("--format"), os("json"), os("-o"), out.as_os_str(), file.as_os_str()]);
    assert_harmless(&Ran { out: fs::read(&out).unwrap(), ..ran });
    // A trace is no text, and the names in it are.
    let ran = run(&[os("export"), os("--format"), os("perfetto"), file.as_os_str()]);
    let has = |bytes: &[u8]| ran.out.windows(bytes.len()).any(|some| some == bytes);
    assert!(has(b"\\x1b]0;P") && !has(b"\x1b]0;P") && !has("\u{202e}".as_bytes()));
    let ran = run(&[os("verify"), file.as_os_str()]);
    assert!(String::from_utf8_lossy(&ran.out).contains("file.nrec: intact"), "{:?}", ran.out);
    assert_harmless(&ran);
    let ran = run(&[
        os("replay"),
        os("-b"),
        os("--comm"),
        os("nothing-is-called-so"),
        os("--at"),
        os("@9e17"),
        file.as_os_str(),
    ]);
    assert_harmless(&ran);
}

#[test]
fn a_recording_that_is_refused_names_its_words_as_text() {
    let folder = Folder::new("refused");
    let good = folder.path.join("numatop-20260101T000001Z-0.nrec");
    let bad = folder.path.join("numatop-20260101T000000Z-0.nrec");
    recording(&good);
    with_an_unknown_word(&good, &bad);
    for words in [&["verify"][..], &["replay", "-b"], &["export", "--format", "json"]] {
        for path in [&bad, &folder.path, &folder.path.join("no-such-file")] {
            let mut all: Vec<&OsStr> = words.iter().map(|word| os(word)).collect();
            all.push(path.as_os_str());
            let ran = run(&all);
            assert!(!ran.out.is_empty() || !ran.err.is_empty(), "{words:?} says nothing");
            if path == &bad {
                let all = String::from_utf8_lossy(&[&ran.out[..], &ran.err].concat()).into_owned();
                assert!(all.contains("\\x1b]0;PWN"), "the word is not named: {all}");
            }
            assert_harmless(&ran);
        }
    }
}

#[test]
fn event_tables_are_text() {
    let folder = Folder::new("tables");
    let table = folder.path.join("mine.toml");
    let builtin =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/measure/src/pmu/events/generic/kernel.toml");
    let sound = fs::read_to_string(builtin).unwrap();
    let escaped = r"x\u001b]0;PWN\u0007\u009b31m\u202ey";
    let name = sound.lines().find(|line| line.starts_with("name = ")).expect("a table has a name");
    for text in [
        format!("x = \"{HOSTILE}"),
        format!("{HOSTILE} = 1"),
        sound.replacen(name, &format!("name = \"{escaped}\""), 1),
        sound.replacen(name, &format!("{name}\nnotes = \"{escaped}\""), 1),
    ] {
        fs::write(&table, text).unwrap();
        for words in [&["list", "events"][..], &["-b", "-n", "1", "--events", "cyclse"]] {
            let mut all: Vec<&OsStr> = words.iter().map(|word| os(word)).collect();
            all.extend([os("--pmu-dir"), folder.path.as_os_str()]);
            assert_harmless(&run(&all));
        }
    }
}

/// Arguments as they come back in messages.
fn hostile_arguments() -> Vec<Vec<OsString>> {
    let os = |text: &str| OsString::from(text);
    let bytes = || OsStr::from_bytes(&[HOSTILE.as_bytes(), b"\xff"].concat()).to_os_string();
    let mut all = vec![
        vec![os(HOSTILE)],
        vec![bytes()],
        vec![os(&format!("--{HOSTILE}"))],
        vec![os("verify"), bytes()],
        vec![os("replay"), bytes()],
        vec![os("replay"), os("-b"), bytes()],
        vec![os("export"), os("--format"), os("json"), bytes()],
        vec![os("list"), os(HOSTILE)],
        vec![os("doctor"), os("--format"), os(HOSTILE)],
        vec![os("record"), bytes(), os("--sort"), os(HOSTILE)],
        vec![os("-b"), os("-n1"), os("--pmu-dir"), bytes()],
        vec![os("-b"), os("-n"), os("1"), os("-d"), os("0.1"), os("--runtime-socket"), bytes()],
        vec![
            os("-b"),
            os("-n"),
            os("1"),
            os("--record"),
            OsStr::from_bytes(b"/no-such-\x1b[2J/\xff").to_os_string(),
        ],
    ];
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");
    for flag in ["--at", "--from", "--to"] {
        let command = if flag == "--at" {
            vec![os("replay"), os("-b")]
        } else {
            vec![os("export"), os("--format=csv")]
        };
        all.push([command, vec![os(fixture), os(&format!("{flag}={HOSTILE}"))]].concat());
    }
    for flag in [
        "-d",
        "-n",
        "--pid",
        "--tid",
        "--user",
        "--cgroup",
        "--container",
        "--pod",
        "--k8s-namespace",
        "--unit",
        "--machine",
        "--columns",
        "--sort",
        "--top",
        "--comm",
        "--node",
        "--events",
        "--hot-event",
        "--hot-rate",
        "--color",
        "--format",
        "--placement-budget",
        "--record-max-size",
        "--record-max-age",
        "--record-top",
        "--record-min-cpu",
        "--wait",
    ] {
        let value = if flag == "--comm" { format!("({HOSTILE}") } else { HOSTILE.to_string() };
        all.push(vec![os("-b"), os("-n1"), os(&format!("{flag}={value}"))]);
        all.push(vec![os("-b"), os("-n1"), os(&format!("{flag}={value}")), os("--hot"), os("--format=json")]);
    }
    all
}

#[test]
fn arguments_come_back_as_text() {
    for words in hostile_arguments() {
        let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
        let ran = run(&words);
        assert!(!ran.err.is_empty() || !ran.out.is_empty(), "{words:?} says nothing");
        assert_harmless(&ran);
    }
}

/// clap removes escape sequences without a terminal, and passes them on to a terminal.
#[test]
fn arguments_come_back_as_text_to_a_terminal() {
    for words in
        [vec![HOSTILE], vec!["-b", "-d", HOSTILE], vec!["-b", "--sort", HOSTILE], vec!["verify", HOSTILE]]
    {
        let size = PtySize { rows: 24, cols: 200, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program::path());
        command.args(&words);
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut bytes = Vec::new();
        // A terminal whose last program has ended gives EIO.
        let _ = pair.master.try_clone_reader().unwrap().read_to_end(&mut bytes);
        child.wait().unwrap();
        let text = String::from_utf8(bytes).unwrap().replace("\r\n", "\n");
        assert!(text.contains("\\x1b]0;PWN\\x07"), "{words:?}: the argument is not named: {text}");
        assert_harmless(&Ran { words: Vec::new(), out: text.into_bytes(), err: Vec::new() });
    }
}

/// A symbolic link may call the program anything.
#[test]
fn the_name_of_the_program_is_text() {
    let folder = Folder::new("called");
    let link = folder.path.join(HOSTILE);
    std::os::unix::fs::symlink(program::path(), &link).unwrap();
    for words in [&["--help"][..], &["--frobnicate"], &["record"]] {
        let output = Command::new(&link).args(words).output().unwrap();
        let words = words.iter().map(OsString::from).collect();
        assert_harmless(&Ran { words, out: output.stdout, err: output.stderr });
    }
}

/// A terminal that is gone, or a disk that is full, is no reason to panic.
#[test]
fn a_message_that_cannot_be_written_is_dropped() {
    for words in [&["--frobnicate"][..], &["-b", "--sort", "nonsense"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = Command::new(program::path()).args(words).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(2), "{words:?}");
    }
}

/// All output goes through one place: `program/output.rs` cleans it. The screen has a separate terminal.
#[test]
fn nothing_else_writes_to_the_standard_streams() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut dirs = vec![root.join("src"), root.join("crates")];
    let mut looked_at = 0;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let below = path.strip_prefix(root).unwrap();
            let is_code = path.extension().is_some_and(|ending| ending == "rs");
            if !is_code
                || ["src/program/output.rs", "build.rs", "build/bpf.rs"]
                    .iter()
                    .any(|other| path.ends_with(other))
            {
                continue;
            }
            looked_at += 1;
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
            for (at, line) in code.lines().enumerate() {
                let line = line.trim_start();
                let words = ["println!(", "print!(", "eprintln!(", "eprint!(", "dbg!(", "io::stderr()"];
                let found = words.iter().find(|word| !line.starts_with("//") && line.contains(**word));
                assert_eq!(found, None, "{}:{}: {line}", below.display(), at + 1);
            }
        }
    }
    assert!(looked_at > 150, "{looked_at} files of the program were found");
}
