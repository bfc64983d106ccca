//! Placement of memory as bytes and back: the entries that differ from a keyframe.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{MAX_NODES, MAX_ROWS, MAX_TEXT};
use super::room::Room;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use crate::model::sample::{Missing, PagesFound, PlacementRaw};
use crate::text::is_clean;

/// Entries by process id, as a sample has them.
pub type Entries = Arc<BTreeMap<u64, Arc<PlacementRaw>>>;

/// Nothing has changed.
pub const NOTHING: Bytes<'static> = Bytes(&[0, 0]);

/// Says whether pages follow, or the reason why there are none.
const FOUND: u64 = 1;
const MISSING: u64 = 0;

/// Whether an entry is in the base as it is.
pub(super) fn is_same(base: Option<&Entries>, id: &u64, entry: &Arc<PlacementRaw>) -> bool {
    base.and_then(|base| base.get(id)).is_some_and(|old| Arc::ptr_eq(old, entry) || old == entry)
}

/// Writes ids that are gone since `base`, then those that are new or different.
pub fn encode(out: &mut Vec<u8>, base: Option<&Entries>, entries: &Entries) {
    let gone: Vec<u64> =
        base.iter().flat_map(|base| base.keys()).filter(|id| !entries.contains_key(id)).copied().collect();
    let new: Vec<_> = entries.iter().filter(|(id, entry)| !is_same(base, id, entry)).collect();
    put(out, gone.len() as u64);
    gone.into_iter().for_each(|id| put(out, id));
    put(out, new.len() as u64);
    let mut last = 0;
    for (id, entry) in new {
        put(out, difference(*id, last));
        last = *id;
        put(out, entry.start_ns);
        put(out, entry.read_ns);
        match &entry.found {
            Ok(found) => {
                put(out, FOUND);
                put(out, found.space_bytes);
                put(out, found.asked.into());
                put(out, found.error_hundredths.into());
                put_by_node(out, &found.by_node);
            }
            Err(missing) => {
                put(out, MISSING);
                put_text(out, &serde_json::to_string(missing).expect("plain data becomes JSON"));
            }
        }
    }
}

/// `base` with what [`encode`] wrote.
///
/// # Errors
/// The bytes are something else, or hold text that no terminal should see.
pub fn decode(mut input: Bytes<'_>, base: Option<&Entries>, room: &mut Room) -> Result<Entries, Malformed> {
    room.take_entries(base.map_or(0, |base| base.len()))?;
    let mut entries = base.cloned().unwrap_or_default();
    let gone = input.count(MAX_ROWS)?;
    for _ in 0..gone {
        Arc::make_mut(&mut entries).remove(&input.number()?);
    }
    let mut last = 0;
    for _ in 0..input.count(MAX_ROWS)? {
        last = undo_difference(input.number()?, last);
        let (start_ns, read_ns) = (input.number()?, input.number()?);
        let found = match input.number()? {
            FOUND => Ok(pages(&mut input)?),
            MISSING => Err(missing(input.text(MAX_TEXT)?)?),
            _ => return Err(Malformed("a placement is neither found nor missing")),
        };
        let entry = PlacementRaw { start_ns, read_ns, found, policies: None, by_policy: None };
        Arc::make_mut(&mut entries).insert(last, Arc::new(entry));
    }
    input.finish()?;
    Ok(entries)
}

fn pages(input: &mut Bytes<'_>) -> Result<PagesFound, Malformed> {
    let space_bytes = input.number()?;
    let (asked, error_hundredths) = (count(input)?, count(input)?);
    Ok(PagesFound { space_bytes, asked, by_node: by_node(input)?, error_hundredths })
}

/// A count of pages.
pub(super) fn count(input: &mut Bytes<'_>) -> Result<u32, Malformed> {
    u32::try_from(input.number()?).map_err(|_| Malformed("a count of pages cannot be"))
}

/// Counts of pages by node.
pub(super) fn by_node(input: &mut Bytes<'_>) -> Result<Vec<u32>, Malformed> {
    let nodes = input.count(MAX_NODES)?;
    // Each takes a byte at least, so the list cannot be longer than its bytes.
    let mut list = Vec::with_capacity(nodes.min(input.0.len()));
    for _ in 0..nodes {
        list.push(count(input)?);
    }
    Ok(list)
}

/// Writes counts of pages by node.
pub(super) fn put_by_node(out: &mut Vec<u8>, pages: &[u32]) {
    put(out, pages.len() as u64);
    pages.iter().for_each(|pages| put(out, (*pages).into()));
}

/// A reason that was written as JSON.
///
/// # Errors
/// It is something else, or no terminal should see it.
pub(super) fn missing(text: &str) -> Result<Missing, Malformed> {
    let missing: Missing =
        serde_json::from_str(text).map_err(|_| Malformed("why something is missing cannot be understood"))?;
    if is_clean(&missing.to_string()) {
        Ok(missing)
    } else {
        Err(Malformed("why something is missing cannot be shown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(read_ns: u64, found: Result<PagesFound, Missing>) -> Arc<PlacementRaw> {
        Arc::new(PlacementRaw { start_ns: 5, read_ns, found, policies: None, by_policy: None })
    }

    fn entries(list: impl IntoIterator<Item = (u64, Arc<PlacementRaw>)>) -> Entries {
        Arc::new(list.into_iter().collect())
    }

    #[test]
    fn what_is_told_apart_from_a_keyframe_comes_back() {
        let found =
            PagesFound { space_bytes: 1 << 40, asked: 1024, by_node: vec![0, 1000], error_hundredths: 37 };
        let same = entry(1, Ok(found.clone()));
        let key = entries([(1, Arc::clone(&same)), (2, entry(1, Ok(found.clone()))), (3, same.clone())]);
        let why = Missing::NotPermitted("reading its maps: Permission denied (os error 13)".into());
        let now = entries([(1, same), (2, entry(9, Err(why))), (70_000, entry(9, Ok(found)))]);
        let mut bytes = Vec::new();
        encode(&mut bytes, Some(&key), &now);
        assert_eq!(decode(Bytes(&bytes), Some(&key), &mut Room::endless()).unwrap(), now);
    }

    #[test]
    fn a_reason_that_would_move_the_cursor_is_refused() {
        let now = entries([(1, entry(1, Err(Missing::Lost("\x1b[2J".into()))))]);
        let mut bytes = Vec::new();
        encode(&mut bytes, None, &now);
        assert!(decode(Bytes(&bytes), None, &mut Room::endless()).is_err());
    }
}
