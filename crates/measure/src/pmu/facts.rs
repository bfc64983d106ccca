//! Performance counters that this machine offers, whether they count, and the model of this CPU, in the numbers of its vendor.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

use serde::Serialize;

use crate::host::fact::{self, Fact};
use crate::model::event::{Event, Role, TableInUse};
use crate::model::sample::{Missing, Reading};
use crate::model::units::CpuId;
use crate::pmu::open::try_event;
use crate::pmu::sets::Choice;

/// The PMUs the kernel knows, and how the wanted events did when they were tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PmuFacts {
    /// Names below /sys/bus/event_source/devices, sorted. Some are no hardware: software, tracepoint, …
    pub sources: Fact<Vec<String>>,
    /// The maker of the machine, virtual ones included: "Google", "Amazon EC2", "QEMU", … (DMI).
    pub platform: Fact<String>,
    /// Where the meaning of events is from: one for each kind of core.
    pub tables: Vec<TableInUse>,
    pub trials: Vec<Trial>,
    /// Roles that were asked for and have no event here.
    pub absent: BTreeMap<Role, Missing>,
    /// Events requested by name that do not exist here.
    pub unknown: BTreeMap<String, Missing>,
}

/// One event opened on this thread and let count for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trial {
    pub event: Event,
    pub outcome: Reading<()>,
}

impl PmuFacts {
    /// Lists the PMUs below `root` and tries the events of `choice` on the running kernel.
    pub fn read(root: &Path, choice: &Choice) -> PmuFacts {
        let trial = |event: &Event| Trial { event: event.clone(), outcome: try_event(event) };
        PmuFacts {
            sources: sources(root),
            platform: fact::text(root, "sys/class/dmi/id/sys_vendor").into(),
            tables: choice.tables.clone(),
            trials: choice.events.iter().map(trial).collect(),
            absent: choice.absent.clone(),
            unknown: choice.refused.clone(),
        }
    }

    /// Takes a choice whose events were tried already, while nothing else was open.
    pub fn choose(&mut self, choice: &Choice) {
        self.trials =
            choice.events.iter().map(|event| Trial { event: event.clone(), outcome: Ok(()) }).collect();
        self.absent.clone_from(&choice.absent);
        self.unknown.clone_from(&choice.refused);
    }

    /// The events that count.
    pub fn working(&self) -> Vec<Event> {
        let works = |trial: &&Trial| trial.outcome.is_ok();
        self.trials.iter().filter(works).map(|trial| trial.event.clone()).collect()
    }

    /// The events that do not, by name, and why.
    pub fn refused(&self) -> impl Iterator<Item = (String, Missing)> {
        let failed = |trial: &Trial| Some((trial.event.name.clone(), trial.outcome.clone().err()?));
        self.trials.iter().filter_map(failed).chain(self.unknown.clone())
    }

    /// Notes that an event that counted when it was tried could not be opened on every CPU: what the others
    /// count would be too low. Returns whether this is news.
    pub fn refuse(&mut self, event: &str, why: &Missing) -> bool {
        let mut counting =
            self.trials.iter_mut().filter(|trial| trial.event.name == event && trial.outcome.is_ok());
        match counting.next() {
            Some(trial) => {
                trial.outcome = Err(why.clone());
                true
            }
            None => false,
        }
    }

    /// The trials of the events that a role is counted with: for LMA on some CPUs those of two others.
    pub fn trials_of(&self, role: Role) -> Vec<&Trial> {
        let of = |role: Role| self.trials.iter().filter(move |trial| trial.event.role == role);
        let own: Vec<&Trial> = of(role).collect();
        if role == Role::Lma && own.is_empty() && self.tables.iter().any(|table| table.lma_is_llc_less_rma) {
            let rma: Vec<&Trial> = of(Role::Rma).collect();
            return if rma.is_empty() { rma } else { of(Role::Llc).chain(rma).collect() };
        }
        own
    }
}

