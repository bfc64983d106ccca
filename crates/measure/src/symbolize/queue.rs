//! The places that wait for a name, and whose turn it is: the user for whom least time was taken.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Question;
use super::ledger::Ledger;
use super::open::Reach;
use super::process::Process;
use crate::model::process::ProcessId;
use crate::model::stacks::{CodePlace, Function};

/// Places that wait for one user's names; more have none.
const WAITING_MAX: usize = 50_000;
/// Places whose names are asked for together: their names fit one packet.
const BATCH: usize = 32;

/// The kernel's places are looked up for root.
const ROOT: u32 = 0;

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Empty,
    /// All who wait have used up their time.
    Later,
    Now,
}

/// Places of one process, or of the kernel.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Batch {
    pub owner: u32,
    /// `None`: the kernel.
    pub process: Option<ProcessId>,
    pub places: Vec<CodePlace>,
    pub reach: Reach,
}

impl Batch {
    pub(super) fn kernel_addresses(&self) -> Vec<u64> {
        let address = |place: &CodePlace| match place {
            CodePlace::Kernel(address) => Some(*address),
            _ => None,
        };
        self.places.iter().filter_map(address).collect()
    }
}

#[derive(Default)]
struct Waiting {
    owner: u32,
    places: VecDeque<CodePlace>,
}

/// Places that wait, by process; the kernel's places have none.
#[derive(Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Option<ProcessId>, Waiting>,
    /// Places that wait, by user.
    by_owner: HashMap<u32, usize>,
    /// Places in files that wait, by the number of processes in which they do; and those among them that have a name
    /// meanwhile. Other places are those of one process.
    copies: HashMap<CodePlace, u32>,
    named: HashSet<CodePlace>,
}

impl Queue {
    /// Takes in questions. Places for which no room is left are answered: they have no name.
    pub(super) fn add(&mut self, questions: Vec<Question>) -> Vec<(CodePlace, Arc<Function>)> {
        let module = "[too many addresses to name]".into();
        let unnamed = Arc::new(Function { name: None, module, kernel: false });
        let mut refused = Vec::new();
        for (place, seen_in) in questions {
            let process = (!matches!(place, CodePlace::Kernel(_))).then_some(seen_in);
            let waiting = self
                .waiting
                .entry(process)
                .or_insert_with(|| Waiting { owner: process.map_or(ROOT, owner), places: VecDeque::new() });
            let count = self.by_owner.entry(waiting.owner).or_default();
            if *count < WAITING_MAX {
                *count += 1;
                waiting.places.push_back(place);
                self.count(place);
            } else {
                refused.push((place, Arc::clone(&unnamed)));
            }
        }
        self.waiting.retain(|_, waiting| !waiting.places.is_empty());
        refused
    }

    /// Takes in places of one process that are looked up after those of all others.
    pub(super) fn add_later(&mut self, owner: u32, process: ProcessId, places: Vec<CodePlace>) {
        if places.is_empty() {
            return;
        }
        *self.by_owner.entry(owner).or_default() += places.len();
        for place in &places {
            self.count(*place);
        }
        let waiting = self.waiting.entry(Some(process));
        waiting.or_insert_with(|| Waiting { owner, places: VecDeque::new() }).places.extend(places);
    }

    fn count(&mut self, place: CodePlace) {
        if matches!(place, CodePlace::File(..)) {
            *self.copies.entry(place).or_default() += 1;
        }
    }

    pub(super) fn turn(&self, ledger: &Ledger, now: Instant) -> Turn {
        match (self.waiting.is_empty(), self.first(ledger, now)) {
            (true, _) => Turn::Empty,
            (false, None) => Turn::Later,
            (false, Some(_)) => Turn::Now,
        }
    }

    /// The process whose owner has used least time, if any has time left; those of users whose files have hung come last.
    fn first(&self, ledger: &Ledger, now: Instant) -> Option<Option<ProcessId>> {
        let with_credit = self.waiting.iter().filter(|(_, waiting)| ledger.has_credit(waiting.owner, now));
        let order = |owner| (ledger.is_last(owner), ledger.debt(owner, now));
        with_credit.min_by_key(|(_, waiting)| order(waiting.owner)).map(|(process, _)| *process)
    }

    /// Notes that a place has its name: it is not looked up for another process.
    pub(super) fn answered(&mut self, place: CodePlace) {
        if self.copies.contains_key(&place) {
            self.named.insert(place);
        }
    }

