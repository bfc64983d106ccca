//! Many cgroups, in every controller that a container has a cgroup in, and tasks spread over them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Controllers of cgroup v1 whose files numatop-ng reads.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "cpuset"];

/// Cgroups below one of our own in each hierarchy. Dropping this removes them all; the tasks in them must
/// have ended by then.
pub struct Groups {
    tops: Vec<PathBuf>,
    /// The number of cgroups now, called 0, 1, …
    count: usize,
}

impl Groups {
    /// Makes the parent of all others.
    ///
    /// # Errors
    /// No cgroup filesystem is mounted at the usual place, or no permission.
    pub fn create() -> Result<Groups> {
        let name = format!("numatop-bench-groups-{}", std::process::id());
        let mut groups = Groups { tops: Vec::new(), count: 0 };
        for mount in mounts() {
            let top = mount.join(&name);
            make(&top)?;
            groups.tops.push(top);
        }
        ensure!(!groups.tops.is_empty(), "no cgroup filesystem is mounted below /sys/fs/cgroup");
        Ok(groups)
    }

    /// The path of a group in the hierarchy that numatop-ng groups tasks by.
    pub fn path(&self, at: usize) -> PathBuf {
        self.tops[0].join(at.to_string())
    }

    /// Has `count` groups, and each of `tasks` in one of them.
    ///
    /// # Errors
    /// A cgroup could not be made or removed, or a process of `tasks` has ended.
    pub fn spread(&mut self, tasks: &[u32], count: usize) -> Result<()> {
        for at in self.count..count {
            self.tops.iter().try_for_each(|top| make(&top.join(at.to_string())))?;
        }
        self.count = self.count.max(count);
        for (i, pid) in tasks.iter().enumerate() {
            for top in &self.tops {
                let procs = top.join((i % count).to_string()).join("cgroup.procs");
                fs::write(&procs, pid.to_string())
                    .with_context(|| format!("moving {pid} by {}", procs.display()))?;
            }
        }
        for at in count..self.count {
            self.tops.iter().try_for_each(|top| remove(&top.join(at.to_string())))?;
        }
        self.count = count;
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for top in &self.tops {
            let children = (0..self.count).map(|at| top.join(at.to_string()));
            for dir in children.chain([top.clone()]) {
                if let Err(error) = remove(&dir) {
                    eprintln!("{error:#}");
                }
            }
        }
    }
}

/// Where v1 controllers are mounted, each hierarchy once, the one with memory first; or cgroup v2.
fn mounts() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut seen = BTreeSet::new();
    let v1 = CONTROLLERS.iter().map(|controller| root.join(controller)).filter(|mount| {
        let hierarchy = fs::metadata(mount).map(|meta| meta.dev());
        mount.join("cgroup.procs").exists() && hierarchy.is_ok_and(|device| seen.insert(device))
    });
    let mut mounts: Vec<PathBuf> = v1.collect();
    if mounts.is_empty() && root.join("cgroup.procs").exists() {
        mounts.push(root.to_owned());
    }
    mounts
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir(dir).with_context(|| format!("creating {}", dir.display()))?;
    // A new cpuset of v1 has no CPU, and takes no task before it has.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let above = dir.parent().map(|above| above.join(file));
        if let Some(Ok(all)) = above.map(fs::read_to_string)
            && fs::read_to_string(dir.join(file)).is_ok_and(|own| own.trim().is_empty())
        {
            fs::write(dir.join(file), all.trim()).with_context(|| format!("writing {file}"))?;
        }
    }
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    fs::remove_dir(dir).with_context(|| format!("removing {}", dir.display()))
}
