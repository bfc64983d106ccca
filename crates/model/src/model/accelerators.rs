//! GPUs and other accelerators that processes hold: their device files are open.

use super::coded::coded;
use super::units::NodeId;
use crate::text::natural;

/// A device file of an accelerator, and the PCI functions behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accelerator {
    /// Its path below /dev or its last part: `nvidia0`, `renderD128`, `vfio/12`. Unique, and clean.
    pub name: String,
    /// Addresses of the PCI functions, in the form of [`crate::model::topology::Device::pci`]. An IOMMU group may have
    /// several. Empty where they are not known, and for devices on another bus.
    pub functions: Vec<String>,
    /// Nodes of the functions, ascending.
    pub nodes: Vec<NodeId>,
    /// The node of some function is not known.
    pub is_nodeless: bool,
}

coded!(Accelerator { name, functions, nodes, is_nodeless }, most MAX_HELD, "accelerators");

/// Accelerators that one process holds at most.
const MAX_HELD: usize = 1 << 16;

/// Accelerators that a process holds, in the order of [`sort`].
pub type Held = Vec<Accelerator>;

/// Sorts accelerators by name, `nvidia2` before `nvidia10`, and drops repeated ones. One whose node is not known makes
/// all of its name unknown.
pub fn sort(held: &mut Held) {
    held.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)));
    held.dedup_by(|again, first| {
        let is_same = again.name == first.name;
        first.is_nodeless |= is_same && again.is_nodeless;
        is_same
    });
}

/// Nodes of all of them, ascending, and whether the node of some is not known.
pub fn nodes_of(held: &[Accelerator]) -> (Vec<NodeId>, bool) {
    let mut nodes: Vec<NodeId> = held.iter().flat_map(|one| &one.nodes).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    let is_nodeless = nodes.is_empty() || held.iter().any(|one| one.is_nodeless);
    (nodes, is_nodeless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_natural_order_and_unique() {
        let of = |name: &str| Accelerator { name: name.into(), ..Accelerator::default() };
        let mut held: Held = ["nvidia10", "card0", "nvidia2", "vfio/9", "nvidia10", "kfd"].map(of).into();
        sort(&mut held);
        let names: Vec<&str> = held.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["card0", "kfd", "nvidia2", "nvidia10", "vfio/9"]);
        let kfd = |is_nodeless| Accelerator { is_nodeless, ..of("kfd") };
        let mut of_two_processes = vec![kfd(false), kfd(true)];
        sort(&mut of_two_processes);
        assert_eq!(of_two_processes, [kfd(true)]);
    }

    #[test]
    fn a_device_without_a_node_makes_the_whole_unknown() {
        let of = |nodes: &[u32], is_nodeless| Accelerator {
            nodes: nodes.iter().copied().map(NodeId).collect(),
            is_nodeless,
            ..Accelerator::default()
        };
        assert_eq!(nodes_of(&[of(&[1], false), of(&[0, 1], false)]), (vec![NodeId(0), NodeId(1)], false));
        assert_eq!(nodes_of(&[of(&[1], false), of(&[], true)]), (vec![NodeId(1)], true));
        // /dev/kfd beside its render node.
        assert_eq!(nodes_of(&[of(&[], false), of(&[1], false)]), (vec![NodeId(1)], false));
        assert_eq!(nodes_of(&[of(&[], false)]), (vec![], true));
    }
}
