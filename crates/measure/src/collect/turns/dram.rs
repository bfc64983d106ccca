//! Bytes that memory controllers read and write, by node and by socket. Not verified on hardware.
//!
//! A controller is opened on the CPU of each socket that its PMU names, as one group of two events, and read with each sample. The
//! kernel extends hardware counters to 64 bits, except those of AMD: they stop at 2^48 in kernels without "perf/x86/amd/uncore:
//! Prevent UMC counters from saturating" (2025). A group is opened again long before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{Now, Part};
use crate::host::isolation;
use crate::model::event::Event;
use crate::model::inputs::shared_with;
use crate::model::sample::{Missing, Reading};
use crate::model::topology::{Cpu, Topology};
use crate::model::turns::{DramCount, DramTraffic};
use crate::model::units::{CpuId, NodeId};
use crate::pmu::controllers::{self, ByteEvent, Controller};
use crate::pmu::open::{GroupReading, OpenGroup};

/// Reads an open group.
type Read = Box<dyn FnMut() -> Reading<GroupReading> + Send>;

/// Counts at which a group is opened again, to begin at 0.
const BEGIN_AGAIN_AT: u64 = 1 << 46;

/// Opens a group of events on a CPU.
type Open = Box<dyn FnMut(&[Event], CpuId) -> Reading<Read> + Send>;

/// Controllers, once they are open, and what they have counted.
pub(super) struct Dram {
    open: Open,
    units: Option<Vec<Unit>>,
    nodes: BTreeMap<NodeId, DramTraffic>,
    sockets: BTreeMap<u32, DramTraffic>,
}

/// A controller on one socket.
struct Unit {
    name: String,
    at: Place,
    /// Place of the event in the group, and bytes of one count.
    events: Sides<Reading<(usize, f64)>>,
    opened: (Vec<Event>, CpuId),
    group: Reading<Read>,
    /// The reading that the next difference is from; `None` after a failed one.
    before: Option<GroupReading>,
    has_failed: bool,
}

/// Where the memory of a controller is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    socket: Option<u32>,
    /// Its node; all nodes of the socket where it is one of them.
    nodes: BTreeSet<NodeId>,
}

/// Reads and writes.
struct Sides<T> {
    read: T,
    write: T,
}

/// The bytes that a reading adds, or why they are unknown, with true where bytes were lost.
type Step = Result<u64, (Missing, bool)>;

impl Default for Dram {
    fn default() -> Dram {
        Dram::with(Box::new(|events, cpu| {
            let group = OpenGroup::open(events, cpu)?;
            Ok(Box::new(move || group.read()))
        }))
    }
}

impl Part for Dram {
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
        if self.units.is_none() {
            // The part may be missing from here on, and its last values with it.
            (now.inputs.node_dram, now.inputs.socket_dram) = Default::default();
            self.look(now.root, &now.host.topology, &now.host.quiet_cpus())?;
        }
        self.add();
        now.inputs.node_dram = Arc::new(shared_with(&now.inputs.node_dram, self.nodes.clone()));
        now.inputs.socket_dram = Arc::new(shared_with(&now.inputs.socket_dram, self.sockets.clone()));
        Ok(())
    }

    /// Sums go on, and their next interval is unknown.
    fn begin_again(&mut self) {
        self.units = None;
        for sums in self.nodes.values_mut().chain(self.sockets.values_mut()) {
            sums.read.losses += 1;
            sums.write.losses += 1;
        }
    }
}

/// Opens the controllers of this machine and reads them once: what they are, for people.
///
/// # Errors
/// Why they cannot be read.
pub fn try_out(root: &Path, topology: &Topology) -> Reading<String> {
    let mut dram = Dram::default();
    dram.look(root, topology, &isolation::quiet_cpus(root))?;
    dram.add();
    let sums = dram.sockets.values().chain(dram.nodes.values()).flat_map(|sums| [&sums.read, &sums.write]);
    let failed = sums.filter_map(|sum| sum.why.clone()).next();
    let units: Vec<&str> = dram.units.iter().flatten().map(|unit| unit.name.as_str()).collect();
    let counts = format!("{} and {} more", units[0], units.len() - 1);
    let failed = failed.map_or(String::new(), |why| format!("; {why}"));
    Ok(format!("{counts} can be counted; not verified on hardware{failed}"))
}

