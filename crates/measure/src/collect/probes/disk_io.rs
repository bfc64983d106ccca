//! Bytes and requests that processes send to disks (`disk_io.bpf.c`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use bytemuck::{bytes_of, pod_read_unaligned};
use libbpf_rs::{MapCore, MapFlags, Object};

use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::object;
use crate::collect::skel::disk_io::{DiskIoSkel, DiskIoSkelBuilder};
use crate::host::btf::Feature;
use crate::host::disks::Disks;
use crate::model::disks::{DiskRoute, DiskSender, DiskTraffic, DiskUse};
use crate::model::facility::Facility;
use crate::model::inputs::shared_with;
use crate::model::sample::Missing;
use crate::model::sums::Sum;
use crate::model::units::NodeId;
use crate::model::wire::{DISK_LEAF, DISK_PATH, DISK_UPPER, DISK_USES_MAX, DISKS_MAX, DiskKey, DiskSent};
use crate::sys;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::BioQueue, Feature::BioDevice, Feature::CurrentTask],
    ..Probe::new("disk traffic by process", Facility::DiskTraffic, start)
};

/// Disks are listed again after this time, ns.
const LISTED_NS: u64 = 5_000_000_000;

/// Entries of a sender that was idle for so long are dropped, ns: its process has ended or rests.
const RESTS_NS: u64 = 60_000_000_000;

/// Entries of the kernel's table above which senders that were idle for an interval are dropped.
const CROWDED: usize = DISK_USES_MAX / 8;

/// Entries that one call reads at least. It reads all: `lookup_batch` of libbpf-rs 0.27 takes a short batch for the last
/// one, and the kernel cuts a batch before a bucket of the hash table that does not fit.
const BATCH: usize = 4096;

struct DiskProbe {
    programs: Attached<DiskIoSkel<'static>>,
    state: RefCell<State>,
}

/// The list of disks, and the entries of the kernel's table.
#[derive(Default)]
struct State {
    root: PathBuf,
    listed_ns: u64,
    /// By device number: the kind, and the address of the PCI function, empty without one.
    disks: BTreeMap<u32, (u32, String)>,
    entries: BTreeMap<DiskKey, Entry>,
    /// Traffic of the last sample.
    told: Arc<BTreeMap<DiskSender, Arc<DiskTraffic>>>,
}

#[derive(Clone, Default)]
struct Entry {
    /// Address of the disk, which may be gone.
    address: String,
    /// The value in the kernel's table.
    sent: DiskSent,
    /// Sent until the kernel's entry was dropped.
    carried: DiskSent,
    changed_ns: u64,
    /// It is in the kernel's table.
    is_listed: bool,
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

    /// Reads all entries, and drops those of idle senders.
    fn read(&mut self, map: &impl MapCore, now_ns: u64) -> Result<()> {
        // After a burst that is larger, the rest is read with the next sample.
        let batch = (2 * self.entries.len()).clamp(BATCH, DISK_USES_MAX) as u32;
        let all = map.lookup_batch(batch, MapFlags::ANY, MapFlags::ANY).context("reading disk traffic")?;
        let mut listed = 0;
        for (key, sent) in all {
            let key: DiskKey = pod_read_unaligned(&key);
            let address =
                || self.disks.get(&key.disk).map(|(_, address)| address.clone()).unwrap_or_default();
            let entry =
                self.entries.entry(key).or_insert_with(|| Entry { address: address(), ..Entry::default() });
            let sent: DiskSent = pod_read_unaligned(&sent);
            if entry.sent != sent || !entry.is_listed {
                entry.changed_ns = now_ns;
            }
            (entry.sent, entry.is_listed) = (sent, true);
            listed += 1;
        }
        let rests_ns = if listed > CROWDED { 1 } else { RESTS_NS };
        self.drop_idle(now_ns.saturating_sub(rests_ns), now_ns, |key, sent| {
            let last = map.lookup_and_delete(bytes_of(key)).ok()?;
            Some(last.map_or(sent, |last| pod_read_unaligned(&last)))
        });
        Ok(())
    }

