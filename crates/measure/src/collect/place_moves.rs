//! Moves of tasks between L3 domains and sockets: CPUs count those in, places those out.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::os::fd::AsFd;

use anyhow::{Context, Result};

use crate::model::machine::PlaceMoves;
use crate::model::topology::Topology;
use crate::model::wire::Moves;
use crate::sys::Mapping;

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
            into: Mapping::new(into, of_cpus).context("mapping moves to CPUs")?,
            out: Mapping::new(out, of_places).context("mapping moves from places")?,
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