impl Dram {
    fn with(open: Open) -> Dram {
        Dram { open, units: None, nodes: BTreeMap::new(), sockets: BTreeMap::new() }
    }

    /// Finds controllers and opens them, except through CPUs that are kept free of interrupts.
    fn look(&mut self, root: &Path, topology: &Topology, quiet: &BTreeSet<CpuId>) -> Result<(), Missing> {
        let mut units = Vec::new();
        for controller in controllers::find(root)? {
            for cpu in &controller.cpus {
                let Some(at) = place(topology, &controller, *cpu) else { continue };
                units.push(self.unit(&controller, *cpu, at, quiet));
            }
        }
        if let Some(Err(why)) =
            units.iter().map(|unit| unit.group.as_ref()).min_by_key(|group| group.is_err())
        {
            return Err(why.clone());
        }
        if units.is_empty() {
            return Err(Missing::Unsupported("no CPU of the memory controllers is online".into()));
        }
        let nodes: BTreeSet<NodeId> = units.iter().flat_map(|unit| unit.at.nodes.iter().copied()).collect();
        let sockets: BTreeSet<u32> = units.iter().filter_map(|unit| unit.at.socket).collect();
        keep(&mut self.nodes, &nodes);
        keep(&mut self.sockets, &sockets);
        self.units = Some(units);
        Ok(())
    }

    fn unit(&mut self, controller: &Controller, cpu: CpuId, at: Place, quiet: &BTreeSet<CpuId>) -> Unit {
        let mut asked = Vec::new();
        let mut event = |found: &Reading<ByteEvent>| {
            let ByteEvent { event, bytes } = found.clone()?;
            asked.push(event);
            Ok((asked.len() - 1, bytes))
        };
        let events = Sides { read: event(&controller.read), write: event(&controller.write) };
        let name = controller.name.clone();
        let no_event = || controller.read.as_ref().err().cloned();
        let group = match no_event().filter(|_| asked.is_empty()) {
            Some(why) => Err(why),
            None if quiet.contains(&cpu) => Err(Missing::NotCollected(format!(
                "{name} is read through CPU {cpu}, which is isolated or without a tick"
            ))),
            None => (self.open)(&asked, cpu),
        };
        let opened = (asked, cpu);
        Unit { name, at, events, opened, group, before: None, has_failed: false }
    }

    /// Reads all controllers, and adds what they have counted since.
    fn add(&mut self) {
        for sums in self.nodes.values_mut().chain(self.sockets.values_mut()) {
            (sums.read.why, sums.write.why) = (None, None);
        }
        for unit in self.units.iter_mut().flatten() {
            let step = unit.step();
            unit.begin_again_in_time(&mut self.open);
            if let Some(sums) = unit.at.socket.and_then(|socket| self.sockets.get_mut(&socket)) {
                add(sums, &step);
            }
            let whole = unit.at.nodes.len() > 1;
            let why = || {
                let why = "memory controllers count by socket here, and the socket has several nodes";
                Err((Missing::Unsupported(why.into()), false))
            };
            let step = if whole { Sides { read: why(), write: why() } } else { step };
            for node in &unit.at.nodes {
                add(self.nodes.entry(*node).or_default(), &step);
            }
        }
    }
}

