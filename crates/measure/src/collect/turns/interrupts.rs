//! Interrupts of devices and the nodes that handle them: irqbalance and people move them while the machine is watched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::{Now, Part};
use crate::host::topology::IrqCounts;
use crate::model::sample::Missing;
use crate::model::topology::{Device, Topology};
use crate::model::turns::{DeviceInterrupts, Interrupts};
use crate::model::units::NodeId;
use crate::text::clean_str;

/// The function that is read next, by its place among them; the counts of all.
#[derive(Debug, Default)]
pub(super) struct Devices {
    place: usize,
    /// By the address of the function: CLOCK_MONOTONIC of the last reading, and its counts.
    before: BTreeMap<String, (u64, IrqCounts)>,
    interrupts: Arc<Interrupts>,
    /// Functions whose counts cannot be read, and were spoken of.
    refused: BTreeSet<String>,
}

impl Part for Devices {
    /// Reads again the interrupts of one device. On machines with one node none of them is far from its device.
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
        if now.host.topology.nodes.len() < 2 {
            return Ok(());
        }
        if let Some(topology) = self.next(now.root, &now.host.topology, now.mono_ns, now.notes) {
            Arc::make_mut(now.host).topology = topology;
        }
        now.inputs.interrupts = Arc::clone(&self.interrupts);
        Ok(())
    }

    fn begin_again(&mut self) {
        self.before.clear();
    }
}

impl Devices {
    /// Reads lists and counts of the next device below `root`. Gives the topology with its lists as they are now; `None` where they
    /// are the same, or cannot be read, as those of a device that is going away.
    fn next(
        &mut self,
        root: &Path,
        topology: &Topology,
        now_ns: u64,
        notes: &mut Vec<String>,
    ) -> Option<Topology> {
        // Several ports may be one function: it has one turn.
        let functions: BTreeSet<&String> =
            topology.placed_devices().filter_map(|device| device.pci.as_ref()).collect();
        let address = *functions.iter().nth(self.place.checked_rem(functions.len())?)?;
        self.place = (self.place + 1) % functions.len();
        if self.place == 0 {
            self.keep(&functions);
        }
        let is_it = |device: &Device| device.pci.as_ref() == Some(address);
        let before = topology.placed_devices().find(|device| is_it(device))?;
        if let Err(error) = self.count(root, topology, address, now_ns) {
            notes.push(format!("interrupts of {} are not counted: {error:#}", clean_str(&before.name)));
        }
        let now = crate::host::topology::irq_nodes_now(topology, root, before).ok()?;
        if now == before.irq_nodes {
            return None;
        }
        let mut moved = topology.clone();
        let ports = moved.nodes.iter_mut().flat_map(|node| &mut node.devices);
        ports.filter(|port| is_it(port)).for_each(|port| port.irq_nodes.clone_from(&now));
        Some(moved)
    }

    /// Counts the interrupts of a function since it was read before.
    ///
    /// # Errors
    /// Its counts cannot be read, for the first time.
    fn count(&mut self, root: &Path, topology: &Topology, address: &str, now_ns: u64) -> Result<()> {
        let counts = match crate::host::topology::irq_counts_now(topology, root, address) {
            // It has lost its driver, or the kernel has no files of CONFIG_SPARSE_IRQ.
            Ok(counts) if counts.is_empty() => {
                self.drop_counts(address);
                return Ok(());
            }
            Ok(counts) => counts,
            Err(error) => {
                self.drop_counts(address);
                return if self.refused.insert(address.to_owned()) { Err(error) } else { Ok(()) };
            }
        };
        if let Some((read_ns, before)) = self.before.get(address).filter(|(read_ns, _)| *read_ns < now_ns) {
            let over_ns = now_ns - read_ns;
            let by_node = by_node(&counts, before, over_ns);
            let read = DeviceInterrupts { read_ns: now_ns, over_ns, by_node };
            Arc::make_mut(&mut self.interrupts).insert(address.to_owned(), Arc::new(read));
        }
        self.before.insert(address.to_owned(), (now_ns, counts));
        Ok(())
    }

    fn drop_counts(&mut self, address: &str) {
        if self.before.remove(address).is_some() {
            Arc::make_mut(&mut self.interrupts).remove(address);
        }
    }

    /// Drops functions that are gone.
    fn keep(&mut self, functions: &BTreeSet<&String>) {
        if !self.before.keys().all(|address| functions.contains(address)) {
            self.before.retain(|address, _| functions.contains(address));
            Arc::make_mut(&mut self.interrupts).retain(|address, _| functions.contains(address));
        }
    }
}

