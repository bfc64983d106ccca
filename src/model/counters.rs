//! The numbers that are counted for each task. One row here makes a counter known to everything but the program that
//! counts it and the metric that shows it: sums, differences, recordings and tests go through this table.

use std::ops::{Index, IndexMut};

use super::facility::Facility;

/// A counter, for those who go through all of them.
#[derive(Clone, Copy, Debug)]
pub struct CounterInfo {
    pub counter: Counter,
    /// Its name in recordings; in upper case and behind `NT_`, its name in bpf/numatop.h.
    pub name: &'static str,
    /// Its unit in recordings.
    pub unit: &'static str,
    /// Recordings that were made before there was this facility lack it; `None`: every recording has it.
    pub added_for: Option<Facility>,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident $name:literal $unit:literal $added_for:expr;)*) => {
        /// One number that only goes up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $counter,)*
        }

        /// All counters, in the order of [`Counter`].
        pub const COUNTERS: &[CounterInfo] = &[$(
            CounterInfo { counter: Counter::$counter, name: $name, unit: $unit, added_for: $added_for },
        )*];
    };
}

counters! {
    // Kept in the record of a task by the programs in bpf/, in the order of `enum nt_counter`.
    /// Times it ran under another last-level cache than before.
    LlcMoves "llc_moves" "counter" None;
    /// Times it ran on another node than before.
    NodeMoves "node_moves" "counter" None;
    /// Time on a CPU while another thread of the core was busy, ns.
    SmtBusyNs "smt_busy_ns" "ns, counter" None;
    /// Allocations of pages for user space, each of one or more pages.
    UserAllocs "user_allocs" "counter" Some(Facility::NewPages);
    /// Of these, the ones on another node than it ran on.
    CrossAllocs "cross_allocs" "counter" Some(Facility::NewPages);
    /// Pages moved to another place while it ran.
    MigratedPages "migrated_pages" "pages, counter" Some(Facility::MovedPages);
    /// Pages that should have been moved and could not.
    MigrateFailedPages "migrate_failed_pages" "pages, counter" Some(Facility::MovedPages);
    /// Of those moved, by NUMA balancing.
    BalancedPages "balanced_pages" "pages, counter" Some(Facility::MoveReasons);
    /// Of those moved, because a process asked for it.
    AskedPages "asked_pages" "pages, counter" Some(Facility::MoveReasons);
    /// Tries of NUMA balancing to bring it to its preferred node.
    NumaMoves "numa_moves" "counter" Some(Facility::SentTasks);
    /// Tries of NUMA balancing to swap it for another task.
    NumaSwaps "numa_swaps" "counter" Some(Facility::SentTasks);
    /// Tries of NUMA balancing that came to nothing.
    NumaStuck "numa_stuck" "counter" Some(Facility::SentTasks);
    /// NUMA hinting faults; pages of them where only the task structure tells.
    HintFaults "hint_faults" "counter" Some(Facility::HintFaults);
    /// Of these, the ones that found their page on another node.
    HintRemote "hint_remote" "counter" Some(Facility::HintFaults);
    /// Time on its CPU that NUMA balancing took: scans of its memory and hinting faults, ns.
    BalancingNs "balancing_ns" "ns, counter" Some(Facility::BalancingTime);

    // Kept by the kernel since the birth of the task, in the order of `enum nt_lifetime`.
    /// Time it was runnable and waited for a CPU (`sched_info.run_delay`), ns.
    RunDelayNs "run_delay_ns" "ns, counter" None;
    /// Context switches that it asked for.
    Nvcsw "nvcsw" "counter" None;
    /// Context switches that it did not ask for.
    Nivcsw "nivcsw" "counter" None;
    /// Times it was given a CPU (`sched_info.pcount`).
    RunCount "run_count" "counter" None;
    /// Page faults without a wait for a disk.
    MinFlt "min_flt" "counter" None;
    /// Page faults with a wait for a disk.
    MajFlt "maj_flt" "counter" None;
    /// Moves between CPUs (`se.nr_migrations`).
    CpuMigrations "cpu_migrations" "counter" None;
    /// Pages that NUMA balancing moved for it (`numa_pages_migrated`).
    NumaPagesMigrated "numa_pages_migrated" "pages, counter" None;
}

