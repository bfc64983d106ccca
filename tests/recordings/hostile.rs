//! Files that were made to keep a reader busy or to fill its memory: right checksums, wrong content. Reading any file takes
//! time and memory in proportion to its size.

use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use numatop_ng::record::columns::{self, describe};
use numatop_ng::record::format::{FORMAT, FrameKind, Head, MAX_ROWS};
use numatop_ng::record::frame::FrameHead;
use numatop_ng::record::reader::{Found, Reader};
use numatop_ng::record::varint::{put, put_text};
use numatop_ng::record::verify::verify;

use crate::machine;
use crate::program;
use crate::scratch::Scratch;

/// Memory that a reader may take for a file of some kilobytes, including the program itself, and CPU time.
/// Both for a build without optimisation.
const MEMORY_KB: u32 = 100 << 10;
const TIME: Duration = Duration::from_secs(10);

/// A recording that no recorder wrote.
pub struct Forged {
    pub bytes: Vec<u8>,
    /// The clock of the next frames; `None`: a second for each frame.
    pub wall_ns: Option<i64>,
    seq: u64,
}

impl Forged {
    /// With the head of the imagined machine.
    pub fn new() -> Forged {
        Forged::with(&serde_json::to_vec(&Head::new(&machine::host(), "forged", 0)).unwrap())
    }

    fn with(head: &[u8]) -> Forged {
        let mut forged = Forged { bytes: Vec::new(), wall_ns: None, seq: 0 };
        forged.frame(FrameKind::Head, 0, head);
        forged
    }

    /// Appends a frame that claims to depend on the one at `base`, as small as possible. Returns its place.
    pub fn frame(&mut self, kind: FrameKind, base: u64, payload: &[u8]) -> u64 {
        self.frame_with_room(kind, base, payload, 0)
    }

    /// As [`Forged::frame`], with this many bytes behind the payload, which decoders skip.
    fn frame_with_room(&mut self, kind: FrameKind, base: u64, payload: &[u8], room: usize) -> u64 {
        let at = self.bytes.len() as u64;
        let mut stored = zstd::bulk::compress(payload, 19).unwrap();
        if room > 0 {
            stored.extend(0x184d_2a50_u32.to_le_bytes());
            stored.extend((room as u32).to_le_bytes());
            stored.resize(stored.len() + room, 0);
        }
        let head = FrameHead {
            kind,
            compressed: true,
            copy: false,
            carries: false,
            format: FORMAT,
            file: 7,
            stored: stored.len() as u32,
            raw: payload.len() as u32,
            seq: self.seq,
            mono_ns: self.seq * 1_000_000_000,
            wall_ns: self.wall_ns.unwrap_or(machine::BEGAN + self.seq as i64 * 1_000_000_000),
            base,
            payload_crc: crc32fast::hash(&stored),
        };
        self.bytes.extend_from_slice(&head.to_bytes());
        self.bytes.extend(stored);
        self.seq += 1;
        at
    }
}

/// A sample with default values only.
#[derive(Default)]
pub struct Payload {
    /// Rows of tasks, of ended processes and of CPUs, all of them zero.
    pub rows: [u64; 3],
    /// Nodes that each row of a task has a time for.
    pub nodes: u64,
    /// For a delta: samples after its keyframe.
    pub tick: Option<u64>,
    /// For a delta: serials of tasks that came since the sample before. It then needs that one.
    pub came: Range<u64>,
    pub users: u64,
    pub stacks: Vec<u8>,
}

impl Payload {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut section = |id: u8, content: Vec<u8>| {
            bytes.push(id);
            put(&mut bytes, content.len() as u64);
            bytes.extend(content);
        };
        section(1, numbers(&[5, 5, 5]));
        let mut tasks = match self.tick {
            // With all before it as they were.
            Some(tick) if self.came.is_empty() => numbers(&[tick, tick, 0, 0]),
            Some(tick) => {
                let mut listed = numbers(&[tick, 1, 0, self.came.end - self.came.start, self.came.start]);
                listed.extend(self.came.clone().skip(1).map(|_| 1));
                listed
            }
            None => numbers(&[0, self.rows[0]]),
        };
        let rows = if self.tick.is_some() { self.came.end - self.came.start } else { self.rows[0] };
        self.columns(&mut tasks, rows);
        section(2, tasks);
        let mut exited = numbers(&[self.rows[1]]);
        self.columns(&mut exited, self.rows[1]);
        section(3, exited);
        section(4, [numbers(&[self.rows[2]]), vec![0; columns::cpu().len()]].concat());
        section(5, [numbers(&[0]), vec![0; columns::node().len()]].concat());
        section(6, vec![0]);
        section(7, vec![0]);
        section(8, vec![0, 0, 0]);
        let mut users = numbers(&[0, self.users]);
        for _ in 0..self.users {
            put(&mut users, 2);
            put_text(&mut users, "nobody at all");
        }
        section(9, users);
        section(10, vec![0, 0]);
        section(11, vec![0]);
        section(17, self.stacks.clone());
        bytes
    }

    /// The columns of `rows` rows: each is empty, except the number of nodes.
    fn columns(&self, out: &mut Vec<u8>, rows: u64) {
        for column in describe(columns::task()) {
            if column.name == "serial" && rows > 0 && !self.came.is_empty() {
                let mut cells = numbers(&[2 * self.came.start]);
                cells.extend(self.came.clone().skip(1).map(|_| 2));
                put(out, cells.len() as u64);
                out.extend(cells);
            } else if column.name == "run_ns_len" && self.nodes > 0 {
                let cells: Vec<u8> =
                    (0..rows).flat_map(|row| numbers(&[if row == 0 { 2 * self.nodes } else { 0 }])).collect();
                put(out, cells.len() as u64);
                out.extend(cells);
            } else {
                out.push(0);
            }
        }
    }
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|number| put(&mut bytes, *number));
    bytes
}

