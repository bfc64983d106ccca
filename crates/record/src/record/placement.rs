//! Placement of memory as bytes and back: the entries that differ from a keyframe. Further facts about the
//! same processes are in separate sections.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::MAX_ROWS;
use crate::model::coded::varint::{Malformed, difference, undo_difference};
use crate::model::coded::{Coded, Copied, In, Out, get_since, put_since};
use crate::model::sample::{HugePages, PlacementRaw};

/// Entries by process id, as a sample has them.
pub type Entries = Arc<BTreeMap<u64, Arc<PlacementRaw>>>;

const MOST: (usize, &str) = (MAX_ROWS, "processes");

/// Writes ids that are gone since `base`, then the entries that are new or different.
pub(super) fn put<'v>(out: &mut Out<'v>, base: Option<&'v Entries>, entries: &'v Entries) {
    put_since(out, base.map(|base| &**base), entries, MOST, |out, entry| {
        entry.start_ns.put(out);
        entry.read_ns.put(out);
        entry.found.put(out);
    });
}

/// `base` with the changes that [`put`] wrote.
///
/// # Errors
/// The bytes are something else, or hold text that no terminal should see.
pub(super) fn get(input: &mut In<'_, '_>, base: Option<&Entries>) -> Result<Entries, Malformed> {
    let entry = |input: &mut In<'_, '_>| {
        let (start_ns, read_ns) = Coded::get(input)?;
        let found = Coded::get(input)?;
        Ok(Arc::new(PlacementRaw { start_ns, read_ns, found, policies: None, by_policy: None }))
    };
    get_since(input, base.map(|base| &**base), MOST.0, entry).map(Arc::new)
}

