//! The event of a PMU that samples accesses to memory: loads of Intel (PEBS), operations of AMD (IBS).
//!
//! Not verified on hardware. Intel: the kernel's arch/x86/events/intel/core.c and tools/perf/util/mem-events.c; AMD:
//! arch/x86/events/amd/ibs.c.

#![warn(missing_docs)]

use std::fs;
use std::path::Path;

use super::device::{Format, Terms};
use crate::host::fact;
use crate::model::access::AccessSource;
use crate::model::event::Event;
use crate::model::sample::Missing;
use crate::model::topology::parse_cpulist;
use crate::model::units::CpuId;

pub(super) const DEVICES: &str = "sys/bus/event_source/devices";

/// Cycles from which on a load is sampled, where the PMU has a threshold: hits of caches are below it.
const THRESHOLD: u32 = 128;

/// PMUs of Intel: of all cores, or of each kind of core.
const PEBS: [&str; 3] = ["cpu", "cpu_core", "cpu_atom"];

/// An event whose samples have addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryEvent {
    /// The way of sampling.
    pub source: AccessSource,
    /// The event to be sampled.
    pub event: Event,
    /// An event that has to be counted ahead of this one, in one group: without it some CPUs give no source.
    pub leader: Option<Event>,
    /// `perf_event_attr.precise_ip`.
    pub precise: u32,
    /// Accesses faster than this number of cycles are not sampled.
    pub threshold: Option<u32>,
}

/// The events of the machine below `root`: one, or one for each kind of core.
///
/// # Errors
/// No PMU here samples accesses.
pub fn find(root: &Path) -> Result<Vec<MemoryEvent>, Missing> {
    let mut events: Vec<MemoryEvent> = PEBS.iter().filter_map(|name| pebs(root, name)).collect();
    events.extend(ibs(root));
    if events.is_empty() {
        let what = "no PMU here samples accesses: Intel PEBS or AMD IBS is needed";
        return Err(Missing::Unsupported(what.into()));
    }
    Ok(events)
}

/// Events of stores, where they are others than those of [`find`]: on Intel. Without them contended lines have one side.
pub fn stores(root: &Path) -> Vec<MemoryEvent> {
    let of = |name: &&str| {
        let pmu = Pmu::read(root, name, "cpus")?;
        let path = root.join(format!("{DEVICES}/{name}/events/mem-stores"));
        let terms = fs::read_to_string(path).ok()?;
        let event = pmu.event("mem-stores", terms.trim())?;
        Some(MemoryEvent { source: AccessSource::Pebs, event, leader: None, precise: 2, threshold: None })
    };
    PEBS.iter().filter_map(of).collect()
}

/// A PMU below sysfs: its type, terms, and CPUs (`None` for all).
pub(super) struct Pmu {
    kind: u32,
    format: Format,
    cpus: Option<Vec<CpuId>>,
}

impl Pmu {
    /// Reads it; its CPUs are in the file `cpus`.
    pub(super) fn read(root: &Path, name: &str, cpus: &str) -> Option<Pmu> {
        let path = format!("{DEVICES}/{name}");
        let cpus = match fact::text(root, &format!("{path}/{cpus}")) {
            Ok(text) => Some(parse_cpulist(&text).ok()?.into_iter().map(CpuId).collect()),
            Err(_) => None,
        };
        Some(Pmu {
            kind: fact::text(root, &format!("{path}/type")).ok()?.trim().parse().ok()?,
            format: Format::read(&root.join(path).join("format")).ok()?,
            cpus,
        })
    }

    /// The event with these terms, as files of sysfs write them; `None` where it lacks one.
    pub(super) fn event(&self, name: &str, terms: &str) -> Option<Event> {
        let [config, config1, config2] = self.format.encode(&Terms::parse(terms).ok()?).ok()?;
        let cpus = self.cpus.clone();
        Some(Event { name: name.into(), kind: self.kind, config, config1, config2, cpus, ..Event::default() })
    }

    /// Whether it has a term of this name.
    pub(super) fn has(&self, term: &str) -> bool {
        Terms::parse(&format!("{term}=1")).is_ok_and(|terms| self.format.encode(&terms).is_ok())
    }
}

