//! Cost of our BPF programs: from the kernel's statistics of two moments to nanoseconds and shares. Pure.

use std::collections::BTreeMap;

/// The kernel's counts of one program while statistics were on (bpf(2), BPF_ENABLE_STATS), cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    pub count: u64,
    pub ns: u64,
}

/// The cost of reading one counter at a context switch, in ns: measured when they were opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// With the helper that gives the count only: in use while no counter has to take turns.
    pub count_ns: f64,
    /// With the times that scaling needs.
    pub scaled_ns: f64,
}

/// Statistics at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// CLOCK_MONOTONIC.
    pub mono_ns: u64,
    /// By name of the program.
    pub programs: BTreeMap<String, Runs>,
    /// Counters that are read at each switch, and the cost of one; `None` without counters.
    pub counters: usize,
    pub read: Option<ReadCost>,
    /// Counters are read with their times.
    pub scaled: bool,
}

/// One program between two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub program: String,
    /// Mean time of a run; `None` when there was none.
    pub probe_ns: Option<f64>,
    pub probe_runs_per_s: f64,
    /// Of one CPU.
    pub cpu_pct: f64,
}

/// The cost of each program from `before` to `now`, the dearest first. A program that was loaded in between has no
/// cost yet.
pub fn costs(before: &Statistics, now: &Statistics) -> Vec<Cost> {
    let length_ns = now.mono_ns.saturating_sub(before.mono_ns);
    if length_ns == 0 {
        return Vec::new();
    }
    let cost = |(name, runs): (&String, &Runs)| {
        let earlier = before.programs.get(name)?;
        let (count, ns) = (runs.count.checked_sub(earlier.count)?, runs.ns.checked_sub(earlier.ns)?);
        Some(Cost {
            program: name.clone(),
            probe_ns: (count > 0).then(|| ns as f64 / count as f64),
            probe_runs_per_s: count as f64 * 1e9 / length_ns as f64,
            cpu_pct: 100.0 * ns as f64 / length_ns as f64,
        })
    };
    let mut costs: Vec<Cost> = now.programs.iter().filter_map(cost).collect();
    costs.sort_by(|a, b| b.cpu_pct.total_cmp(&a.cpu_pct));
    costs
}

impl Statistics {
    /// The cost of reading `counters` counters at each of `switches_per_s`: ns per switch, and percent of one
    /// CPU.
    pub fn reading(&self, counters: usize, switches_per_s: f64) -> Option<(f64, f64)> {
        let each = self.read.map(|read| if self.scaled { read.scaled_ns } else { read.count_ns })?;
        let ns = each * counters as f64;
        Some((ns, 100.0 * ns * switches_per_s / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ns: u64, programs: &[(&str, u64, u64)]) -> Statistics {
        let runs = |(name, count, ns): &(&str, u64, u64)| (name.to_string(), Runs { count: *count, ns: *ns });
        Statistics { mono_ns, programs: programs.iter().map(runs).collect(), ..Statistics::default() }
    }

    #[test]
    fn costs_are_differences_over_the_time_between() {
        let before = at(1_000_000_000, &[("a", 10, 1_000), ("b", 5, 5)]);
        let now = at(3_000_000_000, &[("a", 2_010, 401_000), ("b", 5, 5), ("new", 7, 7)]);
        let costs = costs(&before, &now);
        assert_eq!(costs.len(), 2, "a new one has no cost yet: {costs:?}");
        assert_eq!((costs[0].program.as_str(), costs[0].probe_ns), ("a", Some(200.0)));
        assert_eq!((costs[0].probe_runs_per_s, costs[0].cpu_pct), (1000.0, 0.02));
        assert_eq!((costs[1].probe_ns, costs[1].probe_runs_per_s), (None, 0.0));
    }

    #[test]
    fn no_time_and_programs_that_start_again_have_no_cost() {
        let now = at(1, &[("a", 1, 1)]);
        assert!(costs(&now, &now).is_empty());
        assert!(costs(&at(0, &[("a", 9, 9)]), &now).is_empty());
    }

    #[test]
    fn reading_costs_as_much_as_there_are_counters() {
        let read = Some(ReadCost { count_ns: 40.0, scaled_ns: 90.0 });
        let mut now = Statistics { read, ..Statistics::default() };
        assert_eq!(now.reading(4, 100_000.0), Some((160.0, 1.6)));
        now.scaled = true;
        assert_eq!(now.reading(2, 0.0), Some((180.0, 0.0)));
        assert_eq!(Statistics::default().reading(2, 1.0), None);
    }
}
