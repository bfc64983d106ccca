//! More events than counters: groups that are open in turns. Each event of an open group has its own counter.

use anyhow::{Result, bail};

use super::{Choice, Chooser, Pick, SLOTS, ask};
use crate::model::event::{Event, Role};
use crate::model::sample::Missing;
use crate::pmu::budget::Need;

/// Groups of picks as they fill.
struct Groups {
    /// Cycles and instructions of sets: each group has them, so that ratios are of one time.
    base: Vec<Pick>,
    groups: Vec<Vec<Pick>>,
}

impl Groups {
    fn events(&self) -> Vec<Pick> {
        let mut all: Vec<Pick> = Vec::new();
        for pick in self.groups.iter().flatten() {
            if all.iter().all(|known| !known.event.counts_as(&pick.event)) {
                all.push(pick.clone());
            }
        }
        all
    }
}

impl Chooser<'_> {
    /// Chooses what `list` asks for, as [`Chooser::choose`] does, but has what does not fit counted in turns. Groups are filled
    /// in the order of the list. Events of roles that belong together, as LMA and RMA, share one.
    ///
    /// # Errors
    /// As of [`Chooser::choose`].
    pub fn choose_in_turns(&mut self, list: &str) -> Result<Choice> {
        let (roles, names) = ask(list);
        let mut choice = Choice { tables: self.catalog.in_use(), ..Choice::default() };
        let is_base = |role: &Role| matches!(role, Role::Cycles | Role::Instructions);
        let (base, others): (Vec<Role>, Vec<Role>) = roles.into_iter().partition(is_base);
        let base = self.by_role(&base, &mut choice);
        let mut groups = Groups { groups: vec![base.clone()], base };
        for role in others {
            let together = role.together();
            let is_there = |pick: &Pick| together.contains(&pick.event.role);
            if choice.absent.contains_key(&role) || groups.groups.iter().flatten().any(is_there) {
                continue;
            }
            if let Err(why) = self.place(&mut groups, |chooser, picks| chooser.group(together, picks)) {
                choice.absent.extend(together.iter().map(|role| (*role, why.clone())));
            }
        }
        for name in names {
            let mut all = groups.events();
            let known = all.len();
            self.by_name(name, &mut all, &mut choice)?;
            let Some(new) = all.get(known).cloned() else { continue };
            let name = new.event.name.clone();
            let placed = self.place(&mut groups, |chooser, picks| {
                let mut needs: Vec<Need> = picks.iter().map(|pick| pick.need).collect();
                needs.push(new.need);
                if chooser.budget.fits(&needs) { Ok(vec![new.clone()]) } else { Err(chooser.full()) }
            });
            if let Err(why) = placed {
                choice.refused.insert(name, why);
            }
        }
        choice.events = groups.events().into_iter().map(|pick| pick.event).collect();
        if choice.events.len() > SLOTS {
            bail!("{} events, but only {SLOTS} can be read at a context switch", choice.events.len());
        }
        if groups.groups.len() > 1 {
            let events = |group: Vec<Pick>| group.into_iter().map(|pick| pick.event).collect();
            choice.turns = groups.groups.into_iter().map(events).collect();
        }
        Ok(choice)
    }

    /// Adds picks to the last group, or to a new one if they do not fit there. `find` has what fits beside others.
    ///
    /// # Errors
    /// They fit beside nothing.
    fn place(
        &mut self,
        groups: &mut Groups,
        mut find: impl FnMut(&mut Self, &[Pick]) -> Result<Vec<Pick>, Missing>,
    ) -> Result<(), Missing> {
        let last = groups.groups.last_mut().expect("there is a group from the start");
        let is_new = last.len() == groups.base.len();
        match self.beside(last, &mut find) {
            Ok(more) => last.extend(more),
            Err(why) if is_new => return Err(why),
            Err(_) => {
                let more = self.beside(&groups.base, &mut find)?;
                groups.groups.push(groups.base.iter().cloned().chain(more).collect());
            }
        }
        Ok(())
    }

    /// Returns the picks that `find` has beside `picks`, if all count at once. The machine has the last word.
    fn beside(
        &mut self,
        picks: &[Pick],
        find: &mut impl FnMut(&mut Self, &[Pick]) -> Result<Vec<Pick>, Missing>,
    ) -> Result<Vec<Pick>, Missing> {
        let mut more = find(self, picks)?;
        more.retain(|pick| picks.iter().all(|known| !known.event.counts_as(&pick.event)));
        let events: Vec<Event> = picks.iter().chain(&more).map(|pick| pick.event.clone()).collect();
        (self.opens)(&events)?;
        Ok(more)
    }
}
