//! Another set of events in the live view: counters are reopened, and no counts are lost.

use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::LiveSource;
use crate::host::privileges;
use crate::model::event::Event;
use crate::pmu::files;
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
        let choice = found.map(|(_, choice)| choice.clone()).context("no such set of events")?;
        if let (true, Some(why)) = (choice.events.is_empty(), choice.absent.values().next()) {
            bail!("{set}: {why}");
        }
        let crowded_out = files::without_room(&choice.events, &self.online, privileges::open_files());
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
