//! Memory in use as bytes and back: mappings by their first address, and no address inside one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{MAX_FLOWS, MAX_NAMES, MAX_NODES, MAX_ROWS, MAX_TEXT};
use super::placement::missing;
use super::room::Room;
use super::stacks::Numbers;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use super::{answers, lines, objects};
use crate::model::access::answers::Answers;
use crate::model::access::lines::ContendedLines;
use crate::model::access::next_runs::NextRuns;
use crate::model::access::{
    AccessSource, ByNodes, MAPPINGS_LISTED, MappingUse, MemoryUse, MemoryUses, RestUse, SampledEvent,
};
use crate::model::units::NodeId;
use crate::text::is_clean;

/// Mappings of a process that readers take: a later version may list more than this one.
const MAPPINGS_MAX: usize = 1000;
/// Copies count half a sample for each side.
const PARTS: f64 = 2.0;

/// Writes nothing where memory use was not sampled.
pub(super) fn encode(out: &mut Vec<u8>, uses: Option<&MemoryUses>) {
    let Some(uses) = uses else { return };
    let listed = |found: &Arc<MemoryUse>| {
        let mut found = Arc::clone(found);
        if found.mappings.len() > MAPPINGS_LISTED {
            Arc::make_mut(&mut found).list_no_more_than(MAPPINGS_LISTED);
        }
        let why =
            found.no_nodes.as_ref().map(|why| serde_json::to_string(why).expect("plain data becomes JSON"));
        (found, why)
    };
    let processes: Vec<_> = uses.processes.iter().map(|(process, found)| (process, listed(found))).collect();
    let mut texts = Numbers::default();
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    let mut last = 0;
    for ((pid, start_ns), (found, why)) in &processes {
        row.clear();
        encode_process(&mut row, found, why.as_deref(), &mut texts);
        put(&mut rows, difference((*pid).into(), last));
        last = (*pid).into();
        put(&mut rows, *start_ns);
        put(&mut rows, row.len() as u64);
        rows.extend_from_slice(&row);
    }
    put_text(out, uses.source.id());
    put(out, (uses.window_s * 1e9).round() as u64);
    put(out, texts.list.len() as u64);
    texts.list.iter().for_each(|text| put_text(out, text));
    put(out, processes.len() as u64);
    out.append(&mut rows);
    put_text(out, uses.event.map_or("", |event| event.source.id()));
    let threshold = uses.event.and_then(|event| event.threshold);
    put(out, threshold.map_or(0, |cycles| u64::from(cycles) + 1));
}

fn encode_process<'a>(
    out: &mut Vec<u8>,
    found: &'a MemoryUse,
    why: Option<&'a str>,
    texts: &mut Numbers<&'a str>,
) {
    let runs = &found.next_runs;
    for number in [
        found.samples,
        found.with_address,
        found.plain,
        found.gone,
        found.nowhere,
        found.unknown,
        found.kernel,
        found.of_all,
        runs.followed,
        runs.resolved,
        runs.gone_resolved,
        runs.left_out,
    ] {
        put_count(out, number);
    }
    put_parts(out, found.unmapped);
    put(out, found.lost.len() as u64);
    for (cause, count) in &found.lost {
        put(out, texts.of(cause));
        put_count(out, *count);
    }
    // The number of a text, or 0.
    put(out, why.map_or(0, |why| texts.of(why) + 1));
    put(out, runs.by_remote.len() as u64);
    for ((one, other), count) in &runs.by_remote {
        put(out, u64::from(*one) << 1 | u64::from(*other));
        put_count(out, *count);
    }
    let mut last = 0;
    let mut put_start = |out: &mut Vec<u8>, start: u64| {
        put(out, difference(start, last));
        last = start;
    };
    put(out, runs.by_mapping.len() as u64);
    for ((one, other), count) in &runs.by_mapping {
        put_start(out, *one);
        put_start(out, *other);
        put_count(out, *count);
    }
    put(out, found.mappings.len() as u64);
    for mapping in &found.mappings {
        put_start(out, mapping.start);
        put(out, mapping.bytes);
        put(out, texts.of(&mapping.name));
        put_by_nodes(out, &mapping.by_node);
        put_by_nodes(out, &mapping.next_by_node);
    }
    put_by_nodes(out, &found.rest.by_node);
    put_by_nodes(out, &found.rest.next_by_node);
    answers::encode(out, &found.answers);
    found.mappings.iter().for_each(|mapping| answers::encode(out, &mapping.answers));
    // Neither takes a byte in most samples.
    if found.lines != ContendedLines::default() || !found.objects.is_empty() {
        lines::encode(out, &found.lines, texts);
    }
    objects::encode(out, &found.objects, texts);
}

