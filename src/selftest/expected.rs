//! Loads of each role, and what an event of the role must count in them; and numbers that need no PMU, with what each is
//! compared with. Pure.

use super::report::Measured;
use crate::known::counted::Load;
use crate::model::event::Role;
use crate::pmu::table::Sees;

/// The place of a load's memory, seen from its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedIn {
    /// It has none that matters, or the CPU's own node.
    Own,
    /// Another node.
    Other,
}

/// Loads of a role. The first of them must count; others must count nearly nothing, so that an event that counts everything
/// does not pass. Empty where this version has no load.
pub fn loads(role: Role, sees: Sees) -> Vec<(Load, CountedIn)> {
    use CountedIn::{Other, Own};
    let missing = if sees == Sees::Core { Load::Pairs } else { Load::Single };
    match role {
        Role::Instructions => vec![(Load::Loop, Own)],
        Role::Cycles | Role::Slots => vec![(Load::Additions, Own)],
        Role::Branch => vec![(Load::Coin, Own), (Load::Loop, Own)],
        Role::Llc => vec![(missing, Own), (Load::InCache, Own)],
        Role::Lma => vec![(missing, Own), (missing, Other)],
        Role::Rma => vec![(missing, Other), (missing, Own)],
        Role::RemoteCache => vec![(Load::Written, Other), (Load::Single, Own)],
        Role::Dtlb => vec![(Load::Pages, Own), (Load::OnePage, Own)],
        Role::StallBackend => vec![(Load::Single, Own), (Load::Nops, Own)],
        Role::StallFrontend => vec![(Load::FarCalls, Own), (Load::Additions, Own)],
        Role::Itlb => vec![(Load::FarCalls, Own), (Load::Loop, Own)],
        Role::Other => Vec::new(),
    }
}

/// Why a role has no load.
pub const WITHOUT_LOAD: &str = "the count of this event is not known for any load";

/// The count that an event must have in a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    pub low: f64,
    pub high: f64,
    /// No exact truth is known: a count inside is only plausible.
    pub plausible: bool,
    /// It must count nearly nothing.
    pub control: bool,
}

/// The least and the most that an event may count in a load, or why no expectation exists. `arm`: counts of
/// memory are differences there.
///
/// # Errors
/// No truth is known, in words.
pub fn expected(measured: &Measured, arm: bool) -> Result<Expected, String> {
    use Load::{Additions, Coin, FarCalls, InCache, Loop, Nops, OnePage, Pages, Pairs, Single, Written};
    let subject = &measured.subject;
    let amount = measured.amount as f64;
    let within = |truth: f64, less: f64, more: f64| Expected {
        low: truth * (1.0 - less / 100.0),
        high: truth * (1.0 + more / 100.0),
        plausible: false,
        control: false,
    };
    let at_most = |percent: f64, of: f64| Expected {
        low: f64::NEG_INFINITY,
        control: true,
        ..within(of * percent / 100.0, 0.0, 0.0)
    };
    let whole = || measured.of_whole().ok_or_else(|| "the total of this event was not counted".to_string());
    let local = measured.is_local();
    // Half of the loads of pairs are prefetched for events that see no prefetches: lines, not loads, are the truth.
    let less = if arm { 10.0 } else { 3.0 };
    let more = if arm { 20.0 } else { 5.0 };
    Ok(match (subject.role, measured.load) {
        // An interrupt adds one (Weaver, ISPASS 2013), and none is lost; a hundred is the noise of two readings.
        (Role::Instructions, Loop) => {
            let exact = within(2.0 * amount, 0.0, 0.01);
            Expected { low: exact.low - 100.0, high: exact.high + 100.0, ..exact }
        }
        (Role::Cycles, Additions) => within(64.0 * amount, 1.0, 1.0),
        (Role::Slots, Additions) => {
            let each = (measured.count().unwrap_or(0.0) / (64.0 * amount)).round().max(2.0);
            within(each * 64.0 * amount, 2.0, 2.0)
        }
        (Role::Branch, Coin) if arm => within(amount / 2.0, 2.0, 30.0),
        (Role::Branch, Coin) => within(amount / 2.0, 2.0, 2.0),
        (Role::Branch, Loop) => at_most(0.1, amount),
        (Role::Llc, InCache) => at_most(2.0, amount),
        (Role::Llc, Single | Pairs) if subject.sees == Sees::Unknown => within(amount, 3.0, 120.0),
        (Role::Llc, Single | Pairs) => within(amount, 3.0, 5.0),
        (Role::Lma, Single | Pairs) if local => within(amount, less, more),
        (Role::Lma, Single | Pairs) => at_most(if arm { 10.0 } else { 3.0 }, amount),
        (Role::Rma, Single | Pairs) if local => at_most(1.0, amount),
        (Role::Rma, Single | Pairs) => within(amount, 3.0, 5.0),
        (Role::RemoteCache, Written) => within(amount, 10.0, 10.0),
        (Role::RemoteCache, Single) => at_most(2.0, amount),
        (Role::Dtlb, Pages) => within(amount, 10.0, 5.0),
        (Role::Dtlb, OnePage) => at_most(2.0, amount),
        (Role::StallBackend, Single) => {
            let whole = whole()?;
            Expected { low: 0.6 * whole, high: 1.02 * whole, plausible: true, control: false }
        }
        // The front end runs ahead, and walks more often than a call is made.
        (Role::Itlb, FarCalls) => within(amount, 10.0, 120.0),
        (Role::Itlb, Loop) => at_most(0.1, amount),
        (Role::StallFrontend, FarCalls) => {
            let whole = whole()?;
            Expected { low: 0.3 * whole, high: 1.02 * whole, plausible: true, control: false }
        }
        (Role::StallFrontend, Additions) => Expected { plausible: true, ..at_most(10.0, whole()?) },
        (Role::StallBackend, Nops) => Expected { plausible: true, ..at_most(40.0, whole()?) },
        _ => return Err("this version has no reference value for this event".into()),
    })
}

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
        "moves of a thread between two CPUs, compared with the CPUs that the thread recorded",
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
        "moves of a thread between two nodes, compared with the CPUs that the thread recorded",
        Tolerance::Exact,
        true,
    ),
    check(
        "other_node_pages",
        "pages",
        "pages from a node other than the CPU's, compared with move_pages(2)",
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
            Tolerance::Within { percent, more } if more == TICK_NS => {
                format!("+-{percent} % and one clock tick")
            }
            Tolerance::Within { percent, more } => format!("+-{percent} % and {more}"),
            Tolerance::Points(points) => format!("+-{points} points"),
            Tolerance::OwnError { more } => format!("within the stated error plus {more} percentage points"),
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
