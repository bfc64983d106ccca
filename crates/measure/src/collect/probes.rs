//! Optional probes in one list, and the reason for each probe that does not start or stops working. Programs for context
//! switches, the task walk and hot spots are started by name ([`super::sched`], [`super::tasks`], [`super::hot`]).

pub mod accelerators;
mod balancing;
mod disk_io;
pub mod page_allocs;
mod policies;
mod reclaim;
mod sockets;
mod uses;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, Object, Program};

use self::page_allocs::PageBudget;
use super::maps::{self, RecordLayout};
use super::object;
use super::placement::objects::{Drawn, Wanted};
use super::sched::{SchedProbe, SharedMaps};
use super::skel;
use crate::host::btf::Feature;
use crate::host::types::Types;
use crate::model::facility::Facility;
use crate::model::inputs::Inputs;
use crate::model::sample::{Flow, Hints, Missing, NodeRaw, VmStat};
use crate::model::topology::Topology;

/// All of them, in the order in which doctor tries them.
pub static PROBES: [&Probe; 11] = [
    &reclaim::PROBE,
    &page_allocs::PROBE,
    &balancing::PAGE_MIGRATIONS,
    &balancing::MISPLACED_PAGES,
    &TASK_MOVES,
    &balancing::HINT_FAULTS,
    &balancing::NUMAB_TIME,
    &policies::PROBE,
    &disk_io::PROBE,
    &sockets::PROBE,
    &accelerators::PROBE,
];

/// A probe whose programs only count in the records of tasks: `$object.bpf.c`.
macro_rules! counting {
    ($object:ident, $builder:ident, $name:literal, $facility:ident, $features:expr) => {
        Probe {
            features: $features,
            ..Probe::new($name, Facility::$facility, |shared| {
                start_counting(stringify!($object), skel::$object::$builder::default(), shared)
            })
        }
    };
}

/// Tasks that NUMA balancing moves, swaps with another, or leaves where they are.
static TASK_MOVES: Probe = counting!(
    task_moves,
    TaskMovesSkelBuilder,
    "tasks moved by NUMA balancing",
    SentTasks,
    &[Feature::MoveNuma, Feature::TaskStorage, Feature::CurrentTask, Feature::TracingStorage]
);

/// One BPF object, and its purpose.
pub struct Probe {
    /// Its name in doctor.
    pub name: &'static str,
    /// Measured with it.
    pub facility: Facility,
    /// The kernel features that it needs. If none is listed, only trying it shows whether it works.
    pub features: &'static [Feature],
    /// The substitute where the kernel refuses it.
    pub otherwise: Otherwise,
    /// On a machine with one node it has nothing to count.
    pub several_nodes: bool,
    /// It has nothing to say without this one.
    pub builds_on: Option<Facility>,
    /// Loads and attaches it.
    pub start: fn(&Shared<'_>) -> Result<Box<dyn Running>>,
}

/// The substitute where the kernel refuses a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Its facility is missing, and doctor calls the probe failed.
    Failure,
    /// Its facility is missing. Hosts that let no function be hooked are common: doctor calls that no failure.
    Nothing,
    /// The same numbers, from something else.
    From(&'static str),
}

impl Probe {
    /// A probe that needs nothing else.
    const fn new(
        name: &'static str,
        facility: Facility,
        start: fn(&Shared<'_>) -> Result<Box<dyn Running>>,
    ) -> Probe {
        Probe {
            name,
            facility,
            features: &[],
            otherwise: Otherwise::Failure,
            several_nodes: false,
            builds_on: None,
            start,
        }
    }

    /// Starts it, stops it again, and describes the result.
    ///
    /// # Errors
    /// It did not start, and that is a failure.
    pub fn try_out(&self, shared: &Shared<'_>) -> Result<String> {
        match ((self.start)(shared), self.otherwise) {
            (Ok(running), _) => Ok(running.words()),
            (Err(error), Otherwise::Failure) => Err(error),
            (Err(error), Otherwise::Nothing) => Ok(format!("not measured: {error:#}")),
            (Err(error), Otherwise::From(other)) => Ok(format!("by {other}; {error:#}")),
        }
    }
}

/// The probe that brings `facility`.
pub fn of(facility: Facility) -> Option<&'static Probe> {
    PROBES.into_iter().find(|probe| probe.facility == facility)
}

/// The common ground of probes.
pub struct Shared<'a> {
    pub root: &'a Path,
    /// The task storage map.
    pub records: &'a OwnedFd,
    pub layout: RecordLayout,
    /// Page allocations that are counted one by one.
    pub page_budget: PageBudget,
    sched: Option<&'a SchedProbe>,
    types: OnceCell<Types>,
}