/// Writes a part of the entries that are new or different since `base`; these are written in full, too.
pub(super) fn put_part<'v, T: Coded + 'v>(
    out: &mut Out<'v>,
    base: Option<&Entries>,
    entries: &'v Entries,
    part: impl Fn(&'v PlacementRaw) -> Option<&'v T>,
) {
    let is_same = |id: &u64, entry: &Arc<PlacementRaw>| {
        base.and_then(|base| base.get(id)).is_some_and(|before| entry.is_as(before))
    };
    let new = entries.iter().filter(|(id, entry)| !is_same(id, entry));
    let known: Vec<_> = new.filter_map(|(id, entry)| Some((id, part(entry)?))).collect();
    out.count(known.len(), MOST.0, MOST.1);
    let mut last = 0;
    for (id, part) in known {
        out.number(difference(*id, last));
        last = *id;
        part.put(out);
    }
}

/// Adds what [`put_part`] wrote to entries; `set` gives `None` for an entry that cannot have such a part.
///
/// # Errors
/// The bytes are something else, or are of a process without such an entry.
pub(super) fn get_part<T: Coded>(
    input: &mut In<'_, '_>,
    entries: &mut Entries,
    set: impl Fn(&mut PlacementRaw, T) -> Option<()>,
) -> Result<(), Malformed> {
    let mut last = 0;
    for _ in 0..input.count(MOST.0)? {
        last = undo_difference(input.number()?, last);
        let part = T::get(input)?;
        let entry = Arc::make_mut(entries).get_mut(&last).map(Arc::make_mut);
        let is_set = entry.and_then(|entry| set(entry, part));
        is_set.ok_or(Malformed("a part of a placement belongs to a process without placement"))?;
    }
    Ok(())
}

/// Pages of hugetlbfs of a process that has any.
pub(super) fn huge_pages(entry: &PlacementRaw) -> Option<&Vec<HugePages>> {
    let (_, found) = entry.policies.as_ref()?;
    found.as_ref().ok().map(|bytes| &bytes.huge).filter(|huge| !huge.is_empty())
}

/// Adds them to policies that are known.
pub(super) fn set_huge_pages(entry: &mut PlacementRaw, huge: Vec<HugePages>) -> Option<()> {
    entry.policies.as_mut()?.1.as_mut().ok()?.huge = huge;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::coded::Room;
    use crate::model::coded::varint::Bytes;
    use crate::model::sample::{HugeNode, Missing, PagesByPolicy, PagesFound, PolicyBytes, SharedObject};

    fn entry(read_ns: u64, found: Result<PagesFound, Missing>) -> Arc<PlacementRaw> {
        Arc::new(PlacementRaw { start_ns: 5, read_ns, found, policies: None, by_policy: None })
    }

    fn entries(list: impl IntoIterator<Item = (u64, Arc<PlacementRaw>)>) -> Entries {
        Arc::new(list.into_iter().collect())
    }

    fn read<T>(bytes: &[u8], get: impl Fn(&mut In<'_, '_>) -> Result<T, Malformed>) -> Result<T, Malformed> {
        let mut room = Room::endless();
        let mut input = In::new(Bytes(bytes), &mut room);
        let read = get(&mut input)?;
        input.bytes.finish().map(|()| read)
    }

    #[test]
    fn what_is_told_apart_from_a_keyframe_comes_back() {
        let found =
            PagesFound { space_bytes: 1 << 40, asked: 1024, by_node: vec![0, 1000], error_hundredths: 37 };
        let same = entry(1, Ok(found.clone()));
        let key = entries([(1, Arc::clone(&same)), (2, entry(1, Ok(found.clone()))), (3, same.clone())]);
        let why =
            Missing::NotPermitted("reading maps of the process: Permission denied (os error 13)".into());
        let now = entries([(1, same), (2, entry(9, Err(why))), (70_000, entry(9, Ok(found)))]);
        let mut out = Out::default();
        put(&mut out, Some(&key), &now);
        assert_eq!(read(&out.bytes, |input| get(input, Some(&key))).unwrap(), now);
    }

    #[test]
    fn a_reason_that_would_move_the_cursor_is_refused() {
        let now = entries([(1, entry(1, Err(Missing::Lost("\x1b[2J".into()))))]);
        let mut out = Out::default();
        put(&mut out, None, &now);
        assert!(read(&out.bytes, |input| get(input, None)).is_err());
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

    /// One process with a placement, without and with the parts beside it.
    fn with_parts(pages: PagesByPolicy) -> (Entries, Entries) {
        let node = |used| HugeNode { used, total: 512, free: u64::MAX };
        let small = HugePages { page_bytes: 2 << 20, by_node: [(0, node(0)), (7, node(9))].into() };
        let large = HugePages { page_bytes: 1 << 30, by_node: BTreeMap::new() };
        let bare = entry(6, Ok(PagesFound::default()));
        let policies = Some((7, Ok(PolicyBytes { all_bytes: 9, own_bytes: 1, huge: vec![small, large] })));
        let full = PlacementRaw { policies, by_policy: Some(Arc::new(pages)), ..(*bare).clone() };
        let refused = PlacementRaw { policies: Some((1, Err(Missing::FirstInterval))), ..(*bare).clone() };
        let bare = [(3, bare.clone()), (9, bare)];
        (entries(bare), entries([(3, Arc::new(full)), (9, Arc::new(refused))]))
    }

    /// The parts of all entries, each as the bytes of its section.
    fn written(base: Option<&Entries>, entries: &Entries) -> [Vec<u8>; 3] {
        let (mut policies, mut huge, mut by_policy) = (Out::default(), Out::default(), Out::default());
        put_part(&mut policies, base, entries, |entry| entry.policies.as_ref());
        put_part(&mut huge, base, entries, huge_pages);
        put_part(&mut by_policy, base, entries, |entry| entry.by_policy.as_ref());
        [policies.bytes, huge.bytes, by_policy.bytes]
    }

    fn back([policies, huge, by_policy]: &[Vec<u8>; 3], bare: &Entries) -> Result<Entries, Malformed> {
        let mut entries = bare.clone();
        let of = &mut entries;
        let mut room = Room::endless();
        let mut part = |bytes, add: &mut dyn FnMut(&mut In<'_, '_>) -> Result<(), Malformed>| {
            let mut input = In::new(Bytes(bytes), &mut room);
            add(&mut input)?;
            input.bytes.finish()
        };
        part(policies, &mut |input| {
            get_part(input, of, |entry, part| {
                entry.policies = Some(part);
                Some(())
            })
        })?;
        part(huge, &mut |input| get_part(input, of, set_huge_pages))?;
        part(by_policy, &mut |input| {
            get_part(input, of, |entry, part| {
                entry.by_policy = Some(part);
                Some(())
            })
        })?;
        Ok(entries)
    }

    #[test]
    fn parts_come_back() {
        let (bare, full) = with_parts(pages());
        let parts = written(None, &full);
        assert_eq!(back(&parts, &bare).unwrap(), full);
        assert!(
            written(Some(&full), &full).iter().all(|part| part[..] == [0]),
            "the same is not written again"
        );
        for at in 0..parts.len() {
            for length in 0..parts[at].len() {
                let mut cut = parts.clone();
                cut[at].truncate(length);
                assert!(back(&cut, &bare).is_err(), "{length} bytes of part {at}");
            }
        }
        assert!(back(&parts, &Entries::default()).is_err(), "no such process");
        let [_, huge, by_policy] = parts;
        assert!(back(&[vec![0], huge, by_policy], &bare).is_err(), "no policies are known");
    }

    #[test]
    fn parts_that_are_more_than_all_are_refused() {
        for more in [
            PagesByPolicy { explicit: vec![11], ..pages() },
            PagesByPolicy { meant: vec![0, 21], ..pages() },
            PagesByPolicy { shared: vec![0, 0, 1], ..pages() },
        ] {
            let (bare, full) = with_parts(more);
            assert!(back(&written(None, &full), &bare).is_err());
        }
    }
}
