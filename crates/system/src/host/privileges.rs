//! Privileges and limits of this process: capabilities, user, namespaces, from /proc/self; getrlimit(2).
//!
//! /proc/self/status has the same as capget(2), and a test can write one.

use std::path::Path;
use std::{fmt, fs};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Serialize, Serializer};

use super::fact::{self, Fact};

/// The capabilities that matter here, with their numbers of capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    SysPtrace = 19,
    SysAdmin = 21,
    SysResource = 24,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    const ALL: [Capability; 5] = [
        Capability::SysPtrace,
        Capability::SysAdmin,
        Capability::SysResource,
        Capability::Perfmon,
        Capability::Bpf,
    ];

    /// Without these no probe loads: BPF makes maps, PERFMON lets programs look into the kernel.
    pub const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::Perfmon];

    /// The capabilities that the setcap line gives. SYS_PTRACE is not needed to start; it opens what /proc keeps from
    /// other users (numa_maps and exe of their processes).
    pub const GRANTED: [Capability; 3] = [Capability::Bpf, Capability::Perfmon, Capability::SysPtrace];
}

impl fmt::Display for Capability {
    /// As capabilities(7) writes it: `CAP_BPF`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysResource => "CAP_SYS_RESOURCE",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        })
    }
}

/// A set of capabilities, as the bit mask of `CapEff:` and its like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapSet(pub u64);

impl CapSet {
    /// The capabilities of a process of root.
    pub const FULL: CapSet = CapSet(u64::MAX);

    /// Only these.
    pub fn of(capabilities: &[Capability]) -> CapSet {
        CapSet(capabilities.iter().fold(0, |bits, one| bits | 1 << *one as u32))
    }

    pub fn has(self, one: Capability) -> bool {
        self.0 & 1 << one as u32 != 0
    }

    /// Whether the kernel accepts this set for `one`: SYS_ADMIN includes BPF and PERFMON (`bpf_capable()` and
    /// `perfmon_capable()` in include/linux/capability.h).
    pub fn allows(self, one: Capability) -> bool {
        let covered = matches!(one, Capability::Bpf | Capability::Perfmon);
        self.has(one) || covered && self.has(Capability::SysAdmin)
    }

    /// The members of [`Capability::ALL`] that are in the set.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

impl Serialize for CapSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|one| one.to_string()))
    }
}

/// The privileges of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Privileges {
    /// Effective user id.
    pub uid: Fact<u32>,
    pub effective: Fact<CapSet>,
    /// The capabilities that a process started from here can ever get.
    pub bounding: Fact<CapSet>,
    /// File capabilities and set-user-id have no effect.
    pub no_new_privs: Fact<bool>,
    /// A seccomp filter decides which system calls are allowed.
    pub seccomp_filter: Fact<bool>,
    /// In the pid namespace of the host, not of a container.
    pub host_pid_namespace: Fact<bool>,
    /// In the user namespace of the host: only there do capabilities count for BPF and perf.
    pub host_user_namespace: Fact<bool>,
}

/// Inode numbers of the first namespaces: `PROC_PID_INIT_INO` and `PROC_USER_INIT_INO` of
/// include/linux/proc_ns.h, the same since 3.8.
pub(super) const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

const HOST_USER_NAMESPACE: &str = "user:[4026531837]";

/// `SECCOMP_MODE_FILTER` of include/uapi/linux/seccomp.h.
const SECCOMP_MODE_FILTER: u64 = 2;

impl Privileges {
    /// Reads `proc/self` below `root`.
    pub fn read(root: &Path) -> Privileges {
        let status = fact::text(root, "proc/self/status");
        let field = |name: &str, nth: usize, radix: u32| -> Result<u64, String> {
            let text = status.as_ref().map_err(Clone::clone)?;
            let word = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let word = word.and_then(|rest| rest.split_whitespace().nth(nth));
            word.and_then(|word| u64::from_str_radix(word, radix).ok())
                .ok_or_else(|| format!("/proc/self/status has no number after '{name}:'"))
        };
        Privileges {
            // Real, effective, saved, file system.
            uid: field("Uid", 1, 10).map(|uid| uid as u32).into(),
            effective: field("CapEff", 0, 16).map(CapSet).into(),
            bounding: field("CapBnd", 0, 16).map(CapSet).into(),
            no_new_privs: field("NoNewPrivs", 0, 10).map(|set| set != 0).into(),
            seccomp_filter: field("Seccomp", 0, 10).map(|mode| mode == SECCOMP_MODE_FILTER).into(),
            host_pid_namespace: namespace_is(root, "pid", HOST_PID_NAMESPACE),
            host_user_namespace: namespace_is(root, "user", HOST_USER_NAMESPACE),
        }
    }

