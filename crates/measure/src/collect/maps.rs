//! Maps of the kernel programs: task storage, whose values are as long as the machine has nodes and places, counters from node to
//! node, and moves of tasks between L3 domains and sockets.
//!
//! Task storage must be created with BTF that describes a value of exactly its size.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::OpenMapMut;
use libbpf_rs::libbpf_sys::BTF_INT_SIGNED;

use crate::model::event::{Event, Role};
use crate::model::machine::PlaceMoves;
use crate::model::sample::Flow;
use crate::model::topology::Topology;
use crate::model::units::NodeId;
use crate::model::wire::{Moves, NodeCounts, Rec, SIBLINGS};
use crate::sys::{Btf, KeyAndValue, Mapping};

/// Has an object that is not loaded yet use the task storage map.
///
/// # Errors
/// The errno of libbpf.
pub(super) fn share(map: &mut OpenMapMut<'_>, records: &impl AsFd) -> Result<()> {
    map.reuse_fd(records.as_fd()).context("sharing the task storage map")
}

/// The parts of a record besides its fixed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Possible nodes, 1..=1024.
    pub nodes: u32,
    /// Possible places, 1..=1024: the nodes, unless there are several places on one.
    pub places: u32,
    /// Slots of cycles and instructions, when there are both.
    pub counted: Option<(u32, u32)>,
    /// Cores have several hardware threads.
    pub smt: bool,
    /// Records have room for pages by node.
    pub pages: bool,
    /// Hinting faults are read from the task structure, because no function can be hooked.
    pub hints_from_task: bool,
}

impl RecordLayout {
    /// The layout for a machine whose places are its nodes, and its counters; pages have room where there are several nodes.
    pub fn new(nodes: u32, smt: bool, events: &[Event]) -> RecordLayout {
        let slot = |role: Role| events.iter().position(|event| event.role == role).map(|slot| slot as u32);
        RecordLayout {
            nodes,
            places: nodes,
            counted: slot(Role::Cycles).zip(slot(Role::Instructions)),
            smt,
            pages: nodes > 1,
            hints_from_task: false,
        }
    }

    /// The layout for a machine and its places.
    pub fn of(topology: &Topology, events: &[Event]) -> RecordLayout {
        let layout = RecordLayout::new(topology.possible_nodes, topology.smt(), events);
        RecordLayout { places: topology.possible_places(), ..layout }
    }

    /// Cycles and instructions are kept by node: only where there are several.
    pub fn by_node(&self) -> bool {
        self.counted.is_some() && self.nodes > 1
    }

    /// Some counts by node can differ between nodes, or are kept as if they could.
    pub fn several_nodes(&self) -> bool {
        self.nodes > 1 || self.pages
    }

    /// They are kept by the state of the SMT siblings, if there are siblings.
    pub fn by_sibling(&self) -> bool {
        self.counted.is_some() && self.smt
    }

    /// Bytes of a record.
    pub fn size(&self) -> u32 {
        let pages = if self.pages { self.nodes } else { 0 };
        size_of::<Rec>() as u32 + (self.pages_at() + pages) * size_of::<u64>() as u32
    }

    /// Words behind the head after which pages by node begin.
    pub fn pages_at(&self) -> u32 {
        let by_node = if self.by_node() { self.nodes } else { 0 };
        let by_sibling = if self.by_sibling() { SIBLINGS as u32 } else { 0 };
        self.places + (by_node + by_sibling) * (size_of::<NodeCounts>() / size_of::<u64>()) as u32
    }
}

/// Makes the map of per-task records.
///
/// # Errors
/// The errno of `BPF_BTF_LOAD` or `BPF_MAP_CREATE`: EPERM without CAP_BPF, EINVAL before 5.11.
pub fn create(layout: RecordLayout) -> Result<OwnedFd> {
    let (nodes, places) = (layout.nodes, layout.places);
    ensure!((1..=1024).contains(&nodes), "{nodes} NUMA nodes: the kernel allows 1 to 1024");
    ensure!((1..=1024).contains(&places), "{places} places: a record has room for 1 to 1024");
    let size = layout.size();
    let mut btf = Btf::new().context("creating a BTF for the task storage map")?;
    let key = btf.add_int(c"int", size_of::<u32>(), BTF_INT_SIGNED)?;
    let byte = btf.add_int(c"unsigned char", 1, 0)?;
    let bytes = btf.add_array(key, byte, size)?;
    let value = btf.add_struct(c"task_rec", size, (c"bytes", bytes))?;
    btf.load().context("loading the BTF of the task storage map")?;
    btf.task_storage(c"task_recs", size, KeyAndValue { key, value }).context("creating the task storage map")
}

/// An mmapable array map with a counter at `from * nodes + to`.
pub struct NodeMatrix {
    counts: Mapping,
    nodes: usize,
}

impl NodeMatrix {
    /// Entries that the map needs on a machine with `nodes` possible nodes.
    pub fn entries(nodes: u32) -> u32 {
        nodes * nodes
    }

