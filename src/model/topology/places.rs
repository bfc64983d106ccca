//! Places: sets of CPUs with one node, one socket and one last-level cache.

use serde::{Deserialize, Serialize};

use super::{Cpu, Topology};
use crate::model::units::{CpuId, NodeId};

/// CPUs with one node, one socket and one last-level cache. Nodes, sockets and last-level caches are unions of places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its node.
    pub node: NodeId,
    /// Its CPUs, ascending, including those that went offline. Empty: room for CPUs that come online.
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

/// Elements of a table over places at most (`NT_PLACES_MAX`).
const TABLE_MAX: usize = 1024;

/// More places than a record has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine has {0} places (L3 domains), more than {PLACES_MAX}: use --places node")]
pub struct TooManyPlaces(pub usize);

impl Topology {
    /// Divides the machine: fills [`Topology::places`], which stays empty where the places are the nodes.
    ///
    /// # Errors
    /// Places are asked for, and they are too many.
    pub fn divide(&mut self, division: Division) -> Result<(), TooManyPlaces> {
        let mut places: Vec<Place> = Vec::new();
        for cpu in self.online_cpus() {
            match places.iter_mut().find(|place| self.is_in(cpu, place)) {
                Some(place) => place.cpus.push(cpu.id),
                None => places.push(Place { node: node_of(cpu), cpus: vec![cpu.id] }),
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
            let mut rooms: Vec<NodeId> = (0..self.possible_nodes).map(NodeId).collect();
            rooms.retain(|node| {
                let has_place = places.iter().any(|place| place.node == *node);
                !has_place || self.offline_cpus().any(|cpu| cpu.node == Some(*node))
            });
            rooms.truncate(TABLE_MAX - places.len());
            places.extend(rooms.into_iter().map(|node| Place { node, cpus: Vec::new() }));
            self.places = places;
        }
        Ok(())
    }

    /// Takes over the places of an earlier reading, whose numbers stay, and adds CPUs that came online. A CPU with a
    /// last-level cache of its own takes the room of its node, or joins another place of the node if there is none.
    pub fn divide_as(&mut self, before: &[Place]) {
        let mut places = before.to_vec();
        if places.is_empty() {
            return;
        }
        for cpu in self.online_cpus() {
            if places.iter().any(|place| place.cpus.contains(&cpu.id)) {
                continue;
            }
            let near = places.iter().position(|place| self.is_in(cpu, place));
            let of_node = |empty: bool| {
                let is_one = |place: &Place| place.node == node_of(cpu) && place.cpus.is_empty() == empty;
                places.iter().position(is_one)
            };
            if let Some(at) = near.or_else(|| of_node(true)).or_else(|| of_node(false)) {
                places[at].cpus.push(cpu.id);
                places[at].cpus.sort_unstable();
            }
        }
        self.places = places;
    }

    /// Whether an online CPU has the node, the socket and the last-level cache of a place.
    fn is_in(&self, cpu: &Cpu, place: &Place) -> bool {
        let online = place.cpus.iter().filter_map(|id| self.cpu(*id)).filter(|other| other.online);
        place.node == node_of(cpu)
            && online.take(1).any(|other| (other.socket, other.llc) == (cpu.socket, cpu.llc))
    }

    /// The number of the place of a CPU: its node where [`Topology::places`] are the nodes.
    pub fn place_of(&self, cpu: &Cpu) -> u32 {
        let node = node_of(cpu).0;
        match self.places.iter().position(|place| place.cpus.contains(&cpu.id)) {
            Some(at) => at as u32,
            None => node,
        }
    }

    /// The node of a CPU, and the number of its place.
    pub fn node_and_place(&self, cpu: CpuId) -> (u32, u32) {
        self.cpu(cpu).map_or((0, 0), |cpu| (node_of(cpu).0, self.place_of(cpu)))
    }

    /// The length of a table over places.
    pub fn possible_places(&self) -> u32 {
        if self.places.is_empty() { self.possible_nodes } else { self.places.len() as u32 }
    }

    /// The last-level cache of each place, as an index into [`Topology::llcs`]; `None` without an online CPU.
    pub fn llcs_of_places(&self) -> impl Iterator<Item = Option<u32>> {
        self.of_places(|cpu| Some(cpu.llc))
    }

    /// The socket of each place; `None` where sysfs does not name it.
    pub fn sockets_of_places(&self) -> impl Iterator<Item = Option<u32>> {
        self.of_places(|cpu| u32::try_from(cpu.socket?).ok())
    }

    fn of_places(&self, of: fn(&Cpu) -> Option<u32>) -> impl Iterator<Item = Option<u32>> {
        let first = |place: &Place| place.cpus.iter().filter_map(|id| self.cpu(*id)).find(|cpu| cpu.online);
        self.places.iter().map(move |place| first(place).and_then(of))
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
        let mut topology = Topology::read(&crate::fixture::tree("hosts/no-numa")).unwrap();
        topology.possible_nodes = places.iter().map(|place| place.0).max().unwrap() + 1;
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

    fn divided(topology: &mut Topology) -> Vec<(u32, Vec<u32>)> {
        topology.divide(Division::Usual).unwrap();
        let ids = |place: &Place| place.cpus.iter().map(|cpu| cpu.0).collect();
        topology.places.iter().map(|place| (place.node.0, ids(place))).collect()
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
        assert_eq!(divided(&mut hidden), [(0, vec![0, 2]), (0, vec![1, 3])]);
        let mut many = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 3)]);
        assert_eq!(divided(&mut many).len(), 4);
        assert_eq!(many.llcs_of_places().collect::<Vec<_>>(), [0, 1, 2, 3].map(Some));
        assert_eq!(many.sockets_of_places().collect::<Vec<_>>(), [0, 0, 1, 1].map(Some));
        many.divide(Division::Nodes).unwrap();
        assert!(many.places.is_empty());
    }

    #[test]
    fn many_places_need_a_request_and_too_many_are_refused() {
        let of = |count: u32| machine(&(0..count).map(|llc| (0, 0, llc)).collect::<Vec<_>>());
        assert_eq!(divided(&mut of(65)), []);
        assert_eq!(of(65).divide(Division::Places), Ok(()));
        assert_eq!(of(257).divide(Division::Places), Err(TooManyPlaces(257)));
        assert_eq!(of(257).divide(Division::Usual), Ok(()));
    }

    #[test]
    fn numbers_stay_when_cpus_come_and_go() {
        let mut before = machine(&[(0, 0, 0), (0, 0, 1), (1, 1, 2), (1, 1, 2)]);
        before.possible_nodes = 3;
        before.cpus[3].online = false;
        assert_eq!(
            divided(&mut before),
            [(0, vec![0]), (0, vec![1]), (1, vec![2]), (1, vec![]), (2, vec![])]
        );
        // CPU 0 went, CPU 3 came with a cache of its own, and so did CPUs of a third node.
        let mut after = machine(&[(0, 0, 9), (0, 0, 0), (1, 1, 1), (1, 1, 2), (2, 2, 3), (2, 2, 4)]);
        after.cpus[0].online = false;
        after.divide_as(&before.places);
        let ids = |place: &Place| place.cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>();
        let cpus: Vec<Vec<u32>> = after.places.iter().map(ids).collect();
        assert_eq!(cpus, [vec![0], vec![1], vec![2], vec![3], vec![4, 5]]);
        assert_eq!(after.llcs_of_places().collect::<Vec<_>>(), [None, Some(0), Some(1), Some(2), Some(3)]);
    }
}