    /// The needed capabilities that are known to be missing. Empty when nothing is known: then only trying
    /// shows it.
    pub fn lacking(&self) -> Vec<Capability> {
        let Some(effective) = self.effective.known() else { return Vec::new() };
        Capability::NEEDED.into_iter().filter(|one| !effective.allows(*one)).collect()
    }

    /// Whether root here can get the missing capabilities: not if the bounding set of a container lacks them.
    pub fn could_get(&self, wanted: &[Capability]) -> bool {
        self.bounding.known().is_none_or(|bounding| wanted.iter().all(|one| bounding.allows(*one)))
    }
}

fn namespace_is(root: &Path, kind: &str, first: &str) -> Fact<bool> {
    let link = root.join("proc/self/ns").join(kind);
    fs::read_link(&link)
        .map(|target| target.as_os_str() == first)
        .map_err(|error| format!("{}: {error}", link.display()))
        .into()
}

/// Files that this process may have open now; `None` without a limit.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the number of files that this process may have open to `needed`, as far as the hard limit allows.
/// Returns the new limit; `None` without one. The hard limit does not change: an administrator may have set
/// it on purpose.
pub fn raise_open_files(needed: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let current = Some(maximum.map_or(needed, |maximum| needed.min(maximum)));
        // A refusal, which only a filter of system calls can cause, leaves the limit as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
    open_files()
}

/// Bytes of address space that this process may have; `None` without a limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Processes and threads that the user of this process may have; `None` without a limit. Root is not bound by it.
pub fn threads() -> Option<u64> {
    getrlimit(Resource::Nproc).current
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn host(name: &str, status: &str, pid_ns: &str) -> Privileges {
        let root = std::env::temp_dir().join(format!("numatop-privileges-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("proc/self/ns")).unwrap();
        fs::write(root.join("proc/self/status"), status).unwrap();
        symlink(pid_ns, root.join("proc/self/ns/pid")).unwrap();
        let privileges = Privileges::read(&root);
        fs::remove_dir_all(&root).unwrap();
        privileges
    }

    #[test]
    fn root_in_a_default_container() {
        let privileges = host(
            "container",
            "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t0\nSeccomp:\t2\n",
            "pid:[4026532567]",
        );
        assert!(privileges.uid.is(&0) && privileges.seccomp_filter.is(&true));
        assert!(privileges.host_pid_namespace.is(&false));
        assert_eq!(privileges.lacking(), Capability::NEEDED);
        assert!(!privileges.could_get(&Capability::NEEDED));
        assert!(privileges.host_user_namespace.known().is_none(), "this host has no link for it");
    }

    #[test]
    fn a_user_with_one_capability_lacks_the_other() {
        let privileges = host(
            "one-cap",
            "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000008000000000\nCapBnd:\t000001ffffffffff\n",
            "pid:[4026531836]",
        );
        assert_eq!(privileges.lacking(), [Capability::Perfmon]);
        assert!(privileges.could_get(&[Capability::Perfmon]));
        assert!(privileges.host_pid_namespace.is(&true));
    }

    #[test]
    fn sys_admin_stands_in_for_both() {
        let set = CapSet::of(&[Capability::SysAdmin]);
        assert!(Capability::NEEDED.iter().all(|one| set.allows(*one)));
        assert!(!set.allows(Capability::SysPtrace));
    }

    #[test]
    fn what_cannot_be_read_lacks_nothing() {
        let privileges = Privileges::read(Path::new("/nonexistent"));
        assert_eq!(privileges.lacking(), []);
        assert!(matches!(privileges.effective, Fact::Unknown { unknown } if unknown.contains("os error 2")));
    }
}
