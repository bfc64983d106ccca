//! Bytes and requests that processes send to disks (`disk_io.bpf.c`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, Object};

use super::uses::{Sender, Uses};
use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::object;
use crate::collect::skel::disk_io::{DiskIoSkel, DiskIoSkelBuilder};
use crate::host::btf::Feature;
use crate::host::disks::Disks;
use crate::model::disks::{DiskRoute, DiskSender, DiskTraffic, DiskUse};
use crate::model::facility::Facility;
use crate::model::sample::Missing;
use crate::model::units::NodeId;
use crate::model::wire::{DISK_LEAF, DISK_PATH, DISK_UPPER, DISK_USES_MAX, DISKS_MAX, DiskKey, DiskSent};
use crate::sys;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::BioQueue, Feature::BioDevice, Feature::CurrentTask],
    ..Probe::new("disk traffic by process", Facility::DiskTraffic, start)
};

/// Disks are listed again after this time, ns.
const LISTED_NS: u64 = 5_000_000_000;

struct DiskProbe {
    programs: Attached<DiskIoSkel<'static>>,
    state: RefCell<State>,
}

/// The list of disks, and what they were used for.
#[derive(Default)]
struct State {
    root: PathBuf,
    listed_ns: u64,
    /// By device number: the kind, and the address of the PCI function, empty without one.
    disks: BTreeMap<u32, (u32, String)>,
    /// Each with the address of its disk, which may be gone.
    uses: Uses<DiskKey, String, DiskUse>,
    /// Traffic of the last sample.
    told: Arc<BTreeMap<DiskSender, Arc<DiskTraffic>>>,
}

impl Sender for DiskKey {
    type Sent = DiskSent;
    const MOST: usize = DISK_USES_MAX;

    fn sender(&self) -> (u32, u64) {
        (self.pid, self.id)
    }
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let skel = object::load("disk_io", object::open("disk_io", DiskIoSkelBuilder::default())?)?;
    let mut state = State { root: shared.root.to_owned(), ..State::default() };
    // Before the programs run: they count requests to known disks.
    state.list(&skel.maps.disks)?;
    let programs = Attached::all(skel, "loaded, attached to block_bio_queue and block_bio_remap")?;
    Ok(Box::new(DiskProbe { programs, state: RefCell::new(state) }))
}

impl State {
    /// Lists the disks, and passes them to the programs.
    fn list(&mut self, map: &impl MapCore) -> Result<()> {
        let found = found(&self.root);
        for (number, (kind, _)) in &found {
            if self.disks.get(number).is_none_or(|(before, _)| before != kind) {
                map.update(&number.to_ne_bytes(), &kind.to_ne_bytes(), MapFlags::ANY)
                    .context("writing the list of disks")?;
            }
        }
        for number in self.disks.keys().filter(|number| !found.contains_key(number)) {
            // It may be gone already.
            let _ = map.delete(&number.to_ne_bytes());
        }
        self.disks = found;
        Ok(())
    }
}

impl Running for DiskProbe {
    fn object(&self) -> Option<&Object> {
        self.programs.object()
    }

    fn words(&self) -> String {
        self.programs.words()
    }

    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        let lost = |error: anyhow::Error| Missing::Lost(format!("{error:#}"));
        let mut state = self.state.borrow_mut();
        let now_ns = readings.mono_ns;
        let maps = &self.programs.skel.maps;
        if now_ns.saturating_sub(state.listed_ns) >= LISTED_NS {
            state.list(&maps.disks).map_err(lost)?;
            state.listed_ns = now_ns;
        }
        let State { disks, uses, told, .. } = &mut *state;
        let address = |key: &DiskKey| disks.get(&key.disk).map(|(_, address)| address.clone());
        let label = |key: &DiskKey| address(key).unwrap_or_default();
        uses.read(&maps.disk_uses, now_ns, "reading disk traffic", label).map_err(lost)?;
        *told = Arc::new(uses.by_sender(told, |key, address| {
            let route = DiskRoute { disk: address.clone(), from: NodeId(key.node) };
            (DiskSender { pid: key.pid, id: key.id }, route)
        }));
        readings.inputs.disk_traffic = Arc::clone(&state.told);
        if let Some(bss) = maps.bss_data.as_deref() {
            readings.lost.insert("requests_to_unknown_disks".into(), sys::read_variable(&bss.unknown_disk));
            readings.lost.insert("requests_of_uncounted_senders".into(), sys::read_variable(&bss.uses_full));
        }
        Ok(())
    }
}

/// All disks by device number, with their kinds and addresses.
fn found(root: &Path) -> BTreeMap<u32, (u32, String)> {
    let disks = Disks::new(root);
    let mut found = BTreeMap::new();
    // Paths of NVMe disks are hidden: they have a number here only. Partitions have no folder in /sys/block.
    let text = fs::read_to_string(root.join("proc/diskstats")).unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(major), Some(minor), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let number = major.parse::<u32>().ok().zip(minor.parse::<u32>().ok());
        let Some(number) = number.filter(|(major, minor)| *major < 1 << 12 && *minor < 1 << 20) else {
            continue;
        };
        let device = root.join("sys/block").join(name);
        let Ok(link) = fs::read_link(&device) else { continue };
        let kind = match () {
            () if link.components().any(|part| part.as_os_str() == "virtual") => DISK_UPPER,
            () if fs::read_to_string(device.join("hidden")).is_ok_and(|text| text.trim() == "1") => DISK_PATH,
            () => DISK_LEAF,
        };
        if found.len() < DISKS_MAX {
            found.insert(number.0 << 20 | number.1, (kind, disks.address(&device).unwrap_or_default()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn disks_are_hardware_paths_and_what_stands_on_them() {
        let root = Scratch::new();
        let disk = |name: &str, folder: &str, hidden: &str| {
            let below = root.join("sys/devices").join(folder).join("block").join(name);
            fs::create_dir_all(&below).unwrap();
            fs::create_dir_all(root.join("sys/block")).unwrap();
            fs::write(below.join("hidden"), hidden).unwrap();
            let link = format!("../devices/{folder}/block/{name}");
            std::os::unix::fs::symlink(link, root.join("sys/block").join(name)).unwrap();
        };
        disk("sda", "pci0000:00/0000:00:1f.2/ata1/host0", "0\n");
        disk("nvme1c0n1", "pci0000:17/0000:18:00.0/nvme/nvme1", "1\n");
        disk("dm-0", "virtual", "0\n");
        fs::create_dir_all(root.join("proc")).unwrap();
        let lines = "   8       0 sda 1 2\n   8       1 sda1 1 2\n 259       7 nvme1c0n1 0 0\n 253       0 dm-0 0 0\nx\n 9 9\n";
        fs::write(root.join("proc/diskstats"), lines).unwrap();
        let expected = [
            (8 << 20, (DISK_LEAF, "0000:00:1f.2".to_owned())),
            (253 << 20, (DISK_UPPER, String::new())),
            (259 << 20 | 7, (DISK_PATH, "0000:18:00.0".to_owned())),
        ];
        assert_eq!(found(root.path()), expected.into());
        assert_eq!(found(Path::new("/nonexistent")), BTreeMap::new());
    }
}
