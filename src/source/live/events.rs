//! Events in the live view: another set of them, for which counters are reopened and no counts are lost; and groups of events
//! that are open in turns, because the counters are too few for all at once.
//!
//! A group is opened at the end of an interval, so that no interval has parts of two. On each CPU that is one
//! step: the running task is charged, the counters are changed, and the new ones are read. Waiting slots are
//! wanted and not on the PMU. Rows show this in the times of their slots, as if the kernel had multiplexed
//! whole intervals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::LiveSource;
use crate::host::privileges;
use crate::model::event::Event;
use crate::model::units::CpuId;
use crate::pmu::budget;
use crate::pmu::open::Refused;

/// Events that were opened between two samples: the interval that ends with the later one has only a part of
/// their counts.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub(super) names: Vec<String>,
    /// The later sample was taken.
    seen: bool,
}

impl LiveSource {
    /// Counts the events of a set from now on, and no others.
    pub(super) fn count(&mut self, set: &str) -> Result<()> {
        let found = self.sets.iter().find(|(name, _)| *name == set);
        let choice = found.map(|(_, choice)| choice.clone()).context("there is no such set of events")?;
        if let (true, Some(why)) = (choice.events.is_empty(), choice.absent.values().next()) {
            bail!("{set}: {why}");
        }
        let crowded_out = budget::without_room(&choice.events, &self.online, privileges::open_files());
        if let Some((_, why)) = crowded_out.first() {
            bail!("{set}: {why}");
        }
        let had_turns = self.rotation.is_some();
        let new: Vec<&Event> =
            choice.events.iter().filter(|event| had_turns || !self.counts(event)).collect();
        self.sched.want(&choice.events)?;
        // A slot keeps the name with which it was opened first.
        let slots = self.sched.events().iter();
        let names = slots.filter(|known| new.iter().any(|event| event.counts_as(known)));
        let names = names.map(|event| event.name.clone()).collect();
        self.fresh = Fresh { names, seen: false };
        self.end_turns();
        self.check.pmu.choose(&choice);
        for cpu in self.online.clone() {
            let failed = self.sched.online(&self.host.topology, cpu)?;
            self.note_refused(failed);
        }
        if let (None, Some(cpu)) = (self.read_cost, self.online.first()) {
            self.read_cost = self.sched.measure_reads(*cpu)?;
        }
        Arc::make_mut(&mut self.host).events = self.sched.events().to_vec();
        self.say_missing();
        Ok(())
    }

    fn counts(&self, event: &Event) -> bool {
        let slot = self.sched.events().iter().position(|other| other.counts_as(event));
        slot.is_some_and(|slot| self.sched.wants(slot))
    }

    /// Called before each sample: events that were opened before the last one have a whole interval behind them.
    pub(super) fn settle_events(&mut self) {
        if self.fresh.names.is_empty() || !std::mem::replace(&mut self.fresh.seen, true) {
            return;
        }
        self.fresh = Fresh::default();
        self.say_missing();
    }

    /// A counter that is not open on all CPUs would count too little from now on.
    pub(super) fn note_refused(&mut self, failed: Vec<Refused>) {
        for refused in failed {
            if self.check.pmu.refuse(&self.sched.events()[refused.slot].name, &refused.why) {
                self.notes.push(refused.why.to_string());
            }
        }
    }
}

/// The clock of the turns. Pure: times are given.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// Slots of each group.
    groups: Vec<Vec<usize>>,
    /// Length of a turn.
    every: Duration,
    /// The group that is open, and since when.
    at: usize,
    since: Instant,
    /// When the last interval ended.
    last: Instant,
}

