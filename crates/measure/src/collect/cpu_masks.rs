//! CPU masks by node: the CPUs of each node in the words of a mask. Pure.

use std::collections::BTreeMap;

use crate::model::topology::Topology;
use crate::model::wire::{MASK_FIRST, MASK_OTHERS, MaskPart};

/// CPUs in a word of a mask.
const WORD: u32 = u64::BITS;

/// The nodes of a machine in CPU masks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuMasks {
    /// Of the first word, ascending by node.
    pub first: Vec<MaskPart>,
    /// Of the others, ascending by word and node. Both are empty where they are more than the kernel programs take.
    pub others: Vec<MaskPart>,
    /// Bit i: node i has a CPU.
    pub all: u64,
}

impl CpuMasks {
    /// The present CPUs of a machine, online or not. Nodes above 63 are left out; a CPU without a node is one of node 0.
    pub fn of(topology: &Topology) -> CpuMasks {
        let mut words: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut all = 0;
        for cpu in &topology.cpus {
            let node = cpu.node.map_or(0, |node| node.0);
            if node < u64::BITS {
                *words.entry((cpu.id.0 / WORD, node)).or_default() |= 1 << (cpu.id.0 % WORD);
                all |= 1 << node;
            }
        }
        let part = |((word, node), cpus)| MaskPart { word, node, cpus };
        let (first, others): (Vec<_>, Vec<_>) = words.into_iter().map(part).partition(|part| part.word == 0);
        if first.len() > MASK_FIRST || others.len() > MASK_OTHERS {
            return CpuMasks { all, ..CpuMasks::default() };
        }
        CpuMasks { first, others, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::Cpu;
    use crate::model::units::CpuId;

    fn of(fixture: &str) -> CpuMasks {
        let root = crate::fixture::tree(&format!("hosts/{fixture}"));
        CpuMasks::of(&crate::host::topology::read(&root).unwrap())
    }

    #[test]
    fn nodes_share_words_and_words_share_nodes() {
        let small = of("intel-e5-2682v4");
        let cpus: Vec<u64> = small.first.iter().map(|part| part.cpus).collect();
        assert_eq!((cpus.len(), cpus[0] & cpus[1], cpus[0] | cpus[1]), (2, 0, u64::MAX));
        assert_eq!((small.all, small.others.len()), (0b11, 0));

        // 128 CPUs on 16 nodes: eight nodes in each word.
        let large = of("ft-2500");
        assert_eq!((large.all, large.first.len(), large.others.len()), (0xffff, 8, 8));
        assert_eq!(large.others[1], MaskPart { word: 1, node: 9, cpus: 0xff00 });
    }

    #[test]
    fn a_node_without_cpus_has_no_part() {
        let masks = of("cxl");
        assert!(masks.first.iter().all(|part| part.cpus != 0));
        assert_eq!(masks.all.count_ones() as usize, masks.first.len());
    }

    #[test]
    fn too_many_parts_are_none() {
        let root = crate::fixture::tree("hosts/ft-2500");
        let mut topology = crate::host::topology::read(&root).unwrap();
        let cpu = topology.cpus[0].clone();
        let of_word = |word: u32| Cpu { id: CpuId(WORD * word), ..cpu.clone() };
        topology.cpus = (0..=MASK_OTHERS as u32).map(of_word).collect();
        assert_eq!(CpuMasks::of(&topology).others.len(), MASK_OTHERS);
        topology.cpus.push(of_word(MASK_OTHERS as u32 + 1));
        assert_eq!(CpuMasks::of(&topology), CpuMasks { all: 1, ..CpuMasks::default() });
    }
}
