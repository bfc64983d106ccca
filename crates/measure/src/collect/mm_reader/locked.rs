//! Processes that could not be read about, and when they may be asked again. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::model::process::ProcessId;
use crate::model::sample::Missing;

/// A process is asked again after this, then after twice as long each time.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Readers that one user's processes may hold at the same time, so that there are some for others.
const HELD_MAX: usize = 2;

/// The reason why a reading came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It waited for this time and used no CPU.
    Waited(Duration),
    /// It was still working after this time.
    Slow(Duration),
    /// The reader ended.
    Died,
}

struct Entry {
    uid: u32,
    failures: u32,
    not_before: Instant,
}

/// Processes that made a reader hang.
#[derive(Default)]
pub struct Locked {
    processes: HashMap<ProcessId, Entry>,
}

impl Locked {
    /// Remembers a process of a user, and returns the reason for its missing value.
    pub fn note(&mut self, process: ProcessId, uid: u32, failure: Failure, now: Instant) -> Missing {
        let entry = self.processes.entry(process).or_insert(Entry { uid, failures: 0, not_before: now });
        let pause = PAUSE.saturating_mul(1 << entry.failures.min(16)).min(PAUSE_MAX);
        (entry.failures, entry.not_before) = (entry.failures + 1, now + pause);
        Missing::Lost(reason(failure, pause))
    }

    /// It answered.
    pub fn clear(&mut self, process: &ProcessId) {
        self.processes.remove(process);
    }

    /// Drops processes that have ended.
    pub fn retain(&mut self, mut is_alive: impl FnMut(&ProcessId) -> bool) {
        self.processes.retain(|process, _| is_alive(process));
    }

    /// Whether a process may be read, given that `held` readers wait for processes of its user.
    pub fn allows(&self, process: &ProcessId, held: usize, now: Instant) -> bool {
        held < HELD_MAX && self.processes.get(process).is_none_or(|entry| now >= entry.not_before)
    }

    /// Whether a process of this user is remembered: his are read about after all others.
    pub fn suspects(&self, uid: u32) -> bool {
        self.processes.values().any(|entry| entry.uid == uid)
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }
}

fn reason(failure: Failure, pause: Duration) -> String {
    let why = match failure {
        Failure::Waited(time) => {
            format!("its address space is locked: no answer within {} s", time.as_secs())
        }
        Failure::Slow(time) => format!("reading its memory takes longer than {} s", time.as_secs()),
        Failure::Died => "the numatop-ng helper that reads this process's memory map has ended".into(),
    };
    format!("{why}; retried after {} s", pause.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = (7, 1);
    const WAITED: Failure = Failure::Waited(Duration::from_secs(1));

    #[test]
    fn a_locked_process_is_asked_again_later_and_later() {
        let (mut locked, mut now) = (Locked::default(), Instant::now());
        assert!(locked.allows(&PROCESS, 0, now) && !locked.suspects(1000));
        for pause in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            let why = locked.note(PROCESS, 1000, WAITED, now).to_string();
            assert!(why.contains("locked") && why.ends_with(&format!("after {pause} s")), "{why}");
            assert!(!locked.allows(&PROCESS, 0, now + Duration::from_secs(pause - 1)));
            now += Duration::from_secs(pause);
            assert!(locked.allows(&PROCESS, 0, now));
        }
        locked.clear(&PROCESS);
        assert!(locked.note(PROCESS, 1000, WAITED, now).to_string().ends_with("after 60 s"));
    }

    #[test]
    fn the_same_id_later_is_another_process() {
        let (mut locked, now) = (Locked::default(), Instant::now());
        locked.note(PROCESS, 1000, WAITED, now);
        assert!(locked.allows(&(7, 2), 0, now));
        assert!(locked.suspects(1000) && !locked.suspects(1001));
        locked.retain(|_| false);
        assert!(locked.is_empty());
    }

    #[test]
    fn a_user_holds_some_readers_and_not_all() {
        let (locked, now) = (Locked::default(), Instant::now());
        assert!(locked.allows(&PROCESS, HELD_MAX - 1, now));
        assert!(!locked.allows(&PROCESS, HELD_MAX, now));
    }
}
