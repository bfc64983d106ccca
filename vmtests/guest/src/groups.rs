//! Cgroups of cases, removed at the end.

use std::fs;

use crate::cases::Stop;
use crate::sysfs;

const MOUNT: &str = "/sys/fs/cgroup";

/// Cgroups of version 2 with these controllers.
pub struct Groups(Vec<String>);

impl Groups {
    /// Makes the cgroups with these paths, which begin with a slash. The first is above all others and hands its controllers on:
    /// one that does has no processes itself.
    pub fn make(controllers: &[&str], paths: &[&str]) -> Result<Groups, Stop> {
        let enabled: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
        let enabled = enabled.join(" ");
        sysfs::write(format!("{MOUNT}/cgroup.subtree_control"), &enabled)?;
        let mut groups = Groups(Vec::new());
        for path in paths {
            fs::create_dir_all(file(path, "")).map_err(|error| format!("creating {path}: {error}"))?;
            groups.0.push((*path).to_owned());
            if paths.len() > 1 && *path == paths[0] {
                sysfs::write(file(path, "cgroup.subtree_control"), &enabled)?;
            }
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // Processes that still end keep one. A case to which it matters looks.
            let _ = fs::remove_dir(file(path, ""));
        }
    }
}

/// A file of a cgroup.
pub fn file(path: &str, name: &str) -> String {
    format!("{MOUNT}{path}/{name}")
}

/// The text of a file of a cgroup.
pub fn read(path: &str, name: &str) -> Result<String, String> {
    sysfs::read(file(path, name))
}

/// Writes a file of a cgroup.
pub fn write(path: &str, name: &str, text: &str) -> Result<(), String> {
    sysfs::write(file(path, name), text)
}
