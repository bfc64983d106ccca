//! Use of L3 caches and of memory bandwidth: the monitors of the CPU, in a mounted resctrl.
//!
//! Source: Documentation/filesystems/resctrl.rst of the kernel. Groups belong to others: files are read, and nothing is mounted,
//! written or moved. Not verified on hardware.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Now, Part};
use crate::model::sample::{HostFacts, Missing, Reading};
use crate::model::topology::Llc;
use crate::model::turns::{CacheId, CacheUse};
use crate::model::units::NodeId;
use crate::program::served;

/// Files that are read for one sample: each reading interrupts a CPU of the domain.
const FILES_MAX: usize = 256;

/// A longer content is no number: 20 digits and a line end are the most.
const CONTENT_MAX: u64 = 64;

/// Files of a domain in a group, in the order of [`Values`].
const FILES: [&str; 3] = ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"];

/// Values of the files of [`FILES`]: bytes, and bytes per second twice.
type Values = [Reading<u64>; 3];

/// A reading of a file: when, CLOCK_MONOTONIC ns, and the number.
type Counted = (u64, u64);

/// The resctrl file system that is mounted, and what was read of it.
#[derive(Default)]
pub(super) struct Monitors {
    place: Option<Place>,
    /// Groups by their folders.
    groups: BTreeMap<PathBuf, Group>,
    /// By group and domain.
    parts: BTreeMap<(PathBuf, CacheId), Watched>,
    /// The part after which the next sample begins.
    after: Option<(PathBuf, CacheId)>,
}

/// Where the files are.
struct Place {
    mount: PathBuf,
    /// The lowest CPU of the L3 domains by cache id; the reason why a domain has none.
    domains: BTreeMap<u32, Result<u32, Missing>>,
    /// Domains, and their parts on a node, whose CPUs are all isolated or without a tick: reading interrupts one of them.
    spared: BTreeSet<(u32, Option<NodeId>)>,
}

/// A control group. Its files count for its monitoring groups, too: the sums change by what one brings or takes along.
#[derive(PartialEq, Eq)]
struct Group {
    /// The number of its folder: a group of the same name that is made again has another one.
    inode: u64,
    /// The same of its monitoring groups.
    monitoring: BTreeSet<u64>,
}

/// A domain in a group.
struct Watched {
    dir: PathBuf,
    before: [Option<Counted>; 3],
    /// Why there is no reading before.
    no_base: Missing,
    values: Values,
}

impl Part for Monitors {
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
        // The part may be missing from here on, and its last values with it.
        now.inputs.cache_use = Arc::default();
        if self.place.is_none() {
            self.place = Some(Place::find(now.root, now.host)?);
        }
        let Some(place) = &self.place else { return Ok(()) };
        let groups = groups(&place.mount)?;
        let mut found: BTreeMap<(PathBuf, CacheId), PathBuf> = BTreeMap::new();
        for group in groups.keys() {
            for (id, dir) in place.parts(group)? {
                found.insert((group.clone(), id), dir);
            }
        }
        self.parts.retain(|key, _| found.contains_key(key));
        let gone = self.groups.keys().any(|group| !groups.contains_key(group));
        for (key, dir) in found {
            let (before, group) = (self.groups.get(&key.0), &groups[&key.0]);
            let part = self.parts.entry(key).or_insert_with(|| Watched::new(dir));
            if before.is_some_and(|before| before != group) {
                part.begin_again(Missing::Lost("a monitoring group of resctrl came or went".into()));
            }
        }
        self.groups = groups;
        self.follow(now.mono_ns);
        now.inputs.cache_use = Arc::new(self.sums(gone));
        Ok(())
    }

    fn begin_again(&mut self) {
        *self = Monitors::default();
    }
}

impl Monitors {
    /// Reads as many parts as the limit allows. The next sample continues after the last of them.
    fn follow(&mut self, mono_ns: u64) {
        let later = self.parts.keys().filter(|key| self.after.as_ref().is_none_or(|after| *key > after));
        let first = self.parts.keys().filter(|key| self.after.as_ref().is_some_and(|after| *key <= after));
        let due: Vec<_> = later.chain(first).take(FILES_MAX / FILES.len()).cloned().collect();
        for key in &due {
            if let Some(part) = self.parts.get_mut(key) {
                part.read(mono_ns);
            }
        }
        self.after = due.into_iter().next_back();
    }

