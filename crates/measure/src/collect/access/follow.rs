//! The thread that follows sampled programs to the next runs of their instructions. Registers, code, stacks and memory
//! stay in it and are dropped with the batch: addresses come out.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use super::memory::Memory;
use crate::access::next_runs::{NextRun, next_runs};
use crate::access::sample::{Attribution, Decoders, Outcome, UserState};
use crate::collect::placement::draw::Random;
use crate::host::clock::thread_time;
use crate::host::processes;
use crate::model::process::ProcessId;
use crate::model::units::NodeId;

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

#[cfg(test)]
mod tests {
    use super::*;
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
}
