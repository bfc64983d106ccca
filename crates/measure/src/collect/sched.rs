//! The scheduler probe: loads `sched.bpf.c`, opens its counters, brings it up to date before a read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapCore, MapFlags, Program, ProgramInput};

use super::cpu_states::CpuStates;
use super::maps::{self, NodeMatrix, PlaceMovesMaps, RecordLayout};
use super::object;
use super::skel::sched::{SchedSkel, SchedSkelBuilder};
use crate::host::kernel;
use crate::model::event::Event;
use crate::model::machine::PlaceMoves;
use crate::model::topology::Topology;
use crate::model::units::CpuId;
use crate::model::wire::{CpuTopo, MARKS, SLOTS, Scoped, Wire};
use crate::overhead::ReadCost;
use crate::pmu::open::{Counters, Refused, TooMany};
use crate::sys;

/// `BPF_F_TEST_RUN_ON_CPU` of bpf(2): run the program on the given CPU.
const TEST_RUN_ON_CPU: u32 = libbpf_rs::libbpf_sys::BPF_F_TEST_RUN_ON_CPU;

/// Room for exits between two samples, in bytes per CPU; at least [`RING_MIN`]. A process needs
/// about 480 bytes: 2,000 exits a second on each CPU fill a megabyte.
const RING_PER_CPU: u32 = 256 * 1024;
const RING_MIN: u32 = 1024 * 1024;
const RING_MAX: u32 = 16 * 1024 * 1024;

/// Reads of each counter in a run of the program that measures them (`MEASURED_READS` of sched.bpf.c).
const MEASURED_READS: usize = 8;

/// Runs of that program; the fastest one counts, because interrupts only add to it.
const MEASURED_RUNS: usize = 8;

/// The loaded and attached probe. Dropping it detaches everything.
pub struct SchedProbe {
    // Order matters: links and mappings go before the object they belong to.
    _switch: Link,
    states: CpuStates,
    moves: NodeMatrix,
    place_moves: PlaceMovesMaps,
    counters: Counters,
    places: BTreeMap<CpuId, CpuTopo>,
    /// Number of times counters were opened on a CPU.
    openings: u32,
    possible_cpus: u32,
    layout: RecordLayout,
    skel: SchedSkel<'static>,
}

impl SchedProbe {
    /// Loads and attaches the probe. `records` is the task storage map and its layout; `scoped`: not every
    /// task will have a record. `cgroup_subsys` is the v1 controller that names cgroups (its index in `enum
    /// cgroup_subsys_id`), or `None` for cgroup v2.
    ///
    /// # Errors
    /// Loading or attaching failed; the errno is in the chain.
    pub fn start(
        topology: &Topology,
        (records, layout): (&OwnedFd, RecordLayout),
        events: Vec<Event>,
        scoped: Scoped,
        cgroup_subsys: Option<u32>,
    ) -> Result<SchedProbe> {
        let cpus = topology.possible_cpus;
        let mut open = object::open("sched", SchedSkelBuilder::default())?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("sched.bpf.o has no .rodata")?;
        rodata.nr_cpus = cpus;
        (rodata.nr_nodes, rodata.nr_places) = (topology.possible_nodes, topology.possible_places());
        rodata.has_smt = topology.smt();
        rodata.hints_from_task = layout.hints_from_task;
        rodata.rec_size = layout.size();
        (rodata.by_node, rodata.by_sibling) = (layout.by_node(), layout.by_sibling());
        rodata.by_place = !topology.places.is_empty();
        if let Some((cycles, instructions)) = layout.counted {
            (rodata.cycles_slot, rodata.instructions_slot) = (cycles, instructions);
        }
        rodata.cgroup_subsys = cgroup_subsys.map_or(-1, |index| index as i32);
        maps::share(&mut open.maps.task_recs, records)?;
        open.maps.cpus.set_max_entries(cpus)?;
        open.maps.cpu_topo.set_max_entries(cpus)?;
        open.maps.cores.set_max_entries(cpus)?;
        open.maps.exits.set_max_entries(ring_bytes(cpus))?;
        open.maps.exit_lost_ns.set_max_entries(topology.possible_places())?;
        open.maps.moves.set_max_entries(NodeMatrix::entries(topology.possible_nodes))?;
        let [of_cpus, of_places] = PlaceMovesMaps::entries(topology);
        open.maps.moves_in.set_max_entries(of_cpus)?;
        open.maps.moves_out.set_max_entries(of_places)?;
        open.maps.events.set_max_entries(cpus * SLOTS as u32)?;
        open.maps.dirty_tasks.set_max_entries(kernel::pid_max().div_ceil(MARKS))?;
        let mut skel = object::load("sched", open)?;

        let states = CpuStates::new(skel.maps.cpus.as_fd(), cpus).context("mapping the per-CPU state")?;
        let moves = NodeMatrix::new(skel.maps.moves.as_fd(), topology.possible_nodes)?;
        let [into, out] = [skel.maps.moves_in.as_fd(), skel.maps.moves_out.as_fd()];
        let place_moves = PlaceMovesMaps::new(into, out, topology)?;
        let slots = events.len() as u32;
        let bss = skel.maps.bss_data.as_deref_mut().context("sched.bpf.o has no .bss")?;
        (bss.nr_slots, bss.scoped) = (slots, scoped as u32);
        let switch = skel.progs.on_sched_switch.attach().context("attaching to sched_switch")?;
        Ok(SchedProbe {
            _switch: switch,
            states,
            moves,
            place_moves,
            counters: Counters::new(events),
            places: BTreeMap::new(),
            openings: 0,
            possible_cpus: cpus,
            layout,
            skel,
        })
    }

