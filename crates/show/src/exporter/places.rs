//! Families of places that are not nodes (sockets and L3 domains), and of accelerators. Pure.

use std::collections::BTreeMap;

use super::page::{Family, Labels};
use crate::metric::amounts::NS;
use crate::metric::held_devices;
use crate::snapshot::{SetKind, Snapshot};
use crate::text::clean_str;

/// Sums of a place.
#[derive(Clone, Copy, Debug, Default)]
struct PlaceSums {
    cpu_s: f64,
    /// Moves of tasks into it and out of it; `None` until they are counted.
    moves: Option<[f64; 2]>,
}

/// Totals of places.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<Labels, PlaceSums>);

impl Places {
    /// Adds an interval.
    pub(super) fn take(&mut self, snapshot: &Snapshot) {
        for set in &snapshot.cpu_sets {
            let name = if set.kind == SetKind::Socket { "socket" } else { "llc" };
            let sums = self.0.entry(Labels::of([(name, set.id.to_string().as_str())])).or_default();
            sums.cpu_s += set.on_cpus.busy_ns as f64 * NS;
            if let Some(moves) = set.moves {
                let [into, out] = sums.moves.get_or_insert([0.0; 2]);
                *into += moves.into as f64;
                *out += moves.out as f64;
            }
        }
    }

    /// Its families; no series where sockets and L3 domains are the nodes.
    pub(super) fn families(&self) -> Vec<Family> {
        let cpu = self.0.iter().map(|(labels, sums)| (labels.clone(), sums.cpu_s));
        let moves = self.0.iter().filter_map(|(labels, sums)| Some((labels, sums.moves?)));
        let moves = moves.flat_map(|(labels, [into, out])| {
            [(labels.and("direction", "in"), into), (labels.and("direction", "out"), out)]
        });
        let words = "Moves of tasks into and out of sockets and L3 domains.";
        vec![
            Family::counter("numatop_place_cpu_seconds", "CPU time by socket and by L3 domain.").with(cpu),
            Family::counter("numatop_place_task_moves", words).with(moves),
        ]
    }
}

/// Accelerators, and the number of processes that hold each.
pub(super) fn devices(snapshot: &Snapshot) -> Vec<Family> {
    let devices = held_devices::devices(snapshot);
    let series = devices.iter().filter(|device| device.held_by.is_ok()).map(|device| {
        let node = device.node.as_ref().map_or_else(|_| String::new(), ToString::to_string);
        let (name, pci) = (clean_str(&device.name), clean_str(device.pci.as_deref().unwrap_or_default()));
        let labels = Labels::of([("device", name.as_str()), ("pci", &pci), ("node", &node)]);
        (labels, device.processes as f64)
    });
    let words = "Processes that hold a GPU or another accelerator open.";
    vec![Family::gauge("numatop_device_processes", words).with(series)]
}
