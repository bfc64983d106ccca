//! Persistence: whether something has been so for long enough. In seconds of CLOCK_MONOTONIC, not in samples.

use std::collections::VecDeque;

/// Share of the required time that must have been measured, and share of the measured time in which the
/// condition must have held. A rule may have others.
pub(super) const MOST: f64 = 0.8;

/// Intervals that must be in it.
const INTERVALS: u64 = 3;

/// An interval of this many thirds of the wanted time is a gap: nothing is known of how often it changed in there.
const GAP_THIRDS: f64 = 1.2;

/// Intervals of the last minutes, and whether it was so in each.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail(VecDeque<(u64, u64, bool)>);

/// The time that something must hold: as many intervals as needed fit into it.
pub(super) fn length(seconds: f64, scale: f64, usual_ns: u64) -> u64 {
    let wanted = (seconds * scale * 1e9) as u64;
    if wanted == 0 { 0 } else { wanted.max(usual_ns.saturating_mul(INTERVALS)) }
}

/// Whether an interval of this length is a gap for a condition that must hold for `needs_ns`.
pub(super) fn is_gap(length_ns: u64, needs_ns: u64) -> bool {
    length_ns as f64 > needs_ns as f64 / 3.0 * GAP_THIRDS && needs_ns > 0
}

impl Trail {
    /// Adds an interval and forgets intervals that ended `keep_ns` earlier.
    pub(super) fn add(&mut self, from_ns: u64, to_ns: u64, so: bool, keep_ns: u64) {
        self.0.push_back((from_ns, to_ns, so));
        while self.0.front().is_some_and(|(_, end, _)| end.saturating_add(keep_ns) < to_ns) {
            self.0.pop_front();
        }
    }

    /// Whether it was `so` in the last interval.
    pub(super) fn last_is(&self, so: bool) -> bool {
        self.0.back().is_some_and(|(.., last)| *last == so)
    }

    /// Notes that it was untrue in the last interval.
    pub(super) fn deny_last(&mut self) {
        if let Some((.., so)) = self.0.back_mut() {
            *so = false;
        }
    }

    /// Whether it was `so` in no interval.
    pub(super) fn never(&self, so: bool) -> bool {
        self.0.iter().all(|(.., was)| *was != so)
    }

    /// The beginning of the first interval in which it was so.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.iter().find(|(.., so)| *so).map(|(from, ..)| *from)
    }

    /// Measured time of the last `length_ns` before `now_ns`, its part in which the condition was `so`, and
    /// intervals.
    fn sums(&self, so: bool, now_ns: u64, length_ns: u64) -> (f64, f64, u64) {
        let begin = now_ns.saturating_sub(length_ns);
        let gap_ns = length_ns as f64 / 3.0 * GAP_THIRDS;
        let (mut measured, mut held, mut intervals) = (0.0, 0.0, 0);
        for (from, to, was) in &self.0 {
            if *to <= begin || to.saturating_sub(*from) as f64 > gap_ns {
                continue;
            }
            let within = to.saturating_sub((*from).max(begin)) as f64;
            measured += within;
            intervals += 1;
            if *was == so {
                held += within;
            }
        }
        (measured, held, intervals)
    }

    /// Whether it was `so` in the last interval and in most of the last `length_ns`, and most of that time
    /// has measurements.
    pub(super) fn held(&self, so: bool, now_ns: u64, length_ns: u64) -> bool {
        self.held_for(MOST, so, now_ns, length_ns)
    }

    /// The same with another share of the measured time.
    pub(super) fn held_for(&self, share: f64, so: bool, now_ns: u64, length_ns: u64) -> bool {
        if length_ns == 0 {
            return self.last_is(so);
        }
        let (measured, held, intervals) = self.sums(so, now_ns, length_ns);
        self.last_is(so)
            && intervals >= INTERVALS
            && measured >= MOST * length_ns as f64
            && held >= share * measured
    }

    /// Whether it was so in this share of the measured time, however short that is.
    pub(super) fn held_so_far(&self, share: f64, now_ns: u64, length_ns: u64) -> bool {
        let (measured, held, intervals) = self.sums(true, now_ns, length_ns.max(1));
        self.last_is(true) && intervals >= INTERVALS && held >= share * measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn trail(step_ms: u64, seconds: u64, so: impl Fn(u64) -> bool) -> (Trail, u64) {
        let mut trail = Trail::default();
        let step = step_ms * 1_000_000;
        let ends = seconds * S / step;
        for at in 0..ends {
            trail.add(at * step, (at + 1) * step, so(at * step / S), 200 * S);
        }
        (trail, ends * step)
    }

    #[test]
    fn it_holds_after_as_many_seconds_whatever_the_interval_is() {
        for ms in [100, 500, 1000, 2000, 5000] {
            let held = |seconds| {
                let (trail, now) = trail(ms, seconds, |_| true);
                trail.held(true, now, length(30.0, 1.0, ms * 1_000_000))
            };
            assert!(!held(20) && held(30), "at {ms} ms");
        }
    }

    #[test]
    fn what_flips_holds_never() {
        let (trail, now) = trail(1000, 200, |second| second / 20 % 2 == 0);
        assert!((0..now / S).all(|second| {
            let mut part = trail.clone();
            part.0.retain(|(_, to, _)| *to <= second * S);
            !part.held(true, second * S, 30 * S)
        }));
    }

    #[test]
    fn a_gap_is_no_time_in_which_it_held() {
        let mut trail = Trail::default();
        trail.add(0, S, true, 1000 * S);
        trail.add(S, 3600 * S, true, 1000 * S);
        trail.add(3600 * S, 3601 * S, true, 1000 * S);
        assert!(!trail.held(true, 3601 * S, 30 * S));
    }

    #[test]
    fn long_intervals_make_it_longer() {
        assert_eq!(length(15.0, 1.0, 10 * S), 30 * S);
        assert_eq!(length(0.0, 1.0, 10 * S), 0);
        assert_eq!(length(60.0, 0.2, S), 12 * S);
    }
}