impl Unit {
    /// Bytes since the last reading.
    fn step(&mut self) -> Sides<Step> {
        let both =
            |why: Missing, is_lost| Sides { read: Err((why.clone(), is_lost)), write: Err((why, is_lost)) };
        let now = match &mut self.group {
            Ok(read) => read(),
            Err(why) => return both(why.clone(), false),
        };
        let now = match now {
            Ok(now) => now,
            Err(why) => {
                (self.before, self.has_failed) = (None, true);
                return both(why, true);
            }
        };
        let before = self.before.replace(now.clone());
        if before.is_none() && self.has_failed {
            return both(Missing::Lost(format!("{}: the reading before failed", self.name)), true);
        }
        let side = |event: &Reading<(usize, f64)>| {
            let (at, bytes) = event.clone().map_err(|why| (why, false))?;
            let Some(before) = &before else { return Ok(0) };
            let lost = |what: &str| (Missing::Lost(format!("{} {what}", self.name)), true);
            let times = [(now.enabled_ns, before.enabled_ns), (now.running_ns, before.running_ns)];
            let [enabled, running] = times.map(|(now, before)| now.checked_sub(before));
            let (Some(enabled), Some(running)) = (enabled, running) else {
                return Err(lost("began to count again"));
            };
            if enabled == 0 {
                return Err(lost("does not count"));
            }
            if running < enabled {
                return Err(lost("is shared with other tools: its counters were multiplexed"));
            }
            let counts = now.counts.get(at).zip(before.counts.get(at));
            let count = counts.and_then(|(now, before)| now.checked_sub(*before));
            let count = count.ok_or_else(|| lost("counted backwards"))?;
            Ok((count as f64 * bytes).round() as u64)
        };
        Sides { read: side(&self.events.read), write: side(&self.events.write) }
    }
}

impl Unit {
    /// Opens the group again where its counts are large. They begin at 0, so that nothing is lost but the moment between.
    fn begin_again_in_time(&mut self, open: &mut Open) {
        let is_large = |before: &GroupReading| before.counts.iter().any(|count| *count >= BEGIN_AGAIN_AT);
        let Some(before) = self.before.take_if(|before| is_large(before)) else { return };
        self.group = open(&self.opened.0, self.opened.1);
        self.before =
            Some(GroupReading { enabled_ns: 0, running_ns: 0, counts: vec![0; before.counts.len()] });
    }
}

fn add(sums: &mut DramTraffic, step: &Sides<Step>) {
    let add = |sum: &mut DramCount, step: &Step| match step {
        Ok(bytes) => sum.bytes = sum.bytes.saturating_add(*bytes),
        Err((why, is_lost)) => {
            sum.losses = sum.losses.saturating_add((*is_lost).into());
            sum.why.get_or_insert_with(|| why.clone());
        }
    };
    add(&mut sums.read, &step.read);
    add(&mut sums.write, &step.write);
}

/// Drops sums of places that have gone, and begins those of new ones.
fn keep<K: Ord + Copy>(sums: &mut BTreeMap<K, DramTraffic>, places: &BTreeSet<K>) {
    sums.retain(|place, _| places.contains(place));
    places.iter().for_each(|place| _ = sums.entry(*place).or_default());
}

