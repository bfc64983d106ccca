//! Memory by the code that touched it first, as bytes and back: texts by their numbers, and no address.

use super::format::{MAX_FLOWS, MAX_NODES};
use super::lines::{function, node, put_function, put_node};
use super::memory_use::{by_nodes, count, put_by_nodes, put_count};
use super::room::Room;
use super::stacks::Numbers;
use super::varint::{Bytes, Malformed, put};
use crate::model::access::objects::Object;

/// Objects, and functions of one, that readers take: a later version may list more than this one.
const OBJECTS_MAX: usize = 1000;

/// Writes nothing where no object is used.
pub(super) fn encode<'a>(out: &mut Vec<u8>, objects: &'a [Object], texts: &mut Numbers<&'a str>) {
    if objects.is_empty() {
        return;
    }
    put(out, objects.len() as u64);
    for object in objects {
        put(out, texts.of(&object.mapping));
        put(out, object.functions.len() as u64);
        object.functions.iter().for_each(|function| put_function(out, function, texts));
        put(out, object.touched_on.len() as u64);
        for (node, count) in &object.touched_on {
            put_node(out, Some(*node));
            put_count(out, *count);
        }
        put_by_nodes(out, &object.by_node);
        put_by_nodes(out, &object.next_by_node);
    }
}

/// The objects that [`encode`] wrote; `text` says the text of a number.
///
/// # Errors
/// The bytes are something else, or there is no room.
pub(super) fn decode<'a>(
    input: &mut Bytes<'_>,
    text: impl Fn(u64) -> Result<&'a str, Malformed>,
    room: &mut Room,
) -> Result<Vec<Object>, Malformed> {
    // Older versions wrote nothing here.
    if input.0.is_empty() {
        return Ok(Vec::new());
    }
    let mut objects = Vec::new();
    for _ in 0..input.count(OBJECTS_MAX)? {
        let mapping = text(input.number()?)?;
        room.take_object(mapping.len())?;
        let mut object = Object { mapping: mapping.to_string(), ..Object::default() };
        for _ in 0..input.count(OBJECTS_MAX)? {
            let function = function(input, &text)?;
            room.take_function(&function)?;
            object.functions.push(function);
        }
        let nodes = input.count(MAX_FLOWS.min(MAX_NODES))?;
        room.take_map(nodes)?;
        for _ in 0..nodes {
            let node = node(input)?.ok_or(Malformed("a node is not there"))?;
            object.touched_on.insert(node, count(input)?);
        }
        object.by_node = by_nodes(input, room)?;
        object.next_by_node = by_nodes(input, room)?;
        objects.push(object);
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::stacks::Function;
    use crate::model::units::NodeId;

    fn objects() -> Vec<Object> {
        let function = |name: Option<&str>| {
            let name = name.map(str::to_string);
            Arc::new(Function { name, module: "app".into(), kernel: false })
        };
        let node = |id| Some(NodeId(id));
        let object = Object {
            functions: vec![function(Some("fill")), function(None)],
            touched_on: [(NodeId(0), 3), (NodeId(7), 1)].into(),
            mapping: "[heap]".into(),
            by_node: [((node(0), node(1)), 40.5), ((None, None), 1.0)].into(),
            next_by_node: [((node(3), node(1)), 2.0)].into(),
        };
        vec![object, Object::default()]
    }

    fn back(bytes: &[u8], texts: &[&str]) -> Result<Vec<Object>, Malformed> {
        let text = |number: u64| texts.get(number as usize).copied().ok_or(Malformed("no such text"));
        decode(&mut Bytes(bytes), text, &mut Room::endless())
    }

    #[test]
    fn objects_come_back() {
        let (objects, mut bytes, mut texts) = (objects(), Vec::new(), Numbers::default());
        encode(&mut bytes, &objects, &mut texts);
        assert_eq!(back(&bytes, &texts.list).unwrap(), objects);
        assert!((1..bytes.len()).all(|cut| back(&bytes[..cut], &texts.list).is_err()));
        assert!(back(&bytes, &texts.list[..1]).is_err());
        assert_eq!(back(&[], &[]).unwrap(), []);
    }
}
