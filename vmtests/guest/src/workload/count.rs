//! Threads that each execute a known number of instructions, and count them with separate events: the result
//! of perf_event_open(2) for each beside the number in the loop.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Barrier};
use std::thread;

use serde_json::{Value, json};

use super::{burn, say, wait_for_end, wait_for_go};
use crate::affinity;

/// `PERF_TYPE_HARDWARE` with `PERF_COUNT_HW_CPU_CYCLES` and `PERF_COUNT_HW_INSTRUCTIONS` (linux/perf_event.h).
const CYCLES: u64 = 0;
pub(super) const INSTRUCTIONS: u64 = 1;
/// Bits of the flags of `perf_event_attr`.
const EXCLUDE_KERNEL: u64 = 1 << 5;

/// On `cpu`, as many threads as `shares` has numbers: each number is millions of instructions. Reports the
/// counts once all have ended their loops, and stays until its input ends.
pub fn run(cpu: u32, shares: &[u64]) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let begin = Arc::new(Barrier::new(shares.len()));
    let end = Arc::new(Barrier::new(shares.len()));
    let (sender, counted) = std::sync::mpsc::channel();
    let (teller, ids) = std::sync::mpsc::channel();
    for &millions in &shares[1..] {
        let (begin, end, sender, teller) =
            (Arc::clone(&begin), Arc::clone(&end), sender.clone(), teller.clone());
        thread::spawn(move || {
            // SAFETY: a plain call.
            let _ = teller.send(unsafe { libc::gettid() });
            begin.wait();
            let _ = sender.send(count(millions));
            // The row of a thread that has ended is its process's.
            end.wait();
        });
    }
    // SAFETY: a plain call.
    let mut tids = vec![unsafe { libc::gettid() }];
    tids.extend(ids.iter().take(shares.len() - 1));
    wait_for_go(&json!({"tids": tids}));
    begin.wait();
    let mut threads = vec![count(shares[0])?];
    for _ in &shares[1..] {
        threads.push(counted.recv().map_err(|_| "a thread ended without a word")??);
    }
    say(&json!({"threads": threads}));
    wait_for_end();
    end.wait();
    Ok(json!({}))
}

/// Executes the instructions, and returns the counts.
fn count(millions: u64) -> Result<Value, String> {
    let all = Event::open(INSTRUCTIONS, 0)?;
    let user = Event::open(INSTRUCTIONS, EXCLUDE_KERNEL)?;
    let cycles = Event::open(CYCLES, 0)?;
    let before = [all.read()?, user.read()?, cycles.read()?];
    burn(millions * 1_000_000 / 2);
    let after = [all.read()?, user.read()?, cycles.read()?];
    // SAFETY: a plain call.
    let tid = unsafe { libc::gettid() };
    Ok(json!({
        "tid": tid,
        "executed": millions * 1_000_000,
        "instructions": after[0] - before[0],
        "user_instructions": after[1] - before[1],
        "cycles": after[2] - before[2],
    }))
}

/// A counter of this thread, on whatever CPU it runs.
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn open(config: u64, flags: u64) -> Result<Event, String> {
        // struct perf_event_attr, first published version: type, size, config, …, flags at byte 40.
        let mut attr = [0u64; 8];
        attr[0] = (size_of_val(&attr) as u64) << 32;
        attr[1] = config;
        attr[5] = flags;
        // SAFETY: attr has the length in its field, and the kernel makes an unowned descriptor.
        unsafe {
            let fd = libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 0);
            if fd < 0 {
                return Err(format!("perf_event_open: {}", std::io::Error::last_os_error()));
            }
            Ok(Event(OwnedFd::from_raw_fd(fd as i32)))
        }
    }

    pub(super) fn read(&self) -> Result<u64, String> {
        use std::io::Read;
        let mut bytes = [0; 8];
        let mut file = std::fs::File::from(self.0.try_clone().map_err(|error| error.to_string())?);
        file.read_exact(&mut bytes).map_err(|error| format!("reading a counter: {error}"))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