/// Counts are those of ten seconds: sums of them stay in range whatever a file says.
pub(super) fn put_count(out: &mut Vec<u8>, count: u64) {
    put(out, count.min(u32::MAX.into()));
}

fn put_parts(out: &mut Vec<u8>, samples: f64) {
    put_count(out, (samples * PARTS).round() as u64);
}

pub(super) fn put_by_nodes(out: &mut Vec<u8>, by_nodes: &ByNodes) {
    let number = |node: &Option<NodeId>| node.map_or(0, |node| u64::from(node.0) + 1);
    put(out, by_nodes.len() as u64);
    for ((page, cpu), samples) in by_nodes {
        put(out, number(page));
        put(out, number(cpu));
        put_parts(out, *samples);
    }
}

/// The bytes that [`encode`] wrote; `None` also where a sampler is named that this version does not know.
///
/// # Errors
/// The bytes are something else, hold text that no terminal should see, or more than the limits.
pub(super) fn decode(mut input: Bytes<'_>, room: &mut Room) -> Result<Option<MemoryUses>, Malformed> {
    if input.0.is_empty() {
        return Ok(None);
    }
    let Some(source) = AccessSource::of_id(input.text(MAX_TEXT)?) else { return Ok(None) };
    let window_s = input.number()? as f64 / 1e9;
    let mut texts = Vec::new();
    for _ in 0..input.count(MAX_NAMES)? {
        let text = input.text(MAX_TEXT)?;
        if !is_clean(text) {
            return Err(Malformed("a name cannot be shown"));
        }
        texts.push(text);
    }
    let mut processes = BTreeMap::new();
    let mut last = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        last = undo_difference(input.number()?, last);
        let pid = u32::try_from(last).map_err(|_| Malformed("a process cannot be"))?;
        let start_ns = input.number()?;
        let len = input.count(input.0.len())?;
        let mut row = Bytes(input.take(len)?);
        // A later version may say more behind.
        let found = decode_process(&mut row, &texts, room)?;
        processes.insert((pid, start_ns), Arc::new(found));
    }
    let of_event = AccessSource::of_id(input.text(MAX_TEXT)?);
    let threshold = input.number()?.checked_sub(1).map(|cycles| cycles.min(u32::MAX.into()) as u32);
    let event = of_event.map(|source| SampledEvent { source, threshold });
    input.finish()?;
    Ok(Some(MemoryUses { source, event, window_s, processes }))
}