/// Makes every command read `bytes`, within the memory limit. Returns the number of samples in it.
fn read_by_all(scratch: &Scratch, name: &str, bytes: &[u8]) -> u64 {
    let path = scratch.join(name);
    std::fs::write(&path, bytes).unwrap();
    // Of few rows: writing a row takes longer than reading it.
    for args in
        [&["verify"][..], &["replay", "-b", "--top", "3"], &["export", "--format", "json", "--top", "3"]]
    {
        let time = run(args, &path);
        println!("{name}: {} bytes, {args:?}: {time:?}", bytes.len());
        assert!(time < TIME, "{name}: {args:?} took {time:?}");
    }
    verify(&path).map_or(0, |report| report.samples)
}

/// Time that it ran. It is aborted where it wants more memory.
#[expect(unsafe_code, reason = "calls C")]
fn run(args: &[&str], path: &Path) -> Duration {
    let (command, rest) = args.split_first().unwrap();
    #[expect(clippy::zombie_processes, reason = "wait4 below is what says how long it ran")]
    let child = Command::new("sh")
        .args(["-c", &format!("ulimit -d {MEMORY_KB}; exec \"$@\""), "sh", program::path()])
        .arg(command)
        .arg(path)
        .args(rest)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both are valid to write to; the child is ours, and nothing else waits for it.
    let pid = unsafe { libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()) };
    assert_eq!(pid, child.id() as i32);
    // A panic is 101, and a signal has no code.
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) <= 1, "{args:?}: status {status:#x}");
    // SAFETY: zeroed is a valid value, and wait4 has filled it in.
    let usage = unsafe { usage.assume_init() };
    Duration::from_micros(usage.ru_utime.tv_sec as u64 * 1_000_000 + usage.ru_utime.tv_usec as u64)
}

/// One keyframe, and deltas that cannot be read and name it, each or in turns with another.
#[test]
fn deltas_that_cannot_be_read_are_read_once() {
    let scratch = Scratch::new();
    let mut forged = Forged::new();
    let key = forged.frame(FrameKind::Key, 0, &Payload::default().bytes());
    for _ in 0..4000 {
        forged.frame(FrameKind::Delta, key, &[]);
    }
    read_by_all(&scratch, "bad deltas", &forged.bytes);

    let mut forged = Forged::new();
    let heavy = Payload { rows: [0, 0, 2000], users: 9000, ..Payload::default() }.bytes();
    let keys = [forged.frame(FrameKind::Key, 0, &heavy), forged.frame(FrameKind::Key, 0, &heavy)];
    let delta = Payload { tick: Some(1), ..Payload::default() }.bytes();
    for at in 0..1000 {
        forged.frame(FrameKind::Delta, keys[at % 2], &delta);
    }
    read_by_all(&scratch, "two keyframes in turns", &forged.bytes);
}

#[test]
fn a_hole_is_searched_once() {
    let scratch = Scratch::new();
    let mut forged = Forged::new();
    let hole = forged.bytes.len() as u64;
    forged.bytes.resize(forged.bytes.len() + (2 << 20), 0x8e);
    for at in 0..2000 {
        forged.frame(FrameKind::Delta, hole + at, &[]);
    }
    read_by_all(&scratch, "keyframes in a hole", &forged.bytes);
}

#[test]
fn rows_that_take_no_bytes_are_not_made() {
    let scratch = Scratch::new();
    let most = 1 << 19;
    for (name, payload) in [
        ("tasks and ends", Payload { rows: [most, most, 0], ..Payload::default() }),
        ("CPUs", Payload { rows: [0, 0, 1 << 16], ..Payload::default() }),
        ("nodes", Payload { rows: [4000, 4000, 0], nodes: 2048, ..Payload::default() }),
    ] {
        let payload = payload.bytes();
        let mut forged = Forged::new();
        for _ in 0..3 {
            forged.frame(FrameKind::Key, 0, &payload);
        }
        read_by_all(&scratch, name, &forged.bytes);
    }
}

