//! Programs that do nothing, or one thing: the least that a hook, the record of a task and counters can cost.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{self, perf_event_attr};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapMut, OpenObject};
use numatop_ng::sys::perf_event_open;

/// The work of a program at a context switch, or at a page allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Does {
    Nothing,
    /// It looks for the record of the task.
    FindRecord,
    /// It reads `cpu-clock` and `page-faults` as well.
    ReadCounters,
    /// Nothing, at a page allocation.
    NothingAtPages,
}

/// A program at its hook. It is detached when this goes away.
pub struct Program {
    // The link goes before the program it belongs to.
    _link: Link,
    _skel: Box<EmptySkel<'static>>,
    _counters: Vec<OwnedFd>,
}

impl Program {
    /// # Errors
    /// The program is not permitted, or a counter cannot be opened.
    pub fn attach(does: Does) -> Result<Program> {
        // A few bytes for each round: the skeleton borrows its object for as long as it lives.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = EmptySkelBuilder::default().open(object)?;
        let cpus = libbpf_rs::num_possible_cpus()?;
        open.maps.first_counter.set_max_entries(cpus as u32)?;
        open.maps.second_counter.set_max_entries(cpus as u32)?;
        let skel = open.load().context("loading the empty programs")?;
        let mut counters = Vec::new();
        if does == Does::ReadCounters {
            let wanted = [
                (&skel.maps.first_counter, libbpf_sys::PERF_COUNT_SW_CPU_CLOCK),
                (&skel.maps.second_counter, libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS),
            ];
            for (map, event) in wanted {
                counters.extend(count(map, event, cpus)?);
            }
        }
        let program = match does {
            Does::Nothing => &skel.progs.sched_switch_empty,
            Does::FindRecord => &skel.progs.sched_switch_record,
            Does::ReadCounters => &skel.progs.sched_switch_counters,
            Does::NothingAtPages => &skel.progs.mm_page_alloc_empty,
        };
        let link = program.attach().context("attaching the program")?;
        Ok(Program { _link: link, _skel: Box::new(skel), _counters: counters })
    }
}

/// Counts a software event on each CPU into a map.
fn count(map: &MapMut<'_>, event: u32, cpus: usize) -> Result<Vec<OwnedFd>> {
    let mut opened = Vec::new();
    for cpu in 0..cpus {
        let attr = perf_event_attr {
            type_: libbpf_sys::PERF_TYPE_SOFTWARE,
            config: event.into(),
            ..perf_event_attr::default()
        };
        // A possible CPU may be offline.
        let Ok(fd) = perf_event_open(attr, -1, cpu as i32, None) else { continue };
        let key = (cpu as u32).to_ne_bytes();
        map.update(&key, &fd.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
        opened.push(fd);
    }
    Ok(opened)
}

use skel::{EmptySkel, EmptySkelBuilder};

mod skel {
    #![allow(warnings, clippy::all, unsafe_code, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}