/// The place of a controller that is opened on `cpu`; `None` if that CPU is offline. PMUs have a CPU for each socket, and drivers
/// differ in whether a node of several in a socket has one, too.
fn place(topology: &Topology, controller: &Controller, cpu: CpuId) -> Option<Place> {
    let online = || topology.cpus.iter().filter(|cpu| cpu.online);
    let cpu = online().find(|known| known.id == cpu)?;
    let socket = cpu.socket.and_then(|socket| u32::try_from(socket).ok());
    let on_socket = |other: &&Cpu| socket.is_none() || other.socket == cpu.socket;
    let nodes: BTreeSet<NodeId> = online().filter(on_socket).filter_map(|cpu| cpu.node).collect();
    let opened = |node: &NodeId| {
        let mut here = online().filter(on_socket).filter(|cpu| cpu.node == Some(*node));
        here.any(|cpu| controller.cpus.contains(&cpu.id))
    };
    let by_node = socket.is_none() || nodes.iter().all(opened);
    let nodes = if by_node { cpu.node.into_iter().collect() } else { nodes };
    Some(Place { socket, nodes })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::collect::turns::tests::read_at;
    use crate::fixture;
    use crate::model::demo;
    use crate::model::inputs::Inputs;
    use crate::model::sample::HostFacts;
    use crate::tree::Tree;

    /// Readings of each group by its CPU and its leader, in the order in which they are read; each group counts 2 ns of 2 ns.
    #[derive(Clone, Default)]
    struct World(Arc<Mutex<Counts>>);

    #[derive(Default)]
    struct Counts {
        /// Counts of the next reading by leader and CPU.
        next: BTreeMap<(String, u32), Reading<GroupReading>>,
        /// Groups that were opened: the names of their events, and the CPU.
        opened: Vec<(Vec<String>, u32)>,
        refused: Option<Missing>,
    }

    impl World {
        fn part(&self) -> Dram {
            let world = self.clone();
            Dram::with(Box::new(move |events, cpu| {
                let mut counts = world.0.lock().unwrap();
                if let Some(why) = &counts.refused {
                    return Err(why.clone());
                }
                let names: Vec<String> = events.iter().map(|event| event.name.clone()).collect();
                let pmu = names[0].split('/').next().unwrap().to_owned();
                counts.opened.push((names, cpu.0));
                let world = world.clone();
                Ok(Box::new(move || {
                    let next = world.0.lock().unwrap().next.get(&(pmu.clone(), cpu.0)).cloned();
                    next.unwrap_or_else(|| Err(Missing::Lost("no reading".into())))
                }))
            }))
        }

        /// The next reading of a group: time since it was opened, the part of that on the PMU, and counts.
        fn set(&self, pmu: &str, cpu: u32, (enabled_ns, running_ns): (u64, u64), counts: &[u64]) {
            let reading = GroupReading { enabled_ns, running_ns, counts: counts.to_vec() };
            self.0.lock().unwrap().next.insert((pmu.to_owned(), cpu), Ok(reading));
        }

        fn fail(&self, pmu: &str, cpu: u32, why: &str) {
            self.0.lock().unwrap().next.insert((pmu.to_owned(), cpu), Err(Missing::Lost(why.into())));
        }

        fn opened(&self) -> Vec<(String, u32)> {
            let opened = &self.0.lock().unwrap().opened;
            opened.iter().map(|(names, cpu)| (names.join(" "), *cpu)).collect()
        }
    }

    /// Two sockets with CPUs 0-7 and 8-15; each node has this many CPUs.
    fn host(cpus_of_node: u32) -> Arc<HostFacts> {
        let mut facts = demo::facts();
        let place = |cpu: &mut Cpu| {
            let id = cpu.id.0;
            (cpu.node, cpu.socket) = (Some(NodeId(id / cpus_of_node)), Some((id / 8) as i32));
        };
        facts.topology.cpus.retain(|cpu| cpu.id.0 < 16);
        facts.topology.cpus.iter_mut().for_each(place);
        Arc::new(facts)
    }

    fn look(part: &mut Dram, root: &Path, host: &Arc<HostFacts>) -> Result<Inputs, Missing> {
        let (mut host, mut inputs, mut notes) = (Arc::clone(host), Inputs::default(), Vec::new());
        part.read(Now { root, host: &mut host, mono_ns: 1, inputs: &mut inputs, notes: &mut notes })?;
        Ok(inputs)
    }

    /// Bytes read and written since the sample before, or why not.
    type Bytes = [Result<u64, String>; 2];

    fn bytes(before: &DramTraffic, now: &DramTraffic) -> Bytes {
        let since = now.since(before);
        let known = |sum: Option<u64>, count: &DramCount| {
            let why = || count.why.as_ref().map_or("lost in between".into(), Missing::to_string);
            sum.ok_or_else(why)
        };
        [known(since.read.get(), &now.read), known(since.write.get(), &now.write)]
    }

    /// Bytes of all nodes and all sockets between two readings.
    fn between(before: &Inputs, now: &Inputs) -> (Vec<Bytes>, Vec<Bytes>) {
        let nodes = now.node_dram.iter().map(|(node, now)| bytes(&before.node_dram[node], now));
        let sockets = now.socket_dram.iter().map(|(socket, now)| bytes(&before.socket_dram[socket], now));
        (nodes.collect(), sockets.collect())
    }

    fn ok(read: u64, write: u64) -> Bytes {
        [Ok(read), Ok(write)]
    }

    /// Both channels of the first socket of `intel-imc`, and the one of the second.
    fn channels(world: &World, ns: u64, counts: [[u64; 2]; 3]) {
        world.set("uncore_imc_0", 0, (ns, ns), &counts[0]);
        world.set("uncore_imc_1", 0, (ns, ns), &counts[1]);
        world.set("uncore_imc_0", 8, (ns, ns), &counts[2]);
    }

    #[test]
    fn channels_add_up_to_nodes_and_sockets() {
        let (world, root, host) = (World::default(), fixture::tree("controllers/intel-imc"), host(8));
        let mut part = world.part();
        channels(&world, 5, [[100, 10], [200, 20], [300, 30]]);
        let first = look(&mut part, &root, &host).unwrap();
        let opened = |pmu: &str, cpu| (format!("{pmu}/cas_count_read/ {pmu}/cas_count_write/"), cpu);
        assert_eq!(
            world.opened(),
            [opened("uncore_imc_0", 0), opened("uncore_imc_0", 8), opened("uncore_imc_1", 0)]
        );
        channels(&world, 9, [[101, 10], [202, 21], [305, 30]]);
        let second = look(&mut part, &root, &host).unwrap();
        let both = vec![ok(3 * 64, 64), ok(5 * 64, 0)];
        assert_eq!(between(&first, &second), (both.clone(), both), "what was counted before is not theirs");
        assert_eq!(world.opened().len(), 3, "they stay open");
    }

    #[test]
    fn a_node_with_two_sockets_is_their_sum() {
        let (world, root, host) = (World::default(), fixture::tree("controllers/amd-umc"), host(16));
        let mut part = world.part();
        let groups = [("amd_umc_0", 0), ("amd_umc_0", 8), ("amd_umc_1", 0), ("amd_umc_1", 8)];
        groups.iter().for_each(|(pmu, cpu)| world.set(pmu, *cpu, (1, 1), &[0, 0]));
        let first = look(&mut part, &root, &host).unwrap();
        groups.iter().for_each(|(pmu, cpu)| world.set(pmu, *cpu, (2, 2), &[1 + u64::from(*cpu), 1]));
        let second = look(&mut part, &root, &host).unwrap();
        let sockets = vec![ok(2 * 64, 2 * 64), ok(18 * 64, 2 * 64)];
        assert_eq!(between(&first, &second), (vec![ok(20 * 64, 4 * 64)], sockets));
    }

    #[test]
    fn nodes_of_one_socket_are_unknown_where_its_controllers_have_one_cpu() {
        let (world, root, host) = (World::default(), fixture::tree("controllers/intel-imc"), host(4));
        let mut part = world.part();
        channels(&world, 1, [[0, 0]; 3]);
        let first = look(&mut part, &root, &host).unwrap();
        channels(&world, 2, [[1, 0], [1, 0], [7, 0]]);
        let (nodes, sockets) = between(&first, &look(&mut part, &root, &host).unwrap());
        assert_eq!(sockets, [ok(2 * 64, 0), ok(7 * 64, 0)]);
        assert_eq!(nodes.len(), 4);
        for reason in nodes.iter().flatten() {
            assert!(reason.as_ref().unwrap_err().contains("the socket has several nodes"), "{reason:?}");
        }
    }

    #[test]
    fn nodes_of_one_socket_are_known_where_each_has_its_cpu() {
        let (world, host) = (World::default(), host(4));
        let tree = Tree::new("dram-dies");
        fixture::unpack(include_str!("../../../../../tests/fixtures/controllers/amd-umc.tree"), tree.root());
        for (pmu, cpus) in [("amd_umc_0", "0,4"), ("amd_umc_1", "8,12")] {
            tree.write(&format!("sys/bus/event_source/devices/{pmu}/cpumask"), cpus);
        }
        let groups = [("amd_umc_0", 0), ("amd_umc_0", 4), ("amd_umc_1", 8), ("amd_umc_1", 12)];
        let mut part = world.part();
        groups.iter().for_each(|(pmu, cpu)| world.set(pmu, *cpu, (1, 1), &[0, 0]));
        let first = look(&mut part, tree.root(), &host).unwrap();
        groups.iter().for_each(|(pmu, cpu)| world.set(pmu, *cpu, (2, 2), &[1 + u64::from(*cpu), 0]));
        let second = look(&mut part, tree.root(), &host).unwrap();
        let nodes = vec![ok(64, 0), ok(5 * 64, 0), ok(9 * 64, 0), ok(13 * 64, 0)];
        assert_eq!(between(&first, &second), (nodes, vec![ok(6 * 64, 0), ok(22 * 64, 0)]));
    }

    #[test]
    fn an_isolated_cpu_is_left_alone() {
        let (world, root, mut host) = (World::default(), fixture::tree("controllers/intel-imc"), host(8));
        Arc::make_mut(&mut host).isolated_cpus = vec![8];
        let mut part = world.part();
        channels(&world, 1, [[0, 0]; 3]);
        let first = look(&mut part, &root, &host).unwrap();
        channels(&world, 2, [[1, 0], [1, 0], [7, 0]]);
        let (nodes, _) = between(&first, &look(&mut part, &root, &host).unwrap());
        assert!(world.opened().iter().all(|(_, cpu)| *cpu == 0), "{:?}", world.opened());
        assert_eq!(nodes[0], ok(2 * 64, 0));
        let why = nodes[1][0].as_ref().unwrap_err();
        assert!(why.contains("uncore_imc_0") && why.contains("CPU 8"), "{why}");
        Arc::make_mut(&mut host).nohz_full_cpus = vec![0];
        let why = look(&mut World::default().part(), &root, &host).unwrap_err();
        assert!(why.to_string().contains("isolated"), "{why}");
    }

    /// A reading of a channel: time since it was opened with the part of that on the PMU, and counts of both directions.
    type Read<'a> = Result<((u64, u64), [u64; 2]), &'a str>;

    /// The readings of one channel, and what the intervals between them are.
    fn course(readings: &[Read<'_>]) -> Vec<Bytes> {
        let (world, root, host) = (World::default(), fixture::tree("controllers/intel-imc"), host(8));
        let mut part = world.part();
        let samples: Vec<Inputs> = readings
            .iter()
            .map(|reading| {
                match reading {
                    Ok((times, counts)) => world.set("uncore_imc_0", 8, *times, counts),
                    Err(why) => world.fail("uncore_imc_0", 8, why),
                }
                look(&mut part, &root, &host).unwrap()
            })
            .collect();
        samples.windows(2).map(|pair| between(&pair[0], &pair[1]).0.remove(1)).collect()
    }

    fn why(bytes: &Result<u64, String>) -> &str {
        bytes.as_ref().unwrap_err()
    }

    #[test]
    fn a_group_with_large_counts_is_opened_again_and_begins_at_zero() {
        let seen = course(&[
            Ok(((1, 1), [BEGIN_AGAIN_AT - 1, 5])),
            Ok(((2, 2), [BEGIN_AGAIN_AT + 1, 6])),
            Ok(((1, 1), [3, 4])),
        ]);
        assert_eq!(seen, [ok(2 * 64, 64), ok(3 * 64, 4 * 64)]);
    }

    #[test]
    fn a_group_that_does_not_count_has_a_reason() {
        let seen = course(&[Ok(((1, 1), [7, 7])), Ok(((1, 1), [7, 7])), Ok(((2, 2), [8, 8]))]);
        assert!(why(&seen[0][0]).contains("does not count"), "{seen:?}");
        assert_eq!(seen[1], ok(64, 64));
    }

    #[test]
    fn a_count_that_decreases_is_the_base_of_the_next_interval() {
        let seen = course(&[Ok(((1, 1), [100, 100])), Ok(((2, 2), [90, 101])), Ok(((3, 3), [95, 103]))]);
        assert!(why(&seen[0][0]).contains("counted backwards"), "{seen:?}");
        assert_eq!((&seen[0][1], &seen[1]), (&Ok(64), &ok(5 * 64, 2 * 64)));
    }

    #[test]
    fn multiplexed_counts_are_not_scaled() {
        let seen = course(&[
            Ok(((10, 10), [100, 100])),
            Ok(((20, 19), [110, 110])),
            Ok(((30, 29), [130, 120])),
            Ok(((5, 5), [140, 130])),
        ]);
        assert!(why(&seen[0][0]).contains("multiplexed") && why(&seen[0][1]).contains("multiplexed"));
        assert_eq!(seen[1], ok(20 * 64, 10 * 64), "alone again");
        assert!(why(&seen[2][0]).contains("began to count again"), "{seen:?}");
    }

    #[test]
    fn a_failed_reading_ends_two_intervals() {
        let seen = course(&[
            Ok(((1, 1), [100, 100])),
            Err("no such device"),
            Ok(((3, 3), [120, 120])),
            Ok(((4, 4), [121, 122])),
        ]);
        assert_eq!(why(&seen[0][0]), "no such device");
        assert!(why(&seen[1][1]).contains("the reading before failed"), "{seen:?}");
        assert_eq!(seen[2], ok(64, 2 * 64));
        let first = course(&[Err("no such device"), Ok(((1, 1), [5, 5])), Ok(((2, 2), [6, 6]))]);
        assert!(first[0].iter().all(Result::is_err) && first[1] == ok(64, 64), "{first:?}");
    }

    #[test]
    fn a_longer_interval_with_a_loss_is_unknown() {
        let (world, root, host) = (World::default(), fixture::tree("controllers/intel-imc"), host(8));
        let mut part = world.part();
        let mut sample = |ns, counts| {
            channels(&world, ns, [counts; 3]);
            look(&mut part, &root, &host).unwrap()
        };
        let samples = [sample(1, [9, 9]), sample(2, [8, 9]), sample(3, [20, 20])];
        let (nodes, _) = between(&samples[0], &samples[2]);
        assert_eq!(nodes[1], [Err("lost in between".into()), Ok(11 * 64)]);
    }

    #[test]
    fn an_event_without_a_unit_is_a_reason_for_its_direction() {
        let tree = Tree::new("dram-no-unit");
        fixture::unpack(
            include_str!("../../../../../tests/fixtures/controllers/intel-imc.tree"),
            tree.root(),
        );
        let file = "sys/bus/event_source/devices/uncore_imc_1/events/cas_count_read.unit";
        std::fs::remove_file(tree.root().join(file)).unwrap();
        let (world, host) = (World::default(), host(8));
        let mut part = world.part();
        let mut sample = |ns, write| {
            channels(&world, ns, [[write, write]; 3]);
            world.set("uncore_imc_1", 0, (ns, ns), &[write]);
            look(&mut part, tree.root(), &host).unwrap()
        };
        let (nodes, _) = between(&sample(1, 0), &sample(2, 3));
        assert!(why(&nodes[0][0]).contains("no unit for cas_count_read"), "{nodes:?}");
        assert_eq!((&nodes[0][1], &nodes[1]), (&Ok(6 * 64), &ok(3 * 64, 3 * 64)));
    }

    #[test]
    fn cpus_that_come_and_go_lose_one_interval() {
        let (world, root, host) = (World::default(), fixture::tree("controllers/intel-imc"), host(8));
        let mut part = world.part();
        let sample = |part: &mut Dram, ns, count| {
            channels(&world, ns, [[count, count]; 3]);
            look(part, &root, &host).unwrap()
        };
        let first = sample(&mut part, 1, 5);
        part.begin_again();
        let samples = [first, sample(&mut part, 1, 1), sample(&mut part, 2, 2)];
        let nodes = |at: usize| between(&samples[at], &samples[at + 1]).0;
        assert!(nodes(0).iter().flatten().all(Result::is_err));
        assert_eq!(nodes(1), [ok(2 * 64, 2 * 64), ok(64, 64)]);
        assert_eq!(world.opened().len(), 6, "they were opened again");
    }

    #[test]
    fn without_any_open_controller_the_part_is_missing() {
        let refused = World::default();
        refused.0.lock().unwrap().refused = Some(Missing::NotPermitted("needs CAP_PERFMON".into()));
        let root = fixture::tree("controllers/intel-imc");
        let why = look(&mut refused.part(), &root, &host(8)).unwrap_err();
        assert_eq!(why, Missing::NotPermitted("needs CAP_PERFMON".into()));
        let nothing = Tree::new("dram-none");
        let why = read_at(&mut World::default().part(), &nothing, &mut host(8), 1).unwrap_err();
        assert!(why.to_string().contains("no PMU of memory controllers"), "{why}");
    }
}
