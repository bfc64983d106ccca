//! Event tables: their checked contents, and the built-in tables.
//!
//! A table is a TOML file for one microarchitecture: its CPUs, their number of counters, and an entry for
//! each event. docs/counters.md describes the keys for people who write their own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::device::Terms;
use super::facts::CpuKind;
use crate::model::event::{Event, Role};

/// One microarchitecture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    /// The name it is sold under.
    pub products: Vec<String>,
    /// Machines on which all counts were compared with known work, in the form of tables without
    /// `[[verified]]`.
    #[serde(default)]
    pub verified_on: Vec<String>,
    #[serde(default)]
    pub notes: String,
    /// Name of the PMU; without it any PMU of cores with these ids.
    pub pmu: Option<String>,
    /// LMA is what missed the last-level cache and was not remote: an estimate, never below 0.
    #[serde(default)]
    pub lma_is_llc_less_rma: bool,
    /// For CPUs without a table of their own.
    pub fallback: Option<Fallback>,
    #[serde(default, rename = "cpu")]
    pub cpus: Vec<CpuMatch>,
    #[serde(default)]
    pub counters: Option<Counters>,
    /// Machines on which counts of some roles were right (`numatop-ng selftest counters`).
    #[serde(default)]
    pub verified: Vec<Verified>,
    /// The reason why a role has no event.
    #[serde(default)]
    pub absent: BTreeMap<Role, String>,
    #[serde(rename = "event")]
    pub events: Vec<Entry>,
}

/// A machine on which events of a table were compared with known work, and were right.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verified {
    /// `EPYC 9654, bare metal`: the product, and whether a hypervisor was between.
    pub machine: String,
    pub kernel: String,
    /// Year, month and day.
    pub date: String,
    /// The roles whose first event was right.
    pub roles: Vec<Role>,
    /// The place of the report.
    pub source: String,
}

/// Accesses that a memory event sees besides loads that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sees {
    /// Nothing else.
    Demand,
    /// Lines into the first cache, prefetched ones included.
    Fills,
    /// Lines that leave the core's caches for it, prefetched ones included.
    Core,
    /// Not documented.
    #[default]
    Unknown,
}

/// CPUs without a table that this table serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    Arm,
    Any,
}

/// Ids of CPUs; ranges are inclusive.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum CpuMatch {
    X86 { vendor: String, family: u32, models: Vec<(u32, u32)>, steppings: Option<(u32, u32)> },
    Arm { implementer: u32, part: u32 },
}

impl CpuMatch {
    fn matches(&self, kind: &CpuKind) -> bool {
        let within = |range: &(u32, u32), number: u32| (range.0..=range.1).contains(&number);
        match (self, kind) {
            (
                CpuMatch::X86 { vendor, family, models, steppings },
                CpuKind::X86 { vendor: v, family: f, model, stepping },
            ) => {
                vendor == v
                    && family == f
                    && models.iter().any(|range| within(range, *model))
                    && steppings.as_ref().is_none_or(|range| within(range, *stepping))
            }
            (CpuMatch::Arm { implementer, part }, CpuKind::Arm { implementer: i, part: p }) => {
                implementer == i && part == p
            }
            _ => false,
        }
    }
}

/// Counters of one hardware thread that any event may use (fixed ones not among them).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    pub general: u32,
    /// Where a core gives the counters of its second thread to the first.
    pub general_smt_off: Option<u32>,
    pub source: String,
}

/// Counters that an event can be on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum CounterPlace {
    /// One that only this event uses.
    #[serde(rename = "fixed")]
    Fixed,
    #[serde(rename = "0-3")]
    FirstFour,
    #[serde(rename = "0-7")]
    FirstEight,
    #[default]
    #[serde(rename = "any")]
    Any,
}

/// When an entry is preferred to the others of its role and rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Sockets are split into several nodes.
    Subnuma,
}

