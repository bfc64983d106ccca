//! Every value that was written comes back.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::any;
use crate::machine::{self, Machine};
use crate::scratch::Scratch;
use numatop_ng::metric::node::NODE_METRICS;
use numatop_ng::metric::task::TASK_METRICS;
use numatop_ng::model::sample::Sample;
use numatop_ng::record::format::{End, FrameKind, Gap, Head};
use numatop_ng::record::payload::{Base, Delta, Layouts, Room, decode, encode};
use numatop_ng::record::reader::{Found, Frame, Reader};
use numatop_ng::record::rows::Changes;
use numatop_ng::record::writer::{WriteError, Writer};
use numatop_ng::snapshot::{RowKind, derive};

pub fn write(path: &Path, samples: &[Sample]) -> Writer {
    write_as(7, path, samples)
}

/// With this number in all frames.
pub fn write_as(id: u32, path: &Path, samples: &[Sample]) -> Writer {
    let mut writer = Writer::new(File::create_new(path).unwrap(), id).unwrap();
    writer.head(&Head::new(&machine::host(), "a session", 0)).unwrap();
    for sample in samples {
        writer.sample(sample, None).unwrap();
    }
    writer
}

/// Every frame of an intact file but copies.
fn frames(reader: &Reader) -> Vec<Frame> {
    all_frames(reader).into_iter().filter(|frame| frame.first() == frame.at).collect()
}

/// Every frame of an intact file.
pub fn all_frames(reader: &Reader) -> Vec<Frame> {
    let (mut at, mut frames) = (0, Vec::new());
    loop {
        match reader.at(at).unwrap() {
            Found::Frame(frame) => {
                at = frame.end();
                frames.push(frame);
            }
            Found::End { torn: 0 } => return frames,
            other => panic!("{other:?} at {at}"),
        }
    }
}

fn layouts() -> Layouts {
    Layouts::of(&Head::new(&machine::host(), "", 0)).unwrap()
}

proptest! {
    #[test]
    fn any_samples_come_back(sorted in vec(any::sample(true), 1..7), odd in any::sample(false), at in any::<usize>()) {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        let mut samples = sorted;
        samples.insert(at % (samples.len() + 1), odd);
        drop(write(&path, &samples));
        let mut reader = Reader::open(&path).unwrap();
        let frames: Vec<Frame> =
            frames(&reader).into_iter().filter(|frame| frame.head.kind.is_sample()).collect();
        for (frame, sample) in frames.iter().zip(&samples) {
            prop_assert_eq!(&reader.sample(*frame).unwrap().1, sample);
        }
        // In any order, too.
        for (frame, sample) in frames.iter().zip(&samples).rev() {
            prop_assert_eq!(&reader.sample(*frame).unwrap().1, sample);
        }
    }

    // Sums of numbers from a recording overflowed: a fuzzer's finding.
    #[test]
    fn any_samples_can_be_jumped_to(samples in vec(any::sample(true), 6..14)) {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        drop(write(&path, &samples));
        let frames = frames(&Reader::open(&path).unwrap());
        let frames: Vec<Frame> = frames.into_iter().filter(|frame| frame.head.kind.is_sample()).collect();
        prop_assert_eq!(frames.len(), samples.len());
        for (frame, sample) in frames.iter().zip(&samples).rev() {
            prop_assert_eq!(&Reader::open(&path).unwrap().sample(*frame).unwrap().1, sample);
        }
    }

    #[test]
    fn any_samples_can_be_shown(before in any::sample(true), after in any::sample(true)) {
        let host = Arc::new(machine::host());
        for grain in [RowKind::Processes, RowKind::Threads] {
            let snapshot = derive(&host, Some(&before), &after, grain);
            let read = |task| TASK_METRICS.iter().filter(|metric| metric.read(task, &snapshot).is_ok()).count();
            prop_assert!(snapshot.tasks.iter().all(|task| read(task) > 0));
            prop_assert!(snapshot.nodes.iter().all(|node| NODE_METRICS[0].read(node, &snapshot).is_ok()));
        }
    }

    #[test]
    fn any_bytes_are_a_sample_or_an_error(key in any::sample(true), next in any::sample(true), bytes in vec(any::<u8>(), 0..300), at in any::<usize>(), flip in 1..255u8, reach in 1..9u32) {
        let layouts = layouts();
        let base = Base { key: &key, key_id: 5, tick: 0, tasks: &key.tasks };
        let _ = decode(&bytes, &layouts, Some(base), Room::endless());
        let mut bytes = Vec::new();
        let changes = Changes::since(&key).after(&next).unwrap();
        encode(&mut bytes, Some(Delta { key: &key, key_id: 5, changes: changes.of_the_last(reach) }), &next).unwrap();
        prop_assert_eq!(&decode(&bytes, &layouts, Some(base), Room::endless()).unwrap().0, &next);
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = decode(&bytes, &layouts, Some(base), Room::endless());
        let _ = decode(&bytes, &layouts, None, Room::endless());
    }
}

