//! The PMUs of Arm's Statistical Profiling Extension, the attributes with which they are sampled, and records of a perf ring that
//! speak of its AUX area.
//!
//! Not verified on hardware. Terms are those of drivers/perf/arm_spe_pmu.c and tools/perf/Documentation/perf-arm-spe.txt. Layouts are
//! those of include/uapi/linux/perf_event.h (`PERF_RECORD_AUX`, `PERF_RECORD_LOST`).

#![warn(missing_docs)]

use std::fs;
use std::path::Path;

use super::source::SourceCodes;
use crate::host::fact;
use crate::model::event::Event;
use crate::model::units::CpuId;
use crate::pmu::memory_event::{DEVICES, Pmu};

/// Cycles from which on an access is sampled: hits of near caches are below it.
const MIN_LATENCY: u32 = 100;

/// Operations from one sample to the next; not measured on hardware.
const PERIOD: u64 = 0x40000;

/// Terms that are asked for where the PMU has them: operations that retired, loads and stores alone, with the time.
const TERMS: [(&str, u32); 6] = [
    ("ts_enable", 1),
    ("jitter", 1),
    ("load_filter", 1),
    ("store_filter", 1),
    ("event_filter", 1 << 1),
    ("min_latency", MIN_LATENCY),
];

/// The physical address of an access: the kernel gives it to those who may look at the kernel.
const PHYSICAL: &str = "pa_enable";

/// An SPE PMU: big and little cores have one each.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeEvent {
    /// The event on its CPUs, with physical addresses where the PMU has them.
    pub event: Event,
    /// The same without them.
    pub without_physical: Event,
    /// Operations from one sample to the next: no less than the PMU takes.
    pub period: u64,
    /// Accesses faster than this number of cycles are not sampled.
    pub threshold: Option<u32>,
}

/// The SPE PMUs of the machine below `root`, in the order of their names; empty without any.
pub fn find(root: &Path) -> Vec<SpeEvent> {
    let entries = fs::read_dir(root.join(DEVICES)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("arm_spe_")).collect();
    names.sort();
    names.iter().filter_map(|name| read(root, name)).collect()
}

fn read(root: &Path, name: &str) -> Option<SpeEvent> {
    let pmu = Pmu::read(root, name, "cpumask")?;
    let known = TERMS.into_iter().filter(|(term, _)| pmu.has(term));
    let terms: Vec<String> = known.map(|(term, value)| format!("{term}={value}")).collect();
    let terms = terms.join(",");
    let without_physical = pmu.event(name, &terms)?;
    let with_physical = pmu.has(PHYSICAL).then(|| pmu.event(name, &format!("{terms},{PHYSICAL}=1")));
    let least = fact::text(root, &format!("{DEVICES}/{name}/caps/min_interval")).ok();
    let least: Option<u64> = least.and_then(|least| least.trim().parse().ok());
    Some(SpeEvent {
        event: with_physical.flatten().unwrap_or_else(|| without_physical.clone()),
        without_physical,
        period: PERIOD.max(least.unwrap_or(0)),
        threshold: pmu.has("min_latency").then_some(MIN_LATENCY),
    })
}

/// The meanings of source codes on a CPU, by its MIDR below `root`; `None` where they are not known.
pub fn source_codes(root: &Path, cpu: CpuId) -> Option<SourceCodes> {
    let path = format!("sys/devices/system/cpu/cpu{}/regs/identification/midr_el1", cpu.0);
    let text = fact::text(root, &path).ok()?;
    SourceCodes::of_midr(u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()?)
}

const LOST: u32 = 2;

const AUX: u32 = 11;

const HEADER: usize = 8;

const FLAG_TRUNCATED: u64 = 1;

const FLAG_COLLISION: u64 = 8;

/// A record that speaks of the AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRecord {
    /// A stretch was written.
    Stretch {
        /// Its first byte; it counts on beyond the size of the area.
        offset: u64,
        /// Its length in bytes; 0 if the record has only flags.
        bytes: u64,
        /// The area was full: samples are missing behind it.
        truncated: bool,
        /// An operation was chosen while another one was sampled: samples are missing in it.
        collision: bool,
    },
    /// The number of records for which the ring was full.
    Lost(u64),
}