/// Interrupts in this time by node, from counts at its end and before it; nodes without any are left out.
fn by_node(counts: &IrqCounts, before: &IrqCounts, over_ns: u64) -> BTreeMap<NodeId, u64> {
    let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (irq, of_nodes) in counts {
        for (node, count) in of_nodes {
            let earlier = before.get(irq).and_then(|nodes| nodes.get(node)).copied().unwrap_or(0);
            match since(*count, earlier, over_ns) {
                0 => {}
                more => *sums.entry(*node).or_default() += more,
            }
        }
    }
    sums
}

/// The most interrupts of one number that can be in a second: no CPU handles as many.
const PER_SECOND_MAX: u64 = 10_000_000;

/// Interrupts in this time since an earlier count modulo 2^32; a driver that loads again begins at zero.
fn since(count: u32, earlier: u32, over_ns: u64) -> u64 {
    let most = (over_ns / 1000).saturating_mul(PER_SECOND_MAX / 1_000_000);
    [count.wrapping_sub(earlier), count].into_iter().map(u64::from).find(|more| *more <= most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::NodeId;
    use crate::tree::Tree;

    #[test]
    fn each_device_has_its_turn_and_a_list_that_moved_is_seen() {
        let tree = Tree::new("irq-turns");
        // One number for each CPU of the demo machine.
        let count = |irq: usize, cpu: u32, count: u32| {
            let by_cpu: Vec<String> =
                (0..32).map(|of| if of == cpu { count } else { 0 }.to_string()).collect();
            tree.write(&format!("sys/kernel/irq/{irq}/per_cpu_count"), &format!("{}\n", by_cpu.join(",")));
        };
        let mut topology = crate::model::demo::facts().topology;
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
            tree.write(&format!("sys/bus/pci/devices/{address}/msi_irqs/{}", 30 + at), "msix");
            tree.write(&format!("proc/irq/{}/effective_affinity_list", 30 + at), &format!("{cpu}\n"));
            count(30 + at, cpu.0, 7);
        }
        let (mut turn, mut notes) = (Devices::default(), Vec::new());
        for _ in 0..devices.len() {
            if let Some(new) = turn.next(tree.root(), &topology, 1_000_000_000, &mut notes) {
                topology = new;
            }
        }
        assert!(turn.interrupts.is_empty(), "nothing was read twice");
        count(31, cpu.0, 3000);
        tree.write("proc/irq/31/effective_affinity_list", &format!("{cpu}\n"));
        let changed: Vec<Topology> = (0..devices.len())
            .filter_map(|_| turn.next(tree.root(), &topology, 3_000_000_000, &mut notes))
            .collect();
        let read = Arc::clone(&turn.interrupts);
        tree.write("sys/kernel/irq/31/per_cpu_count", "0,0,30");
        for _ in 0..2 * devices.len() {
            turn.next(tree.root(), &topology, 5_000_000_000, &mut notes);
        }
        let cut = Arc::clone(&turn.interrupts);
        assert_eq!(changed.len(), 1);
        let lists: Vec<&Vec<NodeId>> = changed[0]
            .nodes
            .iter()
            .flat_map(|node| node.devices.iter().map(|device| &device.irq_nodes))
            .collect();
        assert_eq!(*lists[1], [moved_to]);
        assert_eq!(*lists[0], [devices[0].0]);
        let moved = DeviceInterrupts {
            read_ns: 3_000_000_000,
            over_ns: 2_000_000_000,
            by_node: [(moved_to, 3000)].into(),
        };
        assert_eq!(*read[&devices[1].1], moved);
        assert!(read[&devices[0].1].by_node.is_empty(), "the other one was silent: {read:?}");
        assert!(!cut.contains_key(&devices[1].1), "a list that was cut is no number");
        assert_eq!(cut.len(), devices.len() - 1);
        tree.clear();
        for _ in &devices {
            turn.next(tree.root(), &topology, 6_000_000_000, &mut notes);
        }
        assert!(turn.interrupts.is_empty(), "a device without a driver has no rate");
        assert_eq!(notes.len(), 1, "it is said once: {notes:?}");
        assert!(notes[0].contains("sys/kernel/irq/31/per_cpu_count"), "{notes:?}");
    }

    #[test]
    fn counts_wrap_and_begin_again() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(since(5, u32::MAX - 4, SECOND), 10);
        assert_eq!(since(7, 3_000_000, SECOND), 7, "the driver was loaded again");
        assert_eq!(since(7, 3_000_000_000, SECOND), 7, "the same after hours");
        assert_eq!(since(3_000_000_000, 2_999_999_999, SECOND), 1);
        assert_eq!(since(3_000_000_000, 0, SECOND), 0, "nothing has so many in a second");
    }
}
