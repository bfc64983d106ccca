//! The task-storage map whose values are as long as the machine has nodes and places.
//!
//! Task storage must be created with BTF that describes a value of exactly its size, and libbpf takes that
//! from the object file, where the size is fixed. So this module creates the map, with a BTF of two types,
//! and the objects reuse it.

use std::mem::size_of;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::libbpf_sys::BTF_INT_SIGNED;

use crate::model::event::{Event, Role};
use crate::model::topology::Topology;
use crate::model::wire::{NodeCounts, Rec, SIBLINGS};
use crate::sys::{Btf, KeyAndValue};

/// The parts of a record besides its fixed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
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

impl Layout {
    /// The layout for a machine whose places are its nodes, and its counters; pages have room where there are several nodes.
    pub fn new(nodes: u32, smt: bool, events: &[Event]) -> Layout {
        let slot = |role: Role| events.iter().position(|event| event.role == role).map(|slot| slot as u32);
        Layout {
            nodes,
            places: nodes,
            counted: slot(Role::Cycles).zip(slot(Role::Instructions)),
            smt,
            pages: nodes > 1,
            hints_from_task: false,
        }
    }

    /// The layout for a machine and its places.
    pub fn of(topology: &Topology, events: &[Event]) -> Layout {
        let layout = Layout::new(topology.possible_nodes, topology.smt(), events);
        Layout { places: topology.possible_places(), ..layout }
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
pub fn create(layout: Layout) -> Result<OwnedFd> {
    let (nodes, places) = (layout.nodes, layout.places);
    ensure!((1..=1024).contains(&nodes), "{nodes} NUMA nodes: the kernel allows 1 to 1024");
    ensure!((1..=1024).contains(&places), "{places} places: a record has room for 1 to 1024");
    let size = layout.size();
    let mut btf = Btf::new().context("making a BTF for the task storage map")?;
    let key = btf.add_int(c"int", size_of::<u32>(), BTF_INT_SIGNED)?;
    let byte = btf.add_int(c"unsigned char", 1, 0)?;
    let bytes = btf.add_array(key, byte, size)?;
    let value = btf.add_struct(c"task_rec", size, (c"bytes", bytes))?;
    btf.load().context("loading the BTF of the task storage map")?;
    btf.task_storage(c"task_recs", size, KeyAndValue { key, value }).context("creating the task storage map")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_room_for_pages_only_where_they_are_counted() {
        let layout = Layout::new(16, false, &[]);
        let without = Layout { pages: false, ..layout };
        assert_eq!(layout.size() - without.size(), 16 * 8);
        assert!(without.several_nodes(), "moves between nodes are counted all the same");
        let divided = Layout { places: 24, ..layout };
        assert_eq!((divided.size() - layout.size(), divided.pages_at()), (8 * 8, 24));
    }
}