    /// Drops entries of senders that have sent nothing after `since_ns`: from the kernel's table, and when that is
    /// done, here. All of a sender's go at once: those of disks with one address are one sum, which must not fall.
    /// `delete` deletes an entry, and returns its last value.
    fn drop_idle(
        &mut self,
        since_ns: u64,
        now_ns: u64,
        delete: impl Fn(&DiskKey, DiskSent) -> Option<DiskSent>,
    ) {
        let (mut busy, mut listed) = (BTreeSet::new(), BTreeSet::new());
        for (key, entry) in &self.entries {
            if entry.changed_ns > since_ns {
                busy.insert((key.pid, key.id));
            }
            if entry.is_listed {
                listed.insert((key.pid, key.id));
            }
        }
        self.entries.retain(|key, entry| {
            let sender = (key.pid, key.id);
            if busy.contains(&sender) {
                return true;
            }
            if !entry.is_listed {
                return listed.contains(&sender);
            }
            if let Some(last) = delete(key, entry.sent) {
                // It was used again just now.
                if last != entry.sent {
                    entry.changed_ns = now_ns;
                }
                entry.carried.bytes += last.bytes;
                entry.carried.requests += last.requests;
                (entry.sent, entry.is_listed) = (DiskSent::default(), false);
            }
            true
        });
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
        state.read(&maps.disk_uses, now_ns).map_err(lost)?;
        state.told = Arc::new(by_sender(&state, &state.told));
        readings.inputs.disk_traffic = Arc::clone(&state.told);
        if let Some(bss) = maps.bss_data.as_deref() {
            readings.lost.insert("requests_to_unknown_disks".into(), sys::read_variable(&bss.unknown_disk));
            readings.lost.insert("requests_of_uncounted_senders".into(), sys::read_variable(&bss.uses_full));
        }
        Ok(())
    }
}

/// Traffic by sender; a sender that sent nothing new shares its entry with the sample before.
fn by_sender(
    state: &State,
    before: &BTreeMap<DiskSender, Arc<DiskTraffic>>,
) -> BTreeMap<DiskSender, Arc<DiskTraffic>> {
    let mut senders: BTreeMap<DiskSender, DiskTraffic> = BTreeMap::new();
    for (key, entry) in &state.entries {
        let traffic = senders.entry(DiskSender { pid: key.pid, id: key.id }).or_default();
        let route = DiskRoute { disk: entry.address.clone(), from: NodeId(key.node) };
        let sum = traffic.entry(route).or_default();
        for DiskSent { bytes, requests } in [entry.sent, entry.carried] {
            sum.add(&DiskUse { bytes, requests });
        }
    }
    shared_with(before, senders)
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

    fn key(pid: u32, disk: u32) -> DiskKey {
        DiskKey { id: 1, pid, disk, node: 0, pad: 0 }
    }

    fn entry(bytes: u64, changed_ns: u64) -> Entry {
        let sent = DiskSent { bytes, requests: 1 };
        Entry { sent, changed_ns, is_listed: true, ..Entry::default() }
    }

    fn holding<const N: usize>(entries: [(DiskKey, Entry); N]) -> State {
        State { entries: entries.into(), ..State::default() }
    }

    fn sum(state: &State, pid: u32) -> u64 {
        let traffic = by_sender(state, &BTreeMap::new());
        traffic.get(&DiskSender { pid, id: 1 }).map_or(0, |traffic| traffic.values().next().unwrap().bytes)
    }

    #[test]
    fn the_sum_of_a_sender_does_not_fall_while_it_is_busy() {
        // Two disks without an address. One of them is idle.
        let mut state = holding([(key(7, 1), entry(100, 10)), (key(7, 2), entry(5, 50))]);
        state.drop_idle(40, 60, |_, _| panic!("it is busy"));
        assert_eq!(sum(&state, 7), 105);
    }

    #[test]
    fn the_sum_of_a_sender_that_returned_does_not_fall_before_all_of_it_is_dropped() {
        let returned = Entry { is_listed: false, ..entry(100, 10) };
        let mut state = holding([(key(7, 1), returned), (key(7, 2), entry(5, 20))]);
        state.drop_idle(40, 60, |_, sent| Some(sent));
        assert_eq!(sum(&state, 7), 105);
        state.drop_idle(50, 70, |_, _| panic!("all are dropped"));
        assert!(state.entries.is_empty());
    }

    #[test]
    fn a_sender_that_rests_shares_its_traffic_with_the_sample_before() {
        let mut state = holding([(key(7, 1), entry(100, 10)), (key(8, 1), entry(5, 10))]);
        let before = by_sender(&state, &BTreeMap::new());
        state.entries.insert(key(8, 1), entry(6, 20));
        let now = by_sender(&state, &before);
        let [rests, sends] = [7, 8].map(|pid| DiskSender { pid, id: 1 });
        assert!(Arc::ptr_eq(&before[&rests], &now[&rests]));
        assert!(!Arc::ptr_eq(&before[&sends], &now[&sends]));
    }

    #[test]
    fn traffic_while_an_entry_is_dropped_is_carried() {
        let mut state =
            holding([(key(7, 1), entry(100, 10)), (key(7, 2), entry(5, 10)), (key(8, 1), entry(3, 10))]);
        let now = |key: &DiskKey| DiskSent { bytes: [0, 100, 9][key.disk as usize], requests: 1 };
        state.drop_idle(40, 60, |key, _| Some(now(key)));
        assert_eq!(sum(&state, 7), 109);
        // The second disk was used meanwhile: all of the sender stays.
        state.drop_idle(50, 70, |_, _| panic!("all are dropped"));
        assert_eq!(sum(&state, 7), 109);
        state.drop_idle(60, 80, |_, _| panic!("all are dropped"));
        assert!(state.entries.is_empty());
    }
}
