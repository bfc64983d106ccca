//! What was written comes back, value by value.

use std::fs::File;
use std::path::Path;

use numatop_ng::record::format::{End, Gap, Head, Kind};
use numatop_ng::record::payload::{Layouts, decode, encode};
use numatop_ng::record::reader::{Found, Frame, Reader};
use numatop_ng::record::writer::Writer;
use numatop_ng::sample::Sample;
use proptest::prelude::*;

use crate::any;
use crate::machine::{self, Machine};
use crate::scratch::Scratch;

pub fn write(path: &Path, samples: &[Sample]) -> Writer {
    let mut writer = Writer::new(File::create_new(path).unwrap(), 7).unwrap();
    writer.head(&Head::new(&machine::host(), "a session", 0)).unwrap();
    for sample in samples {
        writer.sample(sample).unwrap();
    }
    writer
}

/// Every frame of an intact file; a second copy is not listed.
pub fn frames(reader: &Reader) -> Vec<Frame> {
    let (mut at, mut frames) = (0, Vec::new());
    loop {
        match reader.at(at).unwrap() {
            Found::Frame(frame) => {
                at = frame.end();
                if !frame.head.copy {
                    frames.push(frame);
                }
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
    fn any_sample_comes_back(key in any::sample(true), sample in any::sample(true), odd in any::sample(false)) {
        let layouts = layouts();
        for (base, sample) in [(None, &key), (Some(&key), &sample), (Some(&key), &key), (Some(&key), &odd), (None, &odd), (Some(&odd), &sample)] {
            let mut bytes = Vec::new();
            encode(&mut bytes, base, sample).unwrap();
            prop_assert_eq!(&decode(&bytes, &layouts, base).unwrap(), sample);
        }
    }

    #[test]
    fn any_bytes_are_a_sample_or_an_error(key in any::sample(true), bytes in proptest::collection::vec(any::<u8>(), 0..300), at in any::<usize>(), flip in 1..255u8) {
        let layouts = layouts();
        let _ = decode(&bytes, &layouts, Some(&key));
        let mut bytes = Vec::new();
        encode(&mut bytes, None, &key).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = decode(&bytes, &layouts, Some(&key));
    }
}

#[test]
fn a_file_has_every_sample_and_what_explains_it() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    // Two keyframes' worth.
    let samples = Machine::new(40).ticks(90);
    let mut writer = write(&path, &samples);
    writer.gap(&Gap { reason: "full".into(), from_wall_ns: 5, samples: 3 }).unwrap();
    writer.end(End::Stopped).unwrap();

    let mut reader = Reader::open(&path).unwrap();
    let frames = frames(&reader);
    let kinds: Vec<Kind> = frames.iter().map(|frame| frame.head.kind).collect();
    assert_eq!((kinds[0], kinds[1], kinds[61]), (Kind::Head, Kind::Key, Kind::Key));
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Delta).count(), 88);
    let (head, _) = reader.sample(frames[1]).unwrap();
    assert_eq!(*head.host, machine::host());
    assert_eq!(head.head.writer, env!("CARGO_PKG_VERSION"));
    assert!(head.head.columns.task.iter().any(|column| column.name == "exec_ns"));
    let read: Vec<Sample> = frames
        .iter()
        .filter(|frame| frame.head.kind.is_sample())
        .map(|frame| reader.sample(*frame).unwrap().1)
        .collect();
    assert_eq!(read, samples);
    let gap: Gap = reader.json(frames[91]).unwrap();
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
    assert_eq!(decode(&bytes, &layouts(), None).unwrap(), sample);

    let mut head = Head::new(&machine::host(), "", 0);
    head.columns.task[3].name = "grandparent".into();
    let error = Layouts::of(&head).err().unwrap();
    assert!(error.contains("ppid"), "{error}");
    let extra = head.columns.task[3].clone();
    head.columns.task[3].name = "ppid".into();
    head.columns.task.push(extra);
    assert!(Layouts::of(&head).is_ok());
}
