//! Nodes that handle interrupts of devices: irqbalance and people move them while the machine is watched.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LiveSource, ROOT};
use crate::model::topology::Topology;

/// A reading is followed by a rest of so many times its length, and of a second at least: a network card has a list for each of
/// its queues.
const REST: u32 = 499;
const REST_LEAST: Duration = Duration::from_secs(1);

/// The device whose lists are read next, and when.
#[derive(Debug, Default)]
pub(super) struct Turn {
    device: usize,
    due: Option<Instant>,
}

impl LiveSource {
    /// Reads again which nodes handle the interrupts of one device, each in its turn. On machines with one node it is never
    /// another one.
    pub(super) fn follow_interrupts(&mut self) {
        let began = Instant::now();
        if self.host.topology.nodes.len() < 2 || self.irq_turn.due.is_some_and(|due| began < due) {
            return;
        }
        if let Some(topology) = self.irq_turn.next(Path::new(ROOT), &self.host.topology) {
            Arc::make_mut(&mut self.host).topology = topology;
        }
        self.irq_turn.due = Some(Instant::now() + REST_LEAST.max(began.elapsed() * REST));
    }
}

impl Turn {
    /// The topology with the lists of the next device as they are below `root` now; `None` where they are the same, or cannot
    /// be read, as those of a device that is going away.
    fn next(&mut self, root: &Path, topology: &Topology) -> Option<Topology> {
        let places: Vec<(usize, usize)> = (topology.nodes.iter().enumerate())
            .flat_map(|(node, of)| (0..of.devices.len()).map(move |device| (node, device)))
            .collect();
        let (node, device) = *places.get(self.device.checked_rem(places.len())?)?;
        self.device = (self.device + 1) % places.len();
        let before = &topology.nodes[node].devices[device];
        let now = topology.irq_nodes_now(root, before).ok()?;
        if now == before.irq_nodes {
            return None;
        }
        let mut topology = topology.clone();
        topology.nodes[node].devices[device].irq_nodes = now;
        Some(topology)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::model::units::NodeId;

    #[test]
    fn each_device_has_its_turn_and_a_list_that_moved_is_seen() {
        let root = std::env::temp_dir().join(format!("numatop-irq-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder is made");
            fs::write(path, text).expect("a file is written");
        };
        let mut topology = crate::source::synthetic::demo_machine().host.topology.clone();
        let devices: Vec<(NodeId, String)> = topology
            .nodes
            .iter()
            .flat_map(|node| node.devices.iter().map(|device| (node.id, device.pci.clone().unwrap())))
            .collect();
        assert!(devices.len() > 1, "{devices:?}");
        let other = topology.nodes.iter().find(|node| node.id != devices[1].0).unwrap();
        let (moved_to, cpu) = (other.id, other.cpus[0]);
        for (at, (node, address)) in devices.iter().enumerate() {
            let cpu = topology.nodes.iter().find(|of| of.id == *node).unwrap().cpus[0];
            write(&format!("sys/bus/pci/devices/{address}/msi_irqs/{}", 30 + at), "msix");
            write(&format!("proc/irq/{}/effective_affinity_list", 30 + at), &format!("{cpu}\n"));
        }
        let mut turn = Turn::default();
        for _ in 0..devices.len() {
            if let Some(new) = turn.next(&root, &topology) {
                topology = new;
            }
        }
        write("proc/irq/31/effective_affinity_list", &format!("{cpu}\n"));
        let changed: Vec<Topology> = (0..devices.len()).filter_map(|_| turn.next(&root, &topology)).collect();
        fs::remove_dir_all(&root).expect("the folder is removed");
        assert_eq!(changed.len(), 1);
        let lists: Vec<&Vec<NodeId>> = changed[0]
            .nodes
            .iter()
            .flat_map(|node| node.devices.iter().map(|device| &device.irq_nodes))
            .collect();
        assert_eq!(*lists[1], [moved_to]);
        assert_eq!(*lists[0], [devices[0].0]);
    }
}