fn decode_process(input: &mut Bytes<'_>, texts: &[&str], room: &mut Room) -> Result<MemoryUse, Malformed> {
    room.take_use()?;
    let mut found = MemoryUse {
        samples: count(input)?,
        with_address: count(input)?,
        plain: count(input)?,
        gone: count(input)?,
        nowhere: count(input)?,
        unknown: count(input)?,
        kernel: count(input)?,
        of_all: count(input)?,
        next_runs: NextRuns {
            followed: count(input)?,
            resolved: count(input)?,
            gone_resolved: count(input)?,
            left_out: count(input)?,
            ..NextRuns::default()
        },
        unmapped: parts(input)?,
        ..MemoryUse::default()
    };
    let text = |number: u64| {
        let text = usize::try_from(number).ok().and_then(|at| texts.get(at));
        text.copied().ok_or(Malformed("a text is not there"))
    };
    let causes = input.count(MAX_NAMES)?;
    room.take_map(causes)?;
    for _ in 0..causes {
        let cause = text(input.number()?)?;
        room.take(1, cause.len())?;
        found.lost.insert(cause.to_string(), count(input)?);
    }
    if let Some(number) = input.number()?.checked_sub(1) {
        let why = missing(text(number)?)?;
        room.take(1, why.to_string().len())?;
        found.no_nodes = Some(why);
    }
    for _ in 0..map(input, room)? {
        let pair = input.count(3)?;
        found.next_runs.by_remote.insert((pair & 2 != 0, pair & 1 != 0), count(input)?);
    }
    let mut last = 0;
    let mut start = |input: &mut Bytes<'_>| {
        last = undo_difference(input.number()?, last);
        Ok(last)
    };
    for _ in 0..map(input, room)? {
        let pair = (start(input)?, start(input)?);
        found.next_runs.by_mapping.insert(pair, count(input)?);
    }
    for _ in 0..input.count(MAPPINGS_MAX)? {
        let (start, bytes) = (start(input)?, input.number()?);
        let name = text(input.number()?)?;
        room.take_mapping(name.len())?;
        let name = name.to_string();
        let (by_node, next_by_node) = (by_nodes(input, room)?, by_nodes(input, room)?);
        let answers = Answers::default();
        found.mappings.push(MappingUse { start, bytes, name, by_node, next_by_node, answers });
    }
    found.rest = RestUse { by_node: by_nodes(input, room)?, next_by_node: by_nodes(input, room)? };
    found.answers = answers::decode(input, room)?;
    for mapping in &mut found.mappings {
        mapping.answers = answers::decode(input, room)?;
    }
    found.lines = lines::decode(input, text, room)?;
    found.objects = objects::decode(input, text, room)?;
    Ok(found)
}

/// A number that [`put_count`] wrote.
///
/// # Errors
/// It is something else.
pub(super) fn count(input: &mut Bytes<'_>) -> Result<u64, Malformed> {
    Ok(input.count(u32::MAX as usize)? as u64)
}

fn parts(input: &mut Bytes<'_>) -> Result<f64, Malformed> {
    Ok(count(input)? as f64 / PARTS)
}

/// The number of entries of a map, for which there is room.
///
/// # Errors
/// They are too many.
pub(super) fn map(input: &mut Bytes<'_>, room: &mut Room) -> Result<usize, Malformed> {
    let entries = input.count(MAX_FLOWS)?;
    room.take_map(entries)?;
    Ok(entries)
}

