//! Interrupts of devices as bytes and back: the devices that differ from a keyframe.

use std::sync::Arc;

use super::format::{MAX_NAMES, MAX_NODES, MAX_TEXT};
use super::room::Room;
use super::varint::{Bytes, Malformed, put, put_text};
use crate::model::interrupts::{DeviceInterrupts, Interrupts};
use crate::model::units::NodeId;
use crate::text::is_clean;

/// Writes devices that are gone since `base`, then those that are new or different; nothing where all is the same.
pub(super) fn encode(out: &mut Vec<u8>, base: Option<&Arc<Interrupts>>, interrupts: &Arc<Interrupts>) {
    if base.is_some_and(|base| Arc::ptr_eq(base, interrupts)) {
        return;
    }
    let before = base.into_iter().flat_map(|base| base.keys());
    let gone: Vec<&String> = before.filter(|address| !interrupts.contains_key(*address)).collect();
    let is_new = |(address, device): &(&String, &DeviceInterrupts)| {
        base.and_then(|base| base.get(*address)).is_none_or(|before| before != *device)
    };
    let new: Vec<_> = interrupts.iter().filter(is_new).collect();
    if gone.is_empty() && new.is_empty() {
        return;
    }
    put(out, gone.len() as u64);
    gone.into_iter().for_each(|address| put_text(out, address));
    put(out, new.len() as u64);
    for (address, device) in new {
        put_text(out, address);
        put(out, device.read_ns);
        put(out, device.over_ns);
        put(out, device.by_node.len() as u64);
        for (node, count) in &device.by_node {
            put(out, node.0.into());
            put(out, *count);
        }
    }
}

/// `base` with the devices that [`encode`] wrote.
///
/// # Errors
/// The bytes are something else, or hold text that no terminal should see.
pub(super) fn decode(
    mut input: Bytes<'_>,
    base: Option<&Arc<Interrupts>>,
    room: &mut Room,
) -> Result<Arc<Interrupts>, Malformed> {
    if input.0.is_empty() {
        return Ok(base.cloned().unwrap_or_default());
    }
    let mut interrupts = Interrupts::new();
    if let Some(base) = base {
        room.take_devices(base)?;
        interrupts.clone_from(base);
    }
    for _ in 0..input.count(MAX_NAMES)? {
        interrupts.remove(input.text(MAX_TEXT)?);
    }
    for _ in 0..input.count(MAX_NAMES)? {
        let address = input.text(MAX_TEXT)?;
        if !is_clean(address) {
            return Err(Malformed("an address of a device cannot be shown"));
        }
        let mut device =
            DeviceInterrupts { read_ns: input.number()?, over_ns: input.number()?, ..Default::default() };
        let nodes = input.count(MAX_NODES)?;
        room.take_device(address.len(), nodes)?;
        for _ in 0..nodes {
            let node = u32::try_from(input.number()?).map_err(|_| Malformed("a node cannot be"))?;
            device.by_node.insert(NodeId(node), input.number()?);
        }
        interrupts.insert(address.to_owned(), device);
    }
    input.finish()?;
    // A hostile file may add some with every delta, each on the same keyframe: never more than a sample may have.
    if interrupts.len() > MAX_NAMES {
        return Err(Malformed("it has more devices than a sample can have"));
    }
    Ok(Arc::new(interrupts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupts(count: u64) -> Arc<Interrupts> {
        let device = |nodes: &[(u32, u64)]| DeviceInterrupts {
            read_ns: 1 << 50,
            over_ns: 3_000_000_000,
            by_node: nodes.iter().map(|(node, count)| (NodeId(*node), *count)).collect(),
        };
        let all = [("0000:3b:00.0", device(&[(0, count), (7, u64::MAX)])), ("0000:5e:00.1", device(&[]))];
        Arc::new(all.into_iter().map(|(address, device)| (address.to_owned(), device)).collect())
    }

    fn again(base: Option<&Arc<Interrupts>>, interrupts: &Arc<Interrupts>) -> (usize, Arc<Interrupts>) {
        let mut bytes = Vec::new();
        encode(&mut bytes, base, interrupts);
        let read = decode(Bytes(&bytes), base, &mut Room::endless());
        (bytes.len(), read.expect("what was written can be read"))
    }

    #[test]
    fn what_is_written_comes_back() {
        let (key, none) = (interrupts(5), Arc::<Interrupts>::default());
        for base in [None, Some(&key), Some(&none)] {
            for now in [&key, &interrupts(6), &none] {
                assert_eq!(again(base, now).1, *now);
            }
        }
        assert_eq!(again(Some(&key), &interrupts(5)).0, 0, "the same is not written again");
        let one = again(Some(&key), &interrupts(6)).0;
        assert!(one < again(None, &interrupts(6)).0, "a device that is as it was is not written: {one}");
        assert_eq!(again(None, &none).0, 0, "machines without such devices have no byte");
    }

    #[test]
    fn what_is_cut_or_cannot_be_shown_is_malformed() {
        let mut bytes = Vec::new();
        encode(&mut bytes, None, &interrupts(300));
        for length in 1..bytes.len() {
            let read = decode(Bytes(&bytes[..length]), None, &mut Room::endless());
            assert!(read.is_err(), "{length} of {} bytes", bytes.len());
        }
        let hostile = Arc::new([("\x1b[2J".to_owned(), DeviceInterrupts::default())].into());
        let mut bytes = Vec::new();
        encode(&mut bytes, None, &hostile);
        assert!(decode(Bytes(&bytes), None, &mut Room::endless()).is_err());
    }
}
