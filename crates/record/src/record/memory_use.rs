//! Memory in use as bytes and back: mappings by their first address, and no address inside one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::MAX_ROWS;
use crate::model::access::answers::Answers;
use crate::model::access::lines::ContendedLines;
use crate::model::access::next_runs::GaveUp;
use crate::model::access::{
    AccessSource, MAPPINGS_LISTED, MappingUse, MemoryUse, MemoryUses, RestUse, SampledEvent,
};
use crate::model::coded::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::model::coded::{
    Codec, Coded, Count, Counted, In, MAX_FLOWS, MAX_NAMES, MAX_TEXT, Numbered, Out, json, missing,
};

/// Mappings of a process that readers take: a later version may list more than this one.
const MAPPINGS_MAX: usize = 1000;

/// Writes nothing where memory use was not sampled.
pub(super) fn encode<'v>(out: &mut Out<'v>, uses: Option<&'v MemoryUses>) {
    let Some(uses) = uses else { return };
    let listed = |found: &Arc<MemoryUse>| {
        let mut found = Arc::clone(found);
        if found.mappings.len() > MAPPINGS_LISTED {
            Arc::make_mut(&mut found).list_no_more_than(MAPPINGS_LISTED);
        }
        found
    };
    let processes: Vec<_> = uses.processes.iter().map(|(process, found)| (process, listed(found))).collect();
    let (mut rows, mut row) = (Vec::new(), Out::default());
    let mut last = 0;
    for ((pid, start_ns), found) in &processes {
        row.bytes.clear();
        put_process(&mut row, found);
        put(&mut rows, difference((*pid).into(), last));
        last = (*pid).into();
        put(&mut rows, *start_ns);
        put(&mut rows, row.bytes.len() as u64);
        rows.extend_from_slice(&row.bytes);
    }
    out.text(uses.source.id());
    out.number((uses.window_s * 1e9).round() as u64);
    out.count(row.texts.list.len(), MAX_NAMES, "names");
    row.texts.list.iter().for_each(|text| out.text(text));
    out.count(processes.len(), MAX_ROWS, "processes");
    out.bytes.append(&mut rows);
    out.take(1, row.needed);
    out.beyond = out.beyond.or(row.beyond);
    out.text(uses.event.map_or("", |event| event.source.id()));
    let threshold = uses.event.as_ref().and_then(|event| event.threshold.as_ref());
    u32::put_option(threshold, out);
}

/// Counts at the beginning of a process.
macro_rules! counts {
    ($found:ident $(, $mut:tt)?) => {
        [
            &$($mut)? $found.samples,
            &$($mut)? $found.with_address,
            &$($mut)? $found.plain,
            &$($mut)? $found.gone,
            &$($mut)? $found.nowhere,
            &$($mut)? $found.unknown,
            &$($mut)? $found.kernel,
            &$($mut)? $found.of_all,
            &$($mut)? $found.next_runs.followed,
            &$($mut)? $found.next_runs.resolved,
            &$($mut)? $found.next_runs.gone_resolved,
            &$($mut)? $found.next_runs.left_out,
        ]
    };
}

fn put_process<'v>(out: &mut Out<'v>, found: &'v MemoryUse) {
    out.take(1, size_of::<MemoryUse>());
    let runs = &found.next_runs;
    counts!(found).into_iter().for_each(|number| Count::put(number, out));
    Count::put(&found.unmapped, out);
    out.map(&found.lost, (MAX_NAMES, "names"), |out, cause, count| {
        Numbered::put(cause, out);
        Count::put(count, out);
    });
    match &found.no_nodes {
        Some(why) => Numbered::write(json(why), 1, out),
        None => out.number(0),
    }
    out.map(&runs.by_remote, (MAX_FLOWS, "names"), |out, (one, other), count| {
        out.number(u64::from(*one) << 1 | u64::from(*other));
        Count::put(count, out);
    });
    let mut last = 0;
    let mut put_start = |out: &mut Out<'v>, start: u64| {
        out.number(difference(start, last));
        last = start;
    };
    out.map(&runs.by_mapping, (MAX_FLOWS, "names"), |out, (one, other), count| {
        put_start(out, *one);
        put_start(out, *other);
        Count::put(count, out);
    });
    out.count(found.mappings.len(), MAPPINGS_MAX, "mappings");
    for mapping in &found.mappings {
        put_start(out, mapping.start);
        mapping.bytes.put(out);
        Numbered::put(&mapping.name, out);
        Counted::put(&mapping.by_node, out);
        Counted::put(&mapping.next_by_node, out);
    }
    Counted::put(&found.rest.by_node, out);
    Counted::put(&found.rest.next_by_node, out);
    found.answers.put(out);
    found.mappings.iter().for_each(|mapping| mapping.answers.put(out));
    // None of them takes a byte in most samples.
    let has_ends = !runs.ends.is_empty();
    if found.lines != ContendedLines::default() || !found.objects.is_empty() || has_ends {
        found.lines.put(out);
    }
    if !found.objects.is_empty() || has_ends {
        found.objects.put(out);
    }
    if has_ends {
        out.map(&runs.ends, (GaveUp::ALL.len(), "names"), |out, why, count| {
            out.number(*why as u64);
            Count::put(count, out);
        });
    }
}

