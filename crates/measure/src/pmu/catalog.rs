//! Event tables of this CPU, with each event as its kernel takes it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::arm_events::{self, Listed};
use super::device::Device;
use super::facts::CpuKind;
use super::table::{self, Entry, Fallback, Table};
use crate::model::event::{Encoding, Event, Role, ShareOf, TableInUse, Tested};
use crate::model::sample::{Missing, Reading};
use crate::model::units::CpuId;
use crate::program::guard::{self, Owner};

/// Bytes of an event table of the user: a hundred times what the longest built-in one has.
const TABLE_MAX: u64 = 1 << 20;

/// The cores of a machine: one entry for each of their PMUs, and so for each kind of core.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The machine is below it.
    pub root: PathBuf,
    pub cores: Vec<Core>,
}

/// Cores of one kind.
#[derive(Clone, Debug)]
pub struct Core {
    /// `None` when the kernel shows no PMU of cores.
    pub device: Option<Device>,
    pub table: Table,
    pub in_use: TableInUse,
    pub entries: Vec<Resolved>,
}

/// A table that may be chosen.
#[derive(Clone, Copy)]
struct Known<'a> {
    id: &'a str,
    origin: &'a str,
    table: &'a Table,
}

/// An entry of a table, and the event it is here.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub entry: Entry,
    pub event: Reading<Event>,
    /// The word of self-tests on it; see [`Resolved::mark`].
    pub tested: Tested,
}

impl Resolved {
    /// Terms of the table, and the type and config that the kernel takes: two events with the same are one.
    pub fn encoding(&self) -> String {
        let terms = self.entry.encoding.as_ref().or(self.entry.kernel.as_ref()).map_or("", String::as_str);
        let raw = self.event.as_ref().map_or_else(
            |_| String::new(),
            |event| format!(" (type {} config {:#x} config1 {:#x})", event.kind, event.config, event.config1),
        );
        format!("{terms}{raw}")
    }

    /// Keeps the word of self-tests on it, here and with its event.
    pub fn mark(&mut self, tested: Tested) {
        if let Ok(event) = &mut self.event {
            event.tested = tested.clone();
        }
        self.tested = tested;
    }

    /// Whether it may stand for its role.
    ///
    /// # Errors
    /// It was wrong on this machine.
    pub fn believed(&self) -> Reading<()> {
        match &self.tested {
            Tested::Wrong(words) => Err(Missing::Unsupported(format!(
                "{name}: {words} (numatop-ng selftest); --events {name} counts it anyway",
                name = self.entry.name
            ))),
            _ => Ok(()),
        }
    }
}

impl Catalog {
    /// The catalogue of the machine below `root`. Tables below `user_dir` (`*.toml`) go before the built-in ones.
    ///
    /// # Errors
    /// A table of the user cannot be read or is not sound.
    pub fn read(root: &Path, user_dir: Option<&Path>) -> Result<Catalog> {
        let own = match user_dir {
            Some(dir) => read_tables(dir)?,
            None => Vec::new(),
        };
        let own = own.iter().map(|(id, origin, table)| Known { id, origin, table });
        let tables: Vec<Known> =
            own.chain(table::built_in().map(|(id, table)| Known { id, origin: "built in", table })).collect();
        let devices = Device::read_all(root);
        let cores = if devices.is_empty() {
            vec![Core::new(root, None, &tables)]
        } else {
            devices.into_iter().map(|device| Core::new(root, Some(device), &tables)).collect()
        };
        Ok(Catalog { root: root.to_path_buf(), cores })
    }

    /// The event with this vendor's name, in any case of letters, on the first cores that have it.
    pub fn named(&self, name: &str) -> Option<&Resolved> {
        let entries = || self.cores.iter().flat_map(|core| &core.entries);
        let same = |resolved: &&Resolved| resolved.entry.name.eq_ignore_ascii_case(name);
        entries().filter(same).find(|resolved| resolved.event.is_ok()).or_else(|| entries().find(same))
    }

    /// The same event on cores of other kinds than `first`.
    pub fn elsewhere(&self, name: &str, first: &Event) -> Vec<Encoding> {
        let same = |resolved: &&Resolved| resolved.entry.name.eq_ignore_ascii_case(name);
        let events = self.cores.iter().filter_map(|core| core.entries.iter().find(same)?.event.as_ref().ok());
        let others = events.filter(|event| event.cpus != first.cpus);
        others
            .filter_map(|event| {
                let (kind, config) = event.encoding();
                Some(Encoding { kind, config, cpus: event.cpus.clone()? })
            })
            .collect()
    }

    /// Names of the vendors' events.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.cores.iter().flat_map(|core| &core.entries).map(|resolved| resolved.entry.name.as_str())
    }

    pub fn in_use(&self) -> Vec<TableInUse> {
        self.cores.iter().map(|core| core.in_use.clone()).collect()
    }
}