/// A map that [`put_by_nodes`] wrote.
///
/// # Errors
/// It is something else, or there is no room.
pub(super) fn by_nodes(input: &mut Bytes<'_>, room: &mut Room) -> Result<ByNodes, Malformed> {
    let node = |number: usize| number.checked_sub(1).map(|node| NodeId(node as u32));
    let mut by_nodes = ByNodes::new();
    for _ in 0..map(input, room)? {
        let nodes = (node(input.count(MAX_NODES)?), node(input.count(MAX_NODES)?));
        by_nodes.insert(nodes, parts(input)?);
    }
    Ok(by_nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::class::AccessClass;
    use crate::model::access::lines::{ContendedLine, LineSide};
    use crate::model::access::objects::Object;
    use crate::model::sample::Missing;

    fn mapping(at: u64) -> MappingUse {
        let node = |id| Some(NodeId(id));
        MappingUse {
            start: 0x7f00_0000_0000 + at * 0x10_0000,
            bytes: 0x8000,
            name: format!("/lib/{}.so", at % 3),
            by_node: [((node(0), node(1)), 100.5 - at as f64), ((None, node(1)), 2.0)].into(),
            next_by_node: [((node(1), None), 7.0)].into(),
            answers: sampled(),
        }
    }

    fn sampled() -> Answers {
        let mut answers = Answers::default();
        answers.add(AccessClass::Dram { remote: true }, None, Some(400));
        answers.add(AccessClass::Dram { remote: false }, None, Some(200));
        answers.add(AccessClass::LocalCache { modified: true }, None, None);
        answers
    }

    fn contended() -> ContendedLines {
        let side = LineSide { store: true, samples: 3, ..LineSide::default() };
        let line = ContendedLine { loads: 5, stores: 3, sides: vec![side], ..ContendedLine::default() };
        ContendedLines { loads: 7, listed: vec![line] }
    }

    fn uses(mappings: u64) -> MemoryUses {
        let found = MemoryUse {
            samples: 970,
            with_address: 900,
            plain: 30,
            gone: 20,
            nowhere: 10,
            unknown: 10,
            kernel: 5,
            lost: [("ring_full".to_string(), 3)].into(),
            of_all: 1940,
            next_runs: NextRuns {
                followed: 900,
                resolved: 890,
                gone_resolved: 18,
                left_out: 2,
                by_remote: [((true, false), 5), ((false, false), 80)].into(),
                by_mapping: [((mapping(0).start, mapping(1).start), 9)].into(),
            },
            unmapped: 1.5,
            no_nodes: Some(Missing::NotPermitted("move_pages: Operation not permitted".into())),
            mappings: (0..mappings).map(mapping).collect(),
            rest: RestUse::default(),
            answers: sampled(),
            lines: contended(),
            objects: vec![Object { mapping: "[heap]".into(), ..Object::default() }],
        };
        let processes = [((7, 70), Arc::new(found)), ((9, 1), Arc::new(MemoryUse::default()))].into();
        let event = Some(SampledEvent { source: AccessSource::Pebs, threshold: Some(128) });
        MemoryUses { source: AccessSource::Clock, event, window_s: 9.503, processes }
    }

    fn bytes(uses: &MemoryUses) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, Some(uses));
        bytes
    }

    fn back(bytes: &[u8]) -> Result<Option<MemoryUses>, Malformed> {
        decode(Bytes(bytes), &mut Room::endless())
    }

    #[test]
    fn what_was_sampled_comes_back() {
        assert_eq!(back(&bytes(&uses(50))).unwrap(), Some(uses(50)));
        assert_eq!(back(&[]).unwrap(), None);
    }

    #[test]
    fn lines_and_objects_take_no_byte_where_there_are_none() {
        let row = |lines, objects| {
            let found = MemoryUse { lines, objects, ..MemoryUse::default() };
            let (mut bytes, mut texts) = (Vec::new(), Numbers::default());
            encode_process(&mut bytes, &found, None, &mut texts);
            let back = decode_process(&mut Bytes(&bytes), &texts.list, &mut Room::endless()).unwrap();
            assert_eq!(back, found);
            bytes.len()
        };
        let none = row(ContendedLines::default(), Vec::new());
        let objects = row(ContendedLines::default(), vec![Object::default()]);
        let lines = row(contended(), Vec::new());
        assert!(none + 2 < objects && none < lines, "{none} {objects} {lines}");
    }

    #[test]
    fn fifty_mappings_are_kept_and_all_samples() {
        let (all, kept) = (uses(120), back(&bytes(&uses(120))).unwrap().unwrap());
        let (all, kept) = (&all.processes[&(7, 70)], &kept.processes[&(7, 70)]);
        assert_eq!(kept.mappings, all.mappings[..50]);
        assert_eq!((kept.placed(), kept.remote()), (all.placed(), all.remote()));
        assert_eq!(kept.placed_by_count(), all.placed_by_count());
    }

    #[test]
    fn no_part_of_it_is_taken_for_the_whole() {
        let bytes = bytes(&uses(3));
        (1..bytes.len())
            .for_each(|end| assert!(back(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len()));
    }

    #[test]
    fn a_sampler_of_a_later_version_is_skipped() {
        let mut later = Vec::new();
        put_text(&mut later, "telepathy");
        later.push(0xff);
        assert_eq!(back(&later).unwrap(), None);
    }

    #[test]
    fn a_name_that_would_move_the_cursor_is_refused() {
        let mut uses = uses(3);
        let found = uses.processes.values_mut().next().unwrap();
        Arc::make_mut(found).mappings[1].name = "\x1b[2J".into();
        assert!(back(&bytes(&uses)).is_err());
    }
}
