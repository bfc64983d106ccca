//! The symbolizer as the tool starts it: names of this test's own functions, and what it may do.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::program;
use numatop_ng::collect::proc_details;
use numatop_ng::model::process::ProcessId;
use numatop_ng::model::stacks::{BuildId, CodePlace, Function};
use numatop_ng::program::helper::HelperProcess;
use numatop_ng::symbolize::client::{Answer, Question};
use numatop_ng::symbolize::sections::{self, Symbols};
use numatop_ng::symbolize::{Namer, child, namer};

/// Names are available long before this, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn me() -> ProcessId {
    let pid = std::process::id();
    (pid, proc_details::start_ns(pid).unwrap())
}

fn namer() -> Namer {
    Namer::start(PathBuf::from(program::path())).unwrap()
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
    let place = CodePlace::Address(me(), address);
    namer.ask([(place, me())].into_iter());
    let answers = namer.answers(PATIENCE);
    assert_eq!(answers.len(), 1);
    let name = answers[0].1.name.as_deref().unwrap_or_default();
    assert!(name.contains("a_function_of_this_test"), "{answers:?}");
    // A place is asked for once.
    namer.ask([(place, me())].into_iter());
    assert!(namer.answers(Duration::ZERO).is_empty());
}

/// A function whose demangled name has gigabytes: each type contains the previous one nine times. It does
/// nothing else.
#[expect(unsafe_code, reason = "a name of its own")]
#[unsafe(export_name = "_Z1fSt5tupleIiE\
     S_IS0_S0_S0_S0_S0_S0_S0_S0_S0_ES_IS1_S1_S1_S1_S1_S1_S1_S1_S1_E\
     S_IS2_S2_S2_S2_S2_S2_S2_S2_S2_ES_IS3_S3_S3_S3_S3_S3_S3_S3_S3_E\
     S_IS4_S4_S4_S4_S4_S4_S4_S4_S4_ES_IS5_S5_S5_S5_S5_S5_S5_S5_S5_E\
     S_IS6_S6_S6_S6_S6_S6_S6_S6_S6_ES_IS7_S7_S7_S7_S7_S7_S7_S7_S7_E\
     S_IS8_S8_S8_S8_S8_S8_S8_S8_S8_ES_IS9_S9_S9_S9_S9_S9_S9_S9_S9_E\
     S_ISA_SA_SA_SA_SA_SA_SA_SA_SA_ES_ISB_SB_SB_SB_SB_SB_SB_SB_SB_E")]
#[inline(never)]
extern "C" fn a_name_of_gigabytes(seed: u64) -> u64 {
    std::hint::black_box(seed).wrapping_add(0x1234_5678_9abc)
}

#[test]
fn a_name_that_means_gigabytes_holds_up_no_other() {
    let mut namer = namer();
    let of = |address: usize| CodePlace::Address(me(), address as u64);
    let hostile = of(a_name_of_gigabytes as extern "C" fn(u64) -> u64 as usize);
    let honest = of(a_function_of_this_test as fn(u64) -> u64 as usize);
    namer.ask([hostile, honest].into_iter().map(|place| (place, me())));
    let answers: BTreeMap<CodePlace, Arc<Function>> = namer.answers(PATIENCE).into_iter().collect();
    let name = |place| answers.get(place).and_then(|function| function.name.as_deref()).unwrap_or_default();
    assert!(name(&honest).contains("a_function_of_this_test"), "{answers:?}");
    assert!(name(&hostile).starts_with("f(std::tuple<int>, std::tuple<"), "{answers:?}");
}

#[test]
fn a_place_without_a_name_says_why() {
    let mut namer = namer();
    let (pid, start_ns) = me();
    let other = (pid, start_ns + 5_000_000_000);
    let places = [
        CodePlace::Address(other, 4096),
        CodePlace::File(BuildId([7; 20]), 4096),
        CodePlace::Address(me(), 1),
    ];
    namer.ask(places.into_iter().map(|place| (place, if place == places[0] { other } else { me() })));
    let answers: BTreeMap<CodePlace, Arc<Function>> = namer.answers(PATIENCE).into_iter().collect();
    assert_eq!(answers[&places[0]].module, "[process has ended]");
    assert!(answers[&places[1]].module.starts_with("[build id 0707"), "{answers:?}");
    assert_eq!((answers[&places[2]].name.clone(), answers.len()), (None, 3));
}

#[test]
fn without_a_symbolizer_names_are_missing_with_the_reason() {
    let mut namer = Namer::start(PathBuf::from("/nonexistent")).unwrap();
    let address = a_function_of_this_test as fn(u64) -> u64 as usize as u64;
    namer.ask([(CodePlace::Address(me(), address), me())].into_iter());
    let answers = namer.answers(PATIENCE);
    assert!(answers[0].1.module.contains("the symbolizer could not be started"), "{answers:?}");
}

