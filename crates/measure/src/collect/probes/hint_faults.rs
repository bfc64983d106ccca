//! NUMA hinting faults (`hint_faults.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{MapCore, MapFlags, Object};

use super::{Attached, Otherwise, Probe, Readings, Running, Shared};
use crate::collect::attach::{AttachMethod, attach_with_fallback};
use crate::collect::object;
use crate::collect::skel::hint_faults::{HintFaultsSkel, HintFaultsSkelBuilder};
use crate::model::facility::Facility;
use crate::model::sample::{Hints, Missing};
use crate::model::wire::{CpuHints, Wire};

pub(super) static PROBE: Probe = Probe {
    otherwise: Otherwise::From("numa_faults_locality of the task structure"),
    ..Probe::new("NUMA hinting faults", Facility::HintFaults, start)
};

struct HintProbe(Attached<HintFaultsSkel<'static>>);

/// EPERM where the host forbids trampolines, ENOTSUPP (524) where the architecture has none for functions, ENOENT
/// without CONFIG_KPROBES.
fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let attached = attach_with_fallback(&AttachMethod::ALL, |method| attach(shared, method))?;
    let words = attached.words();
    Ok(Box::new(HintProbe(Attached { words, ..attached.probe })))
}

fn attach(shared: &Shared<'_>, method: AttachMethod) -> Result<Attached<HintFaultsSkel<'static>>> {
    let mut open = object::open("hint_faults", HintFaultsSkelBuilder::default())?;
    open.maps.task_recs.reuse_fd(shared.records.as_fd()).context("sharing the task storage map")?;
    method.select(open.open_object_mut());
    let skel = object::load("hint_faults", open)?;
    Attached::all(skel, method.name())
}

impl HintProbe {
    /// Faults on each possible CPU, by id, since start.
    fn by_cpu(&self) -> Result<Vec<Hints>> {
        let map = &self.0.skel.maps.cpu_hints;
        let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.context("reading hinting faults by CPU")?.unwrap_or_default();
        let parsed = values.iter().filter_map(|bytes| CpuHints::from_bytes(bytes));
        Ok(parsed.map(|hints| Hints { faults: hints.faults, remote: hints.remote }).collect())
    }
}

impl Running for HintProbe {
    fn object(&self) -> Option<&Object> {
        self.0.object()
    }

    fn words(&self) -> String {
        self.0.words()
    }

    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        readings.hints = self.by_cpu().map_err(|error| Missing::Lost(format!("{error:#}")))?;
        Ok(())
    }
}
