//! Parts of the machine that are read in turns, one line for each: samples, snapshots and recordings have them by this list.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::accelerators::Held;
use super::coded::varint::Malformed;
use super::coded::{In, Out, get_changed, put_changed};
use super::disks::{DiskSender, DiskTraffic};
use super::facility::Facility;
use super::machine::PlaceMoves;
use super::memory::{ObjectId, ObjectNodes};
use super::process::ProcessId;
use super::sockets::SocketTraffic;
use super::turns::{
    CacheId, CacheUse, DeviceInterrupts, DramTraffic, FreeBlocks, NodeTier, SchedExt, TierPages,
};
use super::units::NodeId;

/// Makes [`Inputs`] and [`INPUTS`] of `name: key => value = tag, facility`. The tag is that of the section of
/// recordings; neither tag nor name ever changes. 42 is the next one. Recordings without the facility, if one
/// is given, lack the input.
macro_rules! inputs {
    ($($(#[$doc:meta])* $name:ident: $key:ty => $value:ty = $tag:literal, $facility:expr;)*) => {
        /// The last reading of each part, shared between samples until it changes.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Inputs {
            $($(#[$doc])* pub $name: Arc<BTreeMap<$key, Arc<$value>>>,)*
        }

        /// All parts.
        pub static INPUTS: &[Input] = &[$(Input {
            tag: $tag,
            name: stringify!($name),
            facility: $facility,
            put: |now, base, out| put_changed(out, base.map(|base| &base.$name), &now.$name),
            get: |input, base, inputs| {
                inputs.$name = get_changed(input, base.map(|base| &base.$name))?;
                Ok(())
            },
        }),*];
    };
}

/// Values by key; each that is as before is shared with the reading before.
pub fn shared_with<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, Arc<V>>,
    now: BTreeMap<K, V>,
) -> BTreeMap<K, Arc<V>> {
    let shared = |(key, value): (K, V)| {
        let same = before.get(&key).filter(|old| ***old == value).map(Arc::clone);
        (key, same.unwrap_or_else(|| Arc::new(value)))
    };
    now.into_iter().map(shared).collect()
}

inputs! {
    /// Interrupts of devices by node, by the address of the PCI function in the form of
    /// [`crate::model::topology::Device::pci`]. A function appears once its counts were read twice. Empty
    /// with one node.
    interrupts: String => DeviceInterrupts = 24, Some(Facility::DeviceIrqs);
    /// Free memory by the size of blocks. A node whose lines cannot be understood is left out.
    free_blocks: NodeId => FreeBlocks = 28, Some(Facility::FreeBlocks);
    /// The sched_ext scheduler that is loaded, by its name, which is clean: one at most.
    schedulers: String => SchedExt = 29, Some(Facility::SchedExt);
    /// All nodes among memory tiers.
    tiers: NodeId => NodeTier = 30, Some(Facility::MemoryTiers);
    /// Pages that moved between tiers, by node. Empty where all memory is of one tier.
    tier_pages: NodeId => TierPages = 31, Some(Facility::MemoryTiers);
    /// Kernel switches for tiers, by the names in [`crate::model::turns`]. Switches that the kernel lacks are absent.
    tier_switches: String => u64 = 32, Some(Facility::MemoryTiers);
    /// Nodes of objects of shared memory. Empty where the kernel does not tell them.
    object_nodes: ObjectId => ObjectNodes = 33, None;
    /// On-CPU time of tasks in the scope by CPU id, ns, cumulative. Empty without a scope.
    scope_ns: u32 => u64 = 34, None;
    /// Traffic to disks since it began to be counted. A sender that rests for long is left out, and begins at 0 when it returns.
    disk_traffic: DiskSender => DiskTraffic = 35, Some(Facility::DiskTraffic);
    /// Accelerators that processes held at the last look. Processes that held none are absent.
    accelerators: ProcessId => Held = 36, Some(Facility::Accelerators);
    /// Moves of tasks in the scope between L3 domains and sockets, by place. Empty where places are the nodes.
    place_moves: u32 => PlaceMoves = 37, Some(Facility::PlaceMoves);
    /// Traffic of IP sockets since it began to be counted. A process that rests for long is left out, and begins at 0 when it
    /// returns.
    socket_traffic: ProcessId => SocketTraffic = 38, Some(Facility::SocketTraffic);
    /// Use of L3 domains and of memory bandwidth. Domains with isolated CPUs only are left out.
    cache_use: CacheId => CacheUse = 40, Some(Facility::CacheUse);
    /// Traffic of memory controllers, by node. Nodes without a controller that the kernel counts are absent.
    node_dram: NodeId => DramTraffic = 39, Some(Facility::MemoryControllers);
    /// The same by socket (`physical_package_id`).
    socket_dram: u32 => DramTraffic = 41, Some(Facility::MemoryControllers);
}

/// A part in recordings: entries that differ from those of the keyframe.
pub struct Input {
    /// Its section.
    pub tag: u8,
    /// Its name in heads.
    pub name: &'static str,
    /// The facility that recordings without it have not kept.
    pub facility: Option<Facility>,
    /// Writes the differences from a keyframe; nothing without any.
    pub put: for<'v> fn(&'v Inputs, Option<&'v Inputs>, &mut Out<'v>),
    /// Reads it.
    pub get: fn(&mut In<'_, '_>, Option<&Inputs>, &mut Inputs) -> Result<(), Malformed>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::accelerators::Accelerator;
    use crate::model::coded::Room;
    use crate::model::coded::varint::Bytes;

    fn interrupts(count: u64) -> Inputs {
        let device = |nodes: &[(u32, u64)]| DeviceInterrupts {
            read_ns: 1 << 50,
            over_ns: 3_000_000_000,
            by_node: nodes.iter().map(|(node, count)| (NodeId(*node), *count)).collect(),
        };
        let all = [("0000:3b:00.0", device(&[(0, count), (7, u64::MAX)])), ("0000:5e:00.1", device(&[]))];
        let all = all.into_iter().map(|(address, device)| (address.to_owned(), Arc::new(device)));
        Inputs { interrupts: Arc::new(all.collect()), ..Inputs::default() }
    }

    fn written(base: Option<&Inputs>, now: &Inputs) -> Vec<u8> {
        let mut out = Out::default();
        INPUTS.iter().for_each(|input| (input.put)(now, base, &mut out));
        out.bytes
    }

    fn read(bytes: &[u8], base: Option<&Inputs>) -> Result<Inputs, Malformed> {
        let mut room = Room::endless();
        let mut input = In::new(Bytes(bytes), &mut room);
        let mut inputs = Inputs::default();
        INPUTS.iter().try_for_each(|one| (one.get)(&mut input, base, &mut inputs))?;
        input.bytes.finish().map(|()| inputs)
    }

    #[test]
    fn what_is_written_comes_back() {
        let (key, none) = (interrupts(5), Inputs::default());
        let length = |base, now: &Inputs| {
            let bytes = written(base, now);
            assert_eq!(read(&bytes, base).unwrap(), *now);
            bytes.len()
        };
        for base in [None, Some(&key), Some(&none)] {
            for now in [&key, &interrupts(6), &none] {
                length(base, now);
            }
        }
        assert_eq!(length(Some(&key), &interrupts(5)), 0, "the same is not written again");
        let one = length(Some(&key), &interrupts(6));
        assert!(one < length(None, &interrupts(6)), "a device that is as it was is not written: {one}");
        assert_eq!(length(None, &none), 0, "machines without such devices have no byte");
    }

    #[test]
    fn accelerators_are_written_when_they_change() {
        let gpu = |name: &str| Accelerator {
            name: name.into(),
            functions: vec!["0000:3b:00.0".into(), "0000:5e:00.0".into()],
            nodes: vec![NodeId(0), NodeId(7)],
            is_nodeless: true,
        };
        let held = |names: &[&str]| {
            let others = ((8, 1), Arc::new(vec![gpu("card0")]));
            let one = ((7, u64::MAX), Arc::new(names.iter().map(|name| gpu(name)).collect::<Held>()));
            Inputs { accelerators: Arc::new([one, others].into()), ..Inputs::default() }
        };
        let (before, now) = (held(&["nvidia0", "nvidia1"]), held(&["nvidia1"]));
        // Sections are read one by one; the helpers above are for the first of them.
        let section = INPUTS.iter().find(|input| input.name == "accelerators").unwrap();
        let written = |base: Option<&Inputs>, now: &Inputs| {
            let mut out = Out::default();
            (section.put)(now, base, &mut out);
            out.bytes
        };
        let read = |bytes: &[u8], base: Option<&Inputs>| {
            let (mut room, mut inputs) = (Room::endless(), Inputs::default());
            let mut input = In::new(Bytes(bytes), &mut room);
            (section.get)(&mut input, base, &mut inputs)?;
            input.bytes.finish().map(|()| inputs)
        };
        for base in [None, Some(&before), Some(&Inputs::default())] {
            assert_eq!(read(&written(base, &now), base).unwrap(), now);
        }
        let same = held(&["nvidia0", "nvidia1"]);
        assert!(written(Some(&before), &same).is_empty(), "the same is not written again");
        let bytes = written(None, &now);
        assert!((1..bytes.len()).all(|length| read(&bytes[..length], None).is_err()));
        assert!(read(&written(None, &held(&["\x1b[2J"])), None).is_err());
    }

    #[test]
    fn what_is_cut_or_cannot_be_shown_is_malformed() {
        let bytes = written(None, &interrupts(300));
        for length in 1..bytes.len() {
            assert!(read(&bytes[..length], None).is_err(), "{length} of {} bytes", bytes.len());
        }
        let device = ("\x1b[2J".to_owned(), Arc::default());
        let hostile = Inputs { interrupts: Arc::new([device].into()), ..Inputs::default() };
        assert!(read(&written(None, &hostile), None).is_err());
    }
}