    /// Maps the map behind `fd`.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn new(fd: impl AsFd, nodes: u32) -> Result<NodeMatrix> {
        let bytes = size_of::<u64>() * NodeMatrix::entries(nodes) as usize;
        let counts = Mapping::new(fd, bytes).context("mapping the node-to-node counters")?;
        Ok(NodeMatrix { counts, nodes: nodes as usize })
    }

    /// Counts between the nodes of the machine since the map was made; empty pairs are left out.
    pub fn flows(&self, topology: &Topology) -> Vec<Flow> {
        let nodes = || topology.nodes.iter().map(|node| node.id);
        let flow = |from: NodeId, to: NodeId| {
            let at = (from.index() * self.nodes + to.index()) * size_of::<u64>();
            let count: u64 = self.counts.get(at)?;
            (count > 0).then_some(Flow { from, to, count })
        };
        nodes().flat_map(|from| nodes().filter_map(move |to| flow(from, to))).collect()
    }
}

/// Two mmapable array maps: moves in by CPU, and moves out by place.
pub struct PlaceMovesMaps {
    into: Mapping,
    out: Mapping,
}

impl PlaceMovesMaps {
    /// Entries that the maps need. The program does not use them where places are the nodes.
    pub fn entries(topology: &Topology) -> [u32; 2] {
        let places = topology.places.len() as u32;
        if places == 0 { [1, 1] } else { [topology.possible_cpus, places] }
    }

    /// Maps the maps behind these.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn new(into: impl AsFd, out: impl AsFd, topology: &Topology) -> Result<PlaceMovesMaps> {
        let [of_cpus, of_places] =
            PlaceMovesMaps::entries(topology).map(|entries| size_of::<Moves>() * entries as usize);
        Ok(PlaceMovesMaps {
            into: Mapping::new(into, of_cpus).context("mmap of the counters of moves to CPUs")?,
            out: Mapping::new(out, of_places).context("mapping the counts of moves between places")?,
        })
    }

    /// Moves by place since the start; none where places are the nodes.
    pub fn read(&self, topology: &Topology) -> BTreeMap<u32, PlaceMoves> {
        let at = |map: &Mapping, entry: usize| map.get::<Moves>(entry * size_of::<Moves>());
        let mut places: BTreeMap<u32, PlaceMoves> = BTreeMap::new();
        for place in 0..topology.places.len() {
            let Some(left) = at(&self.out, place) else { continue };
            let [llc_out, socket_out] = left.of;
            places.insert(place as u32, PlaceMoves { llc_out, socket_out, ..PlaceMoves::default() });
        }
        if places.is_empty() {
            return places;
        }
        for cpu in &topology.cpus {
            let Some(into) = at(&self.into, cpu.id.index()) else { continue };
            let [llc, socket] = into.of;
            if let Some(place) = places.get_mut(&topology.place_of(cpu)) {
                (place.llc_in, place.socket_in) = (place.llc_in + llc, place.socket_in + socket);
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::model::topology::Division;

    #[test]
    fn a_record_has_room_for_pages_only_where_they_are_counted() {
        let layout = RecordLayout::new(16, false, &[]);
        let without = RecordLayout { pages: false, ..layout };
        assert_eq!(layout.size() - without.size(), 16 * 8);
        assert!(without.several_nodes(), "moves between nodes are counted all the same");
        let divided = RecordLayout { places: 24, ..layout };
        assert_eq!((divided.size() - layout.size(), divided.pages_at()), (8 * 8, 24));
    }

    /// These values in a file of whole pages, as the kernel has an array that is mapped.
    fn file(bytes: &[u8]) -> std::fs::File {
        let made = rustix::fs::memfd_create("moves", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(made);
        file.write_all(bytes).unwrap();
        file.set_len(bytes.len().next_multiple_of(rustix::param::page_size()) as u64).unwrap();
        file
    }

    #[test]
    fn moves_in_are_sums_over_the_cpus_of_a_place() {
        let mut topology = crate::model::demo::facts().topology;
        let (cpus, places) = (topology.possible_cpus, topology.places.len());
        assert!(places > 4);
        let of = |values: &mut dyn Iterator<Item = [u64; 2]>| -> Vec<Moves> {
            values.map(|of| Moves { of, pad: [9; 6] }).collect()
        };
        let into = of(&mut (0..cpus).map(|cpu| [1 << (cpu % 32), 1000]));
        let left = of(&mut (0..places as u64).map(|place| [place, place + 70]));
        let [into, left] = [into, left].map(|values| file(bytemuck::cast_slice(&values)));
        let maps = PlaceMovesMaps::new(&into, &left, &topology).unwrap();
        let moves = maps.read(&topology);
        assert_eq!(moves.len(), places);
        for (place, moved) in &moves {
            let members = &topology.places[*place as usize].cpus;
            let llc_in = members.iter().map(|cpu| 1 << (cpu.0 % 32)).sum::<u64>();
            let socket_in = 1000 * members.len() as u64;
            let (llc_out, socket_out) = (u64::from(*place), u64::from(*place) + 70);
            assert_eq!(*moved, PlaceMoves { llc_in, llc_out, socket_in, socket_out });
        }
        topology.divide(Division::Nodes).unwrap();
        assert_eq!(maps.read(&topology), BTreeMap::new(), "places are the nodes");
    }
}
