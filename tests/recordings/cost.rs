//! How large recordings are and how long they take, on an imagined machine with realistic churn.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use numatop_ng::record::recorder::Recorder;
use numatop_ng::sample::Sample;
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::machine::{self, Machine};
use crate::recorder::options;
use crate::scratch::Scratch;

/// Who runs goes on running; one task in two hundred is replaced in each interval.
fn busy(tasks: usize) -> Machine {
    let mut machine = Machine::new(tasks);
    machine.churn = 5;
    machine.ticks(20);
    machine
}

/// Of this thread: what others do meanwhile does not count.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a valid timespec, and the clock exists on every kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn record(path: &Path, samples: &[Sample]) -> Duration {
    let host = Arc::new(machine::host());
    let mut recorder = Recorder::open(path, options()).unwrap();
    let began = cpu_time();
    for sample in samples {
        recorder.record(&host, sample).unwrap();
    }
    let took = cpu_time() - began;
    recorder.finish().unwrap();
    took
}

#[test]
fn a_sample_is_as_small_as_promised() {
    for (tasks, count, most) in [(500, 120, 4_000), (5000, 60, 35_000)] {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        let samples = busy(tasks).ticks(count);
        let took = record(&path, &samples);
        let bytes = path.metadata().unwrap().len() / count as u64;
        println!("{tasks} tasks: {bytes} bytes and {:?} of CPU time per sample", took / count as u32);
        assert!(bytes <= most, "{bytes} bytes per sample of {tasks} tasks");
    }
}

#[test]
#[ignore = "writes a day of samples, 300 MB; run it with --release"]
fn a_day_opens_and_jumps_at_once() {
    let scratch = Scratch::new();
    let path = scratch.join("file");
    let host = Arc::new(machine::host());
    let mut machine = busy(500);
    let mut recorder = Recorder::open(&path, options()).unwrap();
    let mut times = Vec::new();
    for _ in 0..86_400 {
        let sample = machine.tick();
        times.push(sample.wall_ns);
        recorder.record(&host, &sample).unwrap();
    }
    recorder.finish().unwrap();
    let began = Instant::now();
    let mut recording = Recording::open(&path).unwrap();
    let span = recording.span().unwrap();
    let opened = began.elapsed();
    assert_eq!(span, (times[0], times[86_399]));
    let mut slowest = Duration::ZERO;
    for at in [40_000, 3, 86_399, 60_059, 12_345] {
        let began = Instant::now();
        recording.seek(times[at]).unwrap();
        assert_eq!(recording.next().unwrap().unwrap().wall_ns, times[at]);
        slowest = slowest.max(began.elapsed());
    }
    println!(
        "{} MB open in {opened:?}, jumps take at most {slowest:?}",
        path.metadata().unwrap().len() >> 20
    );
    assert!(opened < Duration::from_millis(100) && slowest < Duration::from_millis(100));
}
