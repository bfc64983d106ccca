//! The time that NUMA balancing takes from tasks (`numab_time.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;

use super::{Attached, Otherwise, Probe, Running, Shared};
use crate::collect::attach::{AttachMethod, attach_with_fallback};
use crate::collect::object;
use crate::collect::skel::numab_time::{NumabTimeSkel, NumabTimeSkelBuilder};
use crate::model::facility::Facility;

pub(super) static PROBE: Probe = Probe {
    otherwise: Otherwise::Nothing,
    ..Probe::new("time of NUMA balancing", Facility::BalancingTime, start)
};

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let attached = attach_with_fallback(&AttachMethod::ALL, |method| attach(shared, method))?;
    let words = attached.words();
    Ok(Box::new(Attached { words, ..attached.probe }))
}

fn attach(shared: &Shared<'_>, method: AttachMethod) -> Result<Attached<NumabTimeSkel<'static>>> {
    let mut open = object::open("numab_time", NumabTimeSkelBuilder::default())?;
    open.maps.task_recs.reuse_fd(shared.records.as_fd()).context("sharing the task storage map")?;
    method.select(open.open_object_mut());
    let skel = object::load("numab_time", open)?;
    Attached::all(skel, method.name())
}
