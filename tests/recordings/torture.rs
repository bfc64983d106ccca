//! Recordings that were damaged in every way: bits flipped, sectors lost, pieces cut out, put in and put elsewhere, and right
//! checksums over wrong payloads. Nothing that reads them panics, shows a control character or a value that was never
//! written.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use numatop_ng::analysis::filter::RowFilter;
use numatop_ng::collect::placement::draw::Random;
use numatop_ng::export::csv::Csv;
use numatop_ng::export::json::JsonLines;
use numatop_ng::export::text::Text;
use numatop_ng::export::{Export, Selection};
use numatop_ng::metric::task::TASK_METRICS;
use numatop_ng::model::process::Asked;
use numatop_ng::model::sample::Sample;
use numatop_ng::record::format::{End, Gap, SECTOR};
use numatop_ng::record::frame::{Extras, FrameHead, HEAD_LEN, Sealer};
use numatop_ng::record::reader::{Found, Reader};
use numatop_ng::record::verify::verify;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::damage::{missing, readable};
use crate::machine::Machine;
use crate::roundtrip::{write, write_as};
use crate::scratch::Scratch;

/// Repeats the recordings of a run before.
const SEED: &str = "NUMATOP_TORTURE_SEED";

/// A recording and its content.
struct Intact {
    samples: Vec<Sample>,
    bytes: Vec<u8>,
}

fn intact(scratch: &Scratch) -> Vec<Intact> {
    let make = |name: &str, tasks, count: usize| {
        let path = scratch.join(name);
        let mut machine = Machine::new(tasks);
        let samples = machine.ticks(count);
        let mut writer = write(&path, &samples[..count - 4]);
        let gap = Gap { reason: "no room".into(), from_wall_ns: samples[count - 5].wall_ns, samples: 1 };
        for (at, sample) in samples[count - 4..].iter().enumerate() {
            writer.sample(sample, (at == 0).then_some(&gap)).unwrap();
        }
        writer.end(End::Stopped).unwrap();
        Intact { samples, bytes: std::fs::read(&path).unwrap() }
    };
    vec![make("small", 1, 80), make("middling", 15, 66), make("short", 40, 9)]
}

/// Damage done to a recording.
struct Damaged {
    bytes: Vec<u8>,
    /// True if everything readable was really written: no checksum was adjusted.
    honest: bool,
}

