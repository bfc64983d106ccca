//! Perf events: name, perf_event_attr, role; and the events that every kernel names itself.
//!
//! Events of one CPU model come from tables: see `pmu::catalog`.

pub mod names;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::units::CpuId;
use names::SOFTWARE;

/// The use of a counter besides being shown under its own name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Core cycles while not halted, user and kernel.
    Cycles,
    /// Retired instructions, user and kernel.
    Instructions,
    /// Accesses that memory of the own node answered.
    Lma,
    /// Accesses answered by memory of another node.
    Rma,
    /// Accesses that a cache of another node answered.
    RemoteCache,
    /// Cycles or slots in which the front end delivered nothing.
    StallFrontend,
    /// Cycles or slots in which the back end took nothing.
    StallBackend,
    /// Issue slots: what stalls are a share of on CPUs that count them in slots.
    Slots,
    /// Misses of the last-level cache.
    Llc,
    /// Page walks, or misses of the last TLB level, for data.
    Dtlb,
    /// The same for instruction fetches.
    Itlb,
    /// Mispredicted branches.
    Branch,
    /// Shown by name only.
    #[default]
    Other,
}

impl Role {
    /// The roles that metrics and sets are made of: each table has an event for it or a reason why not.
    pub const MEASURED: [Role; 11] = [
        Role::Cycles,
        Role::Instructions,
        Role::Lma,
        Role::Rma,
        Role::RemoteCache,
        Role::StallFrontend,
        Role::StallBackend,
        Role::Llc,
        Role::Dtlb,
        Role::Itlb,
        Role::Branch,
    ];

    /// The roles that make sense only beside this one, with it; none for events that sets do not ask for.
    pub fn together(self) -> &'static [Role] {
        match self {
            Role::Cycles => &[Role::Cycles],
            Role::Instructions => &[Role::Instructions],
            Role::Lma | Role::Rma => &[Role::Lma, Role::Rma],
            Role::RemoteCache => &[Role::RemoteCache],
            Role::StallFrontend => &[Role::StallFrontend],
            Role::StallBackend => &[Role::StallBackend],
            Role::Llc => &[Role::Llc],
            Role::Dtlb => &[Role::Dtlb],
            Role::Itlb => &[Role::Itlb],
            Role::Branch => &[Role::Branch],
            Role::Slots | Role::Other => &[],
        }
    }

    /// The name in tables and lists.
    pub fn id(self) -> &'static str {
        match self {
            Role::Cycles => "cycles",
            Role::Instructions => "instructions",
            Role::Lma => "lma",
            Role::Rma => "rma",
            Role::RemoteCache => "remote_cache",
            Role::StallFrontend => "stall_frontend",
            Role::StallBackend => "stall_backend",
            Role::Slots => "slots",
            Role::Llc => "llc",
            Role::Dtlb => "dtlb",
            Role::Itlb => "itlb",
            Role::Branch => "branch",
            Role::Other => "other",
        }
    }
}

/// The whole that a stall event is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareOf {
    /// It counts cycles.
    #[default]
    Cycles,
    /// It counts issue slots; each cycle has this many.
    SlotsPerCycle(u32),
    /// It counts issue slots; the event of role [`Role::Slots`] counts all slots.
    Slots,
}

/// The verdict of self-tests on an event (`numatop-ng selftest`), with text for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tested {
    /// Not looked up: events that the kernel counts itself, and recordings from before it was kept.
    #[default]
    Unsaid,
    /// It has no known self-test.
    Nowhere,
    /// Right on this machine.
    Here(String),
    /// Right on machines that its table names.
    Elsewhere(String),
    /// Plausible on this machine but wrong according to the vendor: used, and marked.
    Doubtful(String),
    /// Wrong on this machine: not used for its role.
    Wrong(String),
}

impl Tested {
    /// In words; empty if there is nothing to add.
    pub fn words(&self) -> &str {
        match self {
            Tested::Unsaid => "",
            Tested::Nowhere => "not verified on hardware",
            Tested::Here(words)
            | Tested::Elsewhere(words)
            | Tested::Doubtful(words)
            | Tested::Wrong(words) => words,
        }
    }

    /// Whether nothing was looked up.
    pub fn is_unsaid(&self) -> bool {
        *self == Tested::Unsaid
    }
}

/// The part of the work that an event counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// User mode alone.
    User,
    /// Kernel mode alone.
    Kernel,
    /// User and kernel mode.
    #[default]
    Both,
}

impl Mode {
    /// Whether it is all of the work.
    pub fn is_both(&self) -> bool {
        *self == Mode::Both
    }
}

/// The numbers that an event has on CPUs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoding {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`, `config1` and `config2`.
    pub config: [u64; 3],
    /// The CPUs whose PMU supports it, ascending.
    pub cpus: Vec<CpuId>,
}

