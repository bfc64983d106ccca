//! Numbers that need no PMU, and what each is compared with. Pure.

/// The distance that a number may have from the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// None.
    Exact,
    /// This percentage, plus a constant.
    Within { percent: f64, more: f64 },
    /// This number of percentage points.
    Points(f64),
    /// The error that the tool itself reports, and this many points more, for memory of the process besides
    /// the placed memory.
    OwnError { more: f64 },
}

/// A check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    pub id: &'static str,
    pub unit: &'static str,
    /// The number of the tool, and the truth.
    pub about: &'static str,
    pub tolerance: Tolerance,
    /// It needs memory on two nodes.
    pub two_nodes: bool,
}

/// Pages that are touched, trips, moves, and ms of CPU time.
pub const PAGES: u32 = 20_000;
pub const TRIPS: u32 = 10_000;
pub const MOVES: u32 = 2_000;
pub const BURN_MS: u32 = 500;

/// Pages on other nodes: touched, moved, and placed in parts of 3 and 7.
pub const OTHER_PAGES: u32 = 4_000;
pub const PLACED: u32 = 10_000;
pub const NEAR_PERCENT: u32 = 30;

/// One tick of the slowest clock that kernels are built with (CONFIG_HZ=100), ns.
const TICK_NS: f64 = 10e6;

const fn check(
    id: &'static str,
    unit: &'static str,
    about: &'static str,
    tolerance: Tolerance,
    two_nodes: bool,
) -> Check {
    Check { id, unit, about, tolerance, two_nodes }
}

/// All checks, in their order.
pub const CHECKS: [Check; 9] = [
    check(
        "minor_faults",
        "faults",
        "minor faults of a process that touches pages, compared with getrusage(2)",
        // The answer is written after the last look at the truth, which takes six.
        Tolerance::Within { percent: 0.0, more: 20.0 },
        false,
    ),
    check(
        "switches",
        "switches",
        "context switches of two threads that wait for each other, compared with getrusage(2)",
        Tolerance::Within { percent: 0.1, more: 5.0 },
        false,
    ),
    check(
        "cpu_moves",
        "moves",
        "moves of a thread between two CPUs, compared with the CPUs it found itself on",
        Tolerance::Exact,
        false,
    ),
    check(
        "cpu_time",
        "ns",
        "CPU time of a process, compared with its own clock",
        Tolerance::Within { percent: 0.1, more: TICK_NS },
        false,
    ),
    check(
        "node_moves",
        "moves",
        "moves of a thread between two nodes, compared with the CPUs it found itself on",
        Tolerance::Exact,
        true,
    ),
    check(
        "other_node_pages",
        "pages",
        "pages from a node other than that of the CPU, compared with move_pages(2)",
        // Page tables and the answer.
        Tolerance::Within { percent: 1.0, more: 16.0 },
        true,
    ),
    check(
        "moved_pages",
        "pages",
        "pages that a process moved, compared with move_pages(2)",
        Tolerance::Exact,
        true,
    ),
    check(
        "placement",
        "%",
        "memory of a process on the first of two nodes, compared with /proc/PID/numa_maps",
        Tolerance::OwnError { more: 3.0 },
        true,
    ),
    check(
        "remote",
        "%",
        "remote share of a process that uses its memory evenly, compared with /proc/PID/numa_maps",
        Tolerance::Points(5.0),
        true,
    ),
];

/// The metric whose absence on a machine leaves a check untested, by its id.
pub fn metric_of(check: &str) -> Option<&'static str> {
    Some(match check {
        "minor_faults" => "minor_faults_per_s",
        "switches" => "switches_per_s",
        "cpu_moves" => "cpu_migrations_per_s",
        "node_moves" => "node_migrations_per_s",
        "other_node_pages" => "cross_node_faults_per_s",
        "moved_pages" => "pages_migrated_asked_per_s",
        _ => return None,
    })
}

/// The check of this id.
pub fn by_id(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.id == id)
}

impl Tolerance {
    /// The distance that is allowed from a truth; `own` is the tool's statement of its error.
    pub fn allowed(self, truth: f64, own: Option<f64>) -> f64 {
        match self {
            Tolerance::Exact => 0.0,
            Tolerance::Within { percent, more } => truth.abs() * percent / 100.0 + more,
            Tolerance::Points(points) => points,
            Tolerance::OwnError { more } => own.unwrap_or(0.0) + more,
        }
    }

    /// In words.
    pub fn words(self) -> String {
        match self {
            Tolerance::Exact => "exact".into(),
            Tolerance::Within { percent: 0.0, more } => format!("+-{more}"),
            Tolerance::Within { percent, more } if more == TICK_NS => format!("+-{percent} % and a tick"),
            Tolerance::Within { percent, more } => format!("+-{percent} % and {more}"),
            Tolerance::Points(points) => format!("+-{points} points"),
            Tolerance::OwnError { more } => format!("within the error it states and {more} points"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::task::TASK_METRICS;

    #[test]
    fn metrics_of_checks_are_there() {
        let named: Vec<&str> = CHECKS.iter().filter_map(|check| metric_of(check.id)).collect();
        assert_eq!(named.len(), 6);
        assert!(named.iter().all(|id| TASK_METRICS.iter().any(|metric| metric.id == *id)), "{named:?}");
    }
}
