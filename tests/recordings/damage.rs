//! Damage costs the frame it hits: nothing wrong is shown as right, and nothing panics or hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use numatop_ng::collect::placement::draw::Random;
use numatop_ng::model::sample::Sample;
use numatop_ng::record::format::{End, FrameKind, KEY_EVERY, LOSS, MIN_FRAME, SECTOR};
use numatop_ng::record::reader::{Found, Reader};
use numatop_ng::record::verify::verify;

use crate::machine::Machine;
use crate::roundtrip::{all_frames, write, write_as};
use crate::scratch::Scratch;

/// Every sample that can be read, in order, each once.
pub fn readable(path: &Path) -> Vec<Sample> {
    let Ok(mut reader) = Reader::open(path) else { return Vec::new() };
    let (mut at, mut samples, mut last) = (0, Vec::new(), None);
    loop {
        match reader.at(at).unwrap() {
            Found::Frame(frame) => {
                at = frame.end();
                if frame.head.kind.is_sample()
                    && last.is_none_or(|last| last < frame.head.seq)
                    && let Ok((_, sample)) = reader.sample(frame)
                {
                    last = Some(frame.head.seq);
                    samples.push(sample);
                }
            }
            Found::Damaged { next } => at = next,
            Found::End { .. } => return samples,
        }
    }
}

/// The number of `all` that are not among `read`; panics if `read` has anything else, or another order.
pub fn missing(all: &[Sample], read: &[Sample]) -> usize {
    let mut rest = read.iter().peekable();
    let missing = all.iter().filter(|sample| rest.next_if(|next| next == sample).is_none()).count();
    assert!(rest.next().is_none(), "a sample was read that was never written");
    missing
}

/// Flips the bits that `which` names, one at a time, and counts the samples that are lost to them.
fn flip(path: &Path, samples: &[Sample], which: impl Fn(u64) -> Box<dyn Iterator<Item = u64>>) -> usize {
    drop(write(path, samples));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let bits = file.metadata().unwrap().len() * 8;
    let mut lost = 0;
    for bit in which(bits) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit / 8).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
        let cost = missing(samples, &readable(path));
        assert!(cost <= 1, "bit {bit} costs {cost} samples");
        lost += cost;
        file.write_all_at(&byte, bit / 8).unwrap();
    }
    assert_eq!(missing(samples, &readable(path)), 0);
    lost
}

#[test]
fn a_flipped_bit_costs_at_most_its_frame() {
    let scratch = Scratch::new();
    // Every seventh: all bytes, all positions in a byte.
    let lost = flip(&scratch.join("file"), &Machine::new(1).ticks(3), |bits| Box::new((0..bits).step_by(7)));
    assert!(lost > 0, "nothing was hit");
}

#[test]
#[ignore = "takes minutes: make torture"]
fn a_hundred_thousand_flips_cost_at_most_a_frame_each() {
    let scratch = Scratch::new();
    let mut seed = 1u64;
    let next = move |bits: u64| {
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 16) % bits
        };
        Box::new((0..100_000).map(move |_| random())) as Box<dyn Iterator<Item = u64>>
    };
    let began = Instant::now();
    let lost = flip(&scratch.join("file"), &Machine::new(8).ticks(12), next);
    println!("100,000 flips lost {lost} samples, {:?}", began.elapsed());
}

#[test]
fn a_file_cut_anywhere_has_all_samples_before_the_cut() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(3).ticks(4);
    let mut writer = write(&path, &[]);
    let mut ends = Vec::new();
    for sample in &samples {
        writer.sample(sample, None).unwrap();
        ends.push(writer.len());
    }
    drop(writer);
    let file = open(&path);
    for cut in (0..file.metadata().unwrap().len()).rev() {
        file.set_len(cut).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let read = readable(&path);
        // The first copy of a keyframe may be whole while the second is not.
        assert!(read.len() >= whole && missing(&samples[..read.len()], &read) == 0, "cut at {cut}");
    }
}

