//! Places: sets of CPUs with one node, one socket and one last-level cache.

use serde::{Deserialize, Serialize};

use super::{Cpu, Topology};
use crate::model::units::{CpuId, NodeId};

/// CPUs with one node, one socket and one last-level cache. Nodes, sockets and last-level caches are unions of places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its node; `None`: it is room for CPUs that come online.
    pub node: Option<NodeId>,
    /// CPUs of the place, ascending. A CPU that goes offline stays in the list.
    pub cpus: Vec<CpuId>,
}

/// The sets of CPUs by which time of tasks is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Division {
    /// Places, up to 64 of them; nodes above.
    #[default]
    Usual,
    /// Nodes.
    Nodes,
    /// Places, up to 256 of them.
    Places,
}

/// Places up to which the time of each task is kept by place without a request: a record has eight bytes for each.
const USUAL_MAX: usize = 64;
/// Places at most.
const PLACES_MAX: usize = 256;

/// Room for places of CPUs that come online, beside one place for each node without CPUs: at most.
const ROOMS_MAX: usize = 16;
/// Elements of a table over places at most (`NT_PLACES_MAX`).
pub const TABLE_MAX: usize = 1024;

/// More places than a record has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine has {0} places (L3 domains), more than {PLACES_MAX}: use --places node")]
pub struct TooManyPlaces(pub usize);

impl Topology {
    /// Divides the machine: fills [`Topology::places`], which stays empty where the places are the nodes. Returns the number of
    /// places where they are too many to be used without a request.
    ///
    /// # Errors
    /// Places are asked for, and they are too many.
    pub fn divide(&mut self, division: Division) -> Result<Option<usize>, TooManyPlaces> {
        let mut places: Vec<Place> = Vec::new();
        for cpu in self.online_cpus() {
            match places.iter_mut().find(|place| self.is_in(cpu, place)) {
                Some(place) => place.cpus.push(cpu.id),
                None => places.push(Place { node: Some(node_of(cpu)), cpus: vec![cpu.id] }),
            }
        }
        let used = places.len();
        let differ = places
            .iter()
            .enumerate()
            .any(|(at, place)| places[..at].iter().any(|other| other.node == place.node));
        let wanted = match division {
            Division::Usual => used <= USUAL_MAX,
            Division::Nodes => false,
            Division::Places if differ && used > PLACES_MAX => return Err(TooManyPlaces(used)),
            Division::Places => true,
        };
        self.places.clear();
        if differ && wanted {
            let has_place = |node: &u32| places.iter().any(|place| place.node == Some(NodeId(*node)));
            let nodes = (0..self.possible_nodes).filter(|node| !has_place(node)).count();
            let cpus = (self.possible_cpus as usize).saturating_sub(self.online_cpus().count());
            let rooms = (nodes + cpus.min(ROOMS_MAX)).min(cpus).min(TABLE_MAX - used);
            places.resize(used + rooms, Place { node: None, cpus: Vec::new() });
            self.places = places;
        }
        Ok((differ && !wanted && division == Division::Usual).then_some(used))
    }

    /// Takes over the places of an earlier reading, whose numbers stay, and adds CPUs that came online. CPUs with another
    /// last-level cache take room, or join another place of their node where there is none.
    pub fn divide_as(&mut self, before: &[Place]) {
        let mut places = before.to_vec();
        if places.is_empty() {
            return;
        }
        // A CPU that was taken out may be put in again on another node.
        let is_of =
            |id: &CpuId, node| self.cpu(*id).is_none_or(|cpu| !cpu.online || Some(node_of(cpu)) == node);
        for place in &mut places {
            let node = place.node;
            place.cpus.retain(|id| is_of(id, node));
        }
        for cpu in self.online_cpus() {
            if places.iter().any(|place| place.cpus.contains(&cpu.id)) {
                continue;
            }
            let near = places.iter().position(|place| self.is_in(cpu, place));
            let with = |node| places.iter().position(|place| place.node == node);
            let node = Some(node_of(cpu));
            if let Some(at) = near.or_else(|| with(None)).or_else(|| with(node)) {
                let place = &mut places[at];
                place.node = node;
                place.cpus.push(cpu.id);
                place.cpus.sort_unstable();
            }
        }
        self.places = places;
    }

    /// Whether an online CPU has the node, the socket and the last-level cache of a place.
    fn is_in(&self, cpu: &Cpu, place: &Place) -> bool {
        let online = place.cpus.iter().filter_map(|id| self.cpu(*id)).filter(|other| other.online);
        place.node == Some(node_of(cpu))
            && online.take(1).any(|other| (other.socket, other.llc) == (cpu.socket, cpu.llc))
    }

