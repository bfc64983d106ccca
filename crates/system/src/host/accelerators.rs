//! Device files of GPUs and other accelerators, the PCI functions behind them, and their nodes.
//!
//! Sources: Documentation/admin-guide/devices.txt, Documentation/gpu/drm-uapi.rst, Documentation/accel/introduction.rst and
//! Documentation/driver-api/vfio.rst of the kernel; the README of NVIDIA's driver for /proc/driver/nvidia.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::topology::pci_address;
use crate::model::accelerators::Accelerator;
use crate::model::units::NodeId;
use crate::text::clean_str;

/// Drivers with a fixed number: NVIDIA's, which shows nothing in sysfs, and those of DRM and of accelerators.
const NVIDIA: u32 = 195;
const DRM: u32 = 226;
const ACCEL: u32 = 261;

/// The first minor number of NVIDIA's driver that is no GPU.
const NVIDIA_OTHERS: u32 = 248;

/// Drivers whose number is chosen as they load, by name in /proc/devices.
const KFD: &str = "kfd";
const VFIO_GROUP: &str = "vfio";
const OTHERS: [&str; 2] = ["vfio-dev", "infiniband_verbs"];

/// Bits of a device number that are the driver's.
const MINOR_BITS: u32 = 20;

/// The accelerators of a machine by the kernel's device number.
#[derive(Debug, Default)]
pub struct Accelerators {
    found: BTreeMap<u32, Accelerator>,
    /// NVIDIA's driver is loaded, and has a GPU.
    has_nvidia: bool,
}

impl Accelerators {
    /// Reads `sys/` and `proc/` below `root`. Malformed files are left out; a node that is offline is not known.
    pub fn read(root: &Path, is_online: &dyn Fn(NodeId) -> bool) -> Accelerators {
        let place = DevicePlace { root, is_online };
        let mut all = Accelerators::default();
        let named = majors_by_name(&fs::read_to_string(root.join("proc/devices")).unwrap_or_default());
        let is = |major: u32, name: &str| named.get(&major).is_some_and(|known| known == name);
        for entry in fs::read_dir(root.join("sys/dev/char")).into_iter().flatten().flatten() {
            let number = entry.file_name();
            let Some((major, minor)) = number.to_str().and_then(numbers) else { continue };
            let is_other = [DRM, ACCEL].contains(&major) || OTHERS.iter().any(|name| is(major, name));
            if !is_other && !is(major, KFD) && !is(major, VFIO_GROUP) {
                continue;
            }
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            let Some(last) = link.file_name().and_then(|name| name.to_str()).map(clean_str) else { continue };
            let device = if is_other {
                let node = || place.node_in(&entry.path().join("device/numa_node"));
                place.device(last, pci_address(&link).into_iter().collect(), node)
            } else if is(major, VFIO_GROUP) {
                place.device(format!("vfio/{last}"), place.functions_of_group(&last), || None)
            } else {
                place.device(last, Vec::new(), || None)
            };
            all.found.insert(major << MINOR_BITS | minor, device);
        }
        all.add_nvidia(&place);
        all
    }

    /// GPUs by the minor number in their `information`. One that two of them claim is of an unknown GPU.
    fn add_nvidia(&mut self, place: &DevicePlace<'_>) {
        let folder = place.root.join("proc/driver/nvidia/gpus");
        let mut by_minor: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
            let Some(address) = pci_address(Path::new(&name)) else { continue };
            self.has_nvidia = true;
            let text = fs::read_to_string(entry.path().join("information")).unwrap_or_default();
            let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse().ok());
            if let Some(minor) = minor.filter(|minor| *minor < NVIDIA_OTHERS) {
                by_minor.entry(minor).or_default().push(address);
            }
        }
        for (minor, functions) in by_minor {
            let functions = if functions.len() == 1 { functions } else { Vec::new() };
            let device = place.device(format!("nvidia{minor}"), functions, || None);
            self.found.insert(NVIDIA << MINOR_BITS | minor, device);
        }
    }

    /// Drivers of these devices.
    pub fn majors(&self) -> BTreeSet<u32> {
        let found = self.found.keys().map(|number| number >> MINOR_BITS);
        found.chain(self.has_nvidia.then_some(NVIDIA)).collect()
    }

    /// The accelerator with this device number; `None` for other device files of its driver.
    pub fn device(&self, number: u32) -> Option<Accelerator> {
        let (major, minor) = (number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1));
        self.found.get(&number).cloned().or_else(|| {
            // A GPU whose `information` has no minor number.
            let is_gpu = self.has_nvidia && major == NVIDIA && minor < NVIDIA_OTHERS;
            let name = format!("nvidia{minor}");
            is_gpu.then(|| Accelerator { name, is_nodeless: true, ..Accelerator::default() })
        })
    }

    /// Number of device files with a known function.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && !self.has_nvidia
    }
}

