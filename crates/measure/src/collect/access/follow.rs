//! The thread that follows sampled programs to the next runs of their instructions. Registers, code, stacks and memory
//! stay in it and are dropped with the batch: addresses come out.
//!
//! Memory is read with process_vm_readv(2), a page at a time and each page once. Unlike /proc/PID/mem, this never reads from a
//! device. The entry of pagemap is read first and absent pages are skipped, so that nothing is faulted in. While that read
//! waits for the lock of an address space, the tool can still be killed.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::access::next_runs::{NextRun, next_runs};
use crate::access::sample::{Attribution, Decoders, Outcome, UserState};
use crate::collect::placement::draw::Random;
use crate::collect::placement::target::Target;
use crate::host::clock::thread_time;
use crate::host::processes;
use crate::model::process::ProcessId;
use crate::model::units::NodeId;
use crate::sys;

/// CPU time for one batch.
pub const BUDGET: Duration = Duration::from_millis(10);

/// Samples of one batch.
pub const BATCH_MAX: usize = 2000;

/// Pages that are kept while a batch is followed: 8 MiB where they have 4 KiB.
const PAGES_MAX: usize = 2048;

/// A sample to follow: its instruction accesses memory.
pub struct Job {
    /// The process.
    pub process: ProcessId,
    /// Registers and code.
    pub state: UserState,
    /// The address of the sampled run.
    pub outcome: Outcome,
    /// Node of the CPU that it ran on.
    pub cpu_node: Option<NodeId>,
}

/// A sample whose turn came: `None` in place of its runs if no time was left.
pub type Done = (ProcessId, Option<NextRun>);

/// The end of the thread that asks.
pub struct Followers {
    jobs: SyncSender<(Vec<Job>, Duration)>,
    /// Samples whose turn came, and the CPU time that they took.
    done: Receiver<(Vec<Done>, Duration)>,
    busy: bool,
    spent: Duration,
}

