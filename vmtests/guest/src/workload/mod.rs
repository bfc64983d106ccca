//! Work of known size and place.
//!
//! A workload reports that it is ready with one line of JSON, waits for a line on its standard input, and
//! works until that ends. Then it prints its work as one more line: the truth that cases compare the tool
//! with.

mod alternate;
mod bursts;
mod caches;
mod count;
mod cycles;
mod fresh;
mod loads;
pub mod numa_truth;
mod overflow;
mod pages;
mod reads;
mod segment;
mod spin;
mod storm;
mod touch;
mod waits;
mod wander;
mod writes;

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::disk::DEVICE;
use crate::{affinity, sysfs};

pub const NAMES: &[(&str, &str)] = &[
    ("spin", "CPUS: one busy thread pinned to each CPU of the list"),
    ("wander", "CPUS MILLISECONDS: one busy thread that moves itself from CPU to CPU"),
    ("alternate", "CPU A B: two processes take turns on one CPU, A and B instructions a turn"),
    ("count", "CPU MILLIONS...: a thread for each number, which executes so many million instructions"),
    ("fresh", "CPU MIB: so much new memory on node 0 and on node 1; then that of node 0 moves to node 1"),
    (
        "numa_truth",
        "CPUS|free:N SHARES MIB small|huge|hugetlb|locked|shared|many|mixed|touched|touched_huge|interleaved|reserved uniform|settled|skewed|sharded: memory at these \
         shares by node, used from these CPUs",
    ),
    (
        "overflow",
        "CPU MIB: fills the node of the CPU, then takes and gives back so much memory more, again and again",
    ),
    (
        "bursts",
        "THREADS MILLISECONDS EVERY: so many threads, each with so much CPU time in every so many milliseconds, all at once",
    ),
    (
        "reads",
        "CPUS KIB THREADS [REQUESTS DISK]: so many threads on these CPUs read the disk, so many KiB at a time, past the page cache; \
         or each so many times, from this disk",
    ),
    (
        "writes",
        "FILE BLOCKS SYNCED: a new file of so many 64 KiB, which stays in the page cache; then another one, which is synced",
    ),
    ("caches", "CPU MIB: reads so much of the disk once, through the page cache"),
    (
        "cycles",
        "MIB [NODE]: so much memory, bound to the node, is written to from begin to end, again and again",
    ),
    (
        "sweeps",
        "CPU MIB NODE: so much memory, on the node until something moves it, is written to on the CPU from begin to end, again and again",
    ),
    ("renews", "MIB NODE: so much new memory on the node is written to and given back, again and again"),
    (
        "loads",
        "CPU PER_CENT MIB NODE MIB NODE: a thread on the CPU makes so many per cent of its loads from the first memory, and all \
         others from the second",
    ),
    (
        "segment",
        "MIB NODE CHILDREN default|interleave: processes that share so much memory, which is on the node; its policy",
    ),
    ("waits", "MIB: a process with so much memory that waits for a child in an uninterruptible sleep"),
    ("storm", "CPUS: a process per CPU that does nothing but fork children which work a little and end"),
    (
        "touch",
        "MIB MILLISECONDS [THREADS]: so much new memory, then so much CPU time, wherever it may be; waits for nothing",
    ),
];

