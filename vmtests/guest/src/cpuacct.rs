//! The scheduler's own sum of the CPU time of all tasks, ended ones included: `cpuacct.usage` of the root
//! cgroup.
//!
//! It grows wherever `sum_exec_runtime` of a task does (`cgroup_account_cputime` in kernel/sched), so both
//! use the same clock. The times of /proc/stat do not: with tick accounting they are a sample.
//! /proc/schedstat includes interrupts, which become long when an emulator takes a virtual CPU away in the
//! middle of one (0.4 of 8 s on a busy host).

use std::ffi::CString;
use std::fs;
use std::io;

use crate::cases::Stop;
use crate::intervals::Totals;
use crate::procfs::process_run_ns;
use crate::span::{self, Span};
use crate::sysfs;
use crate::tool::Batch;

const PLACE: &str = "/run/cpuacct";

/// The hierarchy of the controller, for as long as this lives. The tool must have taken a sample first: it
/// would take a hierarchy present at its start for that of containers.
pub struct Cpuacct;

impl Cpuacct {
    pub fn mount(batch: &mut Batch) -> Result<Self, Stop> {
        batch.next()?;
        fs::create_dir_all(PLACE).map_err(|error| format!("creating {PLACE}: {error}"))?;
        let place = CString::new(PLACE).expect("no NUL in it");
        let (kind, data) = (c"cgroup".as_ptr(), c"cpuacct".as_ptr());
        // SAFETY: all are strings that end and live through the call.
        match unsafe { libc::mount(kind, place.as_ptr(), kind, 0, data.cast()) } {
            0 => Ok(Cpuacct),
            _ => Err(format!("mounting cpuacct on {PLACE}: {}", io::Error::last_os_error()).into()),
        }
    }

    /// Nanoseconds that tasks ran on one CPU.
    pub fn on_cpu_ns(&self, cpu: u32) -> Result<u64, String> {
        let path = format!("{PLACE}/cpuacct.usage_percpu");
        let text = sysfs::read(&path)?;
        let ran = text.split_whitespace().nth(cpu as usize).and_then(|ns| ns.parse().ok());
        ran.ok_or_else(|| format!("{path} has nothing of CPU {cpu}: {text:?}"))
    }

    /// The time of all tasks but `without` before the tool took a sample and after.
    pub fn around(&self, batch: &mut Batch, totals: &mut Totals, without: &[i32]) -> Result<Span, Stop> {
        span::around(batch, totals, || ran_ns_without(without))
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
