//! Readings of the causes that make a thread late: stops, other tasks, a suspended machine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::time::ClockId;

use crate::host::clock::clock;
use crate::program::pace::Witness;
use crate::program::signals;

/// The handler of SIGCONT may run on another thread, a moment after this one continues.
const A_MOMENT: Duration = Duration::from_millis(2);
const MOMENTS: u32 = 10;

/// Reads for the thread that made it.
pub struct Watch {
    schedstat: Option<File>,
}

impl Watch {
    /// Watches the calling thread. Without schedstat (CONFIG_SCHED_INFO), time without a CPU is unknown.
    pub fn new() -> Watch {
        Watch { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// All sums until now.
    pub fn look(&self) -> Witness {
        let (boot, mono) = (clock(ClockId::Boottime), clock(ClockId::Monotonic));
        Witness {
            continued: signals::continued(),
            no_cpu: self.no_cpu().unwrap_or_default(),
            suspended: boot.saturating_sub(mono),
        }
    }

    /// [`Watch::look`] for a sample that is `late` or not: gives a signal that `before` does not have a moment to be
    /// handled if it is.
    pub fn look_when(&self, late: bool, before: Witness) -> Witness {
        for _ in 0..MOMENTS {
            if !late || signals::continued() > before.continued {
                break;
            }
            thread::sleep(A_MOMENT);
        }
        self.look()
    }

    /// The second number of the file: time spent waiting for a CPU, in ns (Documentation/scheduler/sched-stats.rst).
    fn no_cpu(&self) -> Option<Duration> {
        let mut bytes = [0; 128];
        let read = self.schedstat.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..read]).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    }
}

impl Default for Watch {
    fn default() -> Watch {
        Watch::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_only_goes_up() {
        let watch = Watch::new();
        // A thread that was given a CPU at once has not waited yet; one that is woken has, sooner or later.
        for _ in 0..1000 {
            if watch.look().no_cpu > Duration::ZERO {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let before = watch.look();
        assert!(before.no_cpu > Duration::ZERO || watch.schedstat.is_none(), "{before:?}");
        assert!(watch.look().no_cpu >= before.no_cpu);
    }
}