pub fn run(name: &str, arguments: &[&str]) -> ExitCode {
    affinity::name(name);
    let truth = match (name, arguments) {
        ("spin", [cpus]) => sysfs::parse_list(cpus).and_then(|cpus| spin::run(&cpus)),
        ("wander", [cpus, pause]) => {
            sysfs::parse_list(cpus).and_then(|cpus| wander::run(&cpus, number(pause)?))
        }
        ("alternate", [cpu, a, b]) => {
            number(cpu).and_then(|cpu| alternate::run(cpu as u32, number(a)?, number(b)?))
        }
        ("count", [cpu, shares @ ..]) if !shares.is_empty() => {
            let shares: Result<Vec<u64>, String> = shares.iter().map(|share| number(share)).collect();
            number(cpu).and_then(|cpu| count::run(cpu as u32, &shares?))
        }
        ("fresh", [cpu, mib]) => number(cpu).and_then(|cpu| fresh::run(cpu as u32, number(mib)?)),
        ("numa_truth", [cpus, shares, mib, layout, access]) => {
            number(mib).and_then(|mib| numa_truth::run(cpus, shares, mib, layout, access))
        }
        ("overflow", [cpu, mib]) => number(cpu).and_then(|cpu| overflow::run(cpu as u32, number(mib)?)),
        ("bursts", [threads, work, every]) => {
            number(threads).and_then(|threads| bursts::run(threads, number(work)?, number(every)?))
        }
        ("reads", [cpus, kib, threads]) => sysfs::parse_list(cpus)
            .and_then(|cpus| reads::run(DEVICE, &cpus, number(kib)?, number(threads)?, None)),
        ("reads", [cpus, kib, threads, requests, disk]) => sysfs::parse_list(cpus).and_then(|cpus| {
            reads::run(disk, &cpus, number(kib)?, number(threads)?, Some(number(requests)?))
        }),
        ("writes", [file, blocks, synced]) => {
            number(blocks).and_then(|blocks| writes::run(file, blocks, number(synced)?))
        }
        ("caches", [cpu, mib]) => number(cpu).and_then(|cpu| caches::run(cpu as u32, number(mib)?)),
        ("cycles", [mib]) => number(mib).and_then(|mib| cycles::run(mib, None)),
        ("cycles", [mib, node]) => number(mib).and_then(|mib| cycles::run(mib, Some(number(node)? as u32))),
        ("sweeps", [cpu, mib, node]) => {
            number(cpu).and_then(|cpu| cycles::sweep(cpu as u32, number(mib)?, number(node)? as u32))
        }
        ("renews", [mib, node]) => number(mib).and_then(|mib| cycles::renew(mib, number(node)? as u32)),
        ("loads", [cpu, pct, one, of_one, other, of_other]) => number(cpu).and_then(|cpu| {
            let part = |mib, node| Ok(loads::Part { mib: number(mib)?, node: number(node)? as u32 });
            let parts: Result<_, String> =
                part(one, of_one).and_then(|one| Ok([one, part(other, of_other)?]));
            loads::run(cpu as u32, parts?, number(pct)?)
        }),
        ("segment", [mib, node, children, policy @ ("default" | "interleave")]) => {
            number(mib).and_then(|mib| {
                segment::run(mib, number(node)? as u32, number(children)?, *policy == "interleave")
            })
        }
        ("waits", [mib]) => number(mib).and_then(waits::run),
        ("storm", [cpus]) => sysfs::parse_list(cpus).and_then(|cpus| storm::run(&cpus)),
        ("touch", [mib, ms]) => number(mib).and_then(|mib| touch::run(mib, number(ms)?, 1)),
        ("touch", [mib, ms, threads]) => {
            number(mib).and_then(|mib| touch::run(mib, number(ms)?, number(threads)?))
        }
        _ => Err("see 'guest workloads' for names and arguments".to_owned()),
    };
    match truth {
        Ok(truth) => {
            say(&truth);
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("guest workload {name}: {why}");
            ExitCode::from(2)
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Reports that the workload is ready, and waits for the permission to begin.
fn wait_for_go(facts: &Value) {
    say(facts);
    wait_for_line();
}

/// Waits for a line on standard input, or for its end.
fn wait_for_line() {
    let _ = io::stdin().lock().read_line(&mut String::new());
}

/// The reader may be a case that failed and is gone; that is not an error of the workload.
fn say(line: &Value) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Waits for the end of standard input.
fn wait_for_end() {
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// Waits for the end of standard input, then raises the flag.
fn raise_at_end(flag: &AtomicBool) {
    wait_for_end();
    flag.store(true, Ordering::Relaxed);
}

/// A flag that rises when standard input ends, by a thread that does nothing but wait for it.
fn stop_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let raise = Arc::clone(&flag);
    std::thread::spawn(move || raise_at_end(&raise));
    flag
}

/// Waits until a flag is raised.
fn wait_for_flag(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Executes twice as many instructions as `rounds`: one subtraction and one branch a round.
#[inline(never)]
pub fn burn(rounds: u64) {
    if rounds == 0 {
        return;
    }
    // SAFETY: the loop touches one register, which it declares.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("2: dec {n}", "jnz 2b", n = inout(reg) rounds => _, options(nomem, nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("2: subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) rounds => _, options(nomem, nostack));
    }
}