/// The bytes that [`encode`] wrote; `None` also where a sampler is named that this version does not know.
///
/// # Errors
/// The bytes are something else, hold text that no terminal should see, or more than the limits.
pub(super) fn decode(input: &mut In<'_, '_>) -> Result<Option<MemoryUses>, Malformed> {
    if input.is_empty() {
        return Ok(None);
    }
    let Some(source) = AccessSource::of_id(input.text(MAX_TEXT)?) else {
        input.rest();
        return Ok(None);
    };
    let window_s = input.number()? as f64 / 1e9;
    let texts = input.list(MAX_NAMES, In::clean)?;
    let mut processes = BTreeMap::new();
    let mut last = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        last = undo_difference(input.number()?, last);
        let pid = u32::try_from(last).map_err(|_| Malformed("the data of a process are invalid"))?;
        let start_ns = input.number()?;
        let left = input.bytes.0.len();
        let len = input.count(left)?;
        let row = Bytes(input.take(len)?);
        // A later version may say more behind.
        let found = process(&mut In { bytes: row, room: &mut *input.room, texts: &texts })?;
        processes.insert((pid, start_ns), Arc::new(found));
    }
    let of_event = AccessSource::of_id(input.text(MAX_TEXT)?);
    let threshold = input.number()?.checked_sub(1).map(|cycles| cycles.min(u32::MAX.into()) as u32);
    let event = of_event.map(|source| SampledEvent { source, threshold });
    Ok(Some(MemoryUses { source, event, window_s, processes }))
}

