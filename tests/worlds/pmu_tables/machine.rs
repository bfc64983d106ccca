//! Machines as far as events are concerned: a CPU and its PMUs below a folder of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::upstream;
use numatop_ng::pmu::facts::CpuKind;
use numatop_ng::pmu::table;

/// The ids of a CPU.
#[derive(Clone, Copy, Debug)]
pub enum Cpu {
    /// Vendor, family, model, stepping.
    X86(&'static str, u32, u32, u32),
    /// Implementer, part.
    Arm(u32, u32),
}

/// As Linux 6.12 shows them.
const INTEL: &[(&str, &str)] = &[
    ("event", "config:0-7"),
    ("umask", "config:8-15,40-47"),
    ("edge", "config:18"),
    ("any", "config:21"),
    ("inv", "config:23"),
    ("cmask", "config:24-31"),
    ("offcore_rsp", "config1:0-63"),
    ("ldlat", "config1:0-15"),
];
const AMD: &[(&str, &str)] = &[
    ("event", "config:0-7,32-35"),
    ("umask", "config:8-15"),
    ("edge", "config:18"),
    ("inv", "config:23"),
    ("cmask", "config:24-31"),
];
const ARM: &[(&str, &str)] = &[("event", "config:0-15"), ("long", "config1:0")];

/// A folder that looks like / and goes with the value.
pub struct Machine {
    pub root: PathBuf,
}

impl Machine {
    /// Nothing at all.
    pub fn empty() -> Machine {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pmu-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&root).unwrap();
        Machine { root }
    }

    /// `cpu` with the PMU that Linux shows for it.
    pub fn new(cpu: Cpu) -> Machine {
        let machine = Machine::empty().with_cpu(0, cpu);
        match cpu {
            Cpu::X86("GenuineIntel", ..) => machine.with_pmu("cpu", None, INTEL),
            Cpu::X86(..) => machine.with_pmu("cpu", None, AMD),
            Cpu::Arm(..) => machine.with_arm_pmu("armv8_pmuv3_0", "0-7", cpu),
        }
    }

    /// CPUs 0 to 3 of one kind and 4 to 7 of another, as Linux shows Alder Lake; the CPUs of `online` are
    /// online.
    pub fn hybrid(cpu: Cpu, online: &str) -> Machine {
        let memory = "MemTotal: 16777216 kB\nMemFree: 8388608 kB\n";
        let machine = Machine::empty().with_cpu(0, cpu).with("proc/meminfo", memory);
        let machine =
            machine.with_pmu("cpu_atom", Some("4-7"), INTEL).with_pmu("cpu_core", Some("0-3"), INTEL);
        ["online", "present", "possible"].into_iter().fold(machine, |machine, file| {
            let cpus = if file == "online" { online } else { "0-7" };
            machine.with(&format!("sys/devices/system/cpu/{file}"), &format!("{cpus}\n"))
        })
    }

    /// Core number `id` is such a CPU.
    pub fn with_cpu(self, id: u32, cpu: Cpu) -> Machine {
        match cpu {
            Cpu::X86(vendor, family, model, stepping) => self.with(
                "proc/cpuinfo",
                &format!(
                    "processor\t: {id}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
                     model name\t: a CPU\nstepping\t: {stepping}\n"
                ),
            ),
            Cpu::Arm(implementer, part) => self.with(
                &format!("sys/devices/system/cpu/cpu{id}/regs/identification/midr_el1"),
                &format!("{:#018x}\n", u64::from(implementer) << 24 | 0xf << 16 | u64::from(part) << 4 | 1),
            ),
        }
    }

    /// A PMU of type 8, 9, … in the order in which they are added.
    pub fn with_pmu(self, name: &str, cpus: Option<&str>, format: &[(&str, &str)]) -> Machine {
        let devices = self.root.join("sys/bus/event_source/devices");
        let kind = 8 + fs::read_dir(&devices).map_or(0, |entries| entries.count());
        let path = |file: &str| format!("sys/bus/event_source/devices/{name}/{file}");
        let mut machine = self.with(&path("type"), &format!("{kind}\n"));
        if let Some(cpus) = cpus {
            machine = machine.with(&path("cpus"), &format!("{cpus}\n"));
        }
        for (term, bits) in format {
            machine = machine.with(&path(&format!("format/{term}")), &format!("{bits}\n"));
        }
        machine
    }

    /// The PMU of such cores: it lists what a current kernel lists of the events that they implement.
    pub fn with_arm_pmu(self, name: &str, cpus: &str, cpu: Cpu) -> Machine {
        let caps = format!("sys/bus/event_source/devices/{name}/caps/slots");
        let mut machine = self.with_pmu(name, Some(cpus), ARM).with(&caps, "0x00000008\n");
        for (code, event) in listed(cpu) {
            let path = format!("sys/bus/event_source/devices/{name}/events/{event}");
            machine = machine.with(&path, &format!("event={code:#06x}\n"));
        }
        machine
    }

    /// A file with this content.
    pub fn with(self, path: &str, content: &str) -> Machine {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub fn without(self, path: &str) -> Machine {
        fs::remove_file(self.root.join(path)).unwrap();
        self
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _gone_or_not = fs::remove_dir_all(&self.root);
    }
}

/// Events that a current kernel lists for cores of a kind: common ones that the list of this CPU has. A core without a
/// list is taken to implement those of the first server cores of Arm.
pub fn listed(cpu: Cpu) -> Vec<(u64, String)> {
    let Cpu::Arm(implementer, part) = cpu else { return Vec::new() };
    let kind = CpuKind::Arm { implementer, part };
    let facts =
        table::built_in().find(|(_, table)| table.matches(&kind)).map(|(_, table)| upstream::about(table));
    let facts = facts.unwrap_or_default();
    let implements = |code: u64| match facts.as_slice() {
        [] => (0x00..0x39).contains(&code),
        facts => facts.iter().any(|fact| fact.events.contains(&code)),
    };
    upstream::sysfs().into_iter().filter(|(code, _)| implements(*code)).collect()
}