fn sources(root: &Path) -> Fact<Vec<String>> {
    let dir = root.join("sys/bus/event_source/devices");
    let read = || -> std::io::Result<Vec<String>> {
        let mut names: Vec<String> = fs::read_dir(&dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    };
    read().map_err(|error| format!("{}: {error}", dir.display())).into()
}

/// The properties by which event tables are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuKind {
    /// CPUID leaves 0 and 1.
    X86 { vendor: String, family: u32, model: u32, stepping: u32 },
    /// MIDR_EL1, bits 31:24 and 15:4.
    Arm { implementer: u32, part: u32 },
}

impl CpuKind {
    /// The kind of `cpu` on the machine below `root`.
    ///
    /// # Errors
    /// Parts that could not be read or are not there.
    pub fn read(root: &Path, cpu: CpuId) -> Result<CpuKind, String> {
        let midr = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        if let Ok(text) = fact::text(root, &midr) {
            let hex = text.trim_start_matches("0x");
            let midr =
                u64::from_str_radix(hex, 16).map_err(|_| format!("{midr}: '{text}' is not a number"))?;
            return Ok(CpuKind::Arm {
                implementer: (midr >> 24 & 0xff) as u32,
                part: (midr >> 4 & 0xfff) as u32,
            });
        }
        let cpuinfo = fact::text(root, "proc/cpuinfo")?;
        from_cpuinfo(&cpuinfo, cpu).ok_or_else(|| "proc/cpuinfo contains no CPU model".to_string())
    }
}

/// The block of `cpu`, or the first block if it has none.
fn from_cpuinfo(text: &str, cpu: CpuId) -> Option<CpuKind> {
    let blocks = || text.split("\n\n");
    let is_of = |block: &&str| value(block, "processor").is_some_and(|number| number == cpu.to_string());
    let block = blocks().find(is_of).or_else(|| blocks().next())?;
    if let Some(implementer) = value(block, "CPU implementer") {
        return Some(CpuKind::Arm {
            implementer: number(implementer)?,
            part: number(value(block, "CPU part")?)?,
        });
    }
    Some(CpuKind::X86 {
        vendor: value(block, "vendor_id")?.to_string(),
        family: number(value(block, "cpu family")?)?,
        model: number(value(block, "model")?)?,
        // "unknown" in some virtual machines.
        stepping: value(block, "stepping").and_then(number).unwrap_or(0),
    })
}

fn value<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    let line = |line: &'a str| line.split_once(':').filter(|(name, _)| name.trim() == key);
    block.lines().find_map(line).map(|(_, value)| value.trim())
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for CpuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuKind::X86 { vendor, family, model, stepping } => {
                write!(f, "{vendor} family {family:#x} model {model:#x} stepping {stepping}")
            }
            CpuKind::Arm { implementer, part } => {
                write!(f, "Arm implementer {implementer:#x} part {part:#x}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_the_bus_says_so() {
        let facts = PmuFacts::read(Path::new("/nonexistent"), &Choice::default());
        assert!(matches!(facts.sources, Fact::Unknown { unknown } if unknown.contains("event_source")));
    }

    const INTEL: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n\
                         model name\t: Intel(R) Xeon(R) CPU E5-2682 v4\nstepping\t: 1\n";

    #[test]
    fn x86_is_in_cpuinfo() {
        let kind = from_cpuinfo(INTEL, CpuId(0)).unwrap();
        assert_eq!(kind, CpuKind::X86 { vendor: "GenuineIntel".into(), family: 6, model: 79, stepping: 1 });
        assert_eq!(kind.to_string(), "GenuineIntel family 0x6 model 0x4f stepping 1");
    }

    #[test]
    fn each_core_of_a_mixed_machine_has_its_own_block() {
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n\
                    processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        let part = |cpu| match from_cpuinfo(text, CpuId(cpu)) {
            Some(CpuKind::Arm { part, .. }) => part,
            other => panic!("{other:?}"),
        };
        assert_eq!((part(0), part(1)), (0xd0c, 0xd40));
    }

    #[test]
    fn a_damaged_cpuinfo_is_no_cpu() {
        for text in ["", "processor: 0", "vendor_id: x\ncpu family: many\nmodel: 1", "CPU implementer: 0xzz"]
        {
            assert_eq!(from_cpuinfo(text, CpuId(0)), None, "{text:?}");
        }
    }
}