/// Processes of this name that one of these started, with their lines in /proc.
fn started_by(parents: &[u32], name: &str) -> Vec<(u32, String)> {
    let number = |status: &str, field: &str| -> Option<u32> {
        status.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok())
        .filter(|status| status.starts_with(&format!("Name:\t{name}\n")))
        .filter(|status| number(status, "PPid:").is_some_and(|parent| parents.contains(&parent)))
        .filter_map(|status| Some((number(&status, "Pid:")?, status)))
        .collect()
}

#[test]
fn the_symbolizer_has_no_capability_and_a_filter() {
    let mut namer = namer();
    let address = a_function_of_this_test as fn(u64) -> u64 as usize as u64;
    namer.ask([(CodePlace::Address(me(), address), me())].into_iter());
    assert_eq!(namer.answers(PATIENCE).len(), 1);
    // Tests of this file run side by side: each of their symbolizers is as good.
    let children: Vec<String> = started_by(&[std::process::id()], "nng-names")
        .into_iter()
        .flat_map(|(pid, _)| started_by(&[pid], "nng-symbols"))
        .map(|(_, status)| status)
        .collect();
    assert!(!children.is_empty(), "there is no symbolizer");
    for line in ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "Seccomp:\t2", "NoNewPrivs:\t1"] {
        assert!(children.iter().any(|status| status.contains(line)), "{line}: {children:?}");
    }
}

#[test]
fn started_by_hand_both_processes_say_what_they_are() {
    for name in [child::NAME, namer::NAME] {
        let output = Command::new(program::path()).arg0(name).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is internal: only numatop-ng starts it"));
    }
}

/// An ELF file with a table of `count` functions.
fn file_of_functions(count: usize) -> File {
    const EHDR: usize = 64;
    const PHDR: usize = 56;
    const SHDR: usize = 64;
    const SYM: usize = 24;
    let mut bytes = b"\x7fELF\x02".to_vec();
    bytes.push(if cfg!(target_endian = "little") { 1 } else { 2 });
    bytes.resize(EHDR, 0);
    bytes[40..48].copy_from_slice(&(EHDR as u64).to_ne_bytes());
    for (at, word) in [(54, PHDR as u16), (58, SHDR as u16), (60, 3)] {
        bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
    }
    let symbols_at = EHDR + 3 * SHDR;
    for (kind, offset, size) in [(0u32, 0, 0), (2, symbols_at, count * SYM), (3, symbols_at + count * SYM, 4)]
    {
        let mut header = [0; SHDR];
        header[4..8].copy_from_slice(&kind.to_ne_bytes());
        header[24..32].copy_from_slice(&(offset as u64).to_ne_bytes());
        header[32..40].copy_from_slice(&(size as u64).to_ne_bytes());
        header[40] = 2 * u8::from(kind == 2);
        bytes.extend(header);
    }
    for at in 0..count as u64 {
        let mut symbol = [0; SYM];
        (symbol[0], symbol[4], symbol[6]) = (1, 2, 1);
        symbol[8..16].copy_from_slice(&at.to_ne_bytes());
        symbol[16..24].copy_from_slice(&1u64.to_ne_bytes());
        bytes.extend(symbol);
    }
    bytes.extend(b"\0fn\0");
    let path = std::env::temp_dir().join(format!("numatop-ng-functions-{}-{count}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(path).unwrap();
    file
}

#[test]
fn symbol_tables_of_twelve_megabytes_take_no_more_memory_than_one() {
    let mut symbolizer = HelperProcess::new(PathBuf::from(program::path()), child::NAME, PATIENCE);
    let mut named = |file: &File, address: u64| -> Option<String> {
        let answer = symbolizer.ask(&Question::Addresses(vec![address]), Some(file)).unwrap();
        let Answer::Found(found) = answer else { panic!("places are answered by names") };
        found.into_iter().next()?.name
    };
    let me = File::open("/proc/self/exe").unwrap();
    let table = sections::functions(&me, Symbols::All, sections::room(&me, Symbols::All));
    let honest = table.symbols()[table.symbols().len() / 2].start;
    let name = named(&me, honest);
    assert!(name.is_some());
    for more in 0..5 {
        let count = (1 << 19) + more;
        let file = file_of_functions(count);
        assert_eq!(named(&file, count as u64 - 1).as_deref(), Some("fn"));
    }
    assert_eq!(named(&me, honest), name, "the names of another file are lost");
    let children = started_by(&[std::process::id()], "nng-symbols");
    assert!(!children.is_empty());
    for (_, status) in children {
        let anon = |field| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        // The text of a debug build is not included.
        let peak = anon("VmHWM:") - anon("RssFile:");
        assert!(peak < 32 << 10, "{peak} KiB: {status}");
    }
}