fn process(input: &mut In<'_, '_>) -> Result<MemoryUse, Malformed> {
    input.room.take(1, size_of::<MemoryUse>())?;
    let mut found = MemoryUse::default();
    for number in counts!(found, mut) {
        *number = Count::get(input)?;
    }
    found.unmapped = Count::get(input)?;
    found.lost = input.map(MAX_NAMES, |input| Ok((Numbered::get(input)?, Count::get(input)?)))?;
    let why: Option<String> = Numbered::get(input)?;
    found.no_nodes = why.as_deref().map(missing).transpose()?;
    found.next_runs.by_remote = input.map(MAX_FLOWS, |input| {
        let pair = input.count(3)?;
        Ok(((pair & 2 != 0, pair & 1 != 0), Count::get(input)?))
    })?;
    let mut last = 0;
    let mut start = |input: &mut In<'_, '_>| {
        last = undo_difference(input.number()?, last);
        Ok(last)
    };
    found.next_runs.by_mapping =
        input.map(MAX_FLOWS, |input| Ok(((start(input)?, start(input)?), Count::get(input)?)))?;
    found.mappings = input.list(MAPPINGS_MAX, |input| {
        let (start, bytes) = (start(input)?, input.number()?);
        let name = Numbered::get(input)?;
        let (by_node, next_by_node) = (Counted::get(input)?, Counted::get(input)?);
        Ok(MappingUse { start, bytes, name, by_node, next_by_node, answers: Answers::default() })
    })?;
    found.rest = RestUse { by_node: Counted::get(input)?, next_by_node: Counted::get(input)? };
    found.answers = Answers::get(input)?;
    for mapping in &mut found.mappings {
        mapping.answers = Answers::get(input)?;
    }
    // Older versions wrote none of them.
    if !input.is_empty() {
        found.lines = ContendedLines::get(input)?;
    }
    if !input.is_empty() {
        found.objects = Vec::get(input)?;
    }
    if !input.is_empty() {
        // A later version may know further ones.
        let ends: BTreeMap<usize, u64> =
            input.map(MAX_NAMES, |input| Ok((input.count(MAX_NAMES)?, Count::get(input)?)))?;
        let known = ends.into_iter().filter_map(|(at, count)| Some((*GaveUp::ALL.get(at)?, count)));
        found.next_runs.ends = known.collect();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::answers::AccessClass;
    use crate::model::access::lines::Object;
    use crate::model::access::lines::{ContendedLine, LineSide};
    use crate::model::access::next_runs::NextRuns;
    use crate::model::coded::Room;
    use crate::model::coded::varint::put_text;
    use crate::model::sample::Missing;
    use crate::model::stacks::Function;
    use crate::model::units::NodeId;

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
        let function = |name: Option<&str>| {
            let name = name.map(str::to_string);
            Some(Arc::new(Function { name, module: "queue".into(), kernel: false }))
        };
        let cpu_node = Some(NodeId(1));
        let store = LineSide {
            store: true,
            samples: 3,
            offset: 63,
            function: function(Some("pop")),
            ..LineSide::default()
        };
        let load = LineSide { cpu_node, far: 4, function: function(None), ..LineSide::default() };
        let sides = vec![store, load, LineSide::default()];
        let line = ContendedLine { loads: 5, stores: 3, sides, ..ContendedLine::default() };
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
                ends: [(GaveUp::Branch, 7), (GaveUp::Address, 3)].into(),
            },
            unmapped: 1.5,
            no_nodes: Some(Missing::NotPermitted("move_pages: Operation not permitted".into())),
            mappings: (0..mappings).map(mapping).collect(),
            rest: RestUse::default(),
            answers: sampled(),
            lines: contended(),
            objects: vec![object(), Object::default()],
        };
        let processes = [((7, 70), Arc::new(found)), ((9, 1), Arc::new(MemoryUse::default()))].into();
        let event = Some(SampledEvent { source: AccessSource::Pebs, threshold: Some(128) });
        MemoryUses { source: AccessSource::Clock, event, window_s: 9.503, processes }
    }

    fn object() -> Object {
        let function = Function { name: Some("fill".into()), module: "app".into(), kernel: false };
        let node = |id| Some(NodeId(id));
        Object {
            functions: vec![Arc::new(function)],
            touched_on: [(NodeId(0), 3), (NodeId(7), 1)].into(),
            mapping: "[heap]".into(),
            by_node: [((node(0), node(1)), 40.5), ((None, None), 1.0)].into(),
            next_by_node: [((node(3), node(1)), 2.0)].into(),
        }
    }

    fn bytes(uses: &MemoryUses) -> Vec<u8> {
        let mut out = Out::default();
        encode(&mut out, Some(uses));
        out.bytes
    }

    fn back(bytes: &[u8]) -> Result<Option<MemoryUses>, Malformed> {
        let mut room = Room::endless();
        let mut input = In::new(Bytes(bytes), &mut room);
        let read = decode(&mut input)?;
        input.bytes.finish().map(|()| read)
    }

    fn again<T: Coded>(bytes: &[u8], texts: &[&str]) -> Result<T, Malformed> {
        T::get(&mut In { bytes: Bytes(bytes), room: &mut Room::endless(), texts })
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
            let mut out = Out::default();
            put_process(&mut out, &found);
            let texts: Vec<&str> = out.texts.list.iter().map(|text| &**text).collect();
            let mut room = Room::endless();
            let back = process(&mut In { bytes: Bytes(&out.bytes), room: &mut room, texts: &texts }).unwrap();
            assert_eq!(back, found);
            out.bytes.len()
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

    #[test]
    fn an_offset_beyond_the_line_is_refused() {
        // One line without a name and node, one side at byte 64.
        assert!(again::<ContendedLines>(&[1, 1, 0, 0, 1, 0, 0, 1, 0, 64, 0, 1, 0, 0], &[""]).is_err());
        assert!(again::<ContendedLines>(&[1, 1, 0, 0, 1, 0, 0, 1, 0, 63, 0, 1, 0, 0], &[""]).is_ok());
        assert!(
            again::<ContendedLines>(&[1, 1, 0, 0, 1, 0, 0, 1, 0, 63, 0, 1, 0, 0], &[]).is_err(),
            "no text"
        );
    }

    #[test]
    fn a_latency_that_cannot_be_is_refused() {
        // An unknown class, and a step beyond the last.
        assert!(again::<Answers>(&[0, 5, 1, 0xff, 0x7f, 5, 0, 0], &[]).is_err());
    }

    #[test]
    fn a_class_of_a_later_version_is_unknown() {
        let found: Answers = again(&[1, 99, 7, 0, 0, 0, 0], &[]).unwrap();
        assert_eq!(found.classes, [(AccessClass::Unknown, 7)].into());
    }
}
