//! Sockets and L3 domains in the interval, as sums over their CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CpuDelta, OnCpus, Task};
use crate::model::machine::PlaceMoves;
use crate::model::sample::Counts;
use crate::model::topology::{Cpu, Topology};
use crate::model::turns::DramBytes;
use crate::model::units::CpuId;

/// The kind of a set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetKind {
    Socket,
    /// CPUs that share a last-level cache.
    Llc,
}

/// Online CPUs that share a socket or a last-level cache.
#[derive(Clone, Debug)]
pub struct CpuSet {
    pub kind: SetKind,
    /// `physical_package_id` of a socket; of an L3 domain its index in [`Topology::llcs`].
    pub id: u32,
    pub cpus: Vec<u32>,
    /// Physical cores.
    pub cores: u32,
    /// Nodes of its CPUs, ascending: an L3 domain may span several.
    pub nodes: Vec<u32>,
    /// Sockets of its CPUs, ascending; empty where sysfs names none.
    pub sockets: Vec<u32>,
    /// Level and size of the cache of a domain, where sysfs has them.
    pub llc_level: Option<u32>,
    pub llc_size_bytes: Option<u64>,
    /// In the interval.
    pub on_cpus: OnCpus,
    /// Dispatches of tasks here that last ran in another set, and the reverse; `None` where they are not counted by these sets.
    pub moves: Option<SetMoves>,
    /// Bytes that the memory controllers of a socket moved in the interval; unknown for caches.
    pub dram: DramBytes,
    /// Rows of tasks that ran in the interval, most of it here; `None` where time is not kept by these sets.
    pub tasks: Option<u32>,
}

/// Moves of tasks between a set and others of its kind in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetMoves {
    /// Dispatches here of tasks that last ran in another set.
    pub into: u64,
    /// Dispatches in another set of tasks that last ran here.
    pub out: u64,
}

/// Adds moves by place to the sets that the places are in.
pub(super) fn add_moves(
    topology: &Topology,
    previous: &BTreeMap<u32, Arc<PlaceMoves>>,
    current: &BTreeMap<u32, Arc<PlaceMoves>>,
    sets: &mut [CpuSet],
) {
    if current.is_empty() || sets.is_empty() {
        return;
    }
    let of_places = [
        (SetKind::Socket, topology.sockets_of_places().collect::<Vec<_>>()),
        (SetKind::Llc, topology.llcs_of_places().collect()),
    ];
    for (kind, of_place) in of_places {
        let mut sums: BTreeMap<u32, SetMoves> = BTreeMap::new();
        for ((place, now), set) in current
            .iter()
            .filter_map(|(place, moves)| Some(((*place, moves), (*of_place.get(*place as usize)?)?)))
        {
            let before = previous.get(&place).map_or_else(PlaceMoves::default, |before| **before);
            let (into, out) = match kind {
                SetKind::Llc => ((now.llc_in, before.llc_in), (now.llc_out, before.llc_out)),
                SetKind::Socket => ((now.socket_in, before.socket_in), (now.socket_out, before.socket_out)),
            };
            let sum = sums.entry(set).or_default();
            sum.into = sum.into.saturating_add(into.0.saturating_sub(into.1));
            sum.out = sum.out.saturating_add(out.0.saturating_sub(out.1));
        }
        for set in sets.iter_mut().filter(|set| set.kind == kind) {
            set.moves = sums.get(&set.id).copied();
        }
    }
}

/// The socket and the last-level cache of each place, by which the time of tasks is kept. Empty where it is not, and where
/// each node is in one of these sets: then time by node says as much.
#[derive(Clone, Debug, Default)]
pub struct PlaceSets {
    sockets: Sets,
    llcs: Sets,
}

/// Sets of one kind.
#[derive(Clone, Debug, Default)]
struct Sets {
    /// Their numbers, ascending. The firmware chooses any for sockets.
    ids: Vec<u32>,
    /// The index in `ids` of the set of each place.
    of_place: Vec<Option<u16>>,
}

impl FromIterator<Option<u32>> for Sets {
    /// From the number of the set of each place.
    fn from_iter<I: IntoIterator<Item = Option<u32>>>(places: I) -> Sets {
        let numbers: Vec<Option<u32>> = places.into_iter().collect();
        let ids: Vec<u32> = numbers.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let index = |id: u32| ids.binary_search(&id).ok().and_then(|at| u16::try_from(at).ok());
        let of_place = numbers.iter().map(|number| number.and_then(index)).collect();
        Sets { ids, of_place }
    }
}

