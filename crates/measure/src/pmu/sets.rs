//! From `--events` to the events to open: sets by role, names one by one, groups that are open in turns.
//!
//! A set takes, role by role, the first choice of the table that opens here and leaves every event a counter.
//! An event that does not fit is left out with the reason, never made to take turns. Names are taken
//! literally. More events than counters are groups, in which each event has its own counter.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Error, Result, bail};

use super::budget::{Budget, Need};
use super::catalog::{Catalog, Resolved};
use super::open::SLOTS;
use super::table::{CounterPlace, When};
use super::typed::{self, Form, Typed};
use crate::model::event::{Event, Mode, Role, TableInUse, names};
use crate::model::sample::{Missing, Reading};
use crate::text::{clean_str, nearest};

/// The sets that `--events` takes besides names, and the purpose of each.
pub const SETS: [(&str, &[Role], &str); 6] = [
    (
        "auto",
        &[Role::Cycles, Role::Instructions, Role::Lma, Role::Rma],
        "IPC and memory accesses by distance",
    ),
    ("basic", &[Role::Cycles, Role::Instructions], "IPC"),
    (
        "numa",
        &[Role::Cycles, Role::Instructions, Role::Lma, Role::Rma, Role::RemoteCache],
        "memory and cache accesses by distance",
    ),
    (
        "stalls",
        &[Role::Cycles, Role::Instructions, Role::StallFrontend, Role::StallBackend],
        "pipeline stalls",
    ),
    ("tlb", &[Role::Cycles, Role::Instructions, Role::Dtlb, Role::Itlb], "page walks"),
    (
        "cache",
        &[Role::Cycles, Role::Instructions, Role::Llc, Role::Branch],
        "last-level cache misses and branches",
    ),
];

/// Roles and names that a list asks for.
fn ask(list: &str) -> (Vec<Role>, Vec<&str>) {
    let (mut roles, mut names) = (Vec::new(), Vec::new());
    for word in typed::split(list) {
        match SETS.iter().find(|(set, ..)| *set == word) {
            Some((_, of_set, _)) => roles.extend(of_set.iter()),
            None => names.push(word),
        }
    }
    (roles, names)
}

/// Events to count, and the reasons for the missing ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// At most [`SLOTS`], in the order of slots.
    pub events: Vec<Event>,
    /// Roles that were asked for and that this machine cannot count now.
    pub absent: BTreeMap<Role, Missing>,
    /// Names that were asked for and that this machine cannot count.
    pub refused: BTreeMap<String, Missing>,
    pub tables: Vec<TableInUse>,
    /// More than fits at once was asked for by name: counts have to be scaled.
    pub takes_turns: bool,
    /// Groups of `events` in the order of their turns. Each fits the counters ([`Chooser::choose_in_turns`]).
    pub turns: Vec<Vec<Event>>,
    /// Names of events that were asked for by name, in the order in which they were typed; refused ones are among them.
    pub asked: Vec<String>,
}

impl From<Vec<Event>> for Choice {
    /// These events, whatever the tables say.
    fn from(events: Vec<Event>) -> Choice {
        Choice { events, ..Choice::default() }
    }
}

/// Chooses on one machine.
pub struct Chooser<'a> {
    pub catalog: &'a Catalog,
    pub budget: Budget,
    /// Sockets are split into several nodes.
    pub subnuma: bool,
    /// Opens events together and counts with them for a moment.
    ///
    /// # Errors
    /// One is refused, does not count, or has to take turns.
    pub opens: &'a mut dyn FnMut(&[Event]) -> Result<(), Missing>,
}

/// An event of the choice, and what it costs.
#[derive(Clone)]
struct Pick {
    event: Event,
    need: Need,
}