/// One event.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub role: Role,
    /// The first choice for its role is 1. LMA and RMA are chosen together, of the same rank.
    #[serde(default = "first")]
    pub rank: u32,
    pub when: Option<When>,
    /// The vendor's name.
    pub name: String,
    /// Terms of the PMU (`event=0xb7,umask=0x01`), or
    pub encoding: Option<String>,
    /// the kernel's name for it, where the kernel knows better which counter to use.
    pub kernel: Option<String>,
    /// The vendor's names whose values are ORed to this encoding, where the vendor does not name the whole.
    #[serde(default)]
    pub composed: Vec<String>,
    #[serde(default)]
    pub counters: CounterPlace,
    /// It counts issue slots: this many per cycle, or
    pub slots_per_cycle: Option<u32>,
    /// the ones that the event of role `slots` counts.
    #[serde(default)]
    pub of_slots: bool,
    /// Accesses that it counts, for events of memory and caches.
    #[serde(default)]
    pub sees: Sees,
    /// Errata of the vendor that make its count wrong on some of these CPUs.
    pub errata: Option<String>,
    /// The exact meaning of its count.
    pub counts: String,
    /// Where the numbers are from.
    pub source: String,
    /// The source is about another CPU, or does not say.
    #[serde(default)]
    pub assumed: bool,
}

fn first() -> u32 {
    1
}

impl Entry {
    /// Its meaning in full: `counts`, the parts of a composed encoding, and errata.
    pub fn meaning(&self) -> String {
        let composed = match self.composed.as_slice() {
            [] => String::new(),
            names => format!(" Sum of {}; the vendor has no event for the sum.", names.join(" and ")),
        };
        let errata = self.errata.as_ref().map_or(String::new(), |errata| format!(" Errata: {errata}."));
        format!("{}{composed}{errata}", self.counts)
    }

    /// The terms of its encoding; `None` for an event of the kernel.
    pub fn terms(&self) -> Option<Terms> {
        self.encoding.as_ref().and_then(|text| Terms::parse(text).ok())
    }
}

impl Table {
    /// # Errors
    /// The mistake, with the line or the name of the entry.
    pub fn parse(text: &str) -> Result<Table> {
        let table: Table = toml::from_str(text)?;
        table.check()?;
        Ok(table)
    }

    pub fn matches(&self, kind: &CpuKind) -> bool {
        self.cpus.iter().any(|cpu| cpu.matches(kind))
    }

    /// The entries of a role, first choice first.
    pub fn entries(&self, role: Role) -> impl Iterator<Item = &Entry> {
        self.events.iter().filter(move |entry| entry.role == role)
    }

    /// True when LMA or another role can be counted, whatever its kernel has.
    pub fn covers(&self, role: Role) -> bool {
        self.entries(role).next().is_some()
            || role == Role::Lma
                && self.lma_is_llc_less_rma
                && self.covers(Role::Llc)
                && self.covers(Role::Rma)
    }

    fn check(&self) -> Result<()> {
        ensure!(
            !self.cpus.is_empty() || self.fallback.is_some(),
            "the entry [[cpu]], which names the CPUs of the table, is missing"
        );
        for entry in &self.events {
            entry.check().with_context(|| format!("event '{}'", entry.name))?;
            let same =
                self.events.iter().filter(|other| other.name.eq_ignore_ascii_case(&entry.name)).count();
            ensure!(same == 1, "event '{}' occurs {same} times", entry.name);
            ensure!(
                !entry.of_slots || self.entries(Role::Slots).next().is_some(),
                "event '{}' counts slots, but no event has the role 'slots'",
                entry.name
            );
        }
        for verified in &self.verified {
            let named = format!("[[verified]] of {}", verified.machine);
            ensure!(!verified.roles.is_empty(), "{named}: the list of verified roles is empty");
            let unknown = verified.roles.iter().find(|role| !self.covers(**role));
            ensure!(
                unknown.is_none(),
                "{named}: there is no event of role '{}'",
                unknown.map_or("", |role| role.id())
            );
        }
        for role in Role::MEASURED {
            ensure!(
                self.covers(role) != self.absent.contains_key(&role),
                "role '{}' needs either an event or a reason under [absent]",
                role.id()
            );
        }
        Ok(())
    }
}

