//! Names of users and cgroups in a sample: what differs from those of the keyframe.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{MAX_NAMES, MAX_TEXT};
use super::groups;
use super::room::Room;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use crate::model::sample::{Names, Sample};

/// Ids that are gone, then ids that are new or called something else.
pub(super) fn encode<K: Copy + Ord + Into<u64>>(
    out: &mut Vec<u8>,
    base: Option<&BTreeMap<K, String>>,
    names: &BTreeMap<K, String>,
) {
    let gone: Vec<K> =
        base.iter().flat_map(|base| base.keys()).filter(|id| !names.contains_key(id)).copied().collect();
    let new: Vec<(&K, &String)> =
        names.iter().filter(|(id, name)| base.and_then(|base| base.get(id)) != Some(*name)).collect();
    put(out, gone.len() as u64);
    gone.into_iter().for_each(|id| put(out, id.into()));
    put(out, new.len() as u64);
    let mut before = 0;
    for (id, name) in new {
        put(out, difference((*id).into(), before));
        before = (*id).into();
        put_text(out, name);
    }
}

/// The inverse of [`encode`], applied to the names of the keyframe.
fn decode<K: Ord + TryFrom<u64>>(
    mut input: Bytes<'_>,
    names: &mut BTreeMap<K, String>,
) -> Result<(), Malformed> {
    let id = |number: u64| K::try_from(number).map_err(|_| Malformed("an id is out of range"));
    for _ in 0..input.count(MAX_NAMES)? {
        names.remove(&id(input.number()?)?);
    }
    let mut before = 0;
    for _ in 0..input.count(MAX_NAMES)? {
        before = undo_difference(input.number()?, before);
        names.insert(id(before)?, input.text(MAX_TEXT)?.to_string());
    }
    input.finish()
}

/// The names of a sample, from its three sections; empty ones stand for those of the keyframe.
///
/// # Errors
/// The bytes are not names, or their keyframe is not there.
pub(super) fn decode_all(
    users: Bytes<'_>,
    cgroups: Bytes<'_>,
    groups: Bytes<'_>,
    base: Option<&Sample>,
    room: &mut Room,
) -> Result<Arc<Names>, Malformed> {
    if users.0.is_empty() && cgroups.0.is_empty() {
        return base.map(|base| Arc::clone(&base.names)).ok_or(Malformed("its names refer to no keyframe"));
    }
    if let Some(base) = base {
        room.take_names(&base.names.users)?;
        room.take_names(&base.names.cgroups)?;
    }
    let mut names = base.map_or_else(Names::default, |base| Names::clone(&base.names));
    decode(users, &mut names.users)?;
    decode(cgroups, &mut names.cgroups)?;
    names.groups = groups::decode(groups, base.map(|base| &base.names.groups), room)?;
    Ok(Arc::new(names))
}
