//! The bytes of a sample stay as they are: a fixture with a value in every section is read and written again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numatop_ng::model::sample::{PagesByPolicy, PlacementRaw, Sample, SharedObject};
use numatop_ng::record::format::Head;
use numatop_ng::record::frame::HEAD_LEN;
use numatop_ng::record::reader::Reader;
use numatop_ng::record::varint::Bytes;
use numatop_ng::record::writer::Writer;
use numatop_ng::source::synthetic;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::any;
use crate::machine;
use crate::roundtrip::all_frames;
use crate::scratch::Scratch;

/// The section with the checksum of the keyframe.
const KEY_ID: u8 = 19;

/// Sections with rows of tasks: of live tasks, and of ended ones.
const ROWS: [u8; 2] = [2, 3];

/// Sections when the fixture was made. Each has bytes in one of its samples at least.
const SECTIONS: usize = 26;

fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/sections.nrec"))
}

fn write(path: &Path, head: &Head, samples: &[Sample]) {
    let mut writer = Writer::new(File::create(path).unwrap(), 7).unwrap();
    writer.head(head).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
}

/// The sections of each frame with a sample: tag and bytes.
type Sections = Vec<(u8, Vec<u8>)>;

/// The head, the samples, and the sections of their frames.
fn read(path: &Path) -> (Head, Vec<Sample>, Vec<Sections>) {
    let bytes = fs::read(path).unwrap();
    let mut reader = Reader::open(path).unwrap();
    let head = reader.first_head().head.clone();
    let (mut samples, mut sections) = (Vec::new(), Vec::new());
    let frames = all_frames(&reader);
    for frame in frames.into_iter().filter(|frame| frame.first() == frame.at && frame.head.kind.is_sample()) {
        samples.push(reader.sample(frame).unwrap().1);
        let mut payload = Vec::new();
        let stored = &bytes[frame.at as usize + HEAD_LEN..frame.end() as usize];
        frame.head.open(stored, &mut payload).unwrap();
        let (mut input, mut parts) = (Bytes(&payload), Vec::new());
        while !input.0.is_empty() {
            let tag = input.take(1).unwrap()[0];
            let len = input.count(payload.len()).unwrap();
            parts.push((tag, input.take(len).unwrap().to_vec()));
        }
        sections.push(parts);
    }
    (head, samples, sections)
}

#[test]
fn every_section_is_written_as_it_was() {
    let (head, samples, before) = read(&fixture());
    let scratch = Scratch::new();
    // Columns that were added since stand last, and nothing differs in them.
    let columns = Head::new(&machine::host(), "a session", 0).columns;
    let added = columns.task.len() - head.columns.task.len();
    write(&scratch.join("again"), &Head { columns, ..head }, &samples);
    let (_, again, now) = read(&scratch.join("again"));
    assert!(again == samples);
    assert_eq!(now.len(), before.len());
    for (at, (before, now)) in before.iter().zip(&now).enumerate() {
        let tags = |sections: &Sections| -> Vec<u8> {
            sections
                .iter()
                .map(|(tag, _)| *tag)
                .filter(|tag| before.iter().any(|(of, _)| of == tag))
                .collect()
        };
        assert_eq!(tags(now), tags(before));
        // The checksum of the keyframe is that of all its sections.
        let is_whole = before.len() == now.len() && added == 0;
        for (tag, bytes) in before.iter().filter(|(tag, _)| is_whole || *tag != KEY_ID) {
            let written = now.iter().find(|(other, _)| other == tag).map(|(_, bytes)| &bytes[..]);
            let of_added = vec![0; if ROWS.contains(tag) { added } else { 0 }];
            let rest = written.and_then(|written| written.strip_prefix(&bytes[..]));
            assert!(rest == Some(&of_added), "section {tag} of frame {at}: {written:?}, not {bytes:?}");
        }
    }
    // A list of nothing takes one byte, two lists of nothing take two.
    let filled = |tag: u8| before.iter().flatten().any(|(of, bytes)| *of == tag && bytes.len() > 2);
    let filled: Vec<u8> = (1..=SECTIONS as u8).filter(|tag| filled(*tag)).collect();
    assert_eq!(filled.len(), SECTIONS, "{filled:?}");
}

/// Samples of any kind, and some of the demo machine.
fn samples() -> Vec<Sample> {
    let mut runner = TestRunner::deterministic();
    let mut any = |sorted| any::sample(sorted).new_tree(&mut runner).unwrap().current();
    let mut demo = synthetic::demo_machine();
    let mut samples: Vec<Sample> = (0..4).map(|_| demo.tick()).collect();
    samples.extend((0..8).map(|_| any(true)));
    // A keyframe is next.
    samples.push(any(false));
    samples.extend((0..8).map(|_| any(true)));
    let object = SharedObject {
        device: 3,
        inode: 1 << 40,
        generation: 4,
        bytes: 1 << 30,
        resident_bytes: 1 << 29,
        own_mappings: 2,
        mappings: Some(0),
        by_node: vec![1, 2],
        meant: vec![1],
    };
    let pages = PagesByPolicy {
        read_ns: 9,
        mappings: 60_000,
        by_node: vec![10, 20],
        explicit: vec![1],
        meant: vec![0, 20],
        shared: vec![],
        huge: 4,
        unmatched: 5,
        objects: vec![object.clone(), SharedObject { mappings: None, ..object }],
    };
    for sample in &mut samples {
        if let Some(raw) = Arc::make_mut(&mut sample.placement).values_mut().next() {
            *raw = Arc::new(PlacementRaw { by_policy: Some(Arc::new(pages.clone())), ..(**raw).clone() });
        }
    }
    samples
}

#[test]
#[ignore = "made the fixture; run it only to add sections"]
fn make_the_fixture() {
    write(&fixture(), &Head::new(&machine::host(), "a session", 0), &samples());
}
