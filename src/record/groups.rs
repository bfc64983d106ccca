//! Cgroups and their limits as bytes and back: one JSON text for each that changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::format::{MAX_NAMES, MAX_TEXT};
use super::room::Room;
use super::varint::{Bytes, Malformed, difference, put, put_text, undo_difference};
use crate::model::group::Group;
use crate::model::sample::GroupRaw;
use crate::text::is_clean;

/// No entry has changed.
pub(super) const NOTHING: Bytes<'static> = Bytes(&[0, 0]);

/// The entry of a cgroup id.
pub(super) trait Entry: Serialize + DeserializeOwned + PartialEq {
    /// Texts that are shown as they are.
    fn texts(&self) -> Vec<&String>;
}

impl Entry for Group {
    fn texts(&self) -> Vec<&String> {
        let Group { name, user, id, pod, pod_uid, namespace, unit, .. } = self;
        let mut texts = vec![name];
        texts.extend([user, id, pod, pod_uid, namespace, unit].into_iter().flatten());
        texts
    }
}

impl Entry for GroupRaw {
    fn texts(&self) -> Vec<&String> {
        let lists = [&self.cpus, &self.mems].into_iter().flatten();
        let disks = self.disks.iter().chain(&self.disks_before).flat_map(|used| used.keys());
        lists.chain(disks).collect()
    }
}

/// Writes ids that are gone since `base`, then those that are new or different.
pub(super) fn encode<T: Entry>(
    out: &mut Vec<u8>,
    base: Option<&BTreeMap<u64, Arc<T>>>,
    entries: &BTreeMap<u64, Arc<T>>,
) {
    let gone: Vec<u64> =
        base.iter().flat_map(|base| base.keys()).filter(|id| !entries.contains_key(id)).copied().collect();
    let is_new = |id: &u64, entry: &Arc<T>| {
        !base.and_then(|base| base.get(id)).is_some_and(|old| Arc::ptr_eq(old, entry) || old == entry)
    };
    let new: Vec<(&u64, String)> = entries
        .iter()
        .filter(|(id, entry)| is_new(id, entry))
        .map(|(id, entry)| (id, serde_json::to_string(&**entry).expect("plain data becomes JSON")))
        .collect();
    put(out, gone.len() as u64);
    gone.into_iter().for_each(|id| put(out, id));
    put(out, new.len() as u64);
    let mut before = 0;
    for (id, text) in new {
        put(out, difference(*id, before));
        before = *id;
        put_text(out, &text);
    }
}

/// `base` with what [`encode`] wrote.
///
/// # Errors
/// The bytes are something else, or hold text that no terminal should see.
pub(super) fn decode<T: Entry>(
    mut input: Bytes<'_>,
    base: Option<&BTreeMap<u64, Arc<T>>>,
    room: &mut Room,
) -> Result<BTreeMap<u64, Arc<T>>, Malformed> {
    room.take_entries(base.map_or(0, BTreeMap::len))?;
    let mut entries = base.cloned().unwrap_or_default();
    for _ in 0..input.count(MAX_NAMES)? {
        entries.remove(&input.number()?);
    }
    let mut before = 0;
    for _ in 0..input.count(MAX_NAMES)? {
        before = undo_difference(input.number()?, before);
        let entry: T = serde_json::from_str(input.text(MAX_TEXT)?)
            .map_err(|_| Malformed("what it says about a cgroup cannot be understood"))?;
        if !entry.texts().into_iter().all(|text| is_clean(text)) {
            return Err(Malformed("it says something about a cgroup that cannot be shown"));
        }
        entries.insert(before, Arc::new(entry));
    }
    input.finish()?;
    Ok(entries)
}