impl PlaceSets {
    /// The sets of the places of a machine, as far as they are among `sets`.
    pub(super) fn of(topology: &Topology, sets: &[CpuSet]) -> PlaceSets {
        let splits_nodes = |kind| {
            let of_kind = sets.iter().filter(|set| set.kind == kind);
            let nodes: Vec<u32> = of_kind.flat_map(|set| set.nodes.iter().copied()).collect();
            nodes.iter().collect::<BTreeSet<_>>().len() < nodes.len()
        };
        let mut places = PlaceSets::default();
        if splits_nodes(SetKind::Socket) {
            places.sockets = topology.sockets_of_places().collect();
        }
        if splits_nodes(SetKind::Llc) {
            places.llcs = topology.llcs_of_places().collect();
        }
        places
    }

    fn sets(&self, kind: SetKind) -> Option<&Sets> {
        let sets = match kind {
            SetKind::Socket => &self.sockets,
            SetKind::Llc => &self.llcs,
        };
        (!sets.ids.is_empty()).then_some(sets)
    }

    /// On-CPU time by the number of a socket or of a last-level cache, ns, ascending by number; `None` where it is not kept by
    /// these sets.
    pub fn times(&self, counts: &Counts, kind: SetKind) -> Option<Vec<(u32, u64)>> {
        let sets = self.sets(kind)?;
        let mut times: Vec<(u32, u64)> = sets.ids.iter().map(|id| (*id, 0)).collect();
        for (ns, set) in counts.by_place.iter().zip(&sets.of_place) {
            if let Some((_, sum)) = set.and_then(|set| times.get_mut(usize::from(set))) {
                *sum = sum.saturating_add(*ns);
            }
        }
        Some(times)
    }

    /// Counts the tasks that ran, by the sets on which they ran most.
    pub(super) fn count(&self, tasks: &[Task], sets: &mut [CpuSet]) {
        for kind in [SetKind::Socket, SetKind::Llc] {
            if self.sets(kind).is_none() {
                continue;
            }
            let mut homes: BTreeMap<u32, u32> = BTreeMap::new();
            for task in tasks.iter().filter(|task| task.run_ns() > 0) {
                let times = self.times(&task.delta, kind);
                if let Some(home) = times.as_deref().and_then(most_used) {
                    *homes.entry(home).or_default() += 1;
                }
            }
            for set in sets.iter_mut().filter(|set| set.kind == kind) {
                set.tasks = Some(homes.get(&set.id).copied().unwrap_or(0));
            }
        }
    }
}

/// The number of the set with the largest time, the lowest of equal ones; `None` where all are 0.
pub fn most_used(times: &[(u32, u64)]) -> Option<u32> {
    let (id, ns) = times.iter().max_by_key(|(id, ns)| (*ns, std::cmp::Reverse(*id)))?;
    (*ns > 0).then_some(*id)
}

/// Sockets and L3 domains whose CPUs are not those of the nodes, with the work of their CPUs. A kind that
/// equals the nodes is left out, since it would repeat them. A kind with one set is the whole machine.
pub(super) fn cpu_sets(topology: &Topology, cpus: &[CpuDelta]) -> Vec<CpuSet> {
    let online = || topology.cpus.iter().filter(|cpu| cpu.online);
    let by_node = grouped(online(), |cpu| cpu.node.map(|node| node.0));
    let by_socket = grouped(online(), |cpu| u32::try_from(cpu.socket?).ok());
    // Where sysfs describes no cache, the topology assumes a domain: socket and node are the place.
    let described = |cpu: &Cpu| topology.llcs.get(cpu.llc as usize).is_some_and(|llc| llc.level.is_some());
    let by_llc = grouped(online(), |cpu| described(cpu).then_some(cpu.llc));
    let nodes: BTreeSet<&Vec<u32>> = by_node.values().collect();
    let kinds = [(SetKind::Socket, &by_socket), (SetKind::Llc, &by_llc)];
    let differ = kinds
        .into_iter()
        .filter(|(_, sets)| sets.len() > 1 && sets.values().collect::<BTreeSet<_>>() != nodes);
    let of: BTreeMap<u32, &CpuDelta> = cpus.iter().map(|cpu| (cpu.id, cpu)).collect();
    differ
        .flat_map(|(kind, sets)| sets.iter().map(move |(id, members)| (kind, *id, members)))
        .map(|(kind, id, members)| set(topology, kind, id, members, &of))
        .collect()
}

