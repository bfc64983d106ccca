//! The model of this CPU, in the numbers of its vendor.

use std::fmt;
use std::path::Path;

use crate::host::fact;
use crate::model::units::CpuId;

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
        from_cpuinfo(&cpuinfo, cpu).ok_or_else(|| "proc/cpuinfo names no CPU model".to_string())
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