    /// The number of the place of a CPU: its node where [`Topology::places`] are the nodes, and a place of its node where
    /// it is in none.
    pub fn place_of(&self, cpu: &Cpu) -> u32 {
        let node = node_of(cpu);
        if self.places.is_empty() {
            return node.0;
        }
        let its_own = self.places.iter().position(|place| place.cpus.contains(&cpu.id));
        let of_node = || self.places.iter().position(|place| place.node == Some(node));
        its_own.or_else(of_node).unwrap_or(0) as u32
    }

    /// The node of a CPU, and the number of its place.
    pub fn node_and_place(&self, cpu: CpuId) -> (u32, u32) {
        self.cpu(cpu).map_or((0, 0), |cpu| (node_of(cpu).0, self.place_of(cpu)))
    }

    /// The length of a table over places.
    pub fn possible_places(&self) -> u32 {
        if self.places.is_empty() { self.possible_nodes } else { self.places.len() as u32 }
    }

    /// The node of each place, `u32::MAX` of room; none where places are the nodes.
    pub fn nodes_of_places(&self) -> impl Iterator<Item = u32> {
        self.places.iter().map(|place| place.node.map_or(u32::MAX, |node| node.0))
    }

    /// The last-level cache of each place, as an index into [`Topology::llcs`]; `None` without an online CPU, and where its CPUs
    /// have several.
    pub fn llcs_of_places(&self) -> impl Iterator<Item = Option<u32>> {
        self.of_places(|cpu| Some(cpu.llc))
    }

    /// The socket of each place; `None` where sysfs does not name it.
    pub fn sockets_of_places(&self) -> impl Iterator<Item = Option<u32>> {
        self.of_places(|cpu| u32::try_from(cpu.socket?).ok())
    }

    fn of_places(&self, of: fn(&Cpu) -> Option<u32>) -> impl Iterator<Item = Option<u32>> {
        // CPUs that found no room are in a place with others, whose time is not told apart.
        let common = move |place: &Place| {
            let cpus = place.cpus.iter().filter_map(|id| self.cpu(*id)).filter(|cpu| cpu.online);
            let mut sets = cpus.map(of);
            let first = sets.next()??;
            sets.all(|set| set == Some(first)).then_some(first)
        };
        self.places.iter().map(common)
    }
}