    /// The sums over all groups. After a group ended, what it had counted since its last reading is unknown.
    fn sums(&self, gone: bool) -> BTreeMap<CacheId, Arc<CacheUse>> {
        let mut sums: BTreeMap<CacheId, Values> = BTreeMap::new();
        for ((_, id), part) in &self.parts {
            let sum = sums.entry(*id).or_insert([Ok(0), Ok(0), Ok(0)]);
            for (sum, value) in sum.iter_mut().zip(&part.values) {
                *sum = added(sum, value);
            }
        }
        let whole = |rate: Reading<u64>| match gone {
            true => Err(Missing::Lost("a resctrl group was removed".into())),
            false => rate,
        };
        let made = |(id, [occupancy_bytes, total, local]): (CacheId, Values)| {
            let made = CacheUse {
                occupancy_bytes,
                total_bytes_per_s: whole(total),
                local_bytes_per_s: whole(local),
            };
            (id, Arc::new(made))
        };
        sums.into_iter().map(made).collect()
    }
}

/// The first reason that a part is missing is the reason of the sum.
fn added(sum: &Reading<u64>, value: &Reading<u64>) -> Reading<u64> {
    let (sum, value) = (sum.as_ref().map_err(Clone::clone)?, value.as_ref().map_err(Clone::clone)?);
    sum.checked_add(*value).ok_or_else(|| Missing::Lost("the sum exceeds 64 bits".into()))
}

impl Place {
    fn find(root: &Path, host: &HostFacts) -> Result<Place, Missing> {
        let (mount, quiet) = (usable(root)?, host.quiet_cpus());
        let llcs = host.topology.llcs.iter().filter(|llc| llc.level == Some(3));
        let (mut domains, mut spared) = (BTreeMap::new(), BTreeSet::new());
        for llc in llcs {
            let Some(first) = llc.cpus.first().map(|cpu| cpu.0) else { continue };
            let ids = cache_ids(root, llc);
            let agree = ids.len() == 1 && !ids.iter().any(|id| domains.contains_key(id));
            for id in ids {
                let why = || Missing::Unsupported("CPUs report conflicting ids of L3 caches".into());
                domains.insert(id, agree.then_some(first).ok_or_else(why));
            }
            let nodes = llc.cpus.iter().filter_map(|cpu| host.node_of(cpu.0)).map(Some);
            let is_quiet = |node: &Option<NodeId>| {
                let mut here = llc.cpus.iter().filter(|cpu| node.is_none() || host.node_of(cpu.0) == *node);
                here.all(|cpu| quiet.contains(cpu))
            };
            spared.extend(nodes.chain([None]).filter(is_quiet).map(|node| (first, node)));
        }
        Ok(Place { mount, domains, spared })
    }

    /// The domains that a group has files for, and their folders.
    fn parts(&self, group: &Path) -> Result<Vec<(CacheId, PathBuf)>, Missing> {
        let mut parts = Vec::new();
        // A group that has just been removed has none.
        for (name, dir) in folders(&group.join("mon_data")).unwrap_or_default() {
            let id = name.strip_prefix("mon_L3_").and_then(|id| id.parse::<u32>().ok());
            let Some(first) = id.and_then(|id| self.domains.get(&id)) else { continue };
            let first = first.clone()?;
            let inside = folders(&dir).unwrap_or_default().into_iter().filter_map(|(name, of_node)| {
                let node = name.strip_prefix("mon_sub_L3_")?.parse().ok()?;
                Some((Some(NodeId(node)), of_node))
            });
            for (node, dir) in inside.chain([(None, dir.clone())]) {
                if !self.spared.contains(&(first, None)) && !self.spared.contains(&(first, node)) {
                    parts.push((CacheId { cpu: first, node }, dir));
                }
            }
        }
        Ok(parts)
    }
}

/// The mount of the machine below `root`, with monitors. A container that has `root` from its host sees the mount there.
///
/// # Errors
/// There is none, or it has no monitors.
pub fn usable(root: &Path) -> Result<PathBuf, Missing> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mounts = served::mounts(&mounts).into_iter().filter(|mount| mount.kind == "resctrl");
    let mounts: Vec<PathBuf> = mounts.map(|mount| mount.at).collect();
    let below = mounts.iter().find(|mount| mount.starts_with(root)).cloned();
    let mount = below.or_else(|| mounts.first().map(|at| root.join(at.strip_prefix("/").unwrap_or(at))));
    let mount = mount.ok_or_else(|| Missing::NotCollected("no resctrl file system is mounted".into()))?;
    if mount.join("info/L3_MON").is_dir() {
        return Ok(mount);
    }
    Err(Missing::Unsupported(format!(
        "{} has no monitors: the CPU does not count by L3 cache",
        mount.display()
    )))
}