#[test]
fn a_file_has_every_sample_and_what_explains_it() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    // Two keyframes' worth.
    let samples = Machine::new(40).ticks(90);
    let mut writer = write(&path, &samples[..89]);
    writer.sample(&samples[89], Some(&Gap { reason: "full".into(), from_wall_ns: 5, samples: 3 })).unwrap();
    writer.end(End::Stopped).unwrap();

    let mut reader = Reader::open(&path).unwrap();
    let frames = frames(&reader);
    let kinds: Vec<FrameKind> = frames.iter().map(|frame| frame.head.kind).collect();
    assert_eq!((kinds[0], kinds[1], kinds[61]), (FrameKind::Head, FrameKind::Key, FrameKind::Key));
    assert_eq!(kinds.iter().filter(|kind| **kind == FrameKind::Delta).count(), 88);
    let (head, _) = reader.sample(frames[1]).unwrap();
    assert_eq!(head.head.host, machine::host());
    assert_eq!(head.head.writer, env!("CARGO_PKG_VERSION"));
    assert!(head.head.columns.task.iter().any(|column| column.name == "run_ns"));
    let read: Vec<Sample> = frames
        .iter()
        .filter(|frame| frame.head.kind.is_sample())
        .map(|frame| reader.sample(*frame).unwrap().1)
        .collect();
    assert_eq!(read, samples);
    let gap: Gap = reader.json(frames[90]).unwrap();
    assert_eq!((gap.reason.as_str(), gap.samples), ("full", 3));
    assert_eq!(reader.json::<End>(frames[92]).unwrap(), End::Stopped);
}

#[test]
fn a_column_that_is_not_known_is_skipped() {
    let sample = Machine::new(5).tick();
    let mut bytes = Vec::new();
    encode(&mut bytes, None, &sample).unwrap();
    // A section of a later version, and a head whose first columns go by names of a later version.
    bytes.extend_from_slice(&[200, 3, 1, 2, 3]);
    assert_eq!(decode(&bytes, &layouts(), None, Room::endless()).unwrap().0, sample);

    let mut head = Head::new(&machine::host(), "", 0);
    head.columns.task[3].name = "grandparent".into();
    let error = Layouts::of(&head).err().unwrap();
    assert!(error.contains("ppid"), "{error}");
    let extra = head.columns.task[3].clone();
    head.columns.task[3].name = "ppid".into();
    head.columns.task.push(extra);
    assert!(Layouts::of(&head).is_ok());
}

#[test]
fn a_frame_that_cannot_be_taken_back_ends_the_file() {
    // Nothing can be written to it, and it cannot be cut.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut writer = Writer::new(full, 7).unwrap();
    let error = writer.head(&Head::new(&machine::host(), "a session", 0)).unwrap_err();
    assert!(matches!(error, WriteError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert!(error.to_string().contains("cannot be removed"), "{error}");
}