impl Chooser<'_> {
    /// Chooses what `list` asks for: sets and events (see [`typed`]), separated by commas.
    ///
    /// # Errors
    /// An unknown name, one given twice, or more events than a context switch can read.
    pub fn choose(&mut self, list: &str) -> Result<Choice> {
        let (roles, names) = ask(list);
        let mut choice = Choice { tables: self.catalog.in_use(), ..Choice::default() };
        let mut picks = self.by_role(&roles, &mut choice);
        for name in &names {
            self.by_name(name, &mut picks, &mut choice)?;
        }
        if picks.len() > SLOTS {
            bail!("{} events were requested, but only {SLOTS} can be read at a context switch", picks.len());
        }
        let needs: Vec<Need> = picks.iter().map(|pick| pick.need).collect();
        choice.takes_turns = !self.budget.fits(&needs);
        choice.events = picks.into_iter().map(|pick| pick.event).collect();
        Ok(choice)
    }

    fn by_role(&mut self, roles: &[Role], choice: &mut Choice) -> Vec<Pick> {
        let mut picks: Vec<Pick> = Vec::new();
        let mut groups: Vec<(&[Role], usize)> = Vec::new();
        for role in roles {
            let group = role.together();
            if group.is_empty() || groups.iter().any(|(known, _)| *known == group) {
                continue;
            }
            match self.group(group, &picks) {
                Ok(more) => {
                    let new = more.into_iter().filter(|pick| picks.iter().all(|old| old.event != pick.event));
                    let new: Vec<Pick> = new.collect();
                    groups.push((group, new.len()));
                    picks.extend(new);
                }
                Err(why) => choice.absent.extend(group.iter().map(|role| (*role, why.clone()))),
            }
        }
        // The machine has the last word: others may hold counters that no rule knows of.
        while let Some((group, count)) = groups.pop() {
            let events: Vec<Event> = picks.iter().map(|pick| pick.event.clone()).collect();
            let Err(why) = (self.opens)(&events) else { break };
            if groups.is_empty() {
                break;
            }
            picks.truncate(picks.len() - count);
            let why =
                Missing::Unsupported(format!("cannot be counted together with the other counters: {why}"));
            choice.absent.extend(group.iter().map(|role| (*role, why.clone())));
        }
        picks
    }

    /// The events of roles that make sense only together, in the first rank that opens and fits.
    fn group(&mut self, group: &[Role], picks: &[Pick]) -> Reading<Vec<Pick>> {
        let mut reason = None;
        for rank in self.ranks(group) {
            match self.rank(group, rank, picks) {
                Ok(found) => return Ok(found),
                // The first choice is what people ask about.
                Err(why) => reason = reason.or(Some(why)),
            }
        }
        Err(reason
            .unwrap_or_else(|| Missing::Unsupported("no event of this CPU counts this quantity".into())))
    }

    /// The ranks of a group that have events, and the first one: its reason is asked about. A user's table may leave
    /// billions of ranks between two.
    fn ranks(&self, group: &[Role]) -> BTreeSet<u32> {
        let entries = self.catalog.cores.iter().flat_map(|core| &core.entries);
        let of_group = entries.filter(|resolved| group.contains(&resolved.entry.role));
        of_group.map(|resolved| resolved.entry.rank).chain([1]).collect()
    }

    fn rank(&mut self, group: &[Role], rank: u32, picks: &[Pick]) -> Reading<Vec<Pick>> {
        let mut found: Vec<Pick> = Vec::new();
        for role in group {
            found.extend(self.role(*role, rank)?);
        }
        found.dedup_by(|a, b| a.event == b.event);
        for pick in &found {
            (self.opens)(std::slice::from_ref(&pick.event))?;
        }
        let mut needs: Vec<Need> = picks.iter().map(|pick| pick.need).collect();
        needs.extend(
            found.iter().filter(|pick| picks.iter().all(|old| old.event != pick.event)).map(|pick| pick.need),
        );
        if needs.len() > SLOTS || !self.budget.fits(&needs) {
            return Err(self.full());
        }
        Ok(found)
    }

    fn full(&self) -> Missing {
        let watchdog = if self.budget.watchdog { "; kernel.nmi_watchdog=0 frees one" } else { "" };
        Missing::NotCollected(format!(
            "no hardware counter is left for this event: {} of {} are free{watchdog}; request fewer sets with --events",
            self.budget.free(),
            self.budget.general
        ))
    }

    /// The events of a role on all kinds of cores. A count from only some of them would be too low for tasks
    /// that run on the others too.
    fn role(&self, role: Role, rank: u32) -> Reading<Vec<Pick>> {
        if let Some(name) = match role {
            Role::Cycles => Some("cycles"),
            Role::Instructions => Some("instructions"),
            _ => None,
        } {
            let firsts = self.catalog.cores.iter().filter_map(|core| core.of(role).next());
            firsts.into_iter().try_for_each(Resolved::believed)?;
            return Ok(vec![self.of_kernel(name, role)]);
        }
        let mut picks = Vec::new();
        for core in &self.catalog.cores {
            if role == Role::Lma && core.table.lma_is_llc_less_rma {
                picks.extend(self.role(Role::Llc, 1)?);
                continue;
            }
            if let Some(why) = core.table.absent.get(&role) {
                return Err(Missing::Unsupported(why.clone()));
            }
            let at_rank: Vec<&Resolved> =
                core.of(role).filter(|resolved| resolved.entry.rank == rank).collect();
            let preferred =
                |resolved: &&&Resolved| self.subnuma && resolved.entry.when == Some(When::Subnuma);
            let plain = |resolved: &&&Resolved| resolved.entry.when.is_none();
            let Some(resolved) = at_rank.iter().find(preferred).or_else(|| at_rank.iter().find(plain)) else {
                return Err(Missing::Unsupported(format!("{} has no such event", core.in_use.name)));
            };
            picks.push(believed(resolved)?);
            if resolved.entry.of_slots {
                let slots = core.of(Role::Slots).next().map(believed).transpose()?;
                picks.extend(slots);
            }
        }
        picks.dedup_by(|a, b| a.event == b.event);
        Ok(picks)
    }

    /// Cycles and instructions by the kernel's name, which counts on cores of every kind. The table has the
    /// event used here, and its counter.
    fn of_kernel(&self, name: &str, role: Role) -> Pick {
        let mut event = Event::named(name).unwrap_or_default();
        let mut place = CounterPlace::Any;
        if let Some(resolved) = self.catalog.cores.iter().find_map(|core| core.of(role).next()) {
            event.counts = format!("{}: {}", resolved.entry.name, resolved.entry.meaning());
            place = resolved.entry.counters;
            event.tested = resolved.tested.clone();
        }
        Pick { event, need: Need { role, place, offcore: false } }
    }

    fn by_name(&mut self, text: &str, picks: &mut Vec<Pick>, choice: &mut Choice) -> Result<()> {
        let typed = Typed::parse(text).map_err(Error::msg)?;
        let found = match typed.form {
            Form::Name(name) => self.named(name, &typed)?,
            Form::Terms { pmu, .. } if self.lacks(pmu) => {
                let why = "the kernel shows no PMU of the CPU cores";
                Err((text.to_owned(), Missing::Unsupported(why.into())))
            }
            Form::Raw(_) | Form::Terms { .. } => {
                let event = typed.encoded(self.catalog).map_err(Error::msg)?;
                Ok(Pick {
                    need: Need { role: Role::Other, place: CounterPlace::Any, offcore: typed.uses_offcore() },
                    event,
                })
            }
        };
        let name = match found {
            Err((name, why)) => {
                choice.refused.insert(name.clone(), why);
                name
            }
            // A set may have it already: it is counted once.
            Ok(found) => match picks.iter().find(|pick| pick.event.counts_as(&found.event)) {
                Some(pick) => pick.event.name.clone(),
                None => {
                    let name = found.event.name.clone();
                    picks.push(found);
                    name
                }
            },
        };
        if choice.asked.contains(&name) {
            bail!("event '{}' is named twice", clean_str(text));
        }
        choice.asked.push(name);
        Ok(())
    }

    /// Whether a PMU would be that of the cores, and the machine shows none of these, as most virtual machines do.
    fn lacks(&self, pmu: &str) -> bool {
        let is_of_cores =
            pmu == "cpu" || ["cpu_", "armv8_", "armv9_"].iter().any(|begin| pmu.starts_with(begin));
        is_of_cores && self.catalog.cores.iter().all(|core| core.device.is_none())
    }

    /// The event with a name of the kernel or of a vendor, or the reason for which this machine cannot count it.
    fn named(&self, name: &str, typed: &Typed<'_>) -> Result<Result<Pick, (String, Missing)>> {
        let mut found = match (Event::named(name), self.catalog.named(name)) {
            (Ok(event), _) if event.is_software() => {
                Pick { need: Need { role: Role::Other, place: CounterPlace::Fixed, offcore: false }, event }
            }
            (Ok(event), _) => match event.role {
                role @ (Role::Cycles | Role::Instructions) => {
                    let pick = self.of_kernel(name, role);
                    Pick { event: Event { name: event.name, ..pick.event }, ..pick }
                }
                role => Pick { need: Need { role, place: CounterPlace::Any, offcore: false }, event },
            },
            (Err(_), Some(resolved)) => match pick(resolved) {
                Ok(mut found) => {
                    found.event.elsewhere = self.catalog.elsewhere(name, &found.event);
                    found
                }
                Err(why) => return Ok(Err((resolved.entry.name.clone(), why))),
            },
            (Err(_), None) => {
                let kernel = names::all();
                let known = kernel.iter().map(|event| event.name.as_str()).chain(self.catalog.names());
                let known = known.chain(SETS.iter().map(|(set, ..)| *set));
                bail!(
                    "unknown event '{}'{}; sets: {}; numatop-ng list events shows what this CPU has",
                    clean_str(name),
                    nearest::hint(&nearest::to(name, known)),
                    SETS.map(|(set, ..)| set).join(", ")
                )
            }
        };
        if typed.mode != Mode::Both {
            // A part of the work is not what roles are made of.
            found.event.role = Role::Other;
            found.event.mode = typed.mode;
            found.event.name = typed.text.to_owned();
        }
        Ok(Ok(found))
    }
}

/// An event for its role: not one that was wrong here.
fn believed(resolved: &Resolved) -> Reading<Pick> {
    resolved.believed()?;
    pick(resolved)
}

fn pick(resolved: &Resolved) -> Reading<Pick> {
    let event = resolved.event.clone()?;
    let offcore = resolved.entry.terms().is_some_and(|terms| terms.uses_offcore());
    Ok(Pick { need: Need { role: event.role, place: resolved.entry.counters, offcore }, event })
}

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
            bail!(
                "{} events were requested, but only {SLOTS} can be read at a context switch",
                choice.events.len()
            );
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