/// The ids of a cache by its CPUs: one, unless they disagree.
fn cache_ids(root: &Path, llc: &Llc) -> BTreeSet<u32> {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let of_cpu = |cpu: u32| {
        let caches = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
        let indices = (0..8).map(|index| caches.join(format!("index{index}")));
        let level3 = indices.into_iter().find(|index| number(index.join("level")) == Some(3))?;
        number(level3.join("id"))
    };
    llc.cpus.iter().filter_map(|cpu| of_cpu(cpu.0)).collect()
}

/// The control groups: the root, and folders beside those with fixed names.
fn groups(mount: &Path) -> Result<BTreeMap<PathBuf, Group>, Missing> {
    let inside =
        folders(mount).map_err(|why| Missing::NotPermitted(format!("reading {}: {why}", mount.display())))?;
    let fixed = ["info", "mon_groups", "mon_data"];
    let others = inside.into_iter().filter(|(name, _)| !fixed.contains(&name.as_str()));
    let inode = |dir: &Path| fs::metadata(dir).map(|found| found.ino());
    let group = |dir: PathBuf| {
        let monitoring = folders(&dir.join("mon_groups")).unwrap_or_default();
        let monitoring = monitoring.into_iter().filter_map(|(_, dir)| inode(&dir).ok()).collect();
        // A group that has just been removed has none.
        Some((dir.clone(), Group { inode: inode(&dir).ok()?, monitoring }))
    };
    Ok(std::iter::once(mount.to_owned()).chain(others.map(|(_, dir)| dir)).filter_map(group).collect())
}

fn folders(dir: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

impl Watched {
    fn new(dir: PathBuf) -> Watched {
        let none = || Err(Missing::FirstInterval);
        Watched { dir, before: [None; 3], no_base: Missing::FirstInterval, values: [none(), none(), none()] }
    }

    /// Drops the bases of its rates.
    fn begin_again(&mut self, why: Missing) {
        let lost = || Err(why.clone());
        self.values = [self.values[0].clone(), lost(), lost()];
        (self.before, self.no_base) = ([None; 3], why);
    }

    fn read(&mut self, mono_ns: u64) {
        for ((file, before), value) in FILES.iter().zip(&mut self.before).zip(&mut self.values) {
            let number = number(&self.dir.join(file));
            *value = match (*file, &number, *before) {
                (_, Err(why), _) => Err(why.clone()),
                ("llc_occupancy", Ok(bytes), _) => Ok(*bytes),
                (_, Ok(bytes), Some(before)) => rate((mono_ns, *bytes), before),
                (_, Ok(_), None) => Err(self.no_base.clone()),
            };
            // After an error the next number is the base of the interval that follows.
            *before = number.ok().map(|number| (mono_ns, number));
        }
    }
}

/// Bytes per second. The kernel extends the counters of the hardware to 64 bits: a smaller number is no wrap.
fn rate(now: Counted, before: Counted) -> Reading<u64> {
    let lost = || Missing::Lost("the counter was reset".into());
    let bytes = now.1.checked_sub(before.1).ok_or_else(lost)?;
    let over_ns = now.0.checked_sub(before.0).filter(|over| *over > 0).ok_or(Missing::FirstInterval)?;
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(over_ns)).map_err(|_| lost())
}