/// Recordings whose frames are small, middling and large, as their writer leaves them when it ends and when it is killed.
fn shapes() -> Vec<(&'static str, Machine, usize)> {
    let machine = |tasks, active, churn| {
        let mut machine = Machine::new(tasks);
        (machine.active, machine.churn) = (active, churn);
        machine
    };
    vec![
        ("a tiny machine", machine(1, 16, 10), 130),
        ("an idle machine", machine(90, 1, 0), 130),
        ("thirty tasks", machine(30, 30, 10), 130),
        ("sixty tasks", machine(60, 16, 10), 130),
        ("two hundred tasks", machine(200, 16, 10), 75),
        ("two thousand tasks", machine(2000, 1, 1), 69),
    ]
}

/// Overwrites `range` with zeros, counts the lost samples, and restores the bytes.
fn without(file: &File, path: &Path, range: Range<u64>, samples: &[Sample]) -> usize {
    let end = range.end.min(file.metadata().unwrap().len());
    let mut bytes = vec![0; (end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).unwrap();
    file.write_all_at(&vec![0; bytes.len()], range.start).unwrap();
    let cost = missing(samples, &readable(path));
    file.write_all_at(&bytes, range.start).unwrap();
    cost
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Zeros sectors of recordings one by one: all of them, or this many of each recording.
fn zero_sectors(most: usize) {
    let scratch = Scratch::new();
    for (name, mut machine, count) in shapes() {
        let samples = machine.ticks(count);
        // The last one is ended as it should be; the others are killed early, and right after a keyframe.
        let early = if most == usize::MAX { vec![1, 8, 12, 61, 65, 68] } else { vec![12, 67] };
        for taken in early.into_iter().chain([count]) {
            let (samples, path) = (&samples[..taken], scratch.join(&format!("{name} {taken}")));
            let writer = write(&path, samples);
            if taken == count {
                writer.end(End::Stopped).unwrap();
            }
            let (file, len) = (open(&path), path.metadata().unwrap().len());
            let sectors = len.div_ceil(SECTOR) as usize;
            // Samples at both ends, and evenly among the others.
            let chosen =
                |at: &usize| *at < 3 || *at + 2 > sectors || at.is_multiple_of(sectors.div_ceil(most));
            let mut hit = 0;
            for at in (0..sectors).filter(chosen).map(|sector| sector as u64 * SECTOR) {
                let cost = without(&file, &path, at..at + SECTOR, samples);
                assert!(
                    cost <= LOSS as usize,
                    "{name}, {taken} samples: bytes from {at} of {len} cost {cost}"
                );
                hit += usize::from(cost > 0);
            }
            assert!(hit > 0, "{name}, {taken} samples: nothing was hit");
        }
    }
}

#[test]
fn a_sector_of_zeros_costs_at_most_eight_samples() {
    zero_sectors(4);
}

#[test]
#[ignore = "takes minutes: make torture"]
fn any_sector_of_zeros_costs_at_most_eight_samples() {
    zero_sectors(usize::MAX);
}

/// Takes four frames in a row out of recordings, everywhere or at this many places of each.
fn lose_four_frames(most: usize) {
    let scratch = Scratch::new();
    // The last shape takes a second for each.
    let shapes = shapes().into_iter().take(if most == usize::MAX { 6 } else { 5 });
    for (name, mut machine, count) in shapes {
        let path = scratch.join(name);
        let samples = machine.ticks(count);
        write(&path, &samples).end(End::Stopped).unwrap();
        let (bytes, cut) = (std::fs::read(&path).unwrap(), scratch.join("cut"));
        let all = all_frames(&Reader::open(&path).unwrap());
        let step = all.len().div_ceil(most);
        for (at, four) in all.windows(4).enumerate() {
            // Where there are heads and keyframes, too.
            if at % step != 0
                && four.iter().all(|frame| frame.head.kind == FrameKind::Delta && !frame.head.carries)
            {
                continue;
            }
            let range = four[0].at..four[3].end();
            let cost = without(&open(&path), &path, range.clone(), &samples);
            assert!(cost <= LOSS as usize, "{name}: frames from {range:?} on cost {cost} samples");
            // Cut out, so that all later frames are at another place than their heads claim.
            let [before, after] = [&bytes[..range.start as usize], &bytes[range.end as usize..]];
            std::fs::write(&cut, [before, after].concat()).unwrap();
            let cost = missing(&samples, &readable(&cut));
            assert!(cost <= LOSS as usize, "{name}: without the frames {range:?}, {cost} samples are lost");
        }
    }
}

#[test]
fn four_frames_that_are_lost_in_a_row_cost_at_most_eight_samples() {
    lose_four_frames(2);
}

#[test]
#[ignore = "takes minutes: make torture"]
fn any_four_frames_in_a_row_cost_at_most_eight_samples() {
    lose_four_frames(usize::MAX);
}

/// Samples that are read by jumps to each, all by a reader of their own, or by one in this order.
fn jumped(path: &Path, step: Option<usize>) -> Vec<Sample> {
    let open = || Reader::open(path).unwrap();
    let (mut reader, mut frames, mut at) = (open(), BTreeMap::new(), 0);
    loop {
        match reader.at(at).unwrap() {
            Found::Frame(frame) => {
                at = frame.end();
                if frame.head.kind.is_sample() {
                    frames.entry(frame.head.seq).or_insert_with(Vec::new).push(frame);
                }
            }
            Found::Damaged { next } => at = next,
            Found::End { .. } => break,
        }
    }
    let mut read = BTreeMap::new();
    for turn in 0..frames.len() {
        let (seq, copies) = frames.iter().nth(turn * step.unwrap_or(1) % frames.len()).unwrap();
        if step.is_none() {
            reader = open();
        }
        if let Some((_, sample)) = copies.iter().find_map(|frame| reader.sample(*frame).ok()) {
            read.insert(*seq, sample);
        }
    }
    read.into_values().collect()
}

fn times(samples: &[Sample]) -> Vec<i64> {
    samples.iter().map(|sample| sample.wall_ns / 1_000_000_000 % 1000).collect()
}

#[test]
fn jumps_find_what_reading_from_the_front_finds() {
    let scratch = Scratch::new();
    for (churn, tasks) in [(10, 30), (300, 12)] {
        let path = scratch.join(&format!("{churn}"));
        let mut machine = Machine::new(tasks);
        machine.churn = churn;
        let samples = machine.ticks(100);
        write(&path, &samples).end(End::Stopped).unwrap();
        assert!(jumped(&path, None) == samples && jumped(&path, Some(37)) == samples);

        let (bytes, cut) = (std::fs::read(&path).unwrap(), scratch.join("cut"));
        let all = all_frames(&Reader::open(&path).unwrap());
        let mut lost = 0;
        for (at, frames) in all.windows(6).enumerate().step_by(23) {
            // One frame and up to six in a row.
            let mut damaged = bytes.clone();
            damaged[frames[0].at as usize..frames[at % 6].end() as usize].fill(0);
            std::fs::write(&cut, damaged).unwrap();
            let expected = readable(&cut);
            lost += missing(&samples, &expected);
            for step in [None, Some(37)] {
                let found = jumped(&cut, step);
                assert_eq!(times(&found), times(&expected), "frame {at}, step {step:?}");
                assert!(found == expected, "frame {at}, step {step:?}: not what was written");
            }
        }
        assert!(lost > 0, "nothing was damaged");
    }
}

#[test]
fn a_hole_costs_what_is_in_it_and_half_a_minute_at_most() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(60).ticks(240);
    write(&path, &samples).end(End::Stopped).unwrap();
    let (file, len) = (open(&path), path.metadata().unwrap().len());
    let hole = 5 * SECTOR;
    let within = (hole as usize).div_ceil(MIN_FRAME);
    // The first holes have the head and both of its copies.
    for at in (6 * SECTOR..len - hole).step_by(3 * SECTOR as usize) {
        let cost = without(&file, &path, at..at + hole, &samples);
        assert!((4..=within + KEY_EVERY as usize).contains(&cost), "{cost} samples are lost from {at} on");
    }
}

#[test]
fn what_is_whole_and_what_is_not_is_all_of_the_file() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(20).ticks(80);
    write(&path, &samples).end(End::Stopped).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let other = scratch.join("other");
    write_as(8, &other, &samples[..9]).end(End::Stopped).unwrap();
    let (other, changed) = (std::fs::read(other).unwrap(), scratch.join("changed"));
    let (mut random, mut kinds) = (Random(0), BTreeSet::new());
    for (seed, round) in [7, 12].into_iter().flat_map(|seed| (0..100).map(move |round| (seed, round))) {
        if round == 0 {
            random = Random(seed);
        }
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            let to = bytes.len().min(at + random.below(9000) as usize);
            match random.below(6) {
                0 => bytes[at..to].fill(0),
                1 => bytes.truncate(at),
                2 => drop(bytes.splice(at..at, other.iter().copied())),
                3 => bytes.extend_from_slice(&other),
                4 => drop(bytes.drain(at..to)),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 4),
            }
        }
        std::fs::write(&changed, &bytes).unwrap();
        let Ok(report) = verify(&changed) else { continue };
        assert_eq!(
            (report.parts.sum(), report.bytes),
            (bytes.len() as u64, bytes.len() as u64),
            "{seed}, {round}: {report}"
        );
        assert_eq!(report.samples as usize, readable(&changed).len(), "{seed}, {round}: {report}");
        assert!(report.is_intact() || report.to_string().contains("total size in bytes: "), "{report}");
        let parts = report.parts;
        let all = [
            parts.whole,
            parts.copies,
            parts.orphaned,
            parts.damaged,
            parts.foreign,
            parts.behind,
            parts.torn,
        ];
        kinds.extend(all.iter().enumerate().filter(|(_, bytes)| **bytes > 0).map(|(kind, _)| kind));
    }
    assert_eq!(kinds.len(), 7, "no file had parts of some kind: {kinds:?}");
}

