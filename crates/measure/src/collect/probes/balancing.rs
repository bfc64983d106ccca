//! NUMA balancing: hinting faults (`hint_faults.bpf.c`), moved pages by task and reason (`page_migrations.bpf.c`), the nodes between
//! which it sets out to move pages (`misplaced_pages.bpf.c`), and the time that it takes from tasks (`numab_time.bpf.c`).

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{MapCore, MapFlags, Object};

use super::{Attached, Otherwise, Probe, Readings, Running, Shared};
use crate::collect::attach::{AttachMethod, attach_with_fallback};
use crate::collect::maps::{self, NodeMatrix};
use crate::collect::object;
use crate::collect::skel::hint_faults::{HintFaultsSkel, HintFaultsSkelBuilder};
use crate::collect::skel::misplaced_pages::{MisplacedPagesSkel, MisplacedPagesSkelBuilder};
use crate::collect::skel::numab_time::{NumabTimeSkel, NumabTimeSkelBuilder};
use crate::collect::skel::page_migrations::{PageMigrationsSkel, PageMigrationsSkelBuilder};
use crate::host::btf::Feature;
use crate::host::page_nodes::PageFacts;
use crate::model::facility::Facility;
use crate::model::sample::{Hints, Missing};
use crate::model::wire::{CpuHints, Wire};

pub(super) static HINT_FAULTS: Probe = Probe {
    otherwise: Otherwise::From("the field numa_faults_locality of the task structure"),
    ..Probe::new("NUMA hinting faults", Facility::HintFaults, start_hint_faults)
};

struct HintProbe(Attached<HintFaultsSkel<'static>>);

/// EPERM where the host forbids trampolines, ENOTSUPP (524) where the architecture has none for functions, ENOENT
/// without CONFIG_KPROBES.
fn start_hint_faults(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let attached = attach_with_fallback(&AttachMethod::ALL, |method| attach_hint_faults(shared, method))?;
    let words = attached.words();
    Ok(Box::new(HintProbe(Attached { words, ..attached.probe })))
}

fn attach_hint_faults(
    shared: &Shared<'_>,
    method: AttachMethod,
) -> Result<Attached<HintFaultsSkel<'static>>> {
    let mut open = object::open("hint_faults", HintFaultsSkelBuilder::default())?;
    maps::share(&mut open.maps.task_recs, shared.records)?;
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

pub(super) static PAGE_MIGRATIONS: Probe = Probe {
    features: &[Feature::MigratePages, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    ..Probe::new("moved pages", Facility::MovedPages, start_page_migrations)
};

struct BalanceProbe {
    // The mapping goes before the object it belongs to.
    pairs: NodeMatrix,
    programs: Attached<PageMigrationsSkel<'static>>,
}

fn start_page_migrations(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let arguments = shared.types()?.of_tracepoint("mm_migrate_pages")?;
    // The reason is the last.
    ensure!([7, 8].contains(&arguments), "mm_migrate_pages has {arguments} arguments; expected 7 or 8");
    let nodes = shared.layout.nodes;
    let mut open = object::open("page_migrations", PageMigrationsSkelBuilder::default())?;
    maps::share(&mut open.maps.task_recs, shared.records)?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("page_migrations.bpf.o has no .rodata")?;
    (rodata.nr_nodes, rodata.reason_at) = (nodes, arguments as u32 - 1);
    open.maps.moves.set_max_entries(NodeMatrix::entries(nodes))?;
    let skel = object::load("page_migrations", open)?;
    let pairs = NodeMatrix::new(skel.maps.moves.as_fd(), nodes)?;
    let programs = Attached::all(skel, "loaded, attached to page migration")?;
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

pub(super) static MISPLACED_PAGES: Probe = Probe {
    features: &[Feature::MigratePages, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage],
    several_nodes: true,
    // Pages are counted there.
    builds_on: Some(Facility::MovedPages),
    ..Probe::new("pages moved between nodes", Facility::PageFlows, start_misplaced_pages)
};

/// The function that moves a page to the node from which it is used: by its folio since 6.7 (commit 73eab3ca481e),
/// by its page before.
const FUNCTIONS: [&str; 2] = ["migrate_misplaced_folio", "migrate_misplaced_page"];

/// Differences between kernels.
struct PageArgument {
    function: &'static str,
    /// The position of the argument with the target node, from 0.
    node_at: u32,
    /// The lowest bit of the node in `page->flags`.
    node_shift: u32,
}

fn start_misplaced_pages(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let types = shared.types()?;
    let known = FUNCTIONS.iter().find_map(|name| Some((*name, types.of_function(name)?)));
    let (function, count) =
        known.with_context(|| format!("the kernel has no function {}", FUNCTIONS.join(" or ")))?;
    ensure!([2, 3].contains(&count), "{function} has {count} arguments; expected 2 or 3");
    let node_shift = PageFacts::of(types)?.node_shift()?;
    let place = PageArgument { function, node_at: count as u32 - 1, node_shift };
    let attached =
        attach_with_fallback(&AttachMethod::ALL, |method| attach_misplaced_pages(shared, &place, method));
    Ok(Box::new(attached.with_context(|| format!("{function} does not accept a probe"))?.probe))
}

fn attach_misplaced_pages(
    shared: &Shared<'_>,
    place: &PageArgument,
    method: AttachMethod,
) -> Result<Attached<MisplacedPagesSkel<'static>>> {
    let function = place.function;
    let mut open = object::open("misplaced_pages", MisplacedPagesSkelBuilder::default())?;
    maps::share(&mut open.maps.task_recs, shared.records)?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("misplaced_pages.bpf.o has no .rodata")?;
    (rodata.node_at, rodata.node_shift) = (place.node_at, place.node_shift);
    method.select(open.open_object_mut());
    if method == AttachMethod::Fentry {
        let target = open.progs.on_misplaced.set_attach_target(0, Some(function.into()));
        target.with_context(|| format!("finding {function}"))?;
    }
    let skel = object::load("misplaced_pages", open)?;
    let link = match method {
        AttachMethod::Fentry => skel.progs.on_misplaced.attach(),
        AttachMethod::Kprobe => skel.progs.on_misplaced_kprobe.attach_kprobe(false, function),
    };
    let link = link.with_context(|| format!("attaching to {function}"))?;
    Ok(Attached { _links: vec![link], skel, words: format!("by {} of {function}", method.name()) })
}

pub(super) static NUMAB_TIME: Probe = Probe {
    otherwise: Otherwise::Nothing,
    ..Probe::new("CPU time of NUMA balancing", Facility::BalancingTime, start_numab_time)
};

fn start_numab_time(shared: &Shared<'_>) -> Result<Box<dyn Running>> {
    let attached = attach_with_fallback(&AttachMethod::ALL, |method| attach_numab_time(shared, method))?;
    let words = attached.words();
    Ok(Box::new(Attached { words, ..attached.probe }))
}

fn attach_numab_time(shared: &Shared<'_>, method: AttachMethod) -> Result<Attached<NumabTimeSkel<'static>>> {
    let mut open = object::open("numab_time", NumabTimeSkelBuilder::default())?;
    maps::share(&mut open.maps.task_recs, shared.records)?;
    method.select(open.open_object_mut());
    let skel = object::load("numab_time", open)?;
    Attached::all(skel, method.name())
}
