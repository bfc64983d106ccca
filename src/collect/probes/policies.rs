//! Memory policies of mappings (`policies.bpf.c`): an iterator for each process that is looked at.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;

use super::{Otherwise, Probe, Running, Shared};
use crate::collect::skel::policies::{PoliciesSkel, PoliciesSkelBuilder};
use crate::collect::{object, self_usage};
use crate::model::facility::Facility;
use crate::sys;

pub(super) static PROBE: Probe = Probe {
    otherwise: Otherwise::From("/proc/PID/numa_maps, of processes that can be walked in half a second"),
    several_nodes: true,
    ..Probe::new("policies of mappings", Facility::MappingPolicies, start)
};

struct PolicyProbe(PoliciesSkel<'static>);

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    // Without this member an address space can be freed while it is iterated over: fixed in 6.1 and brought back to it.
    let is_safe = shared.types()?.has_member("bpf_iter_seq_task_vma_info", "mm");
    ensure!(is_safe, "the iterator over mappings of this kernel does not keep their address space");
    let mut open = object::open("policies", PoliciesSkelBuilder::default())?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("policies.bpf.o has no .rodata")?;
    rodata.page_size = self_usage::page_size();
    let probe = PolicyProbe(object::load("policies", open)?);
    // Some hosts load it, and let nothing be attached.
    probe.rows_of(std::process::id()).context("attaching to the mappings of a process")?;
    Ok(Box::new(probe))
}

impl PolicyProbe {
    /// The link lives as long as its iterator.
    fn rows_of(&self, tid: u32) -> io::Result<OwnedFd> {
        let link = sys::attach_to_thread(&self.0.progs.on_mapping, tid)?;
        sys::iterator(&link)
    }
}

impl Running for PolicyProbe {
    fn object(&self) -> &Object {
        self.0.object()
    }

    fn words(&self) -> String {
        "loaded, an iterator over mappings".to_owned()
    }

    fn mappings_of(&self, tid: u32) -> Option<io::Result<OwnedFd>> {
        Some(self.rows_of(tid))
    }
}
