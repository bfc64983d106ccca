//! Pages of hugetlbfs and their pools as bytes and back, beside the policies of the same processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{MAX_NODES, MAX_ROWS};
use super::placement::{Entries, is_same};
use super::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::model::sample::{HugeNode, HugePages, PlacementRaw};

/// No process has any.
pub(super) const NOTHING: Bytes<'static> = Bytes(&[0]);

/// Sizes of pages that a process may have: no architecture has as many.
const MAX_SIZES: usize = 64;

fn pages(entry: &PlacementRaw) -> Option<&Vec<HugePages>> {
    let (_, found) = entry.policies.as_ref()?;
    found.as_ref().ok().map(|bytes| &bytes.huge).filter(|huge| !huge.is_empty())
}

/// Writes the pages of entries that are new or different since `base`: their policies are written anew, too.
pub(super) fn encode(out: &mut Vec<u8>, base: Option<&Entries>, entries: &Entries) {
    let new = entries.iter().filter(|(id, entry)| !is_same(base, id, entry));
    let known: Vec<_> = new.filter_map(|(id, entry)| Some((id, pages(entry)?))).collect();
    put(out, known.len() as u64);
    let mut last = 0;
    for (id, sizes) in known {
        put(out, difference(*id, last));
        last = *id;
        put(out, sizes.len() as u64);
        for size in sizes {
            put(out, size.page_bytes);
            put(out, size.by_node.len() as u64);
            for (id, node) in &size.by_node {
                [u64::from(*id), node.used, node.total, node.free]
                    .into_iter()
                    .for_each(|number| put(out, number));
            }
        }
    }
}

/// Adds what [`encode`] wrote to placements whose policies are known.
///
/// # Errors
/// The bytes are something else, or are of a process without policies.
pub(super) fn decode(mut input: Bytes<'_>, entries: &mut Entries) -> Result<(), Malformed> {
    let mut last = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        last = undo_difference(input.number()?, last);
        let mut huge = Vec::new();
        for _ in 0..input.count(MAX_SIZES)? {
            let page_bytes = input.number()?;
            let mut by_node = BTreeMap::new();
            for _ in 0..input.count(MAX_NODES)? {
                let id = u32::try_from(input.number()?).map_err(|_| Malformed("a node cannot be"))?;
                let (used, total, free) = (input.number()?, input.number()?, input.number()?);
                by_node.insert(id, HugeNode { used, total, free });
            }
            huge.push(HugePages { page_bytes, by_node });
        }
        let entry = Arc::make_mut(entries).get_mut(&last).map(Arc::make_mut);
        let policies = entry.and_then(|entry| entry.policies.as_mut()?.1.as_mut().ok());
        policies.ok_or(Malformed("huge pages are of a process without policies"))?.huge = huge;
    }
    input.finish()
}

#[cfg(test)]
mod tests {
    use super::super::policies;
    use super::*;
    use crate::model::sample::{Missing, PagesFound, PolicyBytes};

    fn entry(huge: Vec<HugePages>) -> Arc<PlacementRaw> {
        let known = PolicyBytes { all_bytes: 9, own_bytes: 1, huge };
        let found = Ok(PagesFound::default());
        Arc::new(PlacementRaw {
            start_ns: 5,
            read_ns: 6,
            found,
            policies: Some((7, Ok(known))),
            by_policy: None,
        })
    }

    /// Entries as they are before their policies are read.
    fn without(entries: &Entries) -> Entries {
        let bare = |entry: &PlacementRaw| Arc::new(PlacementRaw { policies: None, ..entry.clone() });
        Arc::new(entries.iter().map(|(id, entry)| (*id, bare(entry))).collect())
    }

    #[test]
    fn what_is_written_comes_back() {
        let node = |used| HugeNode { used, total: 512, free: u64::MAX };
        let small = HugePages { page_bytes: 2 << 20, by_node: [(0, node(0)), (7, node(9))].into() };
        let large = HugePages { page_bytes: 1 << 30, by_node: BTreeMap::new() };
        let unread =
            PlacementRaw { policies: Some((1, Err(Missing::FirstInterval))), ..(*entry(vec![])).clone() };
        let entries: Entries = Arc::new(
            [
                (3, entry(vec![small.clone(), large])),
                (9, entry(vec![])),
                (11, Arc::new(unread)),
                (12, entry(vec![small])),
            ]
            .into(),
        );
        let (mut owned, mut huge) = (Vec::new(), Vec::new());
        policies::encode(&mut owned, None, &entries);
        encode(&mut huge, None, &entries);
        let mut read = without(&entries);
        policies::decode(Bytes(&owned), &mut read).unwrap();
        decode(Bytes(&huge), &mut read).unwrap();
        assert_eq!(read, entries);
        // The same as in the keyframe is not written.
        let mut nothing = Vec::new();
        encode(&mut nothing, Some(&entries), &entries);
        assert_eq!(nothing, NOTHING.0);
        for length in 0..huge.len() {
            let mut read = without(&entries);
            policies::decode(Bytes(&owned), &mut read).unwrap();
            assert!(decode(Bytes(&huge[..length]), &mut read).is_err(), "{length}");
        }
        assert!(decode(Bytes(&huge), &mut without(&entries)).is_err(), "no policies are known");
    }
}