/// Damages a recording; `other` is another one.
fn damage(random: &mut Random, whole: &[u8], other: &[u8]) -> Damaged {
    let mut bytes = whole.to_vec();
    let mut honest = true;
    for _ in 0..=random.below(3) {
        let len = bytes.len() as u64;
        let at = random.below(len + 1) as usize;
        let to = bytes.len().min(at + random.below(3 * SECTOR) as usize);
        match random.below(9) {
            0 => {
                for _ in 0..=random.below(16) {
                    let bit = random.below(len * 8) as usize;
                    if let Some(byte) = bytes.get_mut(bit / 8) {
                        *byte ^= 1 << (bit % 8);
                    }
                }
            }
            1 => bytes.truncate(at),
            2 => bytes[at..to].fill(0),
            3 => drop(bytes.drain(at..to)),
            4 => {
                let piece = bytes[at..to].to_vec();
                let place = random.below(bytes.len() as u64 + 1) as usize;
                drop(bytes.splice(place..place, piece));
            }
            5 => {
                let from = random.below(other.len() as u64) as usize;
                let piece = &other[from..other.len().min(from + 2 * SECTOR as usize)];
                drop(bytes.splice(at..to, piece.iter().copied()));
            }
            // A stretch as long as a minute or some is put in again, or is missing: all places are those of others.
            6 => {
                let starts = frames(&bytes);
                if let Some((first, last)) = pick(random, &starts) {
                    let piece = bytes[first..last].to_vec();
                    if random.below(2) == 0 {
                        drop(bytes.splice(last..last, piece));
                    } else {
                        drop(bytes.drain(first..last));
                    }
                }
            }
            _ => {
                honest = false;
                reseal(random, &mut bytes);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    Damaged { bytes, honest }
}

/// Where the frames of a file begin, up to the first that is damaged.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut starts) = (0, Vec::new());
    while let Some(head) = bytes.get(at..).and_then(FrameHead::from_bytes) {
        starts.push(at);
        at += head.len() as usize;
    }
    starts.retain(|start| *start < bytes.len());
    starts
}

fn pick(random: &mut Random, starts: &[usize]) -> Option<(usize, usize)> {
    let first = random.below(starts.len() as u64) as usize;
    let last = first + random.below((starts.len() - first.min(starts.len())) as u64) as usize;
    Some((*starts.get(first)?, *starts.get(last)?))
}

/// Changes the payload of a frame, and makes its checksums fit.
fn reseal(random: &mut Random, bytes: &mut Vec<u8>) {
    let starts = frames(bytes);
    let Some((at, _)) = pick(random, &starts) else { return };
    let head = FrameHead::from_bytes(&bytes[at..]).unwrap();
    let end = at + head.len() as usize;
    let mut payload = Vec::new();
    if bytes.get(at + HEAD_LEN..end).is_none_or(|stored| head.open(stored, &mut payload).is_err()) {
        return;
    }
    for _ in 0..=random.below(8) {
        let place = random.below(payload.len().max(1) as u64) as usize;
        match random.below(5) {
            0 => payload.iter_mut().skip(place).take(1).for_each(|byte| *byte = random.number() as u8),
            // A number that is as large as can be.
            1 => {
                drop(payload.splice(place..place, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]));
            }
            2 => drop(payload.splice(place..(place + 3).min(payload.len()), *b"\x1b]0;PWN\x07\xe2\x80\xae")),
            3 => payload.truncate(place),
            _ => payload.iter_mut().skip(place).take(4).for_each(|byte| *byte = 0),
        }
    }
    let mut frame = Vec::new();
    let changed =
        FrameHead { base: if random.below(9) == 0 { random.below(9000) } else { head.base }, ..head };
    Sealer::new(1).unwrap().seal(&mut frame, changed, &payload, Extras::default()).unwrap();
    bytes.splice(at..end, frame);
}

/// The output of all commands for a file, for one in `every` samples; panics on output that is harmful to a
/// terminal. Returns the number of samples.
fn shown(path: &Path, every: usize) -> usize {
    let all = || Selection {
        filter: RowFilter::default(),
        columns: TASK_METRICS.iter().collect(),
        sort: &TASK_METRICS[0],
        reversed: false,
        asked: Asked::default(),
        with_events: false,
    };
    let mut json = JsonLines::new(all());
    let (mut csv, mut text) = (Csv::new(all()), Text::new(all()));
    let mut out = Vec::new();
    if let Ok(report) = verify(path) {
        assert_eq!(report.parts.sum(), path.metadata().unwrap().len(), "{report}");
        write!(out, "{report}").unwrap();
    }
    let Ok(mut recording) = Recording::open(path) else { return 0 };
    let (mut samples, mut previous) = (0, None);
    while let Some(sample) = recording.next().unwrap() {
        let before = previous.as_ref().filter(|_| recording.continues());
        let snapshot = derive(&recording.host(), before, &sample, RowKind::Processes);
        samples += 1;
        if samples % every != 0 {
            previous = Some(sample);
            continue;
        }
        let from = out.len();
        json.write(&mut out, &snapshot).unwrap();
        for line in out[from..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            serde_json::from_slice::<serde::de::IgnoredAny>(line).unwrap();
        }
        csv.write(&mut out, &snapshot).unwrap();
        text.write(&mut out, &snapshot).unwrap();
        check_text(&out);
        out.clear();
        previous = Some(sample);
    }
    samples
}

/// No control characters but ends of lines, and none that turn the direction of text.
fn check_text(out: &[u8]) {
    let text = std::str::from_utf8(out).expect("all output is UTF-8");
    let bad = |c: char| (c.is_control() && c != '\n' && c != '\r') || ('\u{202a}'..='\u{202e}').contains(&c);
    if let Some(at) = text.find(bad) {
        panic!("{:?}", text[at..].chars().take(80).collect::<String>());
    }
}

/// Damages `count` recordings, and shows one in `every` samples of each.
fn torture(count: usize, every: usize) {
    let given = std::env::var(SEED).ok().map(|seed| seed.parse().expect("the seed is a number"));
    let seed = given.unwrap_or(17);
    println!("{SEED}={seed}");
    let mut random = Random(seed);
    let scratch = Scratch::new();
    let intact = intact(&scratch);
    let other = {
        let (path, samples) = (scratch.join("other"), Machine::new(9).ticks(20));
        write_as(8, &path, &samples).end(End::Stopped).unwrap();
        Intact { samples, bytes: std::fs::read(&path).unwrap() }
    };
    let path = scratch.join("damaged");
    let file = File::create(&path).unwrap();
    let (mut whole, mut lost, mut dishonest, mut seen) = (0, 0, 0, 0);
    for round in 0..count {
        let original = &intact[round % intact.len()];
        let damaged = damage(&mut random, &original.bytes, &other.bytes);
        println!("round {round}");
        file.set_len(0).unwrap();
        file.write_all_at(&damaged.bytes, 0).unwrap();
        seen += shown(&path, every);
        if damaged.honest {
            let read = readable(&path);
            // Where all of the beginning is another recording's, it is that one.
            let samples = [&original.samples, &other.samples]
                .into_iter()
                .find(|samples| read.first().is_some_and(|first| samples.contains(first)));
            let samples = samples.unwrap_or(&original.samples);
            // Panics where a sample is read that was never written.
            let cost = missing(samples, &read);
            (whole, lost) = (whole + samples.len() - cost, lost + cost);
        } else {
            dishonest += 1;
        }
    }
    assert!(whole > lost && lost > 0 && dishonest > 0, "{whole} whole, {lost} lost, {dishonest} made up");
    println!(
        "{count} damaged recordings, {dishonest} of them with checksums that fit: {seen} samples shown, no crash, no \
         control character; of the others {whole} samples are as they were written, {lost} are lost, none is wrong"
    );
}

#[test]
fn damaged_recordings_show_nothing_wrong() {
    torture(300, 16);
}

#[test]
#[ignore = "takes minutes: make torture"]
fn ten_thousand_damaged_recordings_show_nothing_wrong() {
    torture(10_000, 1);
}

/// Places cannot identify a stretch that appears twice: only the keyframe itself can.
#[test]
fn a_delta_is_never_read_on_top_of_another_keyframe() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    // All frames of a tiny machine are of one length, so that minutes fit into each other's place.
    let mut samples = Machine::new(1).ticks(240);
    // Free memory changes, and so does the length of its numbers.
    samples.iter_mut().for_each(|sample| sample.inputs = Default::default());
    write(&path, &samples).end(End::Stopped).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let starts = frames(&whole);
    let keys: Vec<usize> = starts
        .iter()
        .copied()
        .filter(|at| {
            FrameHead::from_bytes(&whole[*at..])
                .is_some_and(|head| head.kind == numatop_ng::record::format::FrameKind::Key && !head.copy)
        })
        .collect();
    assert_eq!(keys.len(), 4);
    for (first, second) in [(1, 2), (0, 2), (1, 3)] {
        let mut bytes = whole.clone();
        let piece = whole[keys[first]..keys[first + 1]].to_vec();
        bytes.splice(keys[second]..keys[second], piece);
        std::fs::write(&path, &bytes).unwrap();
        missing(&samples, &readable(&path));
        let mut bytes = whole.clone();
        let (key, delta) = (FrameHead::from_bytes(&whole[keys[second]..]).unwrap(), keys[second] + 586);
        assert_eq!((key.len(), FrameHead::from_bytes(&whole[delta..]).is_some()), (586, true));
        bytes.copy_within(keys[first]..keys[first] + 586, keys[second]);
        std::fs::write(&path, &bytes).unwrap();
        let read = readable(&path);
        assert!(missing(&samples, &read) < 70, "its copy is used");
    }
    let mut reader = Reader::open(&path).unwrap();
    assert!(matches!(reader.at(0).unwrap(), Found::Frame(frame) if reader.is_whole(frame).unwrap()));
}