    /// Stores the place of `cpu` and opens its counters, or reopens them. Call it for each CPU that comes
    /// online.
    ///
    /// # Errors
    /// The kernel refused the update of the place; counters that cannot be opened are returned.
    pub fn online(&mut self, topology: &Topology, cpu: CpuId) -> Result<Vec<Refused>> {
        let known = topology.cpu(cpu).with_context(|| format!("CPU {cpu} is not in the topology"))?;
        // No counter of this CPU may be read while they change.
        self.offline(cpu)?;
        let (events, possible) = (&self.skel.maps.events, self.possible_cpus);
        let (slots, failed) = self.counters.open_on(cpu, |slot, fd| {
            let index = slot as u32 * possible + cpu.0;
            let value = fd.as_raw_fd() as u32;
            events
                .update(&index.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| io::Error::other(error.to_string()))
        });
        self.openings += 1;
        let llc = topology.llcs.get(known.llc as usize).map_or(&[][..], |llc| &llc.cpus);
        let place = CpuTopo {
            node: known.node.map_or(0, |node| node.0),
            llc: number(&self.places, cpu, llc, |place| place.llc),
            core: number(&self.places, cpu, &known.siblings, |place| place.core),
            slots,
            opened: self.openings,
            waits: self.counters.waiting_on(cpu),
            place: topology.place_of(known),
            socket: known.socket.map_or(u32::MAX, |socket| socket as u32),
        };
        self.set_place(cpu, place)?;
        Ok(failed)
    }

    /// Closes the counters of a CPU that went offline.
    ///
    /// # Errors
    /// The kernel refused the update of the place.
    pub fn offline(&mut self, cpu: CpuId) -> Result<()> {
        if let Some(place) = self.places.get(&cpu).copied() {
            self.set_place(cpu, CpuTopo { slots: 0, ..place })?;
        }
        self.counters.close_on(cpu);
        Ok(())
    }

    fn set_place(&mut self, cpu: CpuId, place: CpuTopo) -> Result<()> {
        self.skel
            .maps
            .cpu_topo
            .update(&cpu.0.to_ne_bytes(), place.as_bytes(), MapFlags::ANY)
            .with_context(|| format!("writing the place of CPU {cpu}"))?;
        self.places.insert(cpu, place);
        Ok(())
    }

    /// Charges the running task of `cpu` up to now.
    ///
    /// # Errors
    /// `ENXIO` when the CPU is offline by now.
    pub fn flush(&self, cpu: CpuId) -> Result<()> {
        let input = ProgramInput { cpu: cpu.0, flags: TEST_RUN_ON_CPU, ..ProgramInput::default() };
        self.skel
            .progs
            .on_flush
            .test_run(input)
            .with_context(|| format!("reading the current counts of CPU {cpu}"))?;
        Ok(())
    }

    /// Measures on `cpu` the cost of reading a counter; `None` without counters.
    ///
    /// # Errors
    /// `ENXIO` when the CPU is offline.
    pub fn measure_reads(&self, cpu: CpuId) -> Result<Option<ReadCost>> {
        let slots = self.events().iter().filter(|event| event.is_on(cpu)).count();
        if slots == 0 {
            return Ok(None);
        }
        let (mut count, mut scaled) = (u64::MAX, u64::MAX);
        for _ in 0..MEASURED_RUNS {
            let input = ProgramInput { cpu: cpu.0, flags: TEST_RUN_ON_CPU, ..ProgramInput::default() };
            let ran = self.skel.progs.on_measure.test_run(input);
            ran.with_context(|| format!("reading counters on CPU {cpu}"))?;
            let bss = self.skel.maps.bss_data.as_deref().context("sched.bpf.o has no .bss")?;
            count = count.min(sys::read_variable(&bss.count_reads_ns));
            scaled = scaled.min(sys::read_variable(&bss.scaled_reads_ns));
        }
        let each = |total: u64| total as f64 / (MEASURED_READS * slots) as f64;
        Ok(Some(ReadCost { count_ns: each(count), scaled_ns: each(scaled) }))
    }