impl<'a> Shared<'a> {
    pub fn new(root: &'a Path, records: &'a OwnedFd, layout: RecordLayout) -> Shared<'a> {
        let page_budget = PageBudget::default();
        Shared { root, records, layout, page_budget, sched: None, types: OnceCell::new() }
    }

    /// The same with the kernel's type information, where it was read already.
    pub fn knowing(mut self, types: Option<Types>) -> Shared<'a> {
        self.types = types.map_or_else(OnceCell::new, OnceCell::from);
        self
    }

    /// The same, once the programs at context switches are loaded.
    pub fn with(self, sched: &'a SchedProbe) -> Shared<'a> {
        Shared { sched: Some(sched), layout: sched.layout(), ..self }
    }

    /// The kernel's type information, read when it is first needed.
    ///
    /// # Errors
    /// It is not there, or cannot be understood.
    pub fn types(&self) -> Result<&Types> {
        if let Some(types) = self.types.get() {
            return Ok(types);
        }
        let types = Types::read(self.root)?;
        Ok(self.types.get_or_init(|| types))
    }

    /// The maps of the programs at context switches.
    fn maps(&self) -> Result<SharedMaps<'a>> {
        Ok(self.sched.context("the BPF programs at context switches are not loaded")?.shared_maps())
    }
}

/// A probe that is loaded and attached. Dropping it detaches it.
pub trait Running {
    /// The object that its programs are in; `None` while nothing needs them.
    fn object(&self) -> Option<&Object>;

    /// The way it is attached, or the hooks.
    fn words(&self) -> String;

    /// An iterator over the mappings of the process of a thread that lives, where the probe is one of those. It is made without
    /// the lock of the address space; to read from it takes the lock.
    ///
    /// # Errors
    /// The errno of bpf(2): ESRCH where no such thread is left.
    fn mappings_of(&self, _tid: u32) -> Option<io::Result<OwnedFd>> {
        None
    }

    /// Asks for nodes of pages of shared memory, replacing the previous question: iterators over these
    /// objects answer. Only while none is read.
    fn draw(&mut self, _wanted: &[Wanted]) {}

    /// The answers, one for each object; `None` where the kernel does not tell nodes.
    fn drawn(&self) -> Option<Vec<Option<Vec<Drawn>>>> {
        None
    }

    /// Adds what it has counted that is not in the records of tasks.
    ///
    /// # Errors
    /// It cannot be read, or does not count everything that it should.
    fn read(&self, _: &mut Readings<'_>) -> Result<(), Missing> {
        Ok(())
    }
}

/// Counts of probes that belong to no task.
pub struct Readings<'a> {
    /// Moment of the sample, CLOCK_MONOTONIC.
    pub mono_ns: u64,
    pub topology: &'a Topology,
    pub vm: &'a VmStat,
    pub nodes: &'a mut [NodeRaw],
    /// Hinting faults on each possible CPU, by id.
    pub hints: Vec<Hints>,
    /// Pages that NUMA balancing moved from node to node since start.
    pub page_flows: Vec<Flow>,
    /// Inputs of the sample.
    pub inputs: &'a mut Inputs,
    /// Losses by cause, cumulative.
    pub lost: &'a mut BTreeMap<String, u64>,
    /// Words for the sample.
    pub notes: &'a mut Vec<String>,
}

/// The programs of a skeleton, all attached.
struct Attached<S> {
    // The links go before the object they belong to.
    _links: Vec<Link>,
    skel: S,
    words: String,
}

impl<S: Skel<'static>> Attached<S> {
    fn all(skel: S, words: impl Into<String>) -> Result<Attached<S>> {
        Ok(Attached { _links: object::attach(skel.object())?, skel, words: words.into() })
    }
}

impl<S: Skel<'static>> Running for Attached<S> {
    fn object(&self) -> Option<&Object> {
        Some(self.skel.object())
    }

    fn words(&self) -> String {
        self.words.clone()
    }
}

