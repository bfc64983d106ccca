//! The scheduler's own sum of what all tasks ran, those that have ended included: `cpuacct.usage` of the root cgroup.
//!
//! It grows where `sum_exec_runtime` of a task does (`cgroup_account_cputime` in kernel/sched), so it is of the same clock as what a
//! task ran. The times of /proc/stat are not: with tick accounting they are a sample, and /proc/schedstat has interrupts in it,
//! which an emulator makes long when it takes a virtual CPU away in the middle of one (0.4 of 8 s on a busy host).

use std::ffi::CString;
use std::fs;
use std::io;

use jiff::Timestamp;

use crate::cases::Stop;
use crate::intervals::Totals;
use crate::procfs::process_run_ns;
use crate::sysfs;
use crate::tool::Batch;

const PLACE: &str = "/run/cpuacct";

/// The hierarchy of the controller, for as long as this lives. Mount it when the tool has taken a sample: one that it finds at its
/// start it takes for the one that containers are in.
pub struct Cpuacct;

impl Cpuacct {
    pub fn mount() -> Result<Self, String> {
        fs::create_dir_all(PLACE).map_err(|error| format!("creating {PLACE}: {error}"))?;
        let place = CString::new(PLACE).expect("no NUL in it");
        let (kind, data) = (c"cgroup".as_ptr(), c"cpuacct".as_ptr());
        // SAFETY: all are strings that end and live through the call.
        match unsafe { libc::mount(kind, place.as_ptr(), kind, 0, data.cast()) } {
            0 => Ok(Cpuacct),
            _ => Err(format!("mounting cpuacct on {PLACE}: {}", io::Error::last_os_error())),
        }
    }

    /// What all tasks but `without` had run before the tool took a sample and after: the sample is added to `totals`, and is the
    /// mark if there is none.
    ///
    /// On a busy host seconds may pass between the tool's look at the machine and a case's look at it, and other tasks run in
    /// them. So the case looks twice, and what the tool says must be in between.
    pub fn around(&self, batch: &mut Batch, totals: &mut Totals, without: &[i32]) -> Result<Span, Stop> {
        batch.catch_up(totals)?;
        loop {
            let asked = Timestamp::now();
            let before_ns = ran_ns_without(without)?;
            let interval = batch.next()?;
            let time = interval["time"].as_str().unwrap_or_default();
            let time: Timestamp =
                time.parse().map_err(|error| format!("the time {time:?} of an interval: {error}"))?;
            let new = time > asked;
            if new || totals.marked() {
                totals.add(interval)?;
            }
            if new {
                return Ok(Span { before_ns, after_ns: ran_ns_without(without)? });
            }
        }
    }
}

/// Nanoseconds that tasks had run when the case looked, on either side of a sample of the tool.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    before_ns: u64,
    after_ns: u64,
}

impl Span {
    /// The least and the most that ran, in seconds, from a sample to a later one.
    pub fn until(self, later: Span) -> (f64, f64) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        (seconds(self.after_ns, later.before_ns), seconds(self.before_ns, later.after_ns))
    }
}

/// Nanoseconds that all tasks ran but these processes, which are busy printing and parsing when one looks. A task that runs
/// without pause is up to date to its last tick.
fn ran_ns_without(pids: &[i32]) -> Result<u64, String> {
    let path = format!("{PLACE}/cpuacct.usage");
    let text = sysfs::read(&path)?;
    let mut ran: u64 = text.trim().parse().map_err(|error| format!("{path} is {text:?}: {error}"))?;
    for &pid in pids {
        ran = ran.saturating_sub(process_run_ns(pid)?);
    }
    Ok(ran)
}

impl Drop for Cpuacct {
    fn drop(&mut self) {
        let place = CString::new(PLACE).expect("no NUL in it");
        // SAFETY: a string that ends.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    }
}