impl Followers {
    /// Starts the thread, which ends when this is dropped. `None` where no thread can be started.
    pub fn start(attribution: Attribution, page_size: u64, seed: u64) -> Option<Followers> {
        let (jobs, to_do) = sync_channel::<(Vec<Job>, Duration)>(1);
        let (finished, done) = sync_channel(1);
        let work = move || {
            let mut random = Random(seed);
            while let Ok((batch, budget)) = to_do.recv() {
                let began = thread_time();
                let followed = follow(processes::root(), batch, attribution, page_size, budget, &mut random);
                if finished.send((followed, thread_time().saturating_sub(began))).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("follower".into()).spawn(work).ok()?;
        Some(Followers { jobs, done, busy: false, spent: Duration::ZERO })
    }

    /// Hands over a batch, which may use this much CPU time. Never waits: while the previous batch is not
    /// done, this one is left out.
    pub fn offer(&mut self, batch: Vec<Job>, budget: Duration) -> Vec<Done> {
        if batch.is_empty() {
            return Vec::new();
        }
        if self.busy {
            return batch.iter().map(|job| (job.process, None)).collect();
        }
        match self.jobs.try_send((batch, budget)) {
            Ok(()) => {
                self.busy = true;
                Vec::new()
            }
            Err(TrySendError::Full((batch, _)) | TrySendError::Disconnected((batch, _))) => {
                batch.iter().map(|job| (job.process, None)).collect()
            }
        }
    }

    /// The batch that was handed over, where it is done. Waits for nothing.
    pub fn take(&mut self) -> Vec<Done> {
        let Ok((done, spent)) = self.done.try_recv() else { return Vec::new() };
        self.busy = false;
        self.spent += spent;
        done
    }

    /// CPU time of the batches that were taken.
    pub fn spent(&self) -> Duration {
        self.spent
    }
}

/// Follows a batch in random order below `root` (`/`), as far as the budget of CPU time goes.
pub fn follow(
    root: &Path,
    mut batch: Vec<Job>,
    attribution: Attribution,
    page_size: u64,
    budget: Duration,
    random: &mut Random,
) -> Vec<Done> {
    for at in (1..batch.len()).rev() {
        batch.swap(at, random.below(at as u64 + 1) as usize);
    }
    let decoders = Decoders::default();
    let mut memories: HashMap<ProcessId, Memory> = HashMap::new();
    let mut left = PAGES_MAX;
    let began = thread_time();
    let mut done: Vec<Done> = Vec::with_capacity(batch.len());
    for job in batch {
        if thread_time().saturating_sub(began) >= budget {
            done.push((job.process, None));
            continue;
        }
        let memory =
            memories.entry(job.process).or_insert_with(|| Memory::open(root, job.process, page_size));
        let mut read = |address: u64, bytes: &mut [u8]| memory.read(address, bytes, &mut left);
        let (runs, end) = next_runs(&decoders, &job.state, attribution, &mut read);
        done.push((job.process, Some(NextRun { outcome: job.outcome, cpu_node: job.cpu_node, runs, end })));
    }
    // Its id may be another process's since: then memory was that one's.
    let ended = |process: &ProcessId| memories.get(process).is_some_and(|memory| !memory.is_there());
    let gone: Vec<ProcessId> = memories.keys().copied().filter(ended).collect();
    for (_, next) in done.iter_mut().filter(|(process, _)| gone.contains(process)) {
        if let Some(next) = next {
            (next.runs, next.end) = ([None; 2], None);
        }
    }
    done
}

/// Bit 63 of an entry of pagemap: see the kernel's admin-guide/mm/pagemap.
const PRESENT: u64 = 1 << 63;

/// Memory of one process while a batch is followed.
pub struct Memory {
    /// Absent where it has ended or may not be read: registers alone are left then.
    files: Option<(Target, File)>,
    page_size: u64,
    pages: HashMap<u64, Option<Box<[u8]>>>,
}

impl Memory {
    /// Opens its files below `root` (`/`).
    pub fn open(root: &Path, (pid, start_ns): ProcessId, page_size: u64) -> Memory {
        let target = Target::open(root, pid, start_ns).ok();
        let files = target.and_then(|target| {
            let pagemap = target.file(c"pagemap").ok()?;
            Some((target, pagemap))
        });
        Memory { files, page_size, pages: HashMap::new() }
    }

    /// Whether the process still exists, so that all memory read was its own.
    pub fn is_there(&self) -> bool {
        self.files.as_ref().is_none_or(|(target, _)| target.check().is_ok())
    }

    /// Fills `bytes` from `address` on, if all of them are present and `left` more pages may be kept.
    pub fn read(&mut self, mut address: u64, bytes: &mut [u8], left: &mut usize) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, from) = (address / self.page_size, (address % self.page_size) as usize);
            let Some(page) = self.page(number, left) else { return false };
            let length = rest.len().min(page.len() - from);
            let (part, more) = rest.split_at_mut(length);
            part.copy_from_slice(&page[from..from + length]);
            (rest, address) = (more, address.wrapping_add(length as u64));
        }
        true
    }

    fn page(&mut self, number: u64, left: &mut usize) -> Option<&[u8]> {
        let (target, pagemap) = self.files.as_ref()?;
        let (size, left) = (self.page_size, left);
        let page = self.pages.entry(number).or_insert_with(|| {
            *left = left.checked_sub(1)?;
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, number.checked_mul(8)?).ok()?;
            if u64::from_ne_bytes(entry) & PRESENT == 0 {
                return None;
            }
            let mut bytes = vec![0; size as usize].into_boxed_slice();
            let got = sys::read_memory(target.pid, number.checked_mul(size)?, &mut bytes).ok()?;
            (got == bytes.len()).then_some(bytes)
        });
        page.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::machine::page_size;
    use crate::collect::proc_details;

    fn own() -> ProcessId {
        let pid = std::process::id();
        (pid, proc_details::start_ns(pid).unwrap())
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn samples_beyond_the_budget_are_left_out() {
        use crate::access::decode_x86;
        use crate::access::sample::{Registers, Stack};
        // inc rax; mov rcx,[rbx]; jmp back to the first one
        let mut code = [0x90; 40];
        code[..8].copy_from_slice(&[0x48, 0xff, 0xc0, 0x48, 0x8b, 0x0b, 0xeb, 0xf8]);
        let job = || {
            let mut registers = decode_x86::Registers { ip: 0x1006, ..Default::default() };
            registers.general[3] = 0x7000;
            let state = UserState {
                registers: Registers::X86(registers),
                code: code.into(),
                before: 6,
                stack: Stack::default(),
            };
            Job { process: own(), state, outcome: Outcome::Address(0x7000), cpu_node: None }
        };
        let jobs = || vec![job(), job(), job()];
        let run = |budget| follow(Path::new("/"), jobs(), Attribution::Behind, 4096, budget, &mut Random(1));
        let done = run(Duration::from_secs(9));
        // The way goes through code that the sample has.
        assert!(done.iter().all(|(_, next)| next.unwrap().runs == [Some(0x7000); 2]), "{:?}", done[0].1);
        assert!(run(Duration::ZERO).iter().all(|(_, next)| next.is_none()));
    }

    fn own_memory() -> ProcessId {
        let pid = std::process::id();
        (pid, proc_details::start_ns(pid).unwrap())
    }

    #[test]
    fn memory_is_read_across_pages_and_never_faulted_in() {
        let size = page_size();
        let bytes: Vec<u8> = (0..4 * size).map(|at| (at % 251) as u8).collect();
        let mut memory = Memory::open(Path::new("/"), own_memory(), size);
        let at = bytes.as_ptr() as u64;
        let inside = (at / size + 1) * size - 3;
        let mut word = [0; 8];
        assert!(memory.read(inside, &mut word, &mut 9));
        assert_eq!(word[..], bytes[(inside - at) as usize..][..8]);
        assert!(memory.is_there());
        assert!(!memory.read(8, &mut word, &mut 9), "nothing is mapped there");
        assert!(!memory.read(u64::MAX - 3, &mut word, &mut 9));
        let untouched: Vec<u8> = Vec::with_capacity(64 << 20);
        assert!(!memory.read(untouched.as_ptr() as u64 + (32 << 20), &mut word, &mut 9));
        let mut fresh = Memory::open(Path::new("/"), own_memory(), size);
        assert!(!fresh.read(inside, &mut word, &mut 1), "the second page is one too many");
    }

    #[test]
    fn a_process_that_has_ended_has_registers_alone() {
        let mut memory = Memory::open(Path::new("/"), (u32::MAX - 1, 1), 4096);
        assert!(!memory.read(0x1000, &mut [0; 8], &mut 9));
        assert!(memory.is_there());
    }
}
