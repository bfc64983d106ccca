//! PMUs of CPU cores below /sys/bus/event_source/devices.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::host::fact;
use crate::model::topology::parse_cpulist;
use crate::model::units::CpuId;

use super::format::{Format, Terms};
use crate::text::nearest;

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

    /// `None` if it is not a PMU of cores. PMUs of cores have a list of `cpus`, or the name of the only one
    /// on x86. Others (memory controllers, caches, SPE) have a `cpumask` with the CPUs to open them on.
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
        Some(Device::with(root, name, kind, cpus))
    }

    fn with(root: &Path, name: &str, kind: u32, cpus: Option<Vec<CpuId>>) -> Device {
        let dir = root.join(DEVICES).join(name);
        Device {
            name: name.to_string(),
            kind,
            cpus,
            format: Format::read(&dir.join("format")).unwrap_or_default(),
            advertised: list(&dir.join("events")),
            has_caps: dir.join("caps/slots").exists(),
        }
    }

    /// A PMU beside those of cores that counts tasks on each CPU, as `msr` does.
    ///
    /// # Errors
    /// No device has this name, or it counts for a whole socket or device.
    pub fn of_tasks(root: &Path, name: &str) -> Result<Device, String> {
        let path = format!("{DEVICES}/{name}");
        // A path component, and no way out of the folder.
        let kind = (!name.is_empty() && !name.starts_with('.'))
            .then(|| fact::text(root, &format!("{path}/type")).ok()?.parse().ok())
            .flatten();
        let Some(kind) = kind else {
            let known: Vec<String> = list(&root.join(DEVICES)).into_iter().collect();
            let known = if known.is_empty() { "no PMU".into() } else { known.join(", ") };
            return Err(format!("there is no PMU '{name}'; the kernel shows {known}"));
        };
        if root.join(&path).join("cpumask").exists() {
            return Err(format!("the PMU {name} counts for a whole socket or device, not for tasks"));
        }
        Ok(Device::with(root, name, kind, None))
    }

    /// The terms of an event that the kernel names for this PMU.
    ///
    /// # Errors
    /// It has no event with this name, or the kernel's terms cannot be parsed.
    pub fn event(&self, root: &Path, name: &str) -> Result<Vec<(String, u64)>, String> {
        if !self.advertised.contains(name) {
            let known = nearest::to(name, self.advertised.iter().map(String::as_str));
            let hint = nearest::hint(&known);
            return Err(format!("the PMU {} has neither a term nor an event '{name}'{hint}", self.name));
        }
        let text = fact::text(root, &format!("{DEVICES}/{}/events/{name}", self.name))?;
        let set = |part: &str| if part.contains('=') { part.to_owned() } else { format!("{part}=1") };
        let text: Vec<String> = text.split(',').map(set).collect();
        let terms = Terms::parse(&text.join(","));
        terms.map(Terms::into_pairs).map_err(|why| format!("PMU {}, event {name}: {why}", self.name))
    }
}

fn list(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