/// Counters of all kinds.
pub const NR_COUNTERS: usize = COUNTERS.len();

/// Counters that the programs in bpf/ keep (`NT_NR_COUNTERS`); the others are [`Counter::is_lifetime`].
pub const NR_KEPT: usize = Counter::RunDelayNs as usize;

/// Counters that the kernel keeps since the birth of a task (`NT_NR_LIFETIME`).
pub const NR_LIFETIME: usize = NR_COUNTERS - NR_KEPT;

impl Counter {
    /// Whether the kernel counts it since the birth of the task, and not we since we first saw it.
    pub fn is_lifetime(self) -> bool {
        self as usize >= NR_KEPT
    }
}

/// One number for each counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scalars([u64; NR_COUNTERS]);

impl Scalars {
    /// From what a row of the kernel has.
    pub fn new(kept: &[u64; NR_KEPT], lifetime: &[u64; NR_LIFETIME]) -> Scalars {
        let mut scalars = Scalars::default();
        scalars.0[..NR_KEPT].copy_from_slice(kept);
        scalars.0[NR_KEPT..].copy_from_slice(lifetime);
        scalars
    }

    /// All numbers, in the order of [`COUNTERS`].
    pub fn values(&self) -> &[u64; NR_COUNTERS] {
        &self.0
    }

    /// The same, to change them.
    pub fn values_mut(&mut self) -> &mut [u64; NR_COUNTERS] {
        &mut self.0
    }

    /// The numbers that the kernel keeps since the birth of the task are zero.
    #[must_use]
    pub fn without_lifetime(mut self) -> Scalars {
        self.0[NR_KEPT..].fill(0);
        self
    }
}

impl Index<Counter> for Scalars {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter as usize]
    }
}

impl IndexMut<Counter> for Scalars {
    fn index_mut(&mut self, counter: Counter) -> &mut u64 {
        &mut self.0[counter as usize]
    }
}

impl From<[u64; NR_COUNTERS]> for Scalars {
    /// In the order of [`COUNTERS`].
    fn from(numbers: [u64; NR_COUNTERS]) -> Scalars {
        Scalars(numbers)
    }
}

impl<const N: usize> From<[(Counter, u64); N]> for Scalars {
    /// The numbers of these counters; all others are zero.
    fn from(numbers: [(Counter, u64); N]) -> Scalars {
        let mut scalars = Scalars::default();
        for (counter, number) in numbers {
            scalars[counter] = number;
        }
        scalars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in an enum of bpf/numatop.h, in its order, without the one that counts them.
    fn names_of(name: &str) -> Vec<String> {
        let header = include_str!("../../bpf/numatop.h");
        let from = header.split_once(&format!("enum {name} {{\n")).expect("the enum").1;
        let lines = from.split_once("};").expect("its end").0.lines();
        let names = lines.filter_map(|line| line.trim().strip_prefix("NT_")?.split_once(','));
        let names = names.map(|(name, _)| name.to_lowercase());
        names.filter(|name| !name.starts_with("nr_")).collect()
    }

    #[test]
    fn the_table_is_that_of_the_kernel_programs() {
        let (kept, lifetime) = COUNTERS.split_at(NR_KEPT);
        let names = |infos: &[CounterInfo]| infos.iter().map(|info| info.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(kept), names_of("nt_counter"));
        assert_eq!(names(lifetime), names_of("nt_lifetime"));
        assert!(COUNTERS.iter().enumerate().all(|(at, info)| info.counter as usize == at));
    }

    #[test]
    fn rows_of_the_kernel_come_in_the_order_of_the_table() {
        let kept = std::array::from_fn(|at| at as u64);
        let lifetime = std::array::from_fn(|at| (NR_KEPT + at) as u64);
        let scalars = Scalars::new(&kept, &lifetime);
        assert!(COUNTERS.iter().all(|info| scalars[info.counter] == info.counter as u64));
        let without = scalars.without_lifetime();
        assert!(
            COUNTERS.iter().all(|info| (without[info.counter] == 0)
                == (info.counter.is_lifetime() || info.counter as u64 == 0))
        );
    }
}
