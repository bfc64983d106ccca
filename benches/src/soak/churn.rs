//! Changes of a machine, as a month has them.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cgroups::Groups;
use crate::containers::children;
use crate::process::Process;
use crate::record::Scratch;
use crate::refresh::start_load;
use crate::work::{self, wait_until_ready};

/// Threads of a burst.
pub(super) const THREADS: usize = 5_000;

/// Processes that are moved between cgroups, and the most of these.
const FAMILY: usize = 200;

/// Size of the disk that gets full, bytes.
const DISK: usize = 64 << 20;

/// A step of the clock, s.
const STEP: i64 = 600;

/// Things that are changed, and how hard.
pub(super) struct Place<'a> {
    pub disk: &'a Disk,
    pub quick: bool,
}

impl Place<'_> {
    fn wait(&self, seconds: u64) {
        sleep(Duration::from_millis(seconds * if self.quick { 200 } else { 1000 }));
    }
}

/// A change, which is taken back.
pub(super) struct Step {
    pub name: &'static str,
    pub act: fn(&Place<'_>) -> Result<()>,
    /// Not every machine supports it.
    pub may_fail: bool,
}

pub(super) const DEEDS: [Step; 5] = [
    Step { name: "a burst of threads", act: burst, may_fail: false },
    Step { name: "cgroups that come and go", act: containers, may_fail: false },
    Step { name: "a CPU that goes and comes", act: hotplug, may_fail: true },
    Step { name: "steps of the clock", act: clock_steps, may_fail: true },
    Step { name: "a full disk", act: full_disk, may_fail: false },
];

fn burst(place: &Place<'_>) -> Result<()> {
    let load = start_load(THREADS)?;
    place.wait(15);
    drop(load);
    Ok(())
}

fn containers(place: &Place<'_>) -> Result<()> {
    let family = ["family", "--processes", &FAMILY.to_string()];
    let mut load = Process::start(work::command(&family)?.stdout(Stdio::piped()))?;
    wait_until_ready(load.child())?;
    let pids = children(load.pid())?;
    let mut groups = Groups::create()?;
    for _ in 0..8 {
        groups.spread(&pids, FAMILY)?;
        place.wait(1);
        groups.spread(&pids, 2)?;
        place.wait(1);
    }
    drop(load);
    // A cgroup can be removed when its last task is gone.
    sleep(Duration::from_millis(500));
    drop(groups);
    Ok(())
}

/// Where cpusets of cgroup v1 are: one loses a CPU that goes offline, and does not get it back with the CPU.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

/// Lists of CPUs of cpusets, each after its parent.
fn cpusets(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    let file = folder.join("cpuset.cpus");
    // Folders may go meanwhile.
    found.extend(fs::read_to_string(&file).ok().map(|cpus| (file, cpus)));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).for_each(|path| cpusets(&path, found));
}

fn hotplug(place: &Place<'_>) -> Result<()> {
    let mut before = Vec::new();
    cpusets(Path::new(CPUSETS), &mut before);
    let took = take_a_cpu(place);
    for (file, cpus) in before {
        if fs::read_to_string(&file).is_ok_and(|now| now != cpus) {
            fs::write(&file, &cpus)
                .with_context(|| format!("writing {} to {}", cpus.trim(), file.display()))?;
        }
    }
    took
}

fn take_a_cpu(place: &Place<'_>) -> Result<()> {
    let path = Path::new("/sys/devices/system/cpu/cpu1/online");
    let set = |on: &str| fs::write(path, on).with_context(|| format!("writing {on} to {}", path.display()));
    for _ in 0..3 {
        set("0")?;
        place.wait(2);
        set("1")?;
        place.wait(2);
    }
    Ok(())
}

fn clock_steps(place: &Place<'_>) -> Result<()> {
    step(STEP)?;
    place.wait(3);
    step(-STEP)?;
    place.wait(3);
    Ok(())
}

fn step(seconds: i64) -> Result<()> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the first call fills the value that the second reads.
    let status = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        now.tv_sec += seconds;
        libc::clock_settime(libc::CLOCK_REALTIME, &now)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("setting the clock") }
}

fn full_disk(place: &Place<'_>) -> Result<()> {
    let path = place.disk.scratch.join("filler");
    let mut file = fs::File::create(&path).context("making a file that fills the disk")?;
    let block = vec![0; 1 << 16];
    let end = loop {
        if let Err(error) = file.write_all(&block) {
            break error;
        }
    };
    anyhow::ensure!(end.raw_os_error() == Some(libc::ENOSPC), "filling the disk: {end}");
    place.wait(10);
    fs::remove_file(&path).context("removing the file that fills the disk")?;
    place.wait(5);
    Ok(())
}

/// A small separate disk, in memory.
pub(super) struct Disk {
    scratch: Scratch,
    at: CString,
}

impl Disk {
    /// # Errors
    /// It cannot be mounted.
    pub(super) fn mount() -> Result<Disk> {
        let scratch = Scratch::make()?;
        let path = scratch.join("");
        let at = CString::new(path.to_string_lossy().as_bytes())?;
        let options = CString::new(format!("size={DISK}"))?;
        // SAFETY: all texts end with a zero, and the kernel copies them.
        let status = unsafe {
            libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
        };
        if status != 0 {
            return Err(io::Error::last_os_error()).context(format!("mounting a disk at {}", path.display()));
        }
        Ok(Disk { scratch, at })
    }

    /// The folder of a recording on it.
    pub(super) fn recording(&self) -> PathBuf {
        self.scratch.join("recording/")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: as above. It goes when the last file on it is closed.
        if unsafe { libc::umount2(self.at.as_ptr(), libc::MNT_DETACH) } != 0 {
            eprintln!("cannot unmount {:?}: {}", self.at, io::Error::last_os_error());
        }
    }
}