fn start_counting<B>(name: &str, builder: B, shared: &Shared<'_>) -> Result<Box<dyn Running>>
where
    B: SkelBuilder<'static>,
    B::Output: OpenSkel<'static, Output: Skel<'static> + 'static>,
{
    let mut open = object::open(name, builder)?;
    let records = open.open_object_mut().maps_mut().find(|map| map.name() == "task_recs");
    let mut records = records.with_context(|| format!("{name}.bpf.o has no map task_recs"))?;
    maps::share(&mut records, shared.records)?;
    Ok(Box::new(Attached::all(object::load(name, open)?, "loaded and attached")?))
}

/// The probes that run, and why others do not.
#[derive(Default)]
pub struct Probes {
    running: BTreeMap<Facility, Box<dyn Running>>,
    tried: BTreeSet<Facility>,
    reasons: Reasons,
}

impl Probes {
    /// Starts those probes that `wanted` accepts and that were not tried yet. The reason of a failure goes
    /// into [`Probes::missing`], unless another source has the same data.
    pub fn start(&mut self, shared: &Shared<'_>, wanted: impl Fn(Facility) -> bool) {
        for probe in PROBES {
            let facility = probe.facility;
            let useful = (!probe.several_nodes || shared.layout.several_nodes())
                && probe.builds_on.is_none_or(|other| self.runs(other))
                && wanted(facility);
            if !useful || !self.tried.insert(facility) {
                continue;
            }
            match (probe.start)(shared) {
                Ok(running) => drop(self.running.insert(facility, running)),
                Err(_) if matches!(probe.otherwise, Otherwise::From(_)) => {}
                Err(error) => self.reasons.add(facility, &Missing::Unsupported(format!("{error:#}"))),
            }
        }
    }

    /// Whether the probe of `facility` has started.
    pub fn runs(&self, facility: Facility) -> bool {
        self.running.contains_key(&facility)
    }

    /// An iterator over the mappings of the process of a thread; `None` where the kernel has none, and where that thread has ended.
    pub fn mappings_of(&self, tid: u32) -> Option<OwnedFd> {
        self.running.get(&Facility::MappingPolicies)?.mappings_of(tid)?.ok()
    }

    /// See [`Running::draw`].
    pub fn draw(&mut self, wanted: &[Wanted]) {
        if let Some(policies) = self.running.get_mut(&Facility::MappingPolicies) {
            policies.draw(wanted);
        }
    }

    /// See [`Running::drawn`].
    pub fn drawn(&self) -> Option<Vec<Option<Vec<Drawn>>>> {
        self.running.get(&Facility::MappingPolicies)?.drawn()
    }

    /// Reads what they have counted that belongs to no task.
    pub fn read(&mut self, readings: &mut Readings<'_>) {
        for (facility, running) in &self.running {
            if let Err(missing) = running.read(readings) {
                self.reasons.add(*facility, &missing);
            }
        }
    }

    /// The programs that are attached.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        self.running.values().filter_map(|running| running.object()).flat_map(object::programs)
    }

    /// Facilities that did not start or stopped to work, and why.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}

/// The first reason for a facility is kept: the facility is missing for good.
#[derive(Debug, Default)]
pub struct Reasons(BTreeMap<Facility, Missing>);

impl Reasons {
    /// Notes why `facility` is missing.
    pub fn add(&mut self, facility: Facility, why: &Missing) {
        self.0.entry(facility).or_insert_with(|| why.clone());
    }

    /// All that are missing.
    pub fn by_facility(&self) -> &BTreeMap<Facility, Missing> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_facility_has_one_probe() {
        let facilities: BTreeSet<Facility> = PROBES.iter().map(|probe| probe.facility).collect();
        assert_eq!(facilities.len(), PROBES.len());
    }

    #[test]
    fn a_probe_comes_behind_what_it_builds_on() {
        for (at, probe) in PROBES.iter().enumerate() {
            let before = |other: Facility| PROBES[..at].iter().any(|probe| probe.facility == other);
            assert!(probe.builds_on.is_none_or(before), "{}", probe.name);
        }
    }

    #[test]
    fn the_first_reason_stands() {
        let mut reasons = Reasons::default();
        let why = Missing::Unsupported("loading: no".to_owned());
        reasons.add(Facility::Reclaim, &why);
        reasons.add(Facility::Reclaim, &Missing::Lost("later".to_owned()));
        assert_eq!(reasons.by_facility().iter().collect::<Vec<_>>(), [(&Facility::Reclaim, &why)]);
    }
}
