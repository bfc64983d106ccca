//! The time that looking for names may take for each user: one whose files are slow to read waits, and no other.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time that a user's names may take at once: a large program with all its libraries takes half of it.
const CREDIT: Duration = Duration::from_secs(2);
/// Share of a CPU, as one in so many, that they may take from then on.
const SHARE: u32 = 10;
/// A file that ends the symbolizer counts so much: all that it knew has to be read again.
pub(super) const DEATH: Duration = Duration::from_millis(500);

/// Time that was taken for each user, and is not paid back yet.
#[derive(Default)]
pub(super) struct Ledger {
    debts: HashMap<u32, (Duration, Instant)>,
}

impl Ledger {
    /// The debt of a user at `now`.
    pub(super) fn debt(&self, user: u32, now: Instant) -> Duration {
        self.debts.get(&user).map_or(Duration::ZERO, |(debt, at)| {
            debt.saturating_sub(now.saturating_duration_since(*at) / SHARE)
        })
    }

    /// Whether more may be looked up for a user.
    pub(super) fn has_credit(&self, user: u32, now: Instant) -> bool {
        self.debt(user, now) < CREDIT
    }

    /// Notes that it took so long.
    pub(super) fn charge(&mut self, user: u32, took: Duration, now: Instant) {
        // A file that takes longer was given up, and is not tried again.
        let debt = self.debt(user, now) + took.min(CREDIT);
        self.debts.insert(user, (debt, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_whose_files_are_slow_has_a_tenth_of_a_cpu() {
        let mut ledger = Ledger::default();
        let began = Instant::now();
        let (mut now, mut busy) = (began, Duration::ZERO);
        let step = Duration::from_millis(100);
        while now < began + Duration::from_secs(100) {
            if ledger.has_credit(7, now) {
                busy += step;
                ledger.charge(7, step, now + step);
            }
            now += step;
        }
        assert!((11..=13).contains(&busy.as_secs()), "{busy:?}");
        assert!(ledger.has_credit(8, now));
    }
}
