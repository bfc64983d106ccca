//! Loads of each role, and what an event of the role must count in them. Pure.

use super::counts::Measured;
use crate::known::counted::Load;
use crate::model::event::Role;
use crate::pmu::table::Sees;

/// The place of a load's memory, seen from its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has none that matters, or the CPU's own node.
    Own,
    /// Another node.
    Other,
}

/// Loads of a role. The first of them must count; others must count nearly nothing, so that an event that counts everything
/// does not pass. Empty where this version has no load.
pub fn loads(role: Role, sees: Sees) -> Vec<(Load, Place)> {
    use Place::{Other, Own};
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
pub const WITHOUT_LOAD: &str = "no load has a known count for it";

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
    let whole = || measured.of_whole().ok_or_else(|| "its total was not counted".to_string());
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
        _ => return Err("this version has no reference for it".into()),
    })
}
