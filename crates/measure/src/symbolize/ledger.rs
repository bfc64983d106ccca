//! The time and the bytes that names may take for each user. One whose files are slow to read waits, and no other. A user
//! whose files do not answer at all comes last, and after a second time gets no names. A process can have any number of
//! names, each of the maximum length.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::stacks::Function;

/// Time that a user's names may take at once: a large program with all its libraries takes half of this.
const CREDIT: Duration = Duration::from_secs(2);

/// Share of a CPU that they may take from then on, as a divisor.
const SHARE: u32 = 10;

/// A file that ends the symbolizer costs this much: everything known has to be read again.
pub(super) const DEATH: Duration = Duration::from_millis(500);

/// Files of a user that did not answer, after which no other of that user is opened. Each leaves a process behind for as
/// long as it does not answer, and their owner can have any number.
const HANGS_MAX: u32 = 2;

/// Times that devices with files of a user did not answer, after which no such file is opened for that user.
const SERVED_MAX: u32 = 4;

/// Devices that are remembered.
const DEVICES_MAX: usize = 1024;

/// Time that was taken for each user, and is not paid back yet.
#[derive(Default)]
pub(super) struct Ledger {
    debts: HashMap<u32, (Duration, Instant)>,
    /// Times that files of a user did not answer.
    hangs: HashMap<u32, u32>,
    /// Times that a device, or paths of a user, did not answer; and times for the users who own the processes.
    devices: HashMap<String, u32>,
    served: HashMap<u32, u32>,
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

    /// Notes that a file of this user did not answer.
    pub(super) fn hung(&mut self, user: u32) {
        let hangs = self.hangs.entry(user).or_default();
        *hangs = hangs.saturating_add(1);
    }

    /// Whether files of this user are looked at after those of all others: one of them did not answer.
    pub(super) fn is_last(&self, user: u32) -> bool {
        self.hangs.contains_key(&user)
    }

    /// Whether files of this user have been given up.
    pub(super) fn is_given_up(&self, user: u32) -> bool {
        self.hangs.get(&user).is_some_and(|hangs| *hangs >= HANGS_MAX)
    }

    /// Notes that a device did not answer, which a process of this user has files of.
    pub(super) fn device_hung(&mut self, user: u32, device: String) {
        if self.devices.len() < DEVICES_MAX || self.devices.contains_key(&device) {
            *self.devices.entry(device).or_default() += 1;
        }
        *self.served.entry(user).or_default() += 1;
    }

    /// Devices whose files are never opened again, for any user.
    pub(super) fn refused(&self) -> Vec<String> {
        let refused = self.devices.iter().filter(|(_, hangs)| **hangs >= HANGS_MAX);
        refused.map(|(device, _)| device.clone()).collect()
    }

    /// Whether files on served filesystems are opened for this user. Root runs files of any user, and is not
    /// to blame.
    pub(super) fn may_have_served(&self, user: u32) -> bool {
        user == 0 || self.served.get(&user).is_none_or(|hangs| *hangs < SERVED_MAX)
    }

    /// Notes that it took this time.
    pub(super) fn charge(&mut self, user: u32, took: Duration, now: Instant) {
        // A file that takes longer was given up, and is not tried again.
        let debt = self.debt(user, now) + took.min(CREDIT);
        self.debts.insert(user, (debt, now));
    }
}

/// Bytes of all names of one user: some 80,000 of usual length.
const OWNER_MAX: usize = 8 << 20;

/// Bytes of all names together.
pub(super) const ALL_MAX: usize = 16 << 20;

/// The module of a place whose name is beyond them.
const TOO_MANY: &str = "[symbol limit reached]";

/// The names found since places were last asked for again. Places of one function share its name.
pub(super) struct Allotment {
    by_owner: HashMap<u32, Owned>,
    bytes: usize,
    too_many: Arc<Function>,
}

#[derive(Default)]
struct Owned {
    functions: HashSet<Arc<Function>>,
    bytes: usize,
}

impl Default for Allotment {
    fn default() -> Allotment {
        let too_many = Arc::new(Function { name: None, module: TOO_MANY.into(), kernel: false });
        Allotment { by_owner: HashMap::new(), bytes: 0, too_many }
    }
}

impl Allotment {
    /// The function that was found in a process of this user, or none in its place where that user or all users
    /// have too many.
    pub(super) fn share(&mut self, owner: u32, function: Function) -> Arc<Function> {
        let owned = self.by_owner.entry(owner).or_default();
        if let Some(known) = owned.functions.get(&function) {
            return Arc::clone(known);
        }
        let bytes = function.bytes();
        if owned.bytes + bytes > OWNER_MAX || self.bytes + bytes > ALL_MAX {
            return Arc::clone(&self.too_many);
        }
        let function = Arc::new(function);
        owned.functions.insert(Arc::clone(&function));
        (owned.bytes, self.bytes) = (owned.bytes + bytes, self.bytes + bytes);
        function
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

    #[test]
    fn a_user_whose_files_do_not_answer_is_given_up_and_no_other() {
        let mut ledger = Ledger::default();
        ledger.hung(7);
        assert!(ledger.is_last(7) && !ledger.is_given_up(7));
        ledger.hung(7);
        assert!(ledger.is_given_up(7));
        assert!(!ledger.is_last(8) && !ledger.is_given_up(8));
    }

    #[test]
    fn a_device_that_does_not_answer_is_refused_for_all() {
        let mut ledger = Ledger::default();
        for (user, device) in [(7, "00:2d"), (7, "00:2e"), (8, "00:2d")] {
            ledger.device_hung(user, device.into());
        }
        assert_eq!(ledger.refused(), ["00:2d"]);
        assert!(ledger.may_have_served(7) && !ledger.is_given_up(7));
        for number in 0..4 {
            ledger.device_hung(7, format!("00:{number}"));
            ledger.device_hung(0, format!("00:{number}"));
        }
        assert!(!ledger.may_have_served(7) && ledger.may_have_served(8) && ledger.may_have_served(0));
    }

    fn function(at: usize, length: usize) -> Function {
        Function { name: Some(format!("{at:0length$}")), module: "[jit]".into(), kernel: false }
    }

    #[test]
    fn names_of_one_user_without_end_leave_room_for_others() {
        let mut allotment = Allotment::default();
        let (mut bytes, mut refused) = (0, 0);
        for at in 0..100_000 {
            let shared = allotment.share(1000, function(at, 390));
            bytes += shared.name.as_ref().map_or(0, String::len);
            refused += u32::from(shared.name.is_none());
            assert!(shared.name.is_some() || shared.module == TOO_MANY);
        }
        assert!(bytes <= OWNER_MAX && refused > 0, "{bytes} bytes, {refused} without a name");
        assert!(allotment.share(1001, function(7, 390)).name.is_some());
    }

    #[test]
    fn many_users_have_a_budget_together() {
        let mut allotment = Allotment::default();
        for at in 0..200_000 {
            allotment.share(at as u32 % 100, function(at, 390));
        }
        assert!(allotment.bytes <= ALL_MAX);
    }

    #[test]
    fn a_name_that_is_known_takes_no_more() {
        let mut allotment = Allotment::default();
        let first = allotment.share(7, function(1, 10));
        let bytes = allotment.bytes;
        assert!(Arc::ptr_eq(&first, &allotment.share(7, function(1, 10))));
        assert_eq!(allotment.bytes, bytes);
    }
}
