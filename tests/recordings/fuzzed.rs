//! Inputs that fuzzing began with and found stay harmless, and the fuzz target stays a program that compiles.

use std::path::Path;

use crate::machine::Machine;
use crate::roundtrip::write;
use crate::scratch::Scratch;

// `fuzz/` is a separate workspace, which no other test builds.
#[path = "../../fuzz/src/lib.rs"]
#[expect(unsafe_code, reason = "calls C")]
#[allow(dead_code, reason = "the other targets are run by tests/worlds/fuzzed.rs")]
mod target;

#[test]
fn the_corpus_does_no_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/reader");
    let mut samples = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        samples += target::reader::read(&std::fs::read(&path).unwrap());
    }
    assert!(samples > 0, "nothing in {} is a recording", corpus.display());
}

#[test]
fn inputs_to_begin_with_are_read_to_their_end() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    // Two keyframes' worth.
    drop(write(&path, &Machine::new(5).ticks(70)));
    let seeds = target::seeds::of(&std::fs::read(&path).unwrap(), 2).unwrap();
    let samples: Vec<usize> = seeds.iter().map(|seed| target::reader::read(seed)).collect();
    assert_eq!(samples, [3, 3]);
}