/// The files of a machine, and its nodes.
struct DevicePlace<'a> {
    root: &'a Path,
    is_online: &'a dyn Fn(NodeId) -> bool,
}

impl DevicePlace<'_> {
    /// A device with these functions. `node` is that of one on another bus.
    fn device(
        &self,
        name: String,
        functions: Vec<String>,
        node: impl FnOnce() -> Option<NodeId>,
    ) -> Accelerator {
        let of = |address: &String| {
            self.node_in(&self.root.join("sys/bus/pci/devices").join(address).join("numa_node"))
        };
        let nodes: Vec<Option<NodeId>> =
            if functions.is_empty() { vec![node()] } else { functions.iter().map(of).collect() };
        let is_nodeless = nodes.contains(&None);
        let nodes: BTreeSet<NodeId> = nodes.into_iter().flatten().collect();
        Accelerator { name, functions, nodes: nodes.into_iter().collect(), is_nodeless }
    }

    /// The node that a file names, if it is online. -1 means that the firmware does not say it.
    fn node_in(&self, file: &Path) -> Option<NodeId> {
        let node = NodeId(fs::read_to_string(file).ok()?.trim().parse().ok()?);
        (self.is_online)(node).then_some(node)
    }

    /// PCI functions of an IOMMU group: `12`, or `noiommu-12`.
    fn functions_of_group(&self, name: &str) -> Vec<String> {
        let group = name.strip_prefix("noiommu-").unwrap_or(name);
        if group.is_empty() || !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return Vec::new();
        }
        let folder = self.root.join("sys/kernel/iommu_groups").join(group).join("devices");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let functions: BTreeSet<String> =
            entries.filter_map(|entry| pci_address(Path::new(&entry.file_name()))).collect();
        functions.into_iter().collect()
    }
}

/// `226:128`.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << MINOR_BITS).then_some((major, minor))
}

