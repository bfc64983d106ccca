//! Contended lines as bytes and back: texts by their numbers, and no address.

use std::sync::Arc;

use super::format::MAX_NODES;
use super::memory_use::{count, put_count};
use super::room::Room;
use super::stacks::Numbers;
use super::varint::{Bytes, Malformed, put};
use crate::model::access::lines::{ContendedLine, ContendedLines, LINE_SHIFT, LineSide};
use crate::model::stacks::Function;
use crate::model::units::NodeId;

/// Lines, and sides of a line, that readers take: a later version may list more than this one.
const LINES_MAX: usize = 1000;

/// Writes lines, also where none is contended: something follows then.
pub(super) fn encode<'a>(out: &mut Vec<u8>, lines: &'a ContendedLines, texts: &mut Numbers<&'a str>) {
    put_count(out, lines.loads);
    put(out, lines.listed.len() as u64);
    for line in &lines.listed {
        put(out, texts.of(&line.mapping));
        put_node(out, line.page_node);
        [line.loads, line.far, line.stores].into_iter().for_each(|number| put_count(out, number));
        put(out, line.sides.len() as u64);
        for side in &line.sides {
            put(out, side.store.into());
            put(out, side.offset.into());
            put_node(out, side.cpu_node);
            put_count(out, side.samples);
            put_count(out, side.far);
            put(out, side.function.is_some().into());
            if let Some(function) = &side.function {
                put_function(out, function, texts);
            }
        }
    }
}

pub(super) fn put_function<'a>(out: &mut Vec<u8>, function: &'a Function, texts: &mut Numbers<&'a str>) {
    // The number of a text, or 0.
    put(out, function.name.as_ref().map_or(0, |name| texts.of(name) + 1));
    put(out, texts.of(&function.module));
}

/// A function that [`put_function`] wrote, which is none of the kernel.
///
/// # Errors
/// The bytes are something else.
pub(super) fn function<'a>(
    input: &mut Bytes<'_>,
    text: impl Fn(u64) -> Result<&'a str, Malformed>,
) -> Result<Arc<Function>, Malformed> {
    let name = input.number()?.checked_sub(1).map(&text).transpose()?.map(str::to_string);
    let module = text(input.number()?)?.to_string();
    Ok(Arc::new(Function { name, module, kernel: false }))
}

pub(super) fn put_node(out: &mut Vec<u8>, node: Option<NodeId>) {
    put(out, node.map_or(0, |node| u64::from(node.0) + 1));
}

/// The lines that [`encode`] wrote; `text` says the text of a number.
///
/// # Errors
/// The bytes are something else, or there is no room.
pub(super) fn decode<'a>(
    input: &mut Bytes<'_>,
    text: impl Fn(u64) -> Result<&'a str, Malformed>,
    room: &mut Room,
) -> Result<ContendedLines, Malformed> {
    // Older versions wrote nothing here.
    if input.0.is_empty() {
        return Ok(ContendedLines::default());
    }
    let mut lines = ContendedLines { loads: count(input)?, listed: Vec::new() };
    for _ in 0..input.count(LINES_MAX)? {
        let mapping = text(input.number()?)?;
        room.take_line(mapping.len())?;
        let mut line = ContendedLine {
            mapping: mapping.to_string(),
            page_node: node(input)?,
            loads: count(input)?,
            far: count(input)?,
            stores: count(input)?,
            sides: Vec::new(),
        };
        for _ in 0..input.count(LINES_MAX)? {
            let store = input.count(1)? == 1;
            let offset = input.count((1 << LINE_SHIFT) - 1)? as u8;
            let (cpu_node, samples, far) = (node(input)?, count(input)?, count(input)?);
            let has_function = input.count(1)? == 1;
            let function = has_function.then(|| function(input, &text)).transpose()?;
            let side = LineSide { store, function, offset, cpu_node, samples, far };
            room.take_side(&side)?;
            line.sides.push(side);
        }
        lines.listed.push(line);
    }
    Ok(lines)
}

/// A node that [`put_node`] wrote.
///
/// # Errors
/// It is something else.
pub(super) fn node(input: &mut Bytes<'_>) -> Result<Option<NodeId>, Malformed> {
    Ok(input.count(MAX_NODES)?.checked_sub(1).map(|node| NodeId(node as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> ContendedLines {
        let function = |name: Option<&str>| {
            let name = name.map(str::to_string);
            Some(Arc::new(Function { name, module: "queue".into(), kernel: false }))
        };
        let cpu_node = Some(NodeId(1));
        let load = LineSide {
            store: false,
            function: function(Some("pop")),
            offset: 63,
            cpu_node,
            samples: 9,
            far: 4,
        };
        let store = LineSide { store: true, function: function(None), offset: 0, ..LineSide::default() };
        let line = ContendedLine {
            mapping: "[heap]".into(),
            page_node: Some(NodeId(0)),
            loads: 9,
            far: 4,
            stores: 2,
            sides: vec![load, store, LineSide::default()],
        };
        ContendedLines { loads: 11, listed: vec![line, ContendedLine::default()] }
    }

    fn back(bytes: &[u8], texts: &[&str]) -> Result<ContendedLines, Malformed> {
        let text = |number: u64| texts.get(number as usize).copied().ok_or(Malformed("no such text"));
        decode(&mut Bytes(bytes), text, &mut Room::endless())
    }

    #[test]
    fn lines_come_back() {
        let (lines, mut bytes, mut texts) = (lines(), Vec::new(), Numbers::default());
        encode(&mut bytes, &lines, &mut texts);
        assert_eq!(back(&bytes, &texts.list).unwrap(), lines);
        assert!((1..bytes.len()).all(|cut| back(&bytes[..cut], &texts.list).is_err()));
        assert!(back(&bytes, &texts.list[..1]).is_err());
        assert_eq!(back(&[], &[]).unwrap(), ContendedLines::default());
    }

    #[test]
    fn an_offset_beyond_the_line_is_refused() {
        // One line without a name and node, one side at byte 64.
        assert!(back(&[1, 1, 0, 0, 1, 0, 0, 1, 0, 64, 0, 1, 0, 0], &[""]).is_err());
        assert!(back(&[1, 1, 0, 0, 1, 0, 0, 1, 0, 63, 0, 1, 0, 0], &[""]).is_ok());
    }
}