/// The records in bytes that were taken out of a ring; others are left out, and a damaged one ends them.
pub fn records(mut bytes: &[u8]) -> Vec<RingRecord> {
    let mut found = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= HEADER) else { break };
        bytes = rest;
        let word = |at: usize| {
            let from = HEADER + at * size_of::<u64>();
            let word = record.get(from..)?.first_chunk::<{ size_of::<u64>() }>()?;
            Some(u64::from_ne_bytes(*word))
        };
        match kind {
            AUX => {
                let (Some(offset), Some(bytes), Some(flags)) = (word(0), word(1), word(2)) else { break };
                let (truncated, collision) = (flags & FLAG_TRUNCATED != 0, flags & FLAG_COLLISION != 0);
                found.push(RingRecord::Stretch { offset, bytes, truncated, collision });
            }
            // The id of the event is in front.
            LOST => found.extend(word(1).map(RingRecord::Lost)),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    /// A machine with these files.
    fn machine<T>(name: &str, files: &[(String, &str)], ask: impl Fn(&Path) -> T) -> T {
        let files = files.iter().map(|(path, text)| (path.as_str(), *text));
        ask(Tree::with(&format!("spe-{name}"), files).root())
    }

    /// The files of a PMU, as drivers/perf/arm_spe_pmu.c names them.
    fn pmu(name: &str, cpus: &'static str) -> Vec<(String, &'static str)> {
        let files = [
            ("type", "11\n"),
            ("cpumask", cpus),
            ("caps/min_interval", "1024\n"),
            ("format/ts_enable", "config:0\n"),
            ("format/pa_enable", "config:1\n"),
            ("format/pct_enable", "config:2\n"),
            ("format/jitter", "config:16\n"),
            ("format/branch_filter", "config:32\n"),
            ("format/load_filter", "config:33\n"),
            ("format/store_filter", "config:34\n"),
            ("format/event_filter", "config1:0-63\n"),
            ("format/min_latency", "config2:0-11\n"),
        ];
        files.into_iter().map(|(path, text)| (format!("{DEVICES}/{name}/{path}"), text)).collect()
    }

    #[test]
    fn loads_and_stores_that_retired_are_sampled() {
        let found = machine("one", &pmu("arm_spe_0", "0-3\n"), find);
        assert_eq!(found.len(), 1);
        let SpeEvent { event, without_physical, period, threshold } = &found[0];
        let config = 1 | 1 << 16 | 1 << 33 | 1 << 34;
        assert_eq!((event.kind, event.config, event.config1, event.config2), (11, config | 2, 2, 100));
        assert_eq!((without_physical.config, without_physical.config2), (config, 100));
        assert_eq!((*period, *threshold), (0x40000, Some(100)));
        assert_eq!(event.cpus, Some((0..4).map(CpuId).collect()));
    }

    #[test]
    fn each_kind_of_core_has_its_own() {
        let mut files = pmu("arm_spe_1", "4-7\n");
        files.extend(pmu("arm_spe_0", "0-3\n"));
        files.push((format!("{DEVICES}/armv8_pmuv3_0/type"), "8\n"));
        let found = machine("two", &files, find);
        let cpus: Vec<u32> = found.iter().map(|one| one.event.cpus.as_ref().unwrap()[0].0).collect();
        assert_eq!(cpus, [0, 4]);
        assert!(machine("none", &[], find).is_empty());
    }

    #[test]
    fn terms_that_a_pmu_lacks_are_not_asked_for() {
        let mut files = pmu("arm_spe_0", "0\n");
        files.retain(|(path, _)| !path.ends_with("pa_enable") && !path.ends_with("min_latency"));
        let least = files.iter_mut().find(|(path, _)| path.ends_with("min_interval")).unwrap();
        least.1 = "1048576\n";
        let found = machine("old", &files, find).remove(0);
        assert_eq!((found.threshold, found.period), (None, 1 << 20));
        assert_eq!((found.event.config2, &found.event), (0, &found.without_physical));
    }

    #[test]
    fn codes_are_those_of_each_cpu() {
        let file =
            |cpu: u32, midr| (format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1"), midr);
        let files = [file(0, "0x00000000413fd0c1\n"), file(1, "0x00000000611f0221\n")];
        let codes = machine("midr", &files, |root| [0, 1, 2].map(|cpu| source_codes(root, CpuId(cpu))));
        assert_eq!(codes, [Some(SourceCodes::Common), None, None]);
    }

    /// A record as the kernel writes it.
    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = (HEADER + words.len() * 8) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_ne_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn stretches_and_losses_are_told_from_all_others() {
        // ITRACE_START, two stretches, the second with the task behind it, and lost records.
        let bytes = [
            record(12, &[7]),
            record(AUX, &[0x1000, 0x40, 0]),
            record(AUX, &[0x1040, 0, FLAG_TRUNCATED | FLAG_COLLISION | 4, 99]),
            record(LOST, &[5, 3]),
        ]
        .concat();
        let stretch = |offset, bytes, missing| RingRecord::Stretch {
            offset,
            bytes,
            truncated: missing,
            collision: missing,
        };
        let expected = [stretch(0x1000, 0x40, false), stretch(0x1040, 0, true), RingRecord::Lost(3)];
        assert_eq!(records(&bytes), expected);
        for cut in 0..bytes.len() {
            assert!(expected.starts_with(&records(&bytes[..cut])), "cut at {cut}");
        }
    }

    #[test]
    fn a_record_without_a_length_ends_them() {
        let mut bytes = record(AUX, &[0, 8, 0]);
        bytes.extend([0; 64]);
        assert_eq!(records(&bytes).len(), 1);
        // Shorter than its header claims.
        assert!(records(&record(AUX, &[1, 2])).is_empty());
    }
}
