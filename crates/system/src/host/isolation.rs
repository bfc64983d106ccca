//! CPUs that the scheduler or the tick leave alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::cgroups::mounts;
use super::fact;
use super::roots::Roots;
use crate::model::topology::parse_cpulist;
use crate::model::units::CpuId;

const CPU: &str = "sys/devices/system/cpu";

/// CPUs of isolcpus, and of isolated partitions of cpusets (cgroup v2), ascending. The mounts are as our own root lists them.
pub fn isolated_cpus<'a>(roots: impl Into<Roots<'a>>) -> Vec<u32> {
    let roots = roots.into();
    let mut cpus: BTreeSet<u32> = list(roots.machine, "isolated").into_iter().collect();
    let v2 = mounts(roots).into_iter().find(|mount| mount.controllers.is_none());
    if let Some(mount) = v2 {
        match file(&mount.at, "cpuset.cpus.isolated") {
            Some(text) => cpus.extend(parse_cpulist(&text).unwrap_or_default()),
            // Linux 6.8 has that file. Partitions before that are below partitions only.
            None => add_partitions(&mount.at, &mut cpus),
        }
    }
    cpus.into_iter().collect()
}

/// CPUs of nohz_full, ascending. The kernel writes "(null)" where it has none.
pub fn nohz_full_cpus(root: &Path) -> Vec<u32> {
    list(root, "nohz_full")
}

/// CPUs that their users keep free of interrupts: all of these.
pub fn quiet_cpus(root: &Path) -> BTreeSet<CpuId> {
    isolated_cpus(root).into_iter().chain(nohz_full_cpus(root)).map(CpuId).collect()
}

fn list(root: &Path, name: &str) -> Vec<u32> {
    let text = fact::text(root, &format!("{CPU}/{name}")).unwrap_or_default();
    let cpus: BTreeSet<u32> = parse_cpulist(&text).unwrap_or_default().into_iter().collect();
    cpus.into_iter().collect()
}

/// Adds the CPUs of isolated partitions below a partition.
fn add_partitions(partition: &Path, cpus: &mut BTreeSet<u32>) {
    for entry in fs::read_dir(partition).into_iter().flatten().flatten() {
        match file(&entry.path(), "cpuset.cpus.partition").as_deref() {
            Some("root") => add_partitions(&entry.path(), cpus),
            Some("isolated") => {
                let text = file(&entry.path(), "cpuset.cpus.effective").unwrap_or_default();
                cpus.extend(parse_cpulist(&text).unwrap_or_default());
                add_partitions(&entry.path(), cpus);
            }
            _ => {}
        }
    }
}

fn file(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    /// A host with these files and a cgroup v2.
    fn host(name: &str, files: &[(&str, &str)]) -> Tree {
        let tree = Tree::with(&format!("isolation-{name}"), files.iter().copied());
        let mount = format!("30 25 0:26 / {}/cg rw - cgroup2 cgroup2 rw\n", tree.root().display());
        tree.write("proc/self/mountinfo", &mount);
        tree
    }

    #[test]
    fn cpus_of_the_command_line_and_of_partitions_are_isolated() {
        let host = host(
            "list",
            &[
                ("sys/devices/system/cpu/isolated", "2-3\n"),
                ("sys/devices/system/cpu/nohz_full", "3\n"),
                ("cg/cpuset.cpus.isolated", "3,6-7\n"),
            ],
        );
        assert_eq!(isolated_cpus(host.root()), [2, 3, 6, 7]);
        assert_eq!(nohz_full_cpus(host.root()), [3]);
    }

    #[test]
    fn partitions_of_older_kernels_are_looked_for_below_partitions() {
        let host = host(
            "tree",
            &[
                ("cg/a/cpuset.cpus.partition", "root\n"),
                ("cg/a/b/cpuset.cpus.partition", "isolated\n"),
                ("cg/a/b/cpuset.cpus.effective", "4-5\n"),
                ("cg/c/cpuset.cpus.partition", "member\n"),
                ("cg/c/d/cpuset.cpus.partition", "isolated\n"),
                ("cg/c/d/cpuset.cpus.effective", "6\n"),
                ("cg/e/cpuset.cpus.partition", "isolated invalid (Parent is not a partition root)\n"),
                ("cg/e/cpuset.cpus.effective", "7\n"),
            ],
        );
        assert_eq!(isolated_cpus(host.root()), [4, 5]);
    }

    #[test]
    fn a_host_without_any_has_none() {
        let host = host("none", &[("sys/devices/system/cpu/nohz_full", "  (null)\n")]);
        assert!(isolated_cpus(host.root()).is_empty() && nohz_full_cpus(host.root()).is_empty());
        assert!(isolated_cpus(Path::new("/nonexistent")).is_empty());
    }
}
