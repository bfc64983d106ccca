//! Walks over a list of threads, on a machine that has many: what they tell is as soon there as with walks over all.

use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use numatop_ng::collect::round::{SHORT_FROM, WHOLE_EVERY};
use numatop_ng::model::sample::{Sample, TaskRaw};
use numatop_ng::model::wire::LOOK_EVERY;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use rustix::time::{ClockId, clock_gettime};

use crate::until::{A_MOMENT, until};

/// Threads that rest until they are dropped.
struct Crowd {
    ends: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// More threads than a list has to be worth it for.
    fn start() -> Result<Crowd> {
        let mut crowd = Crowd { ends: Vec::new(), threads: Vec::new() };
        for _ in 0..SHORT_FROM + 200 {
            let (end, ended) = mpsc::channel::<()>();
            let rest = move || _ = ended.recv();
            crowd.threads.push(thread::Builder::new().stack_size(64 * 1024).spawn(rest)?);
            crowd.ends.push(end);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.clear();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A thread that computes on request.
struct Burner {
    tid: u32,
    go: Sender<Duration>,
    /// Its CPU time so far, by its own clock, when it is about to rest.
    done: Receiver<Duration>,
}

impl Burner {
    fn start() -> Result<Burner> {
        let (go, told) = mpsc::channel::<Duration>();
        let (say, done) = mpsc::channel();
        let (say_tid, tid) = mpsc::channel();
        let clock = || {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
        };
        thread::Builder::new().spawn(move || {
            say_tid.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            for burn in told {
                let end = clock() + burn;
                while clock() < end {}
                say.send(clock()).unwrap();
            }
        })?;
        Ok(Burner { tid: tid.recv()?, go, done })
    }

    /// Makes it compute for that long, and waits until it sleeps. Returns its CPU time.
    fn burn(&self, time: Duration) -> Result<Duration> {
        self.go.send(time)?;
        let used = self.done.recv()?;
        self.rests()?;
        Ok(used)
    }

    fn rests(&self) -> Result<()> {
        until("the thread rests", || {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.tid))?;
            Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
        })
    }

    fn row<'a>(&self, sample: &'a Sample) -> Result<&'a TaskRaw> {
        let row = sample.tasks.iter().find(|task| task.tid == self.tid);
        Ok(&**row.with_context(|| format!("thread {} has no row", self.tid))?)
    }
}

/// Samples, and which programs ran for each.
struct Watch(LiveSource);

impl Watch {
    fn start(options: LiveOptions) -> Result<Watch> {
        let mut source = LiveSource::start(options)?;
        source.set_statistics(true)?;
        Ok(Watch(source))
    }

    /// The next sample, and whether only listed threads were looked at for it.
    fn sample(&mut self) -> Result<(Sample, bool)> {
        let before = self.runs()?;
        let sample = self.0.next()?.context("a live source does not end")?;
        let after = self.runs()?;
        let [whole, short] = [after[0] - before[0], after[1] - before[1]];
        ensure!((whole > 0) != (short > 0), "{whole} runs of the one, {short} of the other");
        Ok((sample, short > 0))
    }

    /// Runs of the programs of the walk over all, and of that over a list.
    fn runs(&mut self) -> Result<[u64; 2]> {
        let programs = self.0.statistics()?.context("statistics are on")?.programs;
        Ok(["on_task_walk", "on_list_walk"].map(|name| programs.get(name).map_or(0, |runs| runs.count)))
    }
}

pub fn a_thread_that_ran_is_in_the_next_sample() -> Result<()> {
    let _crowd = Crowd::start()?;
    let burner = Burner::start()?;
    let mut watch = Watch::start(LiveOptions::default())?;
    let (first, is_short) = watch.sample()?;
    ensure!(!is_short, "the first walk goes over all tasks");
    let (mut told_before, mut used_before) =
        (burner.row(&first)?.counts.cpu_ns(), burner.burn(Duration::ZERO)?);
    let mut short = 0;
    for round in 0..WHOLE_EVERY + 4 {
        // Each second time it rests.
        let time = Duration::from_millis(u64::from(round % 2) * 5);
        let used = if time.is_zero() { used_before } else { burner.burn(time)? };
        let (sample, is_short) = watch.sample()?;
        short += u32::from(is_short);
        let told = burner.row(&sample)?.counts.cpu_ns();
        let (told_ns, used_ns) = (told - told_before, (used - used_before).as_nanos() as u64);
        // A moment between its reading of the clock and its sleep belongs to this sample or to the previous
        // one.
        let off_ns = told_ns.abs_diff(used_ns);
        ensure!(
            off_ns < A_MOMENT.as_nanos() as u64 / 10,
            "round {round}: told {told_ns} ns, used {used_ns} ns"
        );
        (told_before, used_before) = (told, used);
    }
    ensure!((WHOLE_EVERY..WHOLE_EVERY + 4).contains(&short), "{short} short walks");
    Ok(())
}

pub fn a_thread_that_is_born_is_in_the_next_sample_and_one_that_ends_is_not() -> Result<()> {
    let _crowd = Crowd::start()?;
    let mut watch = Watch::start(LiveOptions::default())?;
    watch.sample()?;
    for _ in 0..3 {
        let burner = Burner::start()?;
        burner.rests()?;
        let (sample, is_short) = watch.sample()?;
        ensure!(is_short);
        burner.row(&sample)?;
        let path = format!("/proc/self/task/{}", burner.tid);
        let Burner { go, tid, .. } = burner;
        drop(go);
        until("the thread is gone", || Ok(!std::path::Path::new(&path).exists()))?;
        until("its row is gone", || {
            let (sample, is_short) = watch.sample()?;
            ensure!(is_short);
            Ok(sample.tasks.iter().all(|task| task.tid != tid))
        })?;
    }
    Ok(())
}

pub fn what_others_do_to_a_thread_that_rests_is_seen_in_eight_samples() -> Result<()> {
    let _crowd = Crowd::start()?;
    let burner = Burner::start()?;
    let mut watch = Watch::start(LiveOptions::default())?;
    burner.rests()?;
    watch.sample()?;
    watch.sample()?;
    // SAFETY: takes numbers only.
    let reniced = unsafe { libc::setpriority(libc::PRIO_PROCESS, burner.tid, 7) };
    ensure!(reniced == 0, std::io::Error::last_os_error());
    // SAFETY: a set of CPUs is an array of words, for which zero is a value.
    let mut cpus: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: CPU 0 is in every set.
    unsafe { libc::CPU_SET(0, &mut cpus) };
    // SAFETY: the set has the size that is stated.
    let bound =
        unsafe { libc::sched_setaffinity(burner.tid as i32, mem::size_of_val(&cpus), &raw const cpus) };
    ensure!(bound == 0, std::io::Error::last_os_error());
    let mut seen = false;
    for _ in 0..LOOK_EVERY {
        let (sample, is_short) = watch.sample()?;
        ensure!(is_short);
        let row = burner.row(&sample)?;
        seen |= row.nice == 7 && row.cpus_allowed == 1;
    }
    ensure!(seen, "not in {LOOK_EVERY} samples");
    Ok(())
}
