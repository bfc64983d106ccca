//! Files of other processes: the root whose `/proc` uses the same ids as the kernel's programs, and the
//! process of a task id.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::privileges::{HOST_PID_NAMESPACE, Privileges};

/// The file system type of procfs (statfs(2)).
const PROCFS: u32 = 0x9fa0;

/// The variable that hands [`root`] to our own helper processes.
const VARIABLE: &str = "NUMATOP_NG_PROCESSES";

/// Another root, below which `proc` is the machine's.
struct Led {
    root: PathBuf,
    /// The place of ids of our pid namespace in a line NSpid there.
    level: usize,
}

static LED: OnceLock<Option<Led>> = OnceLock::new();

fn led() -> Option<&'static Led> {
    LED.get_or_init(|| Led::to(Path::new(&env::var_os(VARIABLE)?))).as_ref()
}

/// Has files of processes read below `host` if our own `/proc` uses other ids. This is so in a container that
/// has a separate pid namespace and mounts the machine's `/proc`. A copy of `/proc`, or one of another
/// namespace, changes nothing. The first call decides.
pub fn lead(host: Option<&Path>) {
    LED.get_or_init(|| Led::to(host?));
}

/// The root below which `proc/ID` is the process that the kernel's programs call ID: `/`, or that of [`lead`].
pub fn root() -> &'static Path {
    led().map_or(Path::new("/"), |led| &led.root)
}

/// The environment in which our helper processes have the same [`root`].
pub fn environment() -> Option<(&'static str, OsString)> {
    led().map(|led| (VARIABLE, led.root.clone().into_os_string()))
}

/// The id by which system calls of ours know the process with this id below `root`. Look afterwards whether it is still the same
/// process. `None`: it has ended, or is outside of our pid namespace.
pub fn own_id(root: &Path, id: u32) -> Option<u32> {
    match led().filter(|led| led.root == root) {
        None => Some(id),
        Some(led) => ids(root, &id.to_string())?.get(led.level).copied(),
    }
}

/// Why no process has this id: it has ended, or `/proc` lists it by another id.
pub fn gone(id: u32) -> String {
    static ELSEWHERE: OnceLock<bool> = OnceLock::new();
    match *ELSEWHERE.get_or_init(|| led().is_none() && is_elsewhere()) {
        true => format!(
            "process {id} has a different id in this /proc, which belongs to another pid namespace: give the \
             host's files with --host-root"
        ),
        false => format!("process {id} has ended"),
    }
}

/// Whether we are in a pid namespace other than the machine's.
fn is_elsewhere() -> bool {
    Privileges::read(Path::new("/")).host_pid_namespace.is(&false)
}

/// Ids of a process, in the pid namespace of `proc` below `root` first and in its own last.
fn ids(root: &Path, process: &str) -> Option<Vec<u32>> {
    let status = fs::read_to_string(root.join("proc").join(process).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().map(|id| id.parse().ok()).collect()
}

impl Led {
    fn to(host: &Path) -> Option<Led> {
        let proc = host.join("proc");
        let is_live = || rustix::fs::statfs(&proc).is_ok_and(|found| found.f_type as u32 == PROCFS);
        // No other procfs shows a process that is in the first namespace. Its process 1 may be none that we may look at, kthreadd is.
        let is_in_first = |process: &str| {
            let namespace = fs::read_link(proc.join(process).join("ns/pid"));
            namespace.is_ok_and(|namespace| namespace.as_os_str() == HOST_PID_NAMESPACE)
        };
        if !is_elsewhere() || !is_live() || !["1", "2"].into_iter().any(is_in_first) {
            return None;
        }
        let level = ids(host, "self")?.len().checked_sub(1)?;
        Some(Led { root: host.to_owned(), level })
    }
}

/// The process (thread group) of the task with this id, from `proc/ID/status` below `root`; `None` if no such
/// task exists. Ids of threads have a directory too, which listing `/proc` does not show (proc(5)).
///
/// # Errors
/// The file cannot be read for another reason, or does not say.
pub fn process_of(root: &Path, id: u32) -> io::Result<Option<u32>> {
    let text = match fs::read_to_string(root.join(format!("proc/{id}/status"))) {
        Ok(text) => text,
        // ESRCH: it ended between being opened and being read.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            // Where /proc is mounted with hidepid, a process may exist without being visible.
            return if root == Path::new("/") && led().is_none() && answers(id) {
                Err(hidden())
            } else {
                Ok(None)
            };
        }
        Err(error) => return Err(error),
    };
    let process = text.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its status file has no Tgid"))
}

/// Whether the kernel knows a process or thread of this id, visible to us or not (kill(2) with signal 0).
fn answers(id: u32) -> bool {
    let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return false };
    matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM))
}

fn hidden() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "/proc hides the process (mounted with hidepid)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let root = Path::new("/");
        assert_eq!(process_of(root, own).unwrap(), Some(std::process::id()));
        assert_eq!(process_of(root, u32::MAX).unwrap(), None);
    }

    #[test]
    fn our_own_proc_has_processes_where_its_ids_are_the_machines() {
        for copy in [env::temp_dir(), PathBuf::from("/nonexistent")] {
            assert!(Led::to(&copy).is_none(), "no live /proc");
        }
        assert!(is_elsewhere() || Led::to(Path::new("/")).is_none());
        let own = std::process::id();
        assert_eq!(own_id(&env::temp_dir(), own), Some(own), "of a root that leads nowhere");
        assert_eq!(ids(Path::new("/"), "self").unwrap().last(), Some(&own));
    }
}