/// The numbers of the event are in sysfs, because they differ between cores: 0x1cd, 0x5d0.
fn pebs(root: &Path, name: &str) -> Option<MemoryEvent> {
    let pmu = Pmu::read(root, name, "cpus")?;
    let terms = |event: &str| fs::read_to_string(root.join(format!("{DEVICES}/{name}/events/{event}"))).ok();
    let loads = terms("mem-loads")?;
    let loads: Vec<&str> = loads.trim().split(',').filter(|term| !term.starts_with("ldlat")).collect();
    // Sapphire Rapids and others: without it the kernel refuses to say the source (ENODATA).
    let leader = terms("mem-loads-aux").and_then(|aux| pmu.event("mem-loads-aux", aux.trim()));
    Some(MemoryEvent {
        source: AccessSource::Pebs,
        event: pmu.event("mem-loads", &format!("{},ldlat={THRESHOLD}", loads.join(",")))?,
        leader,
        precise: 2,
        threshold: Some(THRESHOLD),
    })
}

/// Operations are counted, not cycles. Zen 4 can sample those alone that missed the third level, and Zen 5 has a threshold.
fn ibs(root: &Path) -> Option<MemoryEvent> {
    let pmu = Pmu::read(root, "ibs_op", "cpus")?;
    let mut terms = "cnt_ctl=1".to_string();
    if pmu.has("l3missonly") {
        terms += ",l3missonly=1";
    }
    let threshold = pmu.has("ldlat").then_some(THRESHOLD);
    if threshold.is_some() {
        terms += &format!(",ldlat={THRESHOLD}");
    }
    Some(MemoryEvent {
        source: AccessSource::Ibs,
        event: pmu.event("ibs_op", &terms)?,
        leader: None,
        precise: 0,
        threshold,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn found(name: &str, files: &[(&str, &str)]) -> Result<Vec<MemoryEvent>, Missing> {
        below(name, files, find)
    }

    /// The answer about a machine with these files below the folder of PMUs.
    fn below<T>(name: &str, files: &[(&str, &str)], find: impl Fn(&Path) -> T) -> T {
        let tree = Tree::new(&format!("memory-event-{name}"));
        for (path, text) in files {
            tree.write(&format!("{DEVICES}/{path}"), text);
        }
        find(tree.root())
    }

    fn words(event: &Event) -> (u32, [u64; 3]) {
        (event.kind, [event.config, event.config1, event.config2])
    }

    const INTEL: [(&str, &str); 5] = [
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
    ];

    #[test]
    fn loads_of_intel_have_a_threshold_of_our_own() {
        let events = found("intel", &INTEL).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(words(&events[0].event), (4, [0x1cd, 128, 0]));
        assert_eq!((events[0].source, &events[0].leader, events[0].precise), (AccessSource::Pebs, &None, 2));
        assert_eq!(events[0].threshold, Some(128));
    }

    #[test]
    fn stores_of_intel_have_an_event_of_their_own() {
        let mut files = INTEL.to_vec();
        assert!(below("no-stores", &files, stores).is_empty());
        files.push(("cpu/events/mem-stores", "event=0xcd,umask=0x2\n"));
        let events = below("stores", &files, stores);
        assert_eq!((events.len(), words(&events[0].event)), (1, (4, [0x2cd, 0, 0])));
        assert_eq!((&events[0].leader, events[0].threshold, events[0].precise), (&None, None, 2));
    }

    #[test]
    fn the_auxiliary_event_leads_where_there_is_one() {
        let mut files = INTEL.to_vec();
        files.push(("cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n"));
        let leader = found("aux", &files).unwrap()[0].leader.clone().unwrap();
        assert_eq!(words(&leader), (4, [0x8203, 0, 0]));
    }

    #[test]
    fn operations_of_amd_are_those_that_missed_where_that_can_be() {
        let old = [("ibs_op/type", "9\n"), ("ibs_op/format/cnt_ctl", "config:19\n")];
        let of = |name, files: &[(&'static str, &'static str)]| found(name, files).unwrap().remove(0);
        assert_eq!(words(&of("zen3", &old).event), (9, [1 << 19, 0, 0]));
        let zen4 = [old[0], old[1], ("ibs_op/format/l3missonly", "config:16\n")];
        assert_eq!(words(&of("zen4", &zen4).event), (9, [1 << 19 | 1 << 16, 0, 0]));
        let zen5 = [zen4[0], zen4[1], zen4[2], ("ibs_op/format/ldlat", "config1:0-11\n")];
        let event = of("zen5", &zen5);
        assert_eq!((words(&event.event), event.threshold), ((9, [1 << 19 | 1 << 16, 128, 0]), Some(128)));
        assert_eq!(event.source, AccessSource::Ibs);
    }

    #[test]
    fn a_machine_without_one_says_so() {
        assert!(found("none", &[]).unwrap_err().to_string().contains("no PMU here"));
        // A PMU without loads that can be sampled, as a hypervisor shows it.
        assert!(found("guest", &INTEL[..4]).is_err());
    }
}
