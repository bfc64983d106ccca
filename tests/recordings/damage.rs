//! Damage costs the frame it hits: nothing wrong is shown as right, and nothing panics or hangs.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use numatop_ng::record::changes::REACH;
use numatop_ng::record::reader::{Found, Reader};
use numatop_ng::sample::Sample;

use crate::machine::Machine;
use crate::roundtrip::{frames, write};
use crate::scratch::Scratch;

/// Every sample that can be read, in order, each once.
fn readable(path: &Path) -> Vec<Sample> {
    let Ok(mut reader) = Reader::open(path) else { return Vec::new() };
    let (mut at, mut samples, mut last) = (0, Vec::new(), None);
    loop {
        match reader.at(at).unwrap() {
            Found::Frame(frame) => {
                at = frame.end();
                if frame.head.kind.is_sample()
                    && last != Some(frame.head.seq)
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

/// How many of `all` are not among `read`; panics if `read` has anything else, or another order.
fn missing(all: &[Sample], read: &[Sample]) -> usize {
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
#[ignore = "takes minutes unless built with --release"]
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
    let bytes = std::fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        let cut_path = scratch.join("cut");
        std::fs::write(&cut_path, &bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut as u64).count();
        let read = readable(&cut_path);
        // The first copy of a keyframe may be whole while the second is not.
        assert!(read.len() >= whole && missing(&samples[..read.len()], &read) == 0, "cut at {cut}");
    }
}

#[test]
fn a_few_damaged_frames_in_a_row_cost_only_themselves() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(60).ticks(130);
    drop(write(&path, &samples));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let frames = frames(&Reader::open(&path).unwrap());
    for first in [20, 60, 61, 62, 100] {
        for frame in &frames[first..first + REACH as usize - 1] {
            file.write_all_at(&[0; 20], frame.at + 30).unwrap();
        }
    }
    // Of the keyframe at 61 there is a second copy.
    assert_eq!(missing(&samples, &readable(&path)), 3 + 4 + 3);
}

#[test]
fn a_hole_costs_about_a_minute_at_most() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let samples = Machine::new(60).ticks(240);
    drop(write(&path, &samples));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.write_all_at(&[0; 8192], len / 2).unwrap();
    let cost = missing(&samples, &readable(&path));
    // Both copies of a keyframe may be in it, and frames before them.
    assert!((4..=75).contains(&cost), "{cost} samples are lost");
}

#[test]
fn frames_of_another_recording_are_not_taken_for_its_own() {
    let scratch = Scratch::new();
    let (path, other) = (scratch.join("file"), scratch.join("other"));
    let samples = Machine::new(3).ticks(4);
    drop(write(&path, &samples));
    let mut writer =
        numatop_ng::record::writer::Writer::new(std::fs::File::create_new(&other).unwrap(), 8).unwrap();
    writer.head(&numatop_ng::record::format::Head::new(&crate::machine::host(), "another", 0)).unwrap();
    writer.sample(&Machine::new(9).tick(), None).unwrap();
    // A disk block of a deleted recording turns up at the end of this one.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(std::fs::read(&other).unwrap());
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(readable(&path), samples);
}