/// The event in one counter slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its name in the table, or in perf_event_open(2).
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`, `config1` and `config2`.
    pub config: u64,
    /// See `config`.
    #[serde(default)]
    pub config1: u64,
    /// See `config`.
    #[serde(default)]
    pub config2: u64,
    /// The part that it has in metrics.
    pub role: Role,
    /// The whole that its count is a share of.
    #[serde(default)]
    pub share_of: ShareOf,
    /// The CPUs whose PMU supports it; `None` for all.
    #[serde(default)]
    pub cpus: Option<Vec<CpuId>>,
    /// Its numbers on CPUs of other kinds, where cores differ: one slot counts there, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Encoding>,
    /// The part of the work that it counts.
    #[serde(default, skip_serializing_if = "Mode::is_both")]
    pub mode: Mode,
    /// A precise description of the count; empty if perf_event_open(2) has one.
    #[serde(default)]
    pub counts: String,
    /// The word of self-tests on it.
    #[serde(default, skip_serializing_if = "Tested::is_unsaid")]
    pub tested: Tested,
}

/// The table with which a measurement was made: goes into recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInUse {
    /// "intel/ice-lake-sp".
    pub id: String,
    /// Name of the microarchitecture.
    pub name: String,
    /// "built in", or the path of a user's file.
    pub origin: String,
    /// The CPU it was chosen for, or why that is unknown.
    pub cpu: String,
    /// The name of the PMU; empty when the kernel shows none.
    pub pmu: String,
    /// Machines on which its counts were compared with known work.
    pub verified_on: Vec<String>,
    /// LMA is what missed the last-level cache less RMA.
    pub lma_is_llc_less_rma: bool,
}

impl Event {
    /// True for events that the kernel counts itself and that work without a PMU.
    pub fn is_software(&self) -> bool {
        self.kind == SOFTWARE
    }

    /// True for the kernel's clocks, cpu-clock and task-clock: timers that interrupt, and no counters.
    pub fn is_clock(&self) -> bool {
        // PERF_COUNT_SW_CPU_CLOCK and PERF_COUNT_SW_TASK_CLOCK of include/uapi/linux/perf_event.h.
        self.is_software() && self.config <= 1
    }

    /// True when it can be opened on `cpu`.
    pub fn is_on(&self, cpu: CpuId) -> bool {
        self.encoding_on(cpu).is_some()
    }

    /// `perf_event_attr.type`, and `config`, `config1` and `config2`, on `cpu`; `None` where its PMU does not have it.
    pub fn encoding_on(&self, cpu: CpuId) -> Option<(u32, [u64; 3])> {
        if self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu)) {
            return Some(self.encoding());
        }
        let other = self.elsewhere.iter().find(|other| other.cpus.contains(&cpu))?;
        Some((other.kind, other.config))
    }

    /// `perf_event_attr.type`, and `config`, `config1` and `config2`, on the first kind of its CPUs.
    pub fn encoding(&self) -> (u32, [u64; 3]) {
        (self.kind, [self.config, self.config1, self.config2])
    }

    /// Whether the two count the same for the same purpose, whatever they are called.
    pub fn counts_as(&self, other: &Event) -> bool {
        let key = |event: &Event| (event.encoding(), event.role, event.mode, event.cpus.clone());
        key(self) == key(other) && self.elsewhere == other.elsewhere
    }

    /// True when there are CPUs that have both.
    pub fn shares_cpus_with(&self, other: &Event) -> bool {
        let cpus = |event: &Event| -> Option<Vec<CpuId>> {
            let elsewhere = event.elsewhere.iter().flat_map(|other| other.cpus.iter().copied());
            Some(event.cpus.iter().flatten().copied().chain(elsewhere).collect())
                .filter(|_| event.cpus.is_some())
        };
        match (cpus(self), cpus(other)) {
            (Some(mine), Some(theirs)) => mine.iter().any(|cpu| theirs.contains(cpu)),
            _ => true,
        }
    }

    /// The event called `name`, or one of its aliases (as in perf-list(1)), in any case of letters.
    ///
    /// # Errors
    /// The kernel names no such event.
    pub fn named(name: &str) -> Result<Event> {
        names::find(name).with_context(|| format!("the kernel has no event '{name}'"))
    }

    /// The events of `list`, names separated by commas; `basic` is short for cycles and instructions.
    ///
    /// # Errors
    /// Unknown names, a name given twice, more than [`super::wire::SLOTS`] events.
    pub fn parse_list(list: &str) -> Result<Vec<Event>> {
        let mut events: Vec<Event> = Vec::new();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let names: &[&str] = if word == "basic" { &["cycles", "instructions"] } else { &[word] };
            for name in names {
                let event = Event::named(name)?;
                if events.contains(&event) {
                    bail!("event '{name}' is named twice");
                }
                events.push(event);
            }
        }
        if events.len() > super::wire::SLOTS {
            bail!(
                "{} events were requested, but only {} can be read at a context switch",
                events.len(),
                super::wire::SLOTS
            );
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_is_what_ipc_needs() {
        let events = Event::parse_list("basic").unwrap();
        assert_eq!(
            events.iter().map(|event| event.role).collect::<Vec<_>>(),
            [Role::Cycles, Role::Instructions]
        );
    }

    #[test]
    fn names_mix_with_sets() {
        let events = Event::parse_list("basic, page-faults").unwrap();
        assert_eq!(events[2].name, "page-faults");
        assert!(events[2].is_software());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(Event::parse_list("cyclse").unwrap_err().to_string().contains("'cyclse'"));
        assert!(Event::parse_list("cycles,basic").unwrap_err().to_string().contains("twice"));
        let nine: Vec<String> = names::all().into_iter().take(9).map(|event| event.name).collect();
        let nine = nine.join(",");
        assert!(Event::parse_list(&nine).unwrap_err().to_string().contains('9'));
    }
}