impl Entry {
    fn check(&self) -> Result<()> {
        ensure!(self.rank >= 1, "rank must be at least 1");
        let plain = |c: char| c.is_ascii_graphic() && c != ',';
        ensure!(
            !self.name.is_empty() && self.name.chars().all(plain),
            "a name must not contain spaces or \
                                                                        commas"
        );
        ensure!(
            !self.counts.is_empty() && !self.source.is_empty(),
            "'counts' and 'source' must not be empty"
        );
        match (&self.encoding, &self.kernel) {
            (Some(text), None) => {
                Terms::parse(text).map_err(anyhow::Error::msg)?;
            }
            (None, Some(name)) => {
                Event::named(name)?;
            }
            _ => anyhow::bail!("an event needs either 'encoding' or 'kernel'"),
        }
        ensure!(
            self.composed.is_empty() || self.composed.len() > 1 && self.encoding.is_some(),
            "'composed' must name the two or more events that 'encoding' adds up"
        );
        ensure!(self.slots_per_cycle != Some(0), "slots_per_cycle must be at least 1");
        ensure!(
            self.slots_per_cycle.is_none() || !self.of_slots,
            "slots_per_cycle and of_slots exclude each other"
        );
        Ok(())
    }
}

/// Id (the path below src/pmu/events without its ending) and text.
macro_rules! tables {
    ($($id:literal),* $(,)?) => { [$(($id, include_str!(concat!("events/", $id, ".toml")))),*] };
}

const TEXTS: [(&str, &str); 32] = tables![
    "amd/zen1",
    "amd/zen2",
    "amd/zen3",
    "amd/zen4",
    "amd/zen5",
    "amd/zen6",
    "ampere/ampereone",
    "ampere/ampereonex",
    "arm/neoverse-n1",
    "arm/neoverse-n2",
    "arm/neoverse-n3",
    "arm/neoverse-v1",
    "arm/neoverse-v2",
    "arm/neoverse-v3",
    "fujitsu/a64fx",
    "fujitsu/monaka",
    "generic/arm-pmuv3",
    "generic/kernel",
    "hisilicon/tsv110",
    "hygon/dhyana",
    "intel/broadwell-ep",
    "intel/cascade-lake-sp",
    "intel/clearwater-forest",
    "intel/emerald-rapids",
    "intel/granite-rapids",
    "intel/haswell-ep",
    "intel/ice-lake-sp",
    "intel/sapphire-rapids",
    "intel/sierra-forest",
    "intel/skylake-sp",
    "nvidia/olympus",
    "phytium/ftc66x",
];

/// Every table with its id.
pub fn built_in() -> impl Iterator<Item = (&'static str, &'static Table)> {
    static TABLES: LazyLock<Vec<(&str, Table)>> = LazyLock::new(|| {
        let parse = |text| Table::parse(text).expect("a test parses every table");
        TEXTS.iter().map(|(id, text)| (*id, parse(text))).collect()
    });
    TABLES.iter().map(|(id, table)| (*id, table))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_table_parses() {
        for (id, text) in TEXTS {
            if let Err(error) = Table::parse(text) {
                panic!("{id}: {error:#}");
            }
        }
    }

    #[test]
    fn every_file_is_carried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pmu/events");
        let mut files = 0;
        for vendor in fs::read_dir(&root).unwrap() {
            for file in fs::read_dir(vendor.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let id = path.strip_prefix(&root).unwrap().with_extension("");
                assert!(
                    TEXTS.iter().any(|(known, _)| Path::new(known) == id),
                    "{} is not carried",
                    id.display()
                );
                files += 1;
            }
        }
        assert_eq!(files, TEXTS.len());
    }
}
