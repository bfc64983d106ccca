//! Pages of processes by policy as bytes and back, beside the placements of the same processes.

use std::sync::Arc;

use super::format::MAX_ROWS;
use super::placement::{Entries, by_node, count, is_same, put_by_node};
use super::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::model::sample::{PagesByPolicy, SharedObject};

/// Nothing is known.
pub(super) const NOTHING: Bytes<'static> = Bytes(&[0]);

/// Objects of a process at most.
const MAX_OBJECTS: usize = 64;

/// Writes the pages of entries that are new or different since `base`: their placement is written anew, too.
pub(super) fn encode(out: &mut Vec<u8>, base: Option<&Entries>, entries: &Entries) {
    let new = entries.iter().filter(|(id, entry)| !is_same(base, id, entry));
    let known: Vec<_> = new.filter_map(|(id, entry)| Some((id, entry.by_policy.as_ref()?))).collect();
    put(out, known.len() as u64);
    let mut last = 0;
    for (id, pages) in known {
        put(out, difference(*id, last));
        last = *id;
        let numbers = [pages.read_ns, pages.mappings.into(), pages.huge.into(), pages.unmatched.into()];
        numbers.into_iter().for_each(|number| put(out, number));
        for nodes in [&pages.by_node, &pages.explicit, &pages.meant, &pages.shared] {
            put_by_node(out, nodes);
        }
        put(out, pages.objects.len() as u64);
        for object in &pages.objects {
            let ids = [object.device.into(), object.inode, object.generation.into()];
            let sizes = [object.bytes, object.resident_bytes, object.own_mappings.into()];
            ids.into_iter().chain(sizes).for_each(|number| put(out, number));
            put(out, object.mappings.map_or(0, |mappings| u64::from(mappings) + 1));
            put_by_node(out, &object.by_node);
            put_by_node(out, &object.meant);
        }
    }
}

/// Adds what [`encode`] wrote to placements.
///
/// # Errors
/// The bytes are something else, or are of a process without a placement.
pub(super) fn decode(mut input: Bytes<'_>, entries: &mut Entries) -> Result<(), Malformed> {
    let mut last = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        last = undo_difference(input.number()?, last);
        let mut pages = PagesByPolicy { read_ns: input.number()?, ..PagesByPolicy::default() };
        for number in [&mut pages.mappings, &mut pages.huge, &mut pages.unmatched] {
            *number = count(&mut input)?;
        }
        for list in [&mut pages.by_node, &mut pages.explicit, &mut pages.meant, &mut pages.shared] {
            *list = by_node(&mut input)?;
        }
        if ![&pages.explicit, &pages.meant, &pages.shared]
            .into_iter()
            .all(|part| is_part(part, &pages.by_node))
        {
            return Err(TOO_MANY);
        }
        for _ in 0..input.count(MAX_OBJECTS)? {
            pages.objects.push(object(&mut input)?);
        }
        let entry = Arc::make_mut(entries).get_mut(&last);
        let entry = entry.ok_or(Malformed("policies of a process without a placement"))?;
        Arc::make_mut(entry).by_policy = Some(Arc::new(pages));
    }
    input.finish()
}

/// Counts of more pages than there are.
const TOO_MANY: Malformed = Malformed("a part of the pages of a process is more than all of them");

fn is_part(part: &[u32], all: &[u32]) -> bool {
    part.iter().enumerate().all(|(node, pages)| all.get(node).is_some_and(|all| pages <= all))
}

fn object(input: &mut Bytes<'_>) -> Result<SharedObject, Malformed> {
    let object = SharedObject {
        device: count(input)?,
        inode: input.number()?,
        generation: count(input)?,
        bytes: input.number()?,
        resident_bytes: input.number()?,
        own_mappings: count(input)?,
        mappings: input.number()?.checked_sub(1).and_then(|mappings| u32::try_from(mappings).ok()),
        by_node: by_node(input)?,
        meant: by_node(input)?,
    };
    if is_part(&object.meant, &object.by_node) { Ok(object) } else { Err(TOO_MANY) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{PagesFound, PlacementRaw};

    fn entries(pages: PagesByPolicy) -> Entries {
        let found = Ok(PagesFound::default());
        let by_policy = Some(Arc::new(pages));
        let raw = PlacementRaw { start_ns: 5, read_ns: 6, found, policies: None, by_policy };
        Arc::new([(7, Arc::new(raw))].into())
    }

    fn read(bytes: &[u8], like: &Entries) -> Result<Entries, Malformed> {
        let mut read = like.clone();
        Arc::make_mut(Arc::make_mut(&mut read).get_mut(&7).unwrap()).by_policy = None;
        decode(Bytes(bytes), &mut read).map(|()| read)
    }

    fn pages() -> PagesByPolicy {
        let object = SharedObject {
            device: 3,
            inode: 1 << 40,
            generation: u32::MAX,
            bytes: 1 << 40,
            resident_bytes: 1 << 39,
            mappings: Some(0),
            own_mappings: 2,
            by_node: vec![1, 2],
            meant: vec![1],
        };
        PagesByPolicy {
            read_ns: 9,
            mappings: 60_000,
            by_node: vec![10, 20],
            explicit: vec![1],
            meant: vec![0, 20],
            shared: vec![],
            huge: 4,
            unmatched: 5,
            objects: vec![object.clone(), SharedObject { mappings: None, ..object }],
        }
    }

    #[test]
    fn pages_come_back() {
        let entries = entries(pages());
        let mut bytes = Vec::new();
        encode(&mut bytes, None, &entries);
        assert_eq!(read(&bytes, &entries).unwrap(), entries);
        assert!(read(&bytes[..bytes.len() - 1], &entries).is_err());
        assert!(decode(Bytes(&bytes), &mut Entries::default()).is_err(), "no such process");
    }

    #[test]
    fn parts_that_are_more_than_all_are_refused() {
        for more in [
            PagesByPolicy { explicit: vec![11], ..pages() },
            PagesByPolicy { meant: vec![0, 21], ..pages() },
            PagesByPolicy { shared: vec![0, 0, 1], ..pages() },
        ] {
            let entries = entries(more);
            let mut bytes = Vec::new();
            encode(&mut bytes, None, &entries);
            assert!(read(&bytes, &entries).is_err());
        }
    }
}