impl Rotation {
    /// The turns of `groups` of the events in these slots; `None` where there are fewer than two.
    pub(super) fn new(
        groups: &[Vec<Event>],
        slots: &[Event],
        every: Duration,
        now: Instant,
    ) -> Option<Rotation> {
        let slots_of = |group: &Vec<Event>| -> Vec<usize> {
            let slots = slots.iter().enumerate();
            slots
                .filter(|(_, slot)| group.iter().any(|event| event.counts_as(slot)))
                .map(|(at, _)| at)
                .collect()
        };
        let mut groups: Vec<Vec<usize>> = groups.iter().map(slots_of).collect();
        groups.retain(|group| !group.is_empty());
        groups.dedup();
        (groups.len() > 1).then_some(Rotation { groups, every, at: 0, since: now, last: now })
    }

    /// Slots of each group, in the order of the turns.
    pub(super) fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// An interval ends `now`: the slots whose turn begins, if the turn of the others ends with it. The end of a turn is the
    /// end of the interval that is nearest to it.
    pub(super) fn next(&mut self, now: Instant) -> Option<&[usize]> {
        let interval = now.saturating_duration_since(self.last);
        self.last = now;
        if now.saturating_duration_since(self.since) + interval / 2 < self.every {
            return None;
        }
        self.since = now;
        self.at = (self.at + 1) % self.groups.len();
        Some(&self.groups[self.at])
    }
}

impl LiveSource {
    /// Called at the end of an interval, when its CPUs were charged: opens the group whose turn it is.
    pub(super) fn take_turns(&mut self) -> Result<()> {
        let Some(slots) = self.rotation.as_mut().and_then(|rotation| rotation.next(Instant::now())) else {
            return Ok(());
        };
        self.sched.take_turn(slots);
        for cpu in self.online.clone() {
            self.change_counters(cpu)?;
        }
        Ok(())
    }

    fn change_counters(&mut self, cpu: CpuId) -> Result<()> {
        // It may go offline meanwhile: the next sample reports this.
        let _ = self.sched.flush(cpu);
        let failed = self.sched.online(&self.host.topology, cpu)?;
        let _ = self.sched.flush(cpu);
        self.note_refused(failed);
        Ok(())
    }

    /// Another set of events is counted, all at once.
    pub(super) fn end_turns(&mut self) {
        if self.rotation.take().is_some() {
            Arc::make_mut(&mut self.host).event_turns.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Event> {
        names.iter().map(|name| Event::named(name).unwrap()).collect()
    }

    #[test]
    fn a_turn_ends_with_the_interval_that_ends_nearest_to_it() {
        let slots = named(&["cycles", "page-faults", "cpu-clock"]);
        let groups = [named(&["cycles", "page-faults"]), named(&["cycles", "cpu-clock"])];
        let begin = Instant::now();
        let mut rotation = Rotation::new(&groups, &slots, Duration::from_secs(2), begin).unwrap();
        assert_eq!(rotation.groups(), [vec![0, 1], vec![0, 2]]);
        let mut at = |ms| rotation.next(begin + Duration::from_millis(ms)).map(<[usize]>::to_vec);
        // A short first interval, then ends that are a little early or late.
        let begun: Vec<Option<Vec<usize>>> =
            [250, 1250, 2240, 3260, 4230, 5250].into_iter().map(&mut at).collect();
        assert_eq!(begun, [None, None, Some(vec![0, 2]), None, Some(vec![0, 1]), None]);
    }

    #[test]
    fn a_turn_as_long_as_an_interval_ends_with_each() {
        let slots = named(&["page-faults", "cpu-clock"]);
        let groups = [named(&["page-faults"]), named(&["cpu-clock"])];
        let begin = Instant::now();
        let mut rotation = Rotation::new(&groups, &slots, Duration::from_secs(1), begin).unwrap();
        let mut at = |ms| rotation.next(begin + Duration::from_millis(ms)).map(<[usize]>::to_vec);
        assert_eq!([at(995), at(2001), at(2990)], [Some(vec![1]), Some(vec![0]), Some(vec![1])]);
    }

    #[test]
    fn one_group_has_no_turns() {
        let slots = named(&["page-faults"]);
        // The events of the other one do not work here.
        let groups = [named(&["page-faults"]), named(&["cpu-clock"])];
        assert!(Rotation::new(&groups, &slots, Duration::from_secs(1), Instant::now()).is_none());
    }
}