    /// The places that are looked up next.
    pub(super) fn next(&mut self, ledger: &Ledger, now: Instant) -> Option<Batch> {
        loop {
            let process = self.first(ledger, now)?;
            let waiting = self.waiting.get_mut(&process)?;
            let mut batch =
                Batch { owner: waiting.owner, process, places: Vec::new(), reach: Reach::default() };
            let mut taken = 0;
            while batch.places.len() < BATCH
                && let Some(place) = waiting.places.pop_front()
            {
                taken += 1;
                if !self.named.contains(&place) {
                    batch.places.push(place);
                }
                match self.copies.get_mut(&place) {
                    Some(copies) if *copies > 1 => *copies -= 1,
                    _ => {
                        self.copies.remove(&place);
                        self.named.remove(&place);
                    }
                }
            }
            if let Some(left) = self.by_owner.get_mut(&waiting.owner) {
                *left = left.saturating_sub(taken);
            }
            if waiting.places.is_empty() {
                self.waiting.remove(&process);
            }
            if !batch.places.is_empty() {
                return Some(batch);
            }
        }
    }
}

/// The user of a process; of one that has ended nothing is looked up that could take time.
fn owner(process: ProcessId) -> u32 {
    Process::open(process).and_then(|process| process.owner()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::stacks::BuildId;

    fn queue(owners: &[(u32, u32, usize)]) -> Queue {
        let mut queue = Queue::default();
        for (pid, owner, places) in owners {
            let process = (*pid, 1);
            let places = (0..*places as u64).map(|at| CodePlace::Address(process, at)).collect();
            queue.waiting.insert(Some(process), Waiting { owner: *owner, places });
        }
        queue
    }

    #[test]
    fn the_user_for_whom_least_time_was_taken_is_next() {
        let mut queue = queue(&[(1, 1000, 70), (2, 1000, 1), (3, 7, 1)]);
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let mut order = Vec::new();
        while let Some(batch) = queue.next(&ledger, now) {
            ledger.charge(batch.owner, Duration::from_millis(10), now);
            order.push((batch.process.unwrap().0, batch.places.len()));
        }
        assert_eq!(order, [(1, 32), (3, 1), (1, 32), (1, 6), (2, 1)]);
        assert_eq!(queue.turn(&ledger, now), Turn::Empty);
    }

    #[test]
    fn a_user_without_time_left_waits() {
        let mut queue = queue(&[(1, 1000, 1)]);
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for _ in 0..2 {
            ledger.charge(1000, Duration::from_secs(3), now);
        }
        assert_eq!((queue.turn(&ledger, now), queue.next(&ledger, now)), (Turn::Later, None));
        assert_eq!(queue.turn(&ledger, now + Duration::from_secs(21)), Turn::Now);
    }

    /// Two users with six processes whose files never answer, and one whose files do.
    #[test]
    fn files_that_hang_keep_no_other_user_waiting_twice() {
        let mut queue =
            queue(&[(1, 1000, 1), (2, 1000, 1), (3, 1000, 1), (4, 1001, 1), (5, 1001, 1), (6, 1001, 1)]);
        let (mut ledger, mut now) = (Ledger::default(), Instant::now());
        let mut hung = Vec::new();
        for turn in 0..20 {
            // The innocent has a question each time.
            let innocent = ((100 + turn, 1), Waiting { owner: 7, places: [CodePlace::Kernel(0)].into() });
            queue.waiting.insert(Some(innocent.0), innocent.1);
            let Some(batch) = queue.next(&ledger, now) else { break };
            if batch.owner != 7 {
                assert!(!ledger.is_last(batch.owner), "a user who was known to hang came before another");
                hung.push(batch.owner);
                ledger.hung(batch.owner);
                ledger.charge(batch.owner, Duration::from_secs(5), now);
            }
            now += Duration::from_secs(5);
        }
        assert!(hung.len() <= 2, "{hung:?}");
    }

    /// A library that was first seen in a process of a user without credit.
    #[test]
    fn a_file_is_looked_up_through_a_process_whose_turn_it_is() {
        let mut queue = Queue::default();
        let place = CodePlace::File(BuildId([7; 20]), 64);
        for (pid, owner) in [(1, 1000), (2, 7)] {
            queue.add_later(owner, (pid, 1), vec![place]);
        }
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for _ in 0..2 {
            ledger.charge(1000, Duration::from_secs(3), now);
        }
        let batch = queue.next(&ledger, now).unwrap();
        assert_eq!((batch.process, batch.places), (Some((2, 1)), vec![place]));
        assert_eq!(queue.turn(&ledger, now), Turn::Later);
        queue.answered(place);
        let later = now + Duration::from_secs(60);
        assert_eq!((queue.next(&ledger, later), queue.turn(&ledger, later)), (None, Turn::Empty));
        assert!(queue.copies.is_empty() && queue.named.is_empty());
    }

    #[test]
    fn a_place_too_many_is_answered_at_once() {
        let mut queue = Queue::default();
        let me = (std::process::id(), crate::collect::proc_details::start_ns(std::process::id()).unwrap());
        let many = |count: usize| (0..count as u64).map(|at| (CodePlace::Address(me, at), me)).collect();
        assert_eq!(queue.add(many(WAITING_MAX + 7)).len(), 7);
        assert!(queue.next(&Ledger::default(), Instant::now()).is_some());
        assert_eq!(queue.add(many(BATCH + 1)).len(), 1);
    }
}
