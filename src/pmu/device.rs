//! PMUs of CPU cores below /sys/bus/event_source/devices.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::host::fact;
use crate::model::topology::parse_cpulist;
use crate::model::units::CpuId;

use super::format::Format;

const DEVICES: &str = "sys/bus/event_source/devices";

/// The PMU of all cores, or of those of one kind.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// The CPUs that have it; `None` for all.
    pub cpus: Option<Vec<CpuId>>,
    pub format: Format,
    /// Names below `events`.
    pub advertised: BTreeSet<String>,
    /// Whether it has a `caps` folder with its issue slots: PMUs of Arm cores, since Linux 5.10.
    pub has_caps: bool,
}

impl Device {
    /// The core PMUs of the machine below `root`, by name: none where a hypervisor offers none.
    pub fn read_all(root: &Path) -> Vec<Device> {
        let mut names: Vec<String> = list(&root.join(DEVICES)).into_iter().collect();
        names.sort_unstable();
        names.iter().filter_map(|name| Device::read(root, name)).collect()
    }

    /// `None` when it is no PMU of cores. PMUs of cores have a list of `cpus`, or the name that x86 gives to the
    /// only one; others (memory controllers, caches, SPE) have a `cpumask` that says where to open them.
    fn read(root: &Path, name: &str) -> Option<Device> {
        let path = format!("{DEVICES}/{name}");
        let cpus = fact::text(root, &format!("{path}/cpus")).ok();
        if cpus.is_none() && name != "cpu" {
            return None;
        }
        let kind = fact::text(root, &format!("{path}/type")).ok()?.parse().ok()?;
        let cpus = match cpus {
            Some(text) => Some(parse_cpulist(&text).ok()?.into_iter().map(CpuId).collect()),
            None => None,
        };
        let dir = root.join(&path);
        Some(Device {
            name: name.to_string(),
            kind,
            cpus,
            format: Format::read(&dir.join("format")).unwrap_or_default(),
            advertised: list(&dir.join("events")),
            has_caps: dir.join("caps/slots").exists(),
        })
    }
}

fn list(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