fn node_of(cpu: &Cpu) -> NodeId {
    cpu.node.unwrap_or(NodeId(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::Llc;

    /// A machine whose CPU `at` has this node, socket and last-level cache.
    fn machine(places: &[(u32, i32, u32)]) -> Topology {
        let mut topology = crate::model::demo::facts().topology;
        topology.possible_nodes = places.iter().map(|place| place.0).max().unwrap() + 1;
        topology.possible_cpus = places.len() as u32;
        topology.cpus = (0..)
            .zip(places)
            .map(|(id, (node, socket, llc))| Cpu {
                id: CpuId(id),
                online: true,
                node: Some(NodeId(*node)),
                socket: Some(*socket),
                core_id: None,
                core: id,
                llc: *llc,
                siblings: vec![CpuId(id)],
            })
            .collect();
        let llcs = places.iter().map(|place| place.2).max().unwrap() + 1;
        topology.llcs = (0..llcs).map(|_| Llc { cpus: vec![], level: Some(3), size_bytes: None }).collect();
        topology
    }

    fn divided(topology: &mut Topology) -> Vec<(Option<u32>, Vec<u32>)> {
        topology.divide(Division::Usual).unwrap();
        let ids = |place: &Place| place.cpus.iter().map(|cpu| cpu.0).collect();
        topology.places.iter().map(|place| (place.node.map(|node| node.0), ids(place))).collect()
    }

    #[test]
    fn nodes_that_are_the_places_need_no_places() {
        let mut same = machine(&[(0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 1, 1)]);
        assert_eq!(divided(&mut same), []);
        assert_eq!((same.possible_places(), same.place_of(&same.cpus[3])), (2, 1));
        // Sub-NUMA clustering: a cache spans two nodes.
        assert_eq!(divided(&mut machine(&[(0, 0, 0), (1, 0, 0)])), []);
    }

    #[test]
    fn hidden_sockets_and_several_caches_are_places() {
        let mut hidden = machine(&[(0, 0, 0), (0, 1, 1), (0, 0, 0), (0, 1, 1)]);
        assert_eq!(divided(&mut hidden), [(Some(0), vec![0, 2]), (Some(0), vec![1, 3])]);
        let mut many = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 3)]);
        assert_eq!(divided(&mut many).len(), 4);
        assert_eq!(many.llcs_of_places().collect::<Vec<_>>(), [0, 1, 2, 3].map(Some));
        assert_eq!(many.sockets_of_places().collect::<Vec<_>>(), [0, 0, 1, 1].map(Some));
        many.divide(Division::Nodes).unwrap();
        assert!(many.places.is_empty());
    }

    proptest::proptest! {
        /// Whatever the machine is like, each CPU has one place, on its node: time by place adds up to the time by node, also after
        /// a CPU went offline and came back.
        #[test]
        fn places_add_up_to_nodes(
            cpus in proptest::collection::vec((0..4u32, 0..3i32, 0..6u32), 1..40),
            gone in 0..40usize,
        ) {
            let mut topology = machine(&cpus);
            topology.possible_nodes = 4;
            topology.divide(Division::Places).unwrap();
            let sums = |topology: &Topology| {
                let (mut by_node, mut of_places) = ([0u64; 4], [0u64; 4]);
                for cpu in topology.online_cpus() {
                    let (node, place) = topology.node_and_place(cpu.id);
                    let ns = 1u64 << cpu.id.0;
                    by_node[node as usize] += ns;
                    let owner = match topology.places.get(place as usize) {
                        Some(place) => place.node.unwrap().0,
                        None => place,
                    };
                    of_places[owner as usize] += ns;
                }
                (by_node, of_places)
            };
            let check = |topology: &Topology| {
                let (by_node, of_places) = sums(topology);
                assert_eq!(by_node, of_places);
            };
            check(&topology);
            let gone = gone % cpus.len();
            for online in [false, true] {
                let before = topology.places.clone();
                topology.cpus[gone].online = online;
                topology.divide_as(&before);
                check(&topology);
            }
        }
    }

    #[test]
    fn many_places_need_a_request_and_too_many_are_refused() {
        let of = |count: u32| machine(&(0..count).map(|llc| (0, 0, llc)).collect::<Vec<_>>());
        assert_eq!(divided(&mut of(65)), []);
        assert_eq!(of(65).divide(Division::Usual), Ok(Some(65)));
        assert_eq!(of(65).divide(Division::Places), Ok(None));
        assert_eq!(of(257).divide(Division::Places), Err(TooManyPlaces(257)));
        assert_eq!(of(257).divide(Division::Nodes), Ok(None));
    }

    #[test]
    fn numbers_stay_when_cpus_come_and_go() {
        let mut before = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 2)]);
        (before.possible_nodes, before.possible_cpus) = (3, 6);
        before.cpus[3].online = false;
        let [one, other, third] = [(Some(0), vec![0]), (Some(0), vec![1]), (Some(1), vec![2])];
        let none = (None, vec![]);
        assert_eq!(divided(&mut before), [one, other, third, none.clone(), none.clone(), none]);
        // CPU 0 goes offline. CPU 3 and two CPUs of a third node come online, each with a separate cache.
        let mut after = machine(&[(0, 0, 9), (0, 0, 0), (1, 1, 1), (1, 1, 2), (2, 2, 3), (2, 2, 4)]);
        after.cpus[0].online = false;
        after.divide_as(&before.places);
        assert_eq!(ids(&after), [vec![0], vec![1], vec![2], vec![3], vec![4], vec![5]]);
        assert_eq!(after.places[4].node, Some(NodeId(2)));
        let llcs = [None, Some(0), Some(1), Some(2), Some(3), Some(4)];
        assert_eq!(after.llcs_of_places().collect::<Vec<_>>(), llcs);
    }

    #[test]
    fn cpus_without_room_are_not_told_apart_and_those_of_another_node_leave() {
        let mut before = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2)]);
        assert_eq!(divided(&mut before).len(), 3, "no CPU can come");
        let mut after = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (0, 0, 3)]);
        after.divide_as(&before.places);
        assert_eq!(ids(&after), [vec![0, 3], vec![1], vec![2]]);
        assert_eq!(after.llcs_of_places().collect::<Vec<_>>(), [None, Some(1), Some(2)]);
        // CPU 1 is on another node now.
        let mut moved = machine(&[(0, 0, 0), (1, 1, 2), (1, 1, 2)]);
        moved.divide_as(&before.places);
        assert_eq!(ids(&moved), [vec![0], vec![], vec![1, 2]]);
    }

    fn ids(topology: &Topology) -> Vec<Vec<u32>> {
        topology.places.iter().map(|place| place.cpus.iter().map(|cpu| cpu.0).collect()).collect()
    }
}
