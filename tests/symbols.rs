//! The symbolizer as the tool starts it: names of this test's own functions, and what it may do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use numatop_ng::collect::inspect;
use numatop_ng::hot::{BuildId, Function, Place, ProcessId};
use numatop_ng::symbolize::{Namer, child};

const BINARY: &str = env!("CARGO_BIN_EXE_numatop-ng");
/// Names are there long before, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn me() -> ProcessId {
    let pid = std::process::id();
    (pid, inspect::start_ns(pid).unwrap())
}

fn namer() -> Namer {
    Namer::start(PathBuf::from(BINARY)).unwrap()
}

/// A function to be found: not one that is the same as another.
#[inline(never)]
fn a_function_of_this_test(seed: u64) -> u64 {
    std::hint::black_box(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn a_function_of_this_process_has_its_name() {
    let mut namer = namer();
    let address = a_function_of_this_test as fn(u64) -> u64 as usize as u64;
    let place = Place::Address(me(), address);
    namer.ask([(place, me())].into_iter());
    let answers = namer.answers(PATIENCE);
    assert_eq!(answers.len(), 1);
    let name = answers[0].1.name.as_deref().unwrap_or_default();
    assert!(name.contains("a_function_of_this_test"), "{answers:?}");
    // A place is asked for once.
    namer.ask([(place, me())].into_iter());
    assert!(namer.answers(Duration::ZERO).is_empty());
}

#[test]
fn a_place_without_a_name_says_why() {
    let mut namer = namer();
    let (pid, start_ns) = me();
    let other = (pid, start_ns + 5_000_000_000);
    let places = [Place::Address(other, 4096), Place::File(BuildId([7; 20]), 4096), Place::Address(me(), 1)];
    namer.ask(places.into_iter().map(|place| (place, if place == places[0] { other } else { me() })));
    let answers: BTreeMap<Place, Function> = namer.answers(PATIENCE).into_iter().collect();
    assert_eq!(answers[&places[0]].module, "[process has ended]");
    assert!(answers[&places[1]].module.starts_with("[build id 0707"), "{answers:?}");
    assert_eq!((answers[&places[2]].name.clone(), answers.len()), (None, 3));
}

#[test]
fn without_a_symbolizer_names_are_missing_with_the_reason() {
    let mut namer = Namer::start(PathBuf::from("/nonexistent")).unwrap();
    let address = a_function_of_this_test as fn(u64) -> u64 as usize as u64;
    namer.ask([(Place::Address(me(), address), me())].into_iter());
    let answers = namer.answers(PATIENCE);
    assert!(answers[0].1.module.contains("no symbolizer could be started"), "{answers:?}");
}

#[test]
fn the_symbolizer_has_no_capability_and_a_filter() {
    let mut namer = namer();
    let address = a_function_of_this_test as fn(u64) -> u64 as usize as u64;
    namer.ask([(Place::Address(me(), address), me())].into_iter());
    assert_eq!(namer.answers(PATIENCE).len(), 1);
    // Tests of this file run side by side: each of their symbolizers is as good.
    let children: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok())
        .filter(|status| status.contains(&format!("PPid:\t{}\n", std::process::id())))
        .filter(|status| status.starts_with("Name:\tnng-symbols\n"))
        .collect();
    assert!(!children.is_empty(), "there is no symbolizer");
    for line in ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "Seccomp:\t2", "NoNewPrivs:\t1"] {
        assert!(children.iter().any(|status| status.contains(line)), "{line}: {children:?}");
    }
}

#[test]
fn started_by_hand_the_symbolizer_says_what_it_is() {
    let output = Command::new(BINARY).arg0(child::NAME).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is started by numatop-ng"));
}