impl Core {
    fn new(root: &Path, device: Option<Device>, tables: &[Known]) -> Core {
        let first = device.as_ref().and_then(|device| device.cpus.as_ref()?.first().copied());
        let kind = CpuKind::read(root, first.unwrap_or(CpuId(0)));
        let pmu = device.as_ref().map_or(String::new(), |device| device.name.clone());
        let fits = |table: &Table| {
            let pmu_fits = device.is_none() || table.pmu.as_ref().is_none_or(|name| *name == pmu);
            pmu_fits && kind.as_ref().is_ok_and(|kind| table.matches(kind))
        };
        let fallback = match &kind {
            Ok(CpuKind::Arm { .. }) => Fallback::Arm,
            _ => Fallback::Any,
        };
        let Known { id, origin, table } = *tables
            .iter()
            .find(|known| fits(known.table))
            .or_else(|| tables.iter().find(|known| known.table.fallback == Some(fallback)))
            .expect("a test finds the built-in fallbacks");
        let is_arm = matches!(kind, Ok(CpuKind::Arm { .. }));
        let resolve = |entry: &Entry| Resolved {
            entry: entry.clone(),
            event: resolve(entry, device.as_ref()).and_then(|event| {
                let sure = !entry.assumed && table.fallback.is_none();
                if is_arm { implemented(entry, sure, device.as_ref()) } else { Ok(()) }.map(|()| event)
            }),
            tested: Tested::Unsaid,
        };
        Core {
            entries: table.events.iter().map(resolve).collect(),
            in_use: TableInUse {
                id: id.to_string(),
                name: table.name.clone(),
                origin: origin.to_string(),
                cpu: kind.map_or_else(|why| format!("unknown: {why}"), |kind| kind.to_string()),
                pmu,
                verified_on: table.verified_on.clone(),
                lma_is_llc_less_rma: table.lma_is_llc_less_rma,
            },
            table: table.clone(),
            device,
        }
    }

    /// The entries of a role, first choice first.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &Resolved> {
        self.entries.iter().filter(move |resolved| resolved.entry.role == role)
    }
}

/// Whether an Arm core implements the event of an entry, as far as its kernel reports it. Otherwise the event
/// is opened by its code if a list of this CPU is `sure` to have it.
///
/// # Errors
/// The core does not implement it, or neither kernel nor table know that it does.
fn implemented(entry: &Entry, sure: bool, device: Option<&Device>) -> Reading<()> {
    let code = entry.terms().and_then(|terms| terms.value("event"));
    let (Some(code), Some(device)) = (code, device) else { return Ok(()) };
    let name = arm_events::kernel_name(code).map_or_else(|| format!("code {code:#x}"), str::to_string);
    match arm_events::listed(code, &device.advertised, device.has_caps) {
        Listed::No => Err(Missing::Unsupported(format!(
            "the kernel does not list {name} for the PMU {}: this core does not implement it, or a hypervisor hides it",
            device.name
        ))),
        Listed::Unknown if !sure => Err(Missing::Unsupported(format!(
            "no public event list covers this CPU, and this kernel does not report whether the PMU {} implements {name}",
            device.name
        ))),
        Listed::Yes | Listed::Unknown => Ok(()),
    }
}

fn resolve(entry: &Entry, device: Option<&Device>) -> Reading<Event> {
    let Some(device) = device else {
        return Err(Missing::Unsupported("the kernel shows no PMU of the CPU cores".into()));
    };
    let share_of = match (entry.slots_per_cycle, entry.of_slots) {
        (Some(slots), _) => ShareOf::SlotsPerCycle(slots),
        (None, true) => ShareOf::Slots,
        (None, false) => ShareOf::Cycles,
    };
    let described = Event {
        name: entry.name.clone(),
        role: entry.role,
        share_of,
        counts: entry.meaning(),
        ..Event::default()
    };
    if let Some(kernel) = &entry.kernel {
        let event = Event::named(kernel).map_err(|why| Missing::Unsupported(why.to_string()))?;
        return Ok(Event { kind: event.kind, config: event.config, cpus: device.cpus.clone(), ..described });
    }
    let terms = entry.terms().ok_or_else(|| Missing::Unsupported("its encoding is invalid".into()))?;
    let words = device.format.encode(&terms).map_err(|why| {
        Missing::Unsupported(format!(
            "PMU {}: {why}; the kernel or hypervisor does not offer this term",
            device.name
        ))
    })?;
    let [config, config1, config2] = words;
    Ok(Event { kind: device.kind, config, config1, config2, cpus: device.cpus.clone(), ..described })
}

/// The tables of a folder, by file name.
fn read_tables(dir: &Path) -> Result<Vec<(String, String, Table)>> {
    let entries =
        fs::read_dir(dir).with_context(|| format!("reading the event tables in {}", dir.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    ensure!(!paths.is_empty(), "{} contains no event table (*.toml)", dir.display());
    paths.sort_unstable();
    let read = |path: &std::path::PathBuf| {
        let text = guard::read_text(path, TABLE_MAX, Owner::Caller)
            .with_context(|| format!("reading {}", path.display()))?;
        let table = Table::parse(&text).with_context(|| format!("event table {}", path.display()))?;
        let id = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
        Ok((id, path.display().to_string(), table))
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_pmu_has_a_table_all_the_same() {
        let catalog = Catalog::read(Path::new("/nonexistent"), None).unwrap();
        let core = &catalog.cores[0];
        assert_eq!(core.in_use.id, "generic/kernel");
        assert!(core.in_use.cpu.starts_with("unknown: "), "{}", core.in_use.cpu);
        assert!(core.entries.iter().all(|resolved| resolved.event.is_err()));
    }
}