    /// The programs that run by themselves or with each sample.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        object::programs(self.skel.object()).filter(|program| program.name() != "on_measure")
    }

    /// Turns reading enabled and running times with each counter on or off.
    pub fn read_scaled(&mut self, on: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.read_scaled = u32::from(on);
        }
    }

    /// Sets which tasks without a record are to be expected from now on.
    pub fn set_scoped(&mut self, scoped: Scoped) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.scoped = scoped as u32;
        }
    }

    /// Counts `events` on every CPU that is brought [online](SchedProbe::online) from now on. Other slots do
    /// not change, and keep their counts.
    ///
    /// # Errors
    /// There are no slots left for them.
    pub fn want(&mut self, events: &[Event]) -> Result<(), TooMany> {
        self.counters.want(events)?;
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.nr_slots = self.counters.events().len() as u32;
        }
        Ok(())
    }

    /// Counts these of its events on every CPU that is brought [online](SchedProbe::online) from now on. The others wait for
    /// their turn: they are wanted, and not counted.
    pub fn take_turn(&mut self, slots: &[usize]) {
        self.counters.take_turn(slots);
    }

    /// Whether the event in this slot is counted now.
    pub fn wants(&self, slot: usize) -> bool {
        self.counters.wants(slot)
    }

    /// The events in the slots.
    pub fn events(&self) -> &[Event] {
        self.counters.events()
    }

    /// The parts of a task's record.
    pub(super) fn layout(&self) -> RecordLayout {
        self.layout
    }

    /// Ends of tasks with a record that their last switch reported since the start.
    pub fn ended(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| sys::read_variable(&bss.nr_ended))
    }

    /// The states of the CPUs, each as of its last switch or flush.
    pub fn states(&self) -> &CpuStates {
        &self.states
    }

    /// Moves of tasks in scope from node to node since the start.
    pub fn moves(&self) -> &NodeMatrix {
        &self.moves
    }

    /// Moves of tasks in scope between L3 domains and sockets since the start, by place; none where places are the nodes.
    pub fn place_moves(&self, topology: &Topology) -> BTreeMap<u32, PlaceMoves> {
        self.place_moves.read(topology)
    }

    /// The maps that other objects reuse.
    pub(super) fn shared_maps(&self) -> SharedMaps<'_> {
        let maps = &self.skel.maps;
        SharedMaps {
            possible_cpus: self.possible_cpus,
            cpus: maps.cpus.as_fd(),
            cpu_topo: maps.cpu_topo.as_fd(),
            dirty_tasks: maps.dirty_tasks.as_fd(),
            exits: maps.exits.as_fd(),
            exit_lost_ns: maps.exit_lost_ns.as_fd(),
        }
    }
}

/// Maps of this object that the task probe uses too.
pub(super) struct SharedMaps<'a> {
    /// Length of the maps that have something for each CPU.
    pub possible_cpus: u32,
    pub cpus: BorrowedFd<'a>,
    pub cpu_topo: BorrowedFd<'a>,
    pub dirty_tasks: BorrowedFd<'a>,
    pub exits: BorrowedFd<'a>,
    pub exit_lost_ns: BorrowedFd<'a>,
}

/// The number of the core or of the last-level cache that a CPU shares with these: the one that one of them or it has, else
/// one that no CPU has. Numbers of the topology change when CPUs come and go, and those of the programs may not.
fn number(
    places: &BTreeMap<CpuId, CpuTopo>,
    cpu: CpuId,
    shared_with: &[CpuId],
    of: fn(&CpuTopo) -> u32,
) -> u32 {
    let others = shared_with.iter().filter(|other| **other != cpu);
    if let Some(place) = others.chain([&cpu]).find_map(|cpu| places.get(cpu)) {
        return of(place);
    }
    let taken: BTreeSet<u32> = places.values().map(of).collect();
    (0..).find(|number| !taken.contains(number)).unwrap_or(0)
}

fn ring_bytes(cpus: u32) -> u32 {
    cpus.saturating_mul(RING_PER_CPU).min(RING_MAX).next_power_of_two().clamp(RING_MIN, RING_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cores_stay_when_cpus_come_online() {
        let mut places = BTreeMap::new();
        let mut come = |cpu: u32, siblings: [u32; 2]| {
            let core = number(&places, CpuId(cpu), &siblings.map(CpuId), |place| place.core);
            places.insert(CpuId(cpu), CpuTopo { core, ..CpuTopo::default() });
            core
        };
        // CPUs 2 and 3, which are a core between the two others, come later.
        assert_eq!([0, 1, 4, 5].map(|cpu| come(cpu, [cpu & !1, cpu | 1])), [0, 0, 1, 1]);
        assert_eq!([2, 3, 4].map(|cpu| come(cpu, [cpu & !1, cpu | 1])), [2, 2, 1]);
    }

    #[test]
    fn the_ring_is_a_power_of_two_of_pages() {
        for cpus in [1, 2, 3, 64, 1024, 8192] {
            let bytes = ring_bytes(cpus);
            assert!(
                bytes.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&bytes),
                "{cpus} CPUs: {bytes}"
            );
        }
    }
}