#[test]
#[ignore = "takes half a gigabyte: make torture"]
fn deltas_do_not_add_up_to_more_tasks_than_can_be() {
    const EACH: u64 = 100_000;
    let scratch = Scratch::new();
    let path = scratch.join("adding up");
    let mut forged = Forged::new();
    let key = forged.frame(FrameKind::Key, 0, &Payload::default().bytes());
    let mut deltas = Vec::new();
    for tick in 1..=8 {
        let came = 1 + EACH * tick..1 + EACH * (tick + 1);
        let payload = Payload { tick: Some(tick), came, ..Payload::default() }.bytes();
        deltas.push(forged.frame_with_room(FrameKind::Delta, key, &payload, 100_000));
    }
    std::fs::write(&path, &forged.bytes).unwrap();
    let read = |reader: &mut Reader, at: u64| match reader.at(at).unwrap() {
        Found::Frame(frame) => reader.sample(frame).map(|(_, sample)| sample.tasks.len()),
        other => panic!("{other:?}"),
    };
    let mut reader = Reader::open(&path).unwrap();
    let counts: Vec<Option<usize>> = deltas.iter().map(|at| read(&mut reader, *at).ok()).collect();
    let expected = |tick: usize| (tick <= MAX_ROWS / EACH as usize).then_some(tick * EACH as usize);
    assert_eq!(counts, (1..=8).map(expected).collect::<Vec<_>>());
    // By a jump, too.
    assert_eq!(read(&mut Reader::open(&path).unwrap(), deltas[4]).unwrap(), 5 * EACH as usize);
    let error = read(&mut Reader::open(&path).unwrap(), deltas[7]).unwrap_err();
    assert!(format!("{error:#}").contains("damaged"), "{error:#}");
}

/// A frame that is long because of skipped bytes may hold only as much as any other.
#[test]
fn room_behind_a_payload_is_no_room_for_rows_without_end() {
    let scratch = Scratch::new();
    let most = 1 << 19;
    for (name, rows) in [("tasks", [most, 0, 0]), ("tasks and ends", [most, most, 0])] {
        let payload = Payload { rows, ..Payload::default() }.bytes();
        let mut forged = Forged::new();
        for _ in 0..3 {
            forged.frame_with_room(FrameKind::Key, 0, &payload, 1 << 20);
        }
        assert_eq!(read_by_all(&scratch, name, &forged.bytes), 0, "{name}: samples are read");
    }
}

/// As much as is allowed, as often as fits into 22 kB: nearly each frame is as large as it may be.
#[test]
fn many_frames_that_are_as_large_as_they_may_be_take_their_time() {
    let scratch = Scratch::new();
    let mut forged = Forged::new();
    let key = Payload { rows: [200, 200, 0], users: 1000, ..Payload::default() }.bytes();
    while forged.bytes.len() < 22_000 {
        let at = forged.frame(FrameKind::Key, 0, &key);
        for tick in 1..20 {
            // It names a user, so that all names of the keyframe are taken over.
            let payload = Payload { rows: [0, 700, 0], tick: Some(tick), users: 1, ..Payload::default() };
            forged.frame(FrameKind::Delta, at, &payload.bytes());
        }
    }
    let samples = read_by_all(&scratch, "large frames", &forged.bytes);
    assert!(samples > 50, "{samples} samples are not refused");
}

#[test]
fn a_name_is_not_repeated_without_end() {
    let scratch = Scratch::new();
    let mut stacks = Vec::new();
    put_text(&mut stacks, "cycles");
    stacks.extend(numbers(&[99, 0, 0]));
    // One function with a long name, at many places in the kernel.
    stacks.extend(numbers(&[1, 1]));
    put_text(&mut stacks, &"x".repeat(60_000));
    put_text(&mut stacks, "kernel");
    let places = 200_000;
    stacks.extend(numbers(&[places]));
    (0..places).for_each(|_| stacks.extend(numbers(&[0, 2, 0])));
    stacks.extend(numbers(&[0]));
    let mut forged = Forged::new();
    forged.frame(FrameKind::Key, 0, &Payload { stacks, ..Payload::default() }.bytes());
    read_by_all(&scratch, "names", &forged.bytes);
}

#[test]
fn a_head_that_names_a_column_again_and_again_is_refused() {
    let scratch = Scratch::new();
    let mut head = Head::new(&machine::host(), "forged", 0);
    let again = vec![head.columns.task[1].clone(); 20_000];
    head.columns.task.extend(again);
    let forged = Forged::with(&serde_json::to_vec(&head).unwrap());
    read_by_all(&scratch, "columns", &forged.bytes);
    let error = Reader::open(&scratch.join("columns")).err().unwrap();
    assert!(format!("{error:#}").contains("the column pid twice"), "{error:#}");
}

#[test]
fn a_few_bytes_that_become_many_are_not_unpacked() {
    let scratch = Scratch::new();
    let large = vec![b' '; 60 << 20];
    read_by_all(&scratch, "a large head", &Forged::with(&large).bytes);
    let mut forged = Forged::new();
    let key = forged.frame(FrameKind::Key, 0, &large);
    for _ in 0..50 {
        forged.frame(FrameKind::Delta, key, &large);
    }
    read_by_all(&scratch, "large samples", &forged.bytes);
}
