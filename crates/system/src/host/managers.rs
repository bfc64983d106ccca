//! Programs that manage the cgroups of a host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::model::sample::Managers;

/// The managers whose processes `proc` below `root` lists: those of the pid namespace that it was mounted in.
pub fn read(root: &Path) -> Managers {
    let proc = root.join("proc");
    let runs = |pid: &Path, name: &str| {
        fs::read_to_string(pid.join("comm")).is_ok_and(|comm| comm.trim_end_matches('\n') == name)
    };
    let user = |pid: &Path| fs::metadata(pid).ok().map(|meta| meta.uid());
    let system = user(&proc.join("1"));
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let mut processes = fs::read_dir(&proc).into_iter().flatten().flatten();
    Managers {
        systemd: runs(&proc.join("1"), "systemd"),
        // Anybody may call a process so: it has the user of process 1.
        kubelet: processes.any(|entry| {
            is_process(&entry.file_name()) && user(&entry.path()) == system && runs(&entry.path(), "kubelet")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_known_by_the_names_of_their_processes() {
        let root = std::env::temp_dir().join(format!("numatop-managers-{}", std::process::id()));
        let process = |pid: &str, comm: &str| {
            fs::create_dir_all(root.join("proc").join(pid)).unwrap();
            fs::write(root.join("proc").join(pid).join("comm"), comm).unwrap();
        };
        process("1", "init\n");
        process("self", "kubelet\n");
        process("77", "kubelet-bench\n");
        assert_eq!(read(&root), Managers::default());
        process("1", "systemd\n");
        process("812", "kubelet\n");
        assert_eq!(read(&root), Managers { systemd: true, kubelet: true });
        // Handing it over needs a privilege.
        if std::os::unix::fs::chown(root.join("proc/812"), Some(54_321), None).is_ok() {
            assert_eq!(read(&root), Managers { systemd: true, kubelet: false }, "a name that a user chose");
        }
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(read(&root), Managers::default());
    }
}
