//! The numbers that are counted for each task. A row of `counters/rows.rs` generates the enums of C, sums,
//! differences, recordings and tests. Only the program that counts it and the metric that shows it are
//! written by hand.

use std::ops::{Index, IndexMut};

use super::facility::Facility;

/// A counter, for those who go through all of them.
#[derive(Clone, Copy, Debug)]
pub struct CounterInfo {
    /// The counter that the row is of.
    pub counter: Counter,
    /// Its name in recordings; in upper case and behind `NT_`, its name in C.
    pub name: &'static str,
    /// Its unit in recordings.
    pub unit: &'static str,
    /// The facility without which older recordings lack this counter; `None`: every recording has it.
    pub added_for: Option<Facility>,
}

macro_rules! counters {
    (kept { $($kept:tt)* } lifetime { $($lifetime:tt)* }) => {
        /// Counters that the programs in bpf/ keep (`NT_NR_COUNTERS`); the others are [`Counter::is_lifetime`].
        pub const NR_KEPT: usize = counters!(@names $($kept)*).len();
        counters!(@all $($kept)* $($lifetime)*);
    };
    (@names $($(#[$doc:meta])* $counter:ident $name:literal $unit:literal $added_for:expr;)*) => {
        [$($name),*]
    };
    (@all $($(#[$doc:meta])* $counter:ident $name:literal $unit:literal $added_for:expr;)*) => {
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

include!("counters/rows.rs");

/// Counters of all kinds.
pub const NR_COUNTERS: usize = COUNTERS.len();

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

    #[test]
    fn a_row_is_where_its_counter_says() {
        assert!(COUNTERS.iter().enumerate().all(|(at, info)| info.counter as usize == at));
        let lifetime: Vec<&str> =
            COUNTERS.iter().filter(|info| info.counter.is_lifetime()).map(|info| info.name).collect();
        assert_eq!(lifetime.first(), Some(&"run_delay_ns"));
        assert_eq!(lifetime.len(), NR_LIFETIME);
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
