//! Tasks that NUMA balancing moves, swaps with another, or leaves where they are (`task_moves.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result};

use super::{Attached, Probe, Running, Shared};
use crate::collect::object;
use crate::collect::skel::task_moves::TaskMovesSkelBuilder;
use crate::host::btf::Feature;
use crate::model::facility::Facility;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::MoveNuma, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    ..Probe::new("tasks that balancing moves", Facility::SentTasks, start)
};

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let mut open = object::open("task_moves", TaskMovesSkelBuilder::default())?;
    open.maps.task_recs.reuse_fd(shared.records.as_fd()).context("sharing the task storage map")?;
    let skel = object::load("task_moves", open)?;
    Ok(Box::new(Attached::all(skel, "loaded, attached to moves, swaps and failed attempts")?))
}
