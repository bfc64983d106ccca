//! Names of users and cgroups in a sample, and facts about cgroups: differences from the keyframe. Names are not clean. Facts about a
//! cgroup are one JSON text.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::coded::varint::Malformed;
use crate::model::coded::{In, Key, MAX_NAMES, MAX_TEXT, Out, change, copied, get_since, put_since};
use crate::model::group::Group;
use crate::model::sample::{GroupRaw, Names, Sample};
use crate::text::is_clean;

const MOST: (usize, &str) = (MAX_NAMES, "names");

/// Writes names of a sample, one map of them, unless all are those of the keyframe.
pub(super) fn put<'v, K: Key + 'v>(
    out: &mut Out<'v>,
    base: Option<&'v Sample>,
    sample: &'v Sample,
    of: fn(&Names) -> &BTreeMap<K, String>,
) {
    if let Some((base, names)) = changed(base, sample) {
        put_since(out, base.map(of), of(names), MOST, |out, name| out.text(name));
    }
}

/// Writes facts about cgroups, in the same way.
pub(super) fn put_groups<'v>(out: &mut Out<'v>, base: Option<&'v Sample>, sample: &'v Sample) {
    if let Some((base, names)) = changed(base, sample) {
        put_entries(out, base.map(|base| &base.groups), &names.groups);
    }
}

/// The names of the keyframe and of the sample, unless they are the same.
fn changed<'v>(base: Option<&'v Sample>, sample: &'v Sample) -> Option<(Option<&'v Names>, &'v Names)> {
    let is_same = base.is_some_and(|base| Arc::ptr_eq(&base.names, &sample.names));
    (!is_same).then(|| (base.map(|base| &*base.names), &*sample.names))
}

/// Begins with a copy of the names of the keyframe if `input` has differences, and with those names
/// themselves otherwise.
///
/// # Errors
/// The keyframe is missing, or memory runs out.
pub(super) fn begin(
    input: &mut In<'_, '_>,
    base: Option<&Sample>,
    sample: &mut Sample,
) -> Result<(), Malformed> {
    match base.map(|base| &base.names) {
        Some(names) if input.is_empty() => sample.names = Arc::clone(names),
        Some(names) => {
            let Names { users, cgroups, groups } = &**names;
            input.room.take(1, copied(users) + copied(cgroups) + copied(groups))?;
            sample.names = Arc::new(Names::clone(names));
        }
        None if input.is_empty() => return Err(Malformed("no keyframe holds the sample's names")),
        None => {}
    }
    Ok(())
}

/// Reads what [`put`] wrote.
///
/// # Errors
/// The bytes are not names.
pub(super) fn get<K: Key>(
    input: &mut In<'_, '_>,
    sample: &mut Sample,
    of: fn(&mut Names) -> &mut BTreeMap<K, String>,
) -> Result<(), Malformed> {
    if input.is_empty() {
        return Ok(());
    }
    let names = of(Arc::make_mut(&mut sample.names));
    change(input, names, MOST.0, |input| Ok(input.text(MAX_TEXT)?.to_string()))
}

/// Reads what [`put_groups`] wrote.
///
/// # Errors
/// The bytes are something else.
pub(super) fn get_groups(input: &mut In<'_, '_>, sample: &mut Sample) -> Result<(), Malformed> {
    if input.is_empty() {
        return Ok(());
    }
    change(input, &mut Arc::make_mut(&mut sample.names).groups, MOST.0, entry)
}

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

/// Writes ids that are gone since `base`, then new or changed ones.
pub(super) fn put_entries<'v, T: Entry>(
    out: &mut Out<'v>,
    base: Option<&'v BTreeMap<u64, Arc<T>>>,
    entries: &'v BTreeMap<u64, Arc<T>>,
) {
    put_since(out, base, entries, MOST, |out, entry| {
        out.text(&serde_json::to_string(&**entry).expect("plain data becomes JSON"));
    });
}

/// `base` with the changes that [`put_entries`] wrote.
///
/// # Errors
/// The bytes are something else, or hold text that no terminal should see.
pub(super) fn get_entries<T: Entry>(
    input: &mut In<'_, '_>,
    base: Option<&BTreeMap<u64, Arc<T>>>,
) -> Result<BTreeMap<u64, Arc<T>>, Malformed> {
    get_since(input, base, MOST.0, entry)
}

fn entry<T: Entry>(input: &mut In<'_, '_>) -> Result<Arc<T>, Malformed> {
    let entry: T = serde_json::from_str(input.text(MAX_TEXT)?)
        .map_err(|_| Malformed("the data of a cgroup cannot be parsed"))?;
    if !entry.texts().into_iter().all(|text| is_clean(text)) {
        return Err(Malformed("the data of a cgroup cannot be encoded"));
    }
    Ok(Arc::new(entry))
}
