//! Moved pages, by task and reason, and by pair of nodes where [`super::misplaced_pages`] knows them
//! (`page_migrations.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::Object;

use super::{Attached, Probe, Readings, Running, Shared};
use crate::collect::node_matrix::NodeMatrix;
use crate::collect::object;
use crate::collect::skel::page_migrations::{PageMigrationsSkel, PageMigrationsSkelBuilder};
use crate::host::btf::Feature;
use crate::model::facility::Facility;
use crate::model::sample::Missing;

pub(super) static PROBE: Probe = Probe {
    features: &[Feature::MigratePages, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    ..Probe::new("moved pages", Facility::MovedPages, start)
};

struct BalanceProbe {
    // The mapping goes before the object it belongs to.
    pairs: NodeMatrix,
    programs: Attached<PageMigrationsSkel<'static>>,
}

fn start(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let arguments = shared.types()?.of_tracepoint("mm_migrate_pages")?;
    // The reason is the last.
    ensure!([7, 8].contains(&arguments), "mm_migrate_pages has {arguments} arguments; expected 7 or 8");
    let nodes = shared.layout.nodes;
    let mut open = object::open("page_migrations", PageMigrationsSkelBuilder::default())?;
    open.maps.task_recs.reuse_fd(shared.records.as_fd()).context("sharing the task storage map")?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("page_migrations.bpf.o has no .rodata")?;
    (rodata.nr_nodes, rodata.reason_at) = (nodes, arguments as u32 - 1);
    open.maps.moves.set_max_entries(NodeMatrix::entries(nodes))?;
    let skel = object::load("page_migrations", open)?;
    let pairs = NodeMatrix::new(skel.maps.moves.as_fd(), nodes)?;
    let programs = Attached::all(skel, "loaded, attached to the migration of pages")?;
    Ok(Box::new(BalanceProbe { pairs, programs }))
}

impl Running for BalanceProbe {
    fn object(&self) -> Option<&Object> {
        self.programs.object()
    }

    fn words(&self) -> String {
        self.programs.words()
    }

    fn read(&self, readings: &mut Readings<'_>) -> Result<(), Missing> {
        readings.page_flows = self.pairs.flows(readings.topology);
        Ok(())
    }
}