/// The number in a file.
fn number(path: &Path) -> Reading<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(CONTENT_MAX).read_to_string(&mut text));
    match read {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            return Err(Missing::Unsupported(format!("resctrl has no {name} here")));
        }
        Err(why) => return Err(Missing::Lost(format!("reading {name} of resctrl: {why}"))),
        Ok(_) => {}
    }
    match text.trim() {
        word @ ("Unavailable" | "Error" | "Unassigned") => {
            Err(Missing::NotCollected(format!("resctrl reports '{word}' for {name}")))
        }
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| Missing::Unsupported(format!("{name} of resctrl is not a number")))
        }
        _ => Err(Missing::Unsupported(format!("{name} of resctrl is not a number"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::turns::tests::{read, read_at};
    use crate::model::demo;
    use crate::model::inputs::Inputs;
    use crate::tree::Tree;

    const MOUNT: &str = "sys/fs/resctrl";

    /// The demo machine, with the ids of its first two L3 caches.
    fn machine(name: &str) -> (Tree, Arc<HostFacts>) {
        let tree = Tree::new(name);
        let host = Arc::new(demo::facts());
        tree.write(
            "proc/self/mountinfo",
            "22 1 0:20 / /sys rw - sysfs sysfs rw\n30 22 0:28 / /sys/fs/resctrl rw - resctrl resctrl rw\n",
        );
        for (id, llc) in host.topology.llcs.iter().take(2).enumerate() {
            for cpu in &llc.cpus {
                let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache/index3");
                tree.write(&format!("{cache}/level"), "3\n");
                tree.write(&format!("{cache}/id"), &format!("{id}\n"));
            }
        }
        tree.write(&format!("{MOUNT}/info/L3_MON/mon_features"), "llc_occupancy\n");
        (tree, host)
    }

    fn write(tree: &Tree, domain: &str, values: [&str; 3]) {
        for (file, value) in FILES.iter().zip(values) {
            tree.write(&format!("{MOUNT}/{domain}/{file}"), value);
        }
    }

    fn first(inputs: &Inputs) -> Vec<String> {
        let id = CacheId { cpu: 0, node: None };
        let domain = &inputs.cache_use[&id];
        let text =
            |value: &Reading<u64>| value.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        [&domain.occupancy_bytes, &domain.total_bytes_per_s, &domain.local_bytes_per_s].map(text).into()
    }

    #[test]
    fn groups_are_added_up_and_rates_are_between_readings() {
        let (tree, mut host) = machine("resctrl-sums");
        let mut monitors = Monitors::default();
        let mut at = |tree: &Tree, second: u64| {
            first(&read_at(&mut monitors, tree, &mut host, second * 1_000_000_000).unwrap().0)
        };
        write(&tree, "mon_data/mon_L3_00", ["1000\n", "5000\n", "4000\n"]);
        write(&tree, "web/mon_data/mon_L3_00", ["200\n", "100\n", "100\n"]);
        // Included in its group.
        write(&tree, "web/mon_groups/a/mon_data/mon_L3_00", ["100\n", "50\n", "50\n"]);
        assert_eq!(at(&tree, 1), ["1200", "a full interval is needed", "a full interval is needed"]);
        write(&tree, "mon_data/mon_L3_00", ["1000\n", "9000\n", "6000\n"]);
        write(&tree, "web/mon_data/mon_L3_00", ["300\n", "1100\n", "300\n"]);
        assert_eq!(at(&tree, 3), ["1300", "2500", "1100"]);
        // The counter of a group was reset, then counts on.
        write(&tree, "web/mon_data/mon_L3_00", ["300\n", "10\n", "500\n"]);
        assert_eq!(at(&tree, 4), ["1300", "the counter was reset", "200"]);
        write(&tree, "web/mon_data/mon_L3_00", ["300\n", "20\n", "500\n"]);
        assert_eq!(at(&tree, 5), ["1300", "10", "0"]);
        std::fs::remove_dir_all(tree.root().join(MOUNT).join("web/mon_groups/a")).unwrap();
        write(&tree, "web/mon_data/mon_L3_00", ["300\n", "900\n", "900\n"]);
        let moved = "a monitoring group of resctrl came or went";
        assert_eq!(at(&tree, 6), ["1300", moved, moved]);
        assert_eq!(at(&tree, 7), ["1300", "0", "0"]);
        std::fs::remove_dir_all(tree.root().join(MOUNT).join("web")).unwrap();
        let gone = "a resctrl group was removed";
        assert_eq!(at(&tree, 8), ["1000", gone, gone]);
        assert_eq!(at(&tree, 9), ["1000", "0", "0"]);
    }

    #[test]
    fn each_content_that_is_no_number_has_its_reason() {
        let (tree, _) = machine("resctrl-words");
        for (content, why) in [
            ("Unavailable\n", "resctrl reports 'Unavailable' for llc_occupancy"),
            ("Error\n", "resctrl reports 'Error' for llc_occupancy"),
            ("Unassigned\n", "resctrl reports 'Unassigned' for llc_occupancy"),
            ("", "llc_occupancy of resctrl is not a number"),
            ("-1\n", "llc_occupancy of resctrl is not a number"),
            ("123456789012345678901\n", "llc_occupancy of resctrl is not a number"),
            ("12 34\n", "llc_occupancy of resctrl is not a number"),
            ("18446744073709551615\n", "18446744073709551615"),
        ] {
            write(&tree, "mon_data/mon_L3_00", [content, "1\n", "1\n"]);
            assert_eq!(first(&read(&mut Monitors::default(), &tree).unwrap().0)[0], why, "{content:?}");
        }
        std::fs::remove_file(tree.root().join(MOUNT).join("mon_data/mon_L3_00/mbm_local_bytes")).unwrap();
        let values = first(&read(&mut Monitors::default(), &tree).unwrap().0);
        assert_eq!(values[2], "resctrl has no mbm_local_bytes here");
    }

    #[test]
    fn parts_of_nodes_and_isolated_domains() {
        let (tree, mut host) = machine("resctrl-snc");
        write(&tree, "mon_data/mon_L3_00", ["30\n", "0\n", "0\n"]);
        write(&tree, "mon_data/mon_L3_00/mon_sub_L3_00", ["10\n", "0\n", "0\n"]);
        write(&tree, "mon_data/mon_L3_00/mon_sub_L3_01", ["20\n", "0\n", "0\n"]);
        write(&tree, "mon_data/mon_L3_01", ["40\n", "0\n", "0\n"]);
        write(&tree, "mon_data/mon_L3_77", ["50\n", "0\n", "0\n"]);
        Arc::make_mut(&mut host).nohz_full_cpus =
            host.topology.llcs[1].cpus.iter().map(|cpu| cpu.0).collect();
        let (inputs, _) = read_at(&mut Monitors::default(), &tree, &mut host, 1).unwrap();
        let found: Vec<_> = inputs
            .cache_use
            .iter()
            .map(|(id, domain)| (id.cpu, id.node.map(|node| node.0), domain.occupancy_bytes.clone()))
            .collect();
        assert_eq!(found, [(0, None, Ok(30)), (0, Some(0), Ok(10)), (0, Some(1), Ok(20))]);
    }

    #[test]
    fn many_groups_are_read_in_turns() {
        let (tree, mut host) = machine("resctrl-turns");
        let group = |nth: u32, bytes: &str| {
            write(&tree, &format!("g{nth}/mon_data/mon_L3_00"), ["1\n", bytes, bytes]);
        };
        (0..300).for_each(|nth| group(nth, "0\n"));
        let mut monitors = Monitors::default();
        let mut at =
            |second: u64| first(&read_at(&mut monitors, &tree, &mut host, second * 1_000_000_000).unwrap().0);
        // 85 groups a sample: all of them after four samples, all of them twice after eight.
        assert_eq!((1..4).map(&mut at).filter(|values| values[0] == "300").count(), 0);
        assert_eq!(at(4)[0], "300");
        (0..300).for_each(|nth| group(nth, "400\n"));
        for second in 5..8 {
            assert_eq!(at(second)[1], "a full interval is needed");
        }
        // 140 groups counted 400 bytes in 4 s, and 120 groups in 3 s. 40 groups were read a second time and had counted nothing.
        assert_eq!(at(8)[1..], ["29960", "29960"]);
    }

    #[test]
    fn without_a_mount_or_with_ids_that_disagree_it_is_missing() {
        let (tree, mut host) = machine("resctrl-none");
        write(&tree, "mon_data/mon_L3_00", ["1\n", "1\n", "1\n"]);
        let other = host.topology.llcs[0].cpus[1];
        tree.write(&format!("sys/devices/system/cpu/cpu{other}/cache/index3/id"), "9\n");
        let why = read_at(&mut Monitors::default(), &tree, &mut host, 1).unwrap_err().to_string();
        assert_eq!(why, "CPUs report conflicting ids of L3 caches");
        tree.write("proc/self/mountinfo", "22 1 0:20 / /sys rw - sysfs sysfs rw\n");
        let why = read_at(&mut Monitors::default(), &tree, &mut host, 1).unwrap_err().to_string();
        assert!(why.contains("no resctrl file system is mounted"), "{why}");
        let below = tree.root().join(MOUNT);
        tree.write(
            "proc/self/mountinfo",
            &format!("9 1 0:2 / {} rw - resctrl resctrl rw\n", below.display()),
        );
        assert_eq!(usable(tree.root()), Ok(below.clone()), "a container sees the mount of its host there");
        std::fs::remove_dir_all(below.join("info")).unwrap();
        let why = usable(tree.root()).unwrap_err().to_string();
        assert!(why.contains("has no monitors"), "{why}");
    }
}