/// Drivers of character devices; those of block devices follow behind an empty line.
fn majors_by_name(text: &str) -> BTreeMap<u32, String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Character")).skip(1);
    let lines = lines.take_while(|line| !line.trim().is_empty());
    let line = |line: &str| {
        let (major, name) = line.trim().split_once(' ')?;
        Some((major.parse().ok()?, name.to_owned()))
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tree::Tree;

    /// A machine with nodes 0 to 3.
    fn read(tree: &Tree) -> Accelerators {
        Accelerators::read(tree.root(), &|node| node.0 < 4)
    }

    fn function(tree: &Tree, address: &str, node: &str) {
        tree.write(&format!("sys/bus/pci/devices/{address}/numa_node"), &format!("{node}\n"));
    }

    fn char_device(tree: &Tree, number: &str, link: &str) {
        let folder = tree.root().join("sys/dev/char");
        fs::create_dir_all(&folder).unwrap();
        symlink(format!("../../devices/{link}"), folder.join(number)).unwrap();
    }

    fn number(major: u32, minor: u32) -> u32 {
        major << MINOR_BITS | minor
    }

    /// Name, functions and nodes, with `?` for one that is not known.
    fn shown(device: Option<Accelerator>) -> String {
        let Some(device) = device else { return "none".into() };
        let nodes = device.nodes.iter().map(|node| node.to_string());
        let nodes: Vec<String> = nodes.chain(device.is_nodeless.then(|| "?".into())).collect();
        format!("{} {} {}", device.name, device.functions.join("+"), nodes.join(","))
    }

    #[test]
    fn gpus_of_nvidia_have_the_node_of_their_function() {
        let tree = Tree::new("nvidia");
        for minor in 0..8u32 {
            let address = format!("0000:{:02x}:00.0", 0x1b + minor * 0x10);
            function(&tree, &address, if minor < 4 { "0" } else { "1" });
            let text = format!("Model: \t\t Tesla\nIRQ:   \t\t 42\nDevice Minor: \t {minor}\n");
            tree.write(&format!("proc/driver/nvidia/gpus/{}/information", address.to_uppercase()), &text);
        }
        let all = read(&tree);
        assert_eq!(all.majors(), [NVIDIA].into());
        assert_eq!(shown(all.device(number(NVIDIA, 3))), "nvidia3 0000:4b:00.0 0");
        assert_eq!(shown(all.device(number(NVIDIA, 7))), "nvidia7 0000:8b:00.0 1");
        // nvidia-modeset and nvidiactl.
        assert_eq!(all.device(number(NVIDIA, 254)), None);
        assert_eq!(all.device(number(NVIDIA, 255)), None);
        assert_eq!(all.device(number(DRM, 0)), None);
    }

    #[test]
    fn gpus_of_nvidia_without_a_clear_number_are_on_an_unknown_node() {
        let tree = Tree::new("nvidia-odd");
        let of = |address: &str, lines: &str| {
            function(&tree, address, "1");
            tree.write(&format!("proc/driver/nvidia/gpus/{address}/information"), lines);
        };
        of("0000:1b:00.0", "Model: Tesla\n");
        of("0000:2b:00.0", "Device Minor: \t 1\n");
        of("0000:3b:00.0", "Device Minor: \t 1\n");
        of("0000:4b:00.0", "Device Minor: \t 255\n");
        of("0000:5b:00.0", "Device Minor: \t 18446744073709551616\n");
        of("0000:6b:00.0", "Device Minor: \t 2\n");
        tree.write("proc/driver/nvidia/gpus/README", "");
        let all = read(&tree);
        assert_eq!(shown(all.device(number(NVIDIA, 0))), "nvidia0  ?");
        assert_eq!(shown(all.device(number(NVIDIA, 1))), "nvidia1  ?");
        assert_eq!(shown(all.device(number(NVIDIA, 2))), "nvidia2 0000:6b:00.0 1");
        assert_eq!(all.device(number(NVIDIA, 255)), None);
    }

    #[test]
    fn other_devices_are_found_in_sysfs() {
        let tree = Tree::new("accelerators");
        let devices = "Character devices:\n  1 mem\n226 drm\n231 infiniband_verbs\n240 kfd\n241 vfio\n242 vfio-dev\n\n\
                       Block devices:\n  7 loop\n  1 kfd\n";
        tree.write("proc/devices", devices);
        for (address, node) in
            [("0000:03:00.0", "1"), ("0000:81:00.0", "-1"), ("0000:82:00.0", "9"), ("0000:83:00.0", "2")]
        {
            function(&tree, address, node);
        }
        char_device(&tree, "226:128", "pci0000:00/0000:00:01.0/0000:03:00.0/virtio3/drm/renderD128");
        char_device(&tree, "226:0", "platform/gpu/drm/card0");
        char_device(&tree, "261:0", "pci0000:80/0000:81:00.0/accel/accel0");
        char_device(&tree, "231:192", "pci0000:80/0000:82:00.0/infiniband_verbs/uverbs0");
        char_device(&tree, "240:0", "virtual/kfd/kfd");
        char_device(&tree, "241:0", "virtual/vfio/12");
        char_device(&tree, "241:1", "virtual/vfio/noiommu-13");
        char_device(&tree, "242:4", "pci0000:80/0000:83:00.0/vfio-dev/vfio4");
        char_device(&tree, "1:3", "virtual/mem/null");
        char_device(&tree, "226", "virtual/drm/card9");
        for address in ["0000:03:00.0", "0000:83:00.0"] {
            tree.write(&format!("sys/kernel/iommu_groups/12/devices/{address}/vendor"), "");
        }
        let all = read(&tree);
        assert_eq!(all.majors(), [226, 231, 240, 241, 242, 261].into());
        let found: Vec<String> = all.found.values().map(|device| shown(Some(device.clone()))).collect();
        assert_eq!(
            found,
            [
                "card0  ?",
                "renderD128 0000:03:00.0 1",
                "uverbs0 0000:82:00.0 ?",
                "kfd  ?",
                "vfio/12 0000:03:00.0+0000:83:00.0 1,2",
                "vfio/noiommu-13  ?",
                "vfio4 0000:83:00.0 2",
                "accel0 0000:81:00.0 ?",
            ]
        );
    }

    #[test]
    fn a_machine_without_any_has_no_driver() {
        let tree = Tree::new("no-accelerators");
        tree.write("proc/devices", "Character devices:\n226 drm\n");
        let all = read(&tree);
        assert!(all.is_empty() && all.majors().is_empty());
    }
}