/// CPUs by a key, ascending; those without one are in no set.
fn grouped<'a>(
    cpus: impl Iterator<Item = &'a Cpu>,
    key: impl Fn(&Cpu) -> Option<u32>,
) -> BTreeMap<u32, Vec<u32>> {
    let mut sets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        if let Some(key) = key(cpu) {
            sets.entry(key).or_default().push(cpu.id.0);
        }
    }
    sets
}

fn set(
    topology: &Topology,
    kind: SetKind,
    id: u32,
    members: &[u32],
    deltas: &BTreeMap<u32, &CpuDelta>,
) -> CpuSet {
    let (mut cores, mut nodes, mut sockets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for cpu in members.iter().filter_map(|id| topology.cpu(CpuId(*id))) {
        cores.insert(cpu.core);
        nodes.extend(cpu.node.map(|node| node.0));
        sockets.extend(cpu.socket.and_then(|socket| u32::try_from(socket).ok()));
    }
    let llc = (kind == SetKind::Llc).then(|| topology.llcs.get(id as usize)).flatten();
    CpuSet {
        kind,
        id,
        cpus: members.to_vec(),
        cores: cores.len() as u32,
        nodes: nodes.into_iter().collect(),
        sockets: sockets.into_iter().collect(),
        llc_level: llc.and_then(|llc| llc.level),
        llc_size_bytes: llc.and_then(|llc| llc.size_bytes),
        on_cpus: OnCpus::of(members.iter().filter_map(|cpu| deltas.get(cpu).copied())),
        moves: None,
        dram: DramBytes::between(None, None),
        tasks: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::{Division, Llc};
    use crate::model::units::NodeId;

    /// A machine whose CPU `at` has this node, socket and L3 domain, and one CPU per core.
    fn machine(places: &[(u32, i32, u32)], level: Option<u32>) -> Topology {
        let mut topology = crate::model::demo::facts().topology;
        let ids = |which: fn(&(u32, i32, u32)) -> u32, id: u32| {
            let found = places.iter().enumerate().filter(move |(_, place)| which(place) == id);
            found.map(|(at, _)| CpuId(at as u32)).collect::<Vec<_>>()
        };
        let llcs = places.iter().map(|place| place.2).max().map_or(0, |most| most + 1);
        topology.llcs = (0..llcs)
            .map(|id| Llc { cpus: ids(|place| place.2, id), level, size_bytes: Some(1 << 25) })
            .collect();
        topology.cpus = places
            .iter()
            .enumerate()
            .map(|(at, (node, socket, llc))| Cpu {
                id: CpuId(at as u32),
                online: true,
                node: Some(NodeId(*node)),
                socket: Some(*socket),
                core_id: None,
                core: at as u32,
                llc: *llc,
                siblings: vec![CpuId(at as u32)],
            })
            .collect();
        topology
    }

    fn busy(cpus: u32) -> Vec<CpuDelta> {
        (0..cpus)
            .map(|id| CpuDelta { id, busy_ns: 1 << id, irq_ns: Some(1), ..CpuDelta::default() })
            .collect()
    }

    /// Kind, number, CPUs, nodes and busy time.
    type Found = (SetKind, u32, Vec<u32>, Vec<u32>, u64);

    fn of(topology: &Topology) -> Vec<Found> {
        let sets = cpu_sets(topology, &busy(topology.cpus.len() as u32));
        sets.into_iter().map(|set| (set.kind, set.id, set.cpus, set.nodes, set.on_cpus.busy_ns)).collect()
    }

    #[test]
    fn sets_that_equal_the_nodes_are_left_out() {
        assert_eq!(of(&machine(&[(0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 1, 1)], Some(3))), []);
    }

    #[test]
    fn hidden_sockets_are_sets() {
        let sets = of(&machine(&[(0, 0, 0), (0, 1, 1), (0, 0, 0), (0, 1, 1)], Some(3)));
        let expected = [
            (SetKind::Socket, 0, vec![0, 2], vec![0], 0b101),
            (SetKind::Socket, 1, vec![1, 3], vec![0], 0b1010),
            (SetKind::Llc, 0, vec![0, 2], vec![0], 0b101),
            (SetKind::Llc, 1, vec![1, 3], vec![0], 0b1010),
        ];
        assert_eq!(sets, expected);
    }

    #[test]
    fn domains_below_and_above_a_node_add_up() {
        let many = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 3)], Some(3));
        let sets = of(&many);
        assert_eq!(
            sets.iter().map(|set| (set.0, set.1)).collect::<Vec<_>>(),
            [0, 1, 2, 3].map(|id| (SetKind::Llc, id))
        );
        assert_eq!(sets.iter().map(|set| set.4).sum::<u64>(), 0b1111);
        // Sub-NUMA clustering.
        let wide = machine(&[(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 1, 1)], Some(3));
        let spans: Vec<(SetKind, Vec<u32>)> = of(&wide).into_iter().map(|set| (set.0, set.3)).collect();
        let both = |kind| [(kind, vec![0, 1]), (kind, vec![2, 3])];
        assert_eq!(spans, [both(SetKind::Socket), both(SetKind::Llc)].concat());
        assert_eq!(of(&machine(&[(0, 0, 0), (1, 0, 0)], Some(3))), [], "one socket is the machine");
    }

    #[test]
    fn time_by_place_adds_up_to_sets_that_split_nodes() {
        let counts = Counts { by_place: vec![1, 20, 300, 4_000], ..Counts::default() };
        let times = |places: &[(u32, i32, u32)]| {
            let mut topology = machine(places, Some(3));
            topology.possible_nodes = 2;
            topology.divide(Division::Usual).unwrap();
            let sets = PlaceSets::of(&topology, &cpu_sets(&topology, &busy(places.len() as u32)));
            [SetKind::Socket, SetKind::Llc].map(|kind| sets.times(&counts, kind))
        };
        // Numbers of sockets are the firmware's.
        let llcs = || Some(vec![(0, 1), (1, 20), (2, 300), (3, 4_000)]);
        let hidden = times(&[(0, 0, 0), (0, 70_000, 1), (0, 70_000, 2), (0, 70_000, 3)]);
        assert_eq!(hidden, [Some(vec![(0, 1), (70_000, 4_320)]), llcs()]);
        // Sockets are the nodes here, and then caches are, too.
        assert_eq!(times(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 3)]), [None, llcs()]);
        assert_eq!(times(&[(0, 0, 0), (1, 1, 1)]), [None, None]);
        assert_eq!(most_used(&[(4, 3), (5, 7), (9, 7)]), Some(5));
        assert_eq!(most_used(&[(0, 0), (1, 0)]), None);
    }

    #[test]
    fn moves_by_place_add_up_to_those_of_sets() {
        // Two sockets of two L3 domains in one node.
        let mut topology = machine(&[(0, 0, 0), (0, 0, 1), (0, 7, 2), (0, 7, 3)], Some(3));
        topology.divide(Division::Usual).unwrap();
        let moves = |llc: [u64; 4], socket: [u64; 4]| -> BTreeMap<u32, Arc<PlaceMoves>> {
            let of = |at: usize| PlaceMoves {
                llc_in: llc[at],
                llc_out: 2 * llc[at],
                socket_in: socket[at],
                socket_out: 3 * socket[at],
            };
            (0..4).map(|at| (at as u32, Arc::new(of(at)))).collect()
        };
        let found = |before: &BTreeMap<_, _>, now: &BTreeMap<_, _>| -> Vec<Option<(u64, u64)>> {
            let mut sets = cpu_sets(&topology, &busy(4));
            add_moves(&topology, before, now, &mut sets);
            sets.iter().map(|set| set.moves.map(|moves| (moves.into, moves.out))).collect()
        };
        let before = moves([5, 5, 5, 5], [1, 1, 1, 1]);
        let now = moves([6, 8, 5, 15], [2, 1, 4, 1]);
        let sockets = [Some((1, 3)), Some((3, 9))];
        let llcs = [Some((1, 2)), Some((3, 6)), Some((0, 0)), Some((10, 20))];
        assert_eq!(found(&before, &now), [&sockets[..], &llcs[..]].concat());
        // From the start on; a count that went back is none; none where places are the nodes.
        assert_eq!(found(&BTreeMap::new(), &before)[2], Some((5, 10)));
        assert_eq!(found(&now, &before)[3], Some((0, 0)));
        assert_eq!(found(&before, &BTreeMap::new()), [None; 6]);
    }

    #[test]
    fn caches_that_nothing_describes_are_no_domains() {
        let sets = of(&machine(&[(0, 0, 0), (0, 0, 1)], None));
        assert_eq!(sets, []);
    }
}
