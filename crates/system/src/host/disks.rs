//! Use of disks by a cgroup, and the PCI function that each disk hangs on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::topology::pci_address;
use crate::model::disks::{DiskUse, DisksUsed};
use crate::model::sums::Sum;

/// The disks below a root.
pub struct Disks {
    root: PathBuf,
}

impl Disks {
    /// Below `root` ("/" for this machine). Nothing is read yet.
    pub fn new(root: &Path) -> Disks {
        Disks { root: root.to_owned() }
    }

    /// The lines of io.stat: `259:0 rbytes=90430464 wbytes=0 rios=8950 wios=0 dbytes=0 dios=0` (Documentation/admin-guide/cgroup-v2.rst).
    /// Device mapper and RAID have lines beside those of the disks below them, and are left out: they would count twice.
    pub fn used(&self, text: &str) -> DisksUsed {
        let mut sums = DisksUsed::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let Some(number) = words.next().filter(|number| is_number_of_a_device(number)) else { continue };
            let mut used = DiskUse::default();
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                let value: u64 = value.parse().unwrap_or(0);
                match name {
                    "rbytes" | "wbytes" => used.bytes = used.bytes.saturating_add(value),
                    "rios" | "wios" => used.requests = used.requests.saturating_add(value),
                    _ => {}
                }
            }
            let device = self.root.join("sys/dev/block").join(number);
            if used == DiskUse::default()
                || device.join("slaves").read_dir().is_ok_and(|mut below| below.next().is_some())
            {
                continue;
            }
            let sum = sums.entry(self.address(&device).unwrap_or_default()).or_default();
            sum.add(&used);
        }
        sums
    }

    /// The PCI function that a disk hangs on. The link of an NVMe disk with several paths names none: its paths do.
    pub fn address(&self, device: &Path) -> Option<String> {
        let link = fs::read_link(device).ok()?;
        if let Some(address) = pci_address(&link) {
            return Some(address);
        }
        // `nvme-subsys1` below `nvme-subsystem`.
        let is_one = |part: &&OsStr| {
            let number = part.to_str().and_then(|name| name.strip_prefix("nvme-subsys"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let subsystem = link.iter().find(is_one)?;
        let folder = self.root.join("sys/devices/virtual/nvme-subsystem").join(subsystem);
        let paths = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let addresses: BTreeSet<String> = paths.filter_map(|path| pci_address(&path)).collect();
        // Of several controllers none is the one.
        addresses.first().filter(|_| addresses.len() == 1).cloned()
    }
}

/// `8:16`.
fn is_number_of_a_device(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(':').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn lines_of_io_stat_are_added_up_by_pci_function() {
        let root = std::env::temp_dir().join(format!("numatop-disks-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let link = |number: &str, to: &str| {
            fs::create_dir_all(root.join("sys/dev/block")).unwrap();
            fs::create_dir_all(root.join("sys").join(to.trim_start_matches("../../"))).unwrap();
            symlink(to, root.join("sys/dev/block").join(number)).unwrap();
        };
        let sata = "../../devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block";
        link("8:0", &format!("{sata}/sda"));
        link("8:16", &format!("{sata}/sdb"));
        link("259:0", "../../devices/pci0000:80/0000:80:01.0/0000:81:00.0/nvme/nvme0/nvme0n1");
        link("259:1", "../../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1");
        let paths = root.join("sys/devices/virtual/nvme-subsystem/nvme-subsys1");
        symlink("../../../pci0000:80/0000:80:02.0/0000:82:00.0/nvme/nvme1", paths.join("nvme1")).unwrap();
        link("253:0", "../../devices/virtual/block/dm-0");
        fs::create_dir_all(root.join("sys/devices/virtual/block/dm-0/slaves/sda")).unwrap();
        link("43:0", "../../devices/virtual/block/nbd0");
        let found = Disks::new(&root).used(
            "8:0 rbytes=100 wbytes=20 rios=3 wios=4 dbytes=9 dios=9\n8:16 rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n\
             259:0 rbytes=5 wbytes=0 rios=5 wios=0\n259:1 rbytes=0 wbytes=6 rios=0 wios=6\n253:0 rbytes=100 wbytes=20 rios=3 wios=4\n\
             43:0 rbytes=7 wbytes=0 rios=7 wios=0\n7:0 rbytes=0 wbytes=0 rios=0 wios=0\n../../x rbytes=1\nrbytes=1\n8:32 rbytes=x",
        );
        let none = Disks::new(Path::new("/nonexistent")).used("8:0 rbytes=1 rios=1");
        fs::remove_dir_all(&root).unwrap();
        let of = |address: &str, bytes, requests| (address.to_owned(), DiskUse { bytes, requests });
        let expected =
            [of("0000:00:1f.2", 121, 8), of("0000:81:00.0", 5, 5), of("0000:82:00.0", 6, 6), of("", 7, 7)];
        assert_eq!(found, DisksUsed::from(expected));
        assert_eq!(none, DisksUsed::from([of("", 1, 1)]), "a disk that sysfs does not show");
    }
}
