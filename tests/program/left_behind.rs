//! A process that looks for names and hangs is left behind, and the next one finds them.
//!
//! In a separate file, because it stops all such processes that this test has started.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use numatop_ng::collect::proc_details;
use numatop_ng::model::process::ProcessId;
use numatop_ng::model::stacks::CodePlace;
use numatop_ng::symbolize::Namer;

use crate::program;

#[inline(never)]
fn first(seed: u64) -> u64 {
    std::hint::black_box(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The process that opens files for this test.
fn namer() -> Option<rustix::process::Pid> {
    let parent = format!("PPid:\t{}\n", std::process::id());
    let statuses = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        fs::read_to_string(entry.ok()?.path().join("status")).ok().filter(|status| status.contains(&parent))
    });
    let mut names = statuses.filter(|status| status.starts_with("Name:\tnng-names\n"));
    let pid = names.next()?.lines().find_map(|line| line.strip_prefix("Pid:\t"))?.parse().ok()?;
    rustix::process::Pid::from_raw(pid)
}

#[test]
fn names_go_on_after_one_that_hangs() {
    let me = std::process::id();
    let process: ProcessId = (me, proc_details::start_ns(me).unwrap());
    let address = first as fn(u64) -> u64 as usize as u64;
    let mut names = Namer::start(PathBuf::from(program::path())).unwrap();
    let mut ask = |place: CodePlace, seen_in: ProcessId| {
        names.ask([(place, seen_in)].into_iter());
        names.answers(Duration::from_secs(60)).remove(0).1
    };
    let known = ask(CodePlace::Address(process, address), process);
    assert!(known.name.as_deref().is_some_and(|name| name.contains("first")), "{known:?}");

    // As one is that waits for a filesystem: it does not answer, and nothing but its end helps.
    rustix::process::kill_process(namer().unwrap(), rustix::process::Signal::STOP).unwrap();
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
    let other: ProcessId = (parent, proc_details::start_ns(parent).unwrap());
    let began = Instant::now();
    let hung = ask(CodePlace::Address(other, 4096), other);
    assert!(hung.module.contains("takes too long"), "{hung:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // Of that process nothing is looked for again; of others it is, by another process.
    assert!(ask(CodePlace::Address(other, 8192), other).module.contains("too many attempts failed"));
    let again = ask(CodePlace::Address(process, address + 1), process);
    assert!(again.name.as_deref().is_some_and(|name| name.contains("first")), "{again:?}");
}
