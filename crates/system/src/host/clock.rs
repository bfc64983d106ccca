//! Clocks of the kernel, as samples have them: without the offsets of a time namespace (time_namespaces(7)), which programs of
//! the kernel do not see.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::ClockId;

/// Offsets that a time namespace adds to clocks, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offsets {
    monotonic: i64,
    boottime: i64,
}

impl Offsets {
    /// The offsets in `/proc/self/timens_offsets`: a name, seconds and nanoseconds in each line.
    fn parse(text: &str) -> Offsets {
        let of = |clock: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(clock))?;
            let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
            let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            Some(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
        };
        Offsets {
            monotonic: of("monotonic").unwrap_or_default(),
            boottime: of("boottime").unwrap_or_default(),
        }
    }

    /// The offsets of the namespace of this process, which cannot change while it runs.
    fn own() -> Offsets {
        static OWN: OnceLock<Offsets> = OnceLock::new();
        *OWN.get_or_init(|| {
            // A kernel without these namespaces has no such file.
            Offsets::parse(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default())
        })
    }
}

/// Reads the offsets of the clocks: before a helper process gives up the right to open files.
pub fn learn_offsets() {
    Offsets::own();
}

/// The time that a clock of the machine shows.
pub fn clock(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let shown = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    let offset = match clock {
        ClockId::Monotonic => Offsets::own().monotonic,
        ClockId::Boottime => Offsets::own().boottime,
        _ => 0,
    };
    Duration::from_nanos(without(shown.as_nanos() as u64, offset))
}

/// Converts a time since boot that /proc shows to this process into that of the machine, ns.
pub fn boot_ns_of(shown_ns: u64) -> u64 {
    without(shown_ns, Offsets::own().boottime)
}

fn without(shown_ns: u64, offset_ns: i64) -> u64 {
    shown_ns.saturating_add_signed(offset_ns.saturating_neg())
}

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// CLOCK_MONOTONIC, as samples have it.
pub fn mono_ns() -> u64 {
    clock(ClockId::Monotonic).as_nanos() as u64
}

/// CLOCK_BOOTTIME, as samples have it.
pub fn boot_ns() -> u64 {
    clock(ClockId::Boottime).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_taken_away() {
        let offsets = Offsets::parse("monotonic       86400         5\nboottime          -30         0\n");
        assert_eq!(offsets, Offsets { monotonic: 86_400_000_000_005, boottime: -30_000_000_000 });
        assert_eq!(without(86_400_000_000_006, offsets.monotonic), 1);
        assert_eq!(without(1, offsets.boottime), 30_000_000_001);
        assert_eq!(without(0, offsets.monotonic), 0, "no time is before boot");
        assert_eq!(Offsets::parse(""), Offsets::default());
        assert_eq!(without(7, 0), 7);
    }
}