#[test]
fn copies_that_were_moved_from_their_first_cost_verify_no_sample() {
    let scratch = Scratch::new();
    let (path, moved) = (scratch.join("file"), scratch.join("moved"));
    write(&path, &Machine::new(20).ticks(80)).end(End::Stopped).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let copies: Vec<_> =
        all_frames(&Reader::open(&path).unwrap()).into_iter().filter(|frame| frame.head.copy).collect();
    assert!(copies.iter().any(|frame| frame.head.kind == FrameKind::Key), "no keyframe has a copy behind it");
    for frame in copies {
        let (before, after) = bytes.split_at(frame.at as usize);
        std::fs::write(&moved, [before, &[0; 100], after].concat()).unwrap();
        let report = verify(&moved).unwrap();
        assert_eq!(report.samples as usize, readable(&moved).len(), "{frame:?}: {report}");
    }
}

#[test]
fn what_stands_behind_the_end_is_named() {
    let scratch = Scratch::new();
    let (path, other) = (scratch.join("file"), scratch.join("other"));
    let samples = Machine::new(20).ticks(12);
    write(&path, &samples).end(End::Stopped).unwrap();
    write_as(8, &other, &samples).end(End::Stopped).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes.extend(std::fs::read(&other).unwrap());
    std::fs::write(&path, &bytes).unwrap();
    let report = verify(&path).unwrap();
    let text = report.to_string();
    assert!(!report.is_intact() && report.samples == 12, "{text}");
    assert!(
        text.contains(&format!("after the end of the recording: bytes {end} to {}", bytes.len())),
        "{text}"
    );
    assert!(text.contains(&format!("tail -c +{}", end + 1)), "{text}");
}

#[test]
fn frames_of_another_recording_are_not_taken_for_its_own() {
    let scratch = Scratch::new();
    let (path, other) = (scratch.join("file"), scratch.join("other"));
    let samples = Machine::new(3).ticks(4);
    drop(write(&path, &samples));
    drop(write_as(8, &other, &[Machine::new(9).tick()]));
    // A disk block of a deleted recording turns up at the end of this one.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(std::fs::read(&other).unwrap());
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(readable(&path), samples);
}

#[test]
fn a_second_reader_takes_the_open_file_and_its_head() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    write(&file, &Machine::new(3).ticks(3)).end(End::Stopped).unwrap();
    let reader = Reader::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let beside = reader.beside().unwrap();
    assert!(std::sync::Arc::ptr_eq(&reader.first_head(), &beside.first_head()));
}
